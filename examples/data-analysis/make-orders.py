#!/usr/bin/python3
"""Writes data/orders.csv, the export of a small shop as such exports are: several hands, several countries, several programs.

The same seed gives the same file. No person or order in it is real.
"""
import csv
import datetime
import pathlib
import random

SEED = 20250131
ROWS = 4200

CUSTOMERS = [
    "Zoë Müller", "José García", "Søren Ødegård", "Łukasz Żółć", "Nguyễn Thị Hoa", "Ελένη Παππά", "Иван Петров", "山田 太郎", "김민수",
    "Åsa Lindström", "François Lefèvre", "Çağla Yılmaz", "O'Brien, Siobhán", "Anna-Lena Weiß", "محمد الأحمد", "Jean \"Jeannot\" Dupont",
    "Smith & Sons Ltd.", "Peter Schmidt", "Maria Rossi", "João Gonçalves", "Ștefan Ionescu", "Petra Nováková", "Rūta Kazlauskaitė",
]
COUNTRIES = [  # country, cities, currency, how amounts are written there
    ("Deutschland", ["Köln", "Düsseldorf", "München", "Görlitz"], "EUR", "comma"),
    ("Österreich", ["Wien", "Sankt Pölten"], "EUR", "comma"),
    ("France", ["Besançon", "Orléans", "Saint-Étienne"], "EUR", "comma"),
    ("España", ["Málaga", "A Coruña"], "EUR", "comma"),
    ("Schweiz", ["Zürich", "Genève"], "CHF", "point"),
    ("United Kingdom", ["London", "Leeds"], "GBP", "point"),
    ("United States", ["New York", "Cañon City"], "USD", "point"),
    ("日本", ["東京", "大阪"], "JPY", "whole"),
    ("Polska", ["Łódź", "Kraków"], "PLN", "comma"),
    ("Türkiye", ["İstanbul", "İzmir"], "EUR", "comma"),
]
SIGNS = {"EUR": "€", "GBP": "£", "USD": "$", "JPY": "¥", "PLN": "zł", "CHF": "CHF"}
PER_EURO = {"EUR": 1.0, "GBP": 0.85, "USD": 1.08, "JPY": 162.0, "PLN": 4.3, "CHF": 0.95}
PRODUCTS = [  # name, category, price in euro, weight
    ("Espresso \"Nº 1\", 1 kg", "Coffee", 21.9, 9), ("Filter blend, 500 g", "Coffee", 9.5, 12), ("Décaféiné, 250 g", "Coffee", 7.2, 4),
    ("Sencha 煎茶, 100 g", "Tea", 12.8, 5), ("Earl Grey, 200 g", "Tea", 8.4, 6), ("Rooibos, 200 g", "Tea", 6.9, 3),
    ("Mühle \"Käthe\"", "Equipment", 189.0, 2), ("French press 1 l", "Equipment", 34.5, 3), ("Scale ±0.1 g", "Equipment", 49.0, 2),
    ("Gift card", "Other", 25.0, 2),
]
NOTES = ["", "", "", "", "", "", "gift, please wrap", "Lieferung an Nachbarn; \"3. OG links\"", "two\nlines", "N/A", "=SUM(A1:A9)", "⚠ fragile", "déjà payé"]
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def written_date(rng, when):
    style = rng.choices(range(9), [60, 12, 8, 6, 4, 3, 3, 3, 1])[0]
    return [
        when.strftime("%Y-%m-%d"), when.strftime("%Y-%m-%dT%H:%M:%SZ"), when.strftime("%d.%m.%Y"), when.strftime("%Y/%m/%d"),
        f"{when.day} {MONTHS[when.month - 1]} {when.year}", when.strftime("%Y%m%d"), "", str(int(when.timestamp())),
        rng.choice(["2025-02-30", "soon", "0000-00-00", "31.04.2025"]),
    ][style]


def grouped(amount, decimals, group, point):
    text = f"{amount:,.{decimals}f}"
    return text.replace(",", "\0").replace(".", point).replace("\0", group)


def written_price(rng, euro, currency, style):
    amount = euro * PER_EURO[currency]
    if style == "whole":
        text = grouped(amount, 0, ",", ".")
    elif style == "comma":
        text = grouped(amount, 2, rng.choice([".", "", "\u202f"]), ",")
    else:
        text = grouped(amount, 2, rng.choice([",", "'", ""]), ".")
    sign = SIGNS[currency]
    return rng.choices([f"{sign} {text}", f"{text} {sign}", f"{sign}{text}", text, "", "n/a"], [30, 20, 20, 26, 3, 1])[0]


def main():
    rng = random.Random(SEED)
    start = datetime.datetime(2024, 1, 1, 8, tzinfo=datetime.timezone.utc)
    rows = []
    for number in range(ROWS):
        # Two years with a rising trend and a busy December.
        day = int(731 * rng.random() ** 0.8)
        when = start + datetime.timedelta(days=day, seconds=rng.randrange(40000))
        if when.month != 12 and rng.random() < 0.15:
            when = when.replace(month=12, day=rng.randint(1, 23))
        country, cities, currency, style = rng.choices(COUNTRIES, [9, 3, 6, 4, 4, 5, 5, 3, 3, 2])[0]
        name, category, euro, _ = rng.choices(PRODUCTS, [product[3] for product in PRODUCTS])[0]
        quantity = rng.choices([1, 2, 3, 5, 10, 24], [50, 25, 10, 8, 5, 2])[0]
        if rng.random() < 0.03:
            quantity = -quantity
        amount = euro * rng.uniform(0.9, 1.1) * (6 if rng.random() < 0.004 else 1)
        rows.append([
            f"A{10000 + number}", written_date(rng, when), rng.choice(CUSTOMERS) if rng.random() > 0.04 else "",
            rng.choice(cities) if rng.random() > 0.05 else rng.choice(["", "-", "?"]), country if rng.random() > 0.02 else "",
            rng.choices([name, name.upper(), f"  {name} "], [90, 5, 5])[0], category if rng.random() > 0.03 else "",
            rng.choices([str(quantity), f"{quantity} Stk", f"{quantity}.0", ""], [88, 5, 4, 3])[0],
            written_price(rng, amount, currency, style), currency if rng.random() > 0.02 else currency.lower(), rng.choice(NOTES),
        ])
    for _ in range(60):  # the same order exported twice
        rows.append(list(rng.choice(rows)))
    with open(pathlib.Path(__file__).parent / "data" / "orders.csv", "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Order", "Date", "Customer", "City", "Country", "Product", "Category", "Quantity", "Unit price", "Currency", "Note"])
        writer.writerows(rows)


main()
