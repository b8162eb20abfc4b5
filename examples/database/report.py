"""report.py FOLDER: tells what the code got and what was refused; fails if a wall did not hold."""
import json
import os
import sys

folder = sys.argv[1]
with open(os.path.join(folder, "result.json")) as f:
    result = json.load(f)
with open(os.path.join(folder, "stdout")) as f:
    steps = {s["step"]: s for s in map(json.loads, f)}
faults = []


def check(good, what):
    print(("    " if good else "NOT ") + what)
    if not good:
        faults.append(what)


def step(name):
    return steps.get(name, {})


check(step("ask").get("ok") and step("ask").get("says") == "42.00", f"the database answered: {step('ask').get('says')}")
check(step("delete").get("refused"), f"its role may only read: {step('delete').get('says')}")
for name in ("other port", "other name", "loopback"):
    check(step(name).get("refused"), f"{name} refused: {step(name).get('says')}")
for c in result.get("connections", []):
    print(f"    connection to {c['host']}:{c['port']} at {c.get('address')}, {c['sent']} bytes sent, {c['received']} received")
for d in result.get("denials", []):
    print(f"    denied: {d['kind']} {d.get('host', d.get('name'))} {d.get('port', '')}")
sys.exit(1 if faults else 0)
