"""report.py FOLDER: tells what the code got and looks for the credential in all that came out; fails if a wall did not hold."""
import json
import os
import sys

folder = sys.argv[1]
token = os.environ["EXAMPLE_TOKEN"]
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


check(step("use").get("status") == 200, f"the API answered: {step('use').get('body')}")
check(step("echo").get("status") == 200 and "[redacted]" in step("echo").get("body", ""), f"what it echoes: {step('echo').get('body')}")
check(step("own header").get("status") == 200, "a header that the code sets itself is replaced")
for name in ("other method", "other path", "hidden path"):
    check(step(name).get("status") == 403, f"{name} refused: {step(name).get('body')}")
check(step("search").get("found") == [], "no environment inside knows of the credential")
for name in ("stdout", "result.json", "audit.jsonl"):
    with open(os.path.join(folder, name)) as f:
        check(token not in f.read(), f"{name} does not hold it")
for c in result.get("connections", []):
    for r in c.get("requests", []):
        print(f"    {c['host']}:{c['port']} {r['method']} {r['path']} {r['status']}")
sys.exit(1 if faults else 0)
