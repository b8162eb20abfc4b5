#!/usr/bin/python3 -B
"""The examples of docs/api.md against a daemon: each `sh` block is run, in order, in one shell, and prints what its `output` block says, empty lines at the end aside."""
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import tap  # noqa: E402
from daemon import Daemon  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller
PAGE = os.path.join(HERE, "..", "..", "docs", "api.md")
MARK = "---- end of example"


def examples(text):
    """[(line, script, expected or None)]"""
    found = []
    for m in re.finditer(r"^```sh\n(.*?)^```\n(?:```output\n(.*?)^```\n)?", text, re.M | re.S):
        found.append((text[:m.start()].count("\n") + 1, m.group(1), m.group(2)))
    return found


def run(t, d, found):
    """What each example has printed."""
    script = "set -eu -o pipefail\n" + "".join(f"{code}echo '{MARK}'\n" for _, code, _ in found)
    environment = {"PATH": os.environ["PATH"], "HOME": t.folder("home"), "ZWINGER_URL": d.url, "ZWINGER_KEY": d.key}
    r = subprocess.run(["bash", "-c", script], env=environment, cwd=t.folder("home"), capture_output=True, text=True, timeout=60)
    parts = r.stdout.split(MARK + "\n")
    if r.returncode != 0:
        t.fail(f"the example at line {found[len(parts) - 1][0]} has failed with {r.returncode}: {parts[-1]}{r.stderr}")
    return parts[:-1], r.stderr


def serve(t):
    path = t.file(json.dumps({"version": 1, **LOOSE}), "loose.yaml")
    return Daemon(t, "--ceiling", path, "--policy", path)


def test_the_examples_print_what_the_page_says(t):
    t.need("bash", "curl", "jq")
    with open(PAGE) as f:
        found = examples(f.read())
    t.check(len(found) > 10, f"{len(found)} examples")
    d = serve(t)
    printed, errors = run(t, d, found)
    for (line, _, expected), got in zip(found, printed):
        t.equal(got.rstrip("\n"), (expected or "").rstrip("\n"), f"the example at line {line} ({errors})")
    t.equal(d.ask("GET", "/v1/sandboxes").json["sandboxes"], [], "they leave nothing")
    t.equal(d.end(), 0, "exit status")


def test_a_wrong_example_is_noticed(t):
    t.need("bash", "curl", "jq")
    found = examples("```sh\necho a\n```\n```output\nb\n```\ntext\n```sh\nfalse\necho c\n```\n")
    t.equal([(line, expected) for line, _, expected in found], [(1, "b\n"), (8, None)], "blocks")
    d = serve(t)
    t.equal(run(t, d, found[:1])[0], ["a\n"], "what it prints")
    try:
        run(t, d, found)
    except tap.Failure as e:
        t.contains(str(e), "line 8", "which one")
        return
    t.fail("an example that fails has passed")


tap.main(globals())
