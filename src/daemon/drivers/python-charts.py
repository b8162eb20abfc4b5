"""Loaded when a figure is shown: what a matplotlib figure shows, as numbers."""
import re


def number(value):
    value = value.item() if hasattr(value, "item") else value
    return value if not isinstance(value, float) or value - value == 0 else None


def split_unit(label):
    m = re.match(r"(.*?)\s*(?: \((.*)\)|\[(.*)\])\s*$", label or "")
    return (label or None, None) if not m else (label, m.group(2) or m.group(3))


def is_date(axis):
    return type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__ in (
        "DateConverter", "_SwitchableDateConverter", "ConciseDateConverter", "DatetimeConverter", "PeriodConverter")


def scale_of(axis, ticks, labels):
    if is_date(axis):
        return "datetime"
    if list(ticks) == list(range(len(ticks))) and any(str(t) != label for t, label in zip(range(len(ticks)), labels)):
        return "categorical"
    return axis.get_scale()


def values_of(axis, values):
    if is_date(axis):
        from matplotlib.dates import num2date
        return [v.isoformat() if hasattr(v, "isoformat") else num2date(v).isoformat() for v in values]
    return [number(v) for v in values]


def base(kind, axes):
    x, x_unit = split_unit(axes.get_xlabel())
    y, y_unit = split_unit(axes.get_ylabel())
    return {"type": kind, "title": axes.get_title() or None, "x_label": x, "y_label": y, "x_unit": x_unit, "y_unit": y_unit}


def plane(kind, axes, elements):
    chart = base(kind, axes)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = list(axis.get_ticklocs())
        labels = [label.get_text() for label in axis.get_ticklabels()]
        chart[f"{name}_ticks"] = values_of(axis, ticks)
        chart[f"{name}_tick_labels"] = labels
        chart[f"{name}_scale"] = scale_of(axis, ticks, labels)
    return {**chart, "elements": elements}


def is_grid_line(line):
    xs, ys = list(line.get_xdata()), list(line.get_ydata())
    return len(xs) == 2 and (xs[0] == xs[1] or ys[0] == ys[1])


def label_of(artist, otherwise):
    label = str(artist.get_label() or "")
    return label if label and not label.startswith("_") else otherwise


def line_chart(axes, lines):
    return plane("line", axes, [
        {"label": label_of(line, f"Line {i}"), "points": [list(p) for p in zip(values_of(axes.xaxis, line.get_xdata()),
                                                                                 values_of(axes.yaxis, line.get_ydata()))]}
        for i, line in enumerate(lines)])


def scatter_chart(axes, collections):
    elements = []
    for i, c in enumerate(collections):
        points = c.get_offsets().tolist()
        elements.append({"label": label_of(c, f"Scatter {i}"), "points": [list(p) for p in zip(values_of(axes.xaxis, [p[0] for p in points]),
                                                                                         values_of(axes.yaxis, [p[1] for p in points]))]})
    return plane("scatter", axes, elements)


def bar_chart(axes):
    chart, elements = base("bar", axes), []
    for i, container in enumerate(axes.containers):
        bars = list(container)
        heights, widths = [number(b.get_height()) for b in bars], [number(b.get_width()) for b in bars]
        lying = len(set(heights)) == 1 and len(set(widths)) > 1
        axis = axes.yaxis if lying else axes.xaxis
        names = {round(t, 6): label.get_text() for t, label in zip(axis.get_ticklocs(), axis.get_ticklabels())}
        for b, value in zip(bars, widths if lying else heights):
            at = b.get_y() + b.get_height() / 2 if lying else b.get_x() + b.get_width() / 2
            elements.append({"label": names.get(round(number(at), 6)) or str(number(at)), "group": label_of(container, f"Group {i}"), "value": value})
        if lying:
            chart["x_label"], chart["y_label"] = chart["y_label"], chart["x_label"]
            chart["x_unit"], chart["y_unit"] = chart["y_unit"], chart["x_unit"]
    return {**chart, "elements": elements}


def pie_chart(axes, wedges):
    """Angles are of single precision, where nine tenths of a circle are not quite 324."""
    return {"type": "pie", "title": axes.get_title() or None, "elements": [
        {"label": label_of(w, ""), "angle": number(round(abs(w.theta2 - w.theta1), 4)), "radius": number(w.r)} for w in wedges]}


def box_chart(axes, patches):
    """Boxes are either path patches or closed lines; whiskers, caps and medians follow in a fixed order."""
    lines = list(axes.lines)
    chart, elements = base("box_and_whisker", axes), []
    boxes = [list(p.get_path().vertices) for p in patches]
    loose = lines
    if not boxes:
        boxes = [list(line.get_xydata()) for line in lines if len(line.get_xdata()) == 5]
        loose = [line for line in lines if len(line.get_xdata()) != 5]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    for i, box in enumerate(boxes):
        xs, ys = [p[0] for p in box if not (p[0] == 0 and p[1] == 0)], [p[1] for p in box if not (p[0] == 0 and p[1] == 0)]
        left, right, low, high = min(xs), max(xs), min(ys), max(ys)
        inside = [line for line in loose if len(line.get_ydata()) and left <= sum(line.get_xdata()) / len(line.get_xdata()) <= right]
        ends = [y for line in inside if len(line.get_xdata()) == 2 and line.get_xdata()[0] == line.get_xdata()[1] for y in line.get_ydata()]
        medians = [line.get_ydata()[0] for line in inside if len(line.get_xdata()) == 2 and abs(line.get_xdata()[0] - left) < 1e-9
                   and abs(line.get_xdata()[1] - right) < 1e-9 and low <= line.get_ydata()[0] <= high]
        outliers = [y for line in inside if line.get_marker() not in ("None", None, "", " ") for y in line.get_ydata()]
        elements.append({"label": labels[i] if i < len(labels) else str(i + 1), "min": number(min(ends, default=low)), "first_quartile": number(low),
                         "median": number(medians[0]) if medians else None, "third_quartile": number(high), "max": number(max(ends, default=high)),
                         "outliers": [number(y) for y in outliers]})
    return {**chart, "elements": elements}


def is_box(lines):
    """What boxplot() draws without patch_artist: closed boxes of five points among lines of two."""
    return any(len(line.get_xdata()) == 5 and line.get_xdata()[0] == line.get_xdata()[4] for line in lines) and len(lines) >= 6


def chart_of_axes(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge
    from matplotlib.text import Text
    drawn = [a for a in axes.get_children() if not isinstance(a, Text) and a not in (axes.patch, axes.xaxis, axes.yaxis, axes.get_legend())
             and a not in axes.spines.values()]
    lines = [a for a in drawn if isinstance(a, Line2D)]
    if drawn and len(lines) == len(drawn):
        return box_chart(axes, []) if is_box(lines) else line_chart(axes, lines)
    patches = [a for a in drawn if isinstance(a, PathPatch)]
    if patches and len(patches) + len(lines) == len(drawn):
        return box_chart(axes, patches)
    drawn = [a for a in drawn if not (isinstance(a, Line2D) and is_grid_line(a))]
    if drawn and all(isinstance(a, PathCollection) for a in drawn):
        return scatter_chart(axes, drawn)
    if drawn and all(isinstance(a, Wedge) for a in drawn):
        return pie_chart(axes, drawn)
    if drawn and all(isinstance(a, Rectangle) for a in drawn):
        return bar_chart(axes)
    return {**base("unknown", axes), "elements": []}


def chart_of(figure):
    charts = [chart_of_axes(axes) for axes in figure.axes]
    if not charts:
        return {}
    if len(charts) == 1:
        return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else None
    return {"type": "superchart", "title": title, "elements": charts}
