"""report.py FOLDER: tells what the job did and what was refused; fails if a wall did not hold."""
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


check(steps.get("install", {}).get("ok"), f"pip installed a package: {steps.get('install', {}).get('says')}")
check(steps.get("other index", {}).get("refused"), f"another index does not exist, found out in {steps.get('other index', {}).get('seconds')} s")
check(steps.get("upload", {}).get("refused"), f"upload refused: {steps.get('upload', {}).get('says')}")
check(steps.get("raw address", {}).get("refused"), "an address without a rule is not reached")
check(not os.path.exists(os.path.join(folder, "uploads")), "nothing arrived at the index but requests for files")
for c in result.get("connections", []):
    paths = ", ".join(f"{r['method']} {r['path']} {r['status']}" for r in c.get("requests", []))
    print(f"    connection to {c['host']}:{c['port']}, {c['received']} bytes received: {paths}")
for d in result.get("denials", []):
    print(f"    denied: {d['kind']} {d.get('host', d.get('name'))} {d.get('method', '')} {d.get('path', '')}")
sys.exit(1 if faults else 0)
