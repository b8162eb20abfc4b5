#!/usr/bin/python3 -B
"""zwinger doctor: what this host can enforce, by trying it."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def test_it_names_levels_and_mechanisms(t):
    r = t.plain("doctor")
    t.among(r.code, (0, 1), "exit status")
    for word in ("container", "process", "landlock", "seccomp", "memory"):
        t.contains(r.text.lower(), word, "text")


def test_what_it_says_about_the_container_level_is_what_run_does(t):
    can = t.run("true").code == 0
    t.check(can, "the container level does not run here at all")


# What a default policy lets programs do; see tests/boundary/battery.py.
ALLOWED = {"exec_scratch", "exec_out", "exec_memfd", "out_fifo", "py_agent_files"}


def verdicts(r):
    return {x.split()[1]: x.split()[0] for x in r.lines if x.startswith(("PASS ", "FAIL ", "SKIP "))}


@zw.as_user
def test_boundary_runs_the_probes_from_inside(t):
    r = t.plain("doctor", "--boundary", timeout=300)
    found = verdicts(r)
    t.check(len(found) > 100, f"verdicts: {r.text}")
    failed = {n for n, v in found.items() if v == "FAIL"}
    t.check(failed <= ALLOWED, f"failed: {failed - ALLOWED}")
    t.equal(r.code, 1 if failed else 0, "exit status")


@zw.as_root
def test_boundary_attacks_the_policy_that_is_given(t):
    p = t.policy({"version": 1, "filesystem": {"scratch": {"exec": False}}, "limits": {"memory": "128M", "disk": "200M"}})
    r = t.plain("doctor", "--boundary", "--all", "--policy", p, timeout=300)
    found = verdicts(r)
    t.check(len(found) > 100, f"verdicts: {r.text}")
    t.equal(found.get("exec_scratch"), "PASS", "exec_scratch where scratch does not execute")
    failed = {n for n, v in found.items() if v == "FAIL"}
    t.check(failed <= ALLOWED, f"failed: {failed - ALLOWED}")


if __name__ == "__main__":
    zw.main(globals(), limit=320)
