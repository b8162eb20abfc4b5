#!/usr/bin/python3 -B
"""What clients of the daemon hold on to, where no other suite has it: small points, each once met otherwise."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402
from daemon import Daemon, wait_for  # noqa: E402

LOOSE = {"version": 1, "enforcement": "best-effort"}  # this machine may not hold every limit for the caller


def serve(t, *flags):
    path = t.file(json.dumps(LOOSE), "loose.yaml")
    return Daemon(t, "--ceiling", path, "--policy", path, *flags)


def create(t, d, **wish):
    r = d.ask("POST", "/v1/sandboxes", wish)
    t.equal(r.status, 201, r.body)
    return "/v1/sandboxes/" + r.json["id"]


def test_a_range_behind_the_end_is_said_with_the_size(t):
    d = serve(t)
    s = create(t, d)
    d.ask("PUT", s + "/files?path=f", b"hello3")
    for value in ("bytes=6-", "bytes=6-7", "bytes=100-", "bytes=-0"):
        r = d.ask("GET", s + "/files?path=f", headers={"Range": value})
        t.equal((r.status, r.headers.get("content-range")), (416, "bytes */6"), value)
    for value, found in (("bytes=5-", b"3"), ("bytes=-1", b"3"), ("bytes=0-99", b"hello3")):
        r = d.ask("GET", s + "/files?path=f", headers={"Range": value})
        t.equal((r.status, r.body), (206, found), value)


def test_names_of_the_environment_are_judged_before_anything_is_made(t):
    d = serve(t)
    s = create(t, d)
    for name in ("", "A=B"):
        for path, body in (("/v1/sandboxes", {}), ("/v1/run", {"command": ["true"]}), (s + "/run", {"command": ["true"]}),
                           (s + "/processes", {"command": ["true"]})):
            r = d.ask("POST", path, {**body, "env": {name: "x"}})
            t.equal((r.status, r.json["errors"][0]["path"]), (400, "env"), f"{path} {name!r}: {r.body}")
    t.equal(len(d.ask("GET", "/v1/sandboxes").json["sandboxes"]), 1, "no further sandbox")


def test_filters_that_are_none_are_refused_by_name(t):
    d = serve(t)
    for query in ("state=nope", "state=running,", "metadata=x", "cursor=nope", "limit=0", "limit=1001"):
        r = d.ask("GET", "/v1/sandboxes?" + query)
        t.equal(r.status, 400, query)
        t.check(r.json["message"].startswith(query.split("=")[0] + ":"), r.json)
    t.equal(d.ask("GET", "/v1/sandboxes?metadata=a%3Db&state=ended,paused").json["sandboxes"], [], "good ones")


def test_records_are_kept_as_long_as_was_said(t):
    d = serve(t, "--keep-record", "1s")
    s = create(t, d)
    t.equal(d.ask("DELETE", s).status, 200, "deleted")
    t.equal(d.ask("GET", s).json["state"], "ended", "for now")
    t.check(wait_for(lambda: d.ask("GET", s).status == 404, 8), "and not for much longer")


def test_a_key_file_that_cannot_be_written_is_refused_before_the_state_is_made(t):
    state = t.tmp("state")
    r = subprocess.run([zw.ZWINGER, "serve", "--listen", "127.0.0.1:0", "--state", state, "--print-key-file", t.tmp("missing") + "/x/key.json"],
                       capture_output=True, text=True, timeout=20, env=zw.caller_environment())
    t.equal(r.returncode, 125, r.stderr)
    t.contains(r.stderr, "--print-key-file", "the flag")
    t.check(not os.path.exists(state), "nothing was made")


def test_a_problem_of_a_program_has_what_a_shell_counts(t):
    d = serve(t)
    s = create(t, d)
    for command, code in ((["no-such-program"], 127), (["/etc/passwd"], 126)):
        r = d.ask("POST", s + "/processes", {"command": command})
        t.equal((r.status, r.json["exit_code"]), (400, code), command)
        t.equal(d.ask("POST", s + "/run", {"command": command}).json["exit_code"], code, command)
    t.check("exit_code" not in d.ask("POST", s + "/processes", {"command": ["true"], "cwd": "/no/such"}).json, "a folder is no program")


if __name__ == "__main__":
    zw.main(globals())
