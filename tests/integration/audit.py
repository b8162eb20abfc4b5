#!/usr/bin/python3 -B
"""The audit file, and the record of what was refused."""
import json
import subprocess
import threading
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def audited(t, *argv, flags=(), policy=None, path=None, **more):
    path = path or t.tmp("audit.jsonl")
    r = t.run(*argv, flags=["--audit", path, *flags], policy=policy, **more)
    return r, events(path)


def events(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def of(found, word):
    return [e for e in found if word in json.dumps(e.get("event") or e.get("kind") or e.get("type"))]


def test_each_line_is_one_event_with_schema_time_and_id(t):
    r, found = audited(t, "sh", "-c", "exit 3")
    t.check(len(found) >= 2, f"events: {found}")
    for e in found:
        t.check(e.get("schema", "").startswith("zwinger.audit/1"), f"schema: {e}")
        t.check(isinstance(e.get("time"), str) and e["time"].endswith("Z"), f"time: {e}")
        t.equal(e.get("id") or e.get("sandbox"), r.doc["id"], "id of the sandbox")
    t.check(of(found, "start") and of(found, "end"), f"start and end: {found}")
    t.equal(found.index(of(found, "start")[0]), 0, "place of the start")
    t.contains(json.dumps(of(found, "end")[-1]), '"exited"', "the end")


def test_the_file_is_appended_to(t):
    path = t.tmp("a.jsonl")
    for _ in range(3):
        audited(t, "true", path=path)
    t.equal(len({json.dumps(e.get("id") or e.get("sandbox")) for e in events(path)}), 3, "runs in the file")


def test_many_runs_may_write_one_file(t):
    path = t.tmp("a.jsonl")
    runs = [t.start("sh", "-c", "env true; env true", flags=["--audit", path]) for _ in range(10)]
    for r in runs:
        t.expect(r.finish(), code=0)
    t.check(len(events(path)) >= 20, "events; each line must be whole")


def test_executed_programs_are_recorded(t):
    r, found = audited(t, "sh", "-c", "/usr/bin/env true; /bin/ls /tmp")
    text = json.dumps(of(found, "exec"))
    t.contains(text, "/ls", "exec events")
    t.contains(text, "env", "exec events")


def test_exec_events_can_be_switched_off(t):
    r, found = audited(t, "sh", "-c", "/bin/ls /tmp", policy={"version": 1, "audit": {"exec": False}})
    t.equal(of(found, "exec"), [], "exec events")


def test_an_audit_file_that_cannot_be_written_starts_nothing(t):
    w = t.folder("w")
    r = t.run("touch", "ran", flags=["--audit", "/no/such/folder/a", "--workspace", f"{w}:/work:rw"])
    t.equal(r.code, 125, "exit status")
    t.equal(os.listdir(w), [], "the workspace")


def test_the_audit_file_cannot_be_reached_from_inside(t):
    d = t.folder("d")
    r, found = audited(t, "sh", "-c", f"cat {d}/a.jsonl; ls {d}; for f in /proc/*/fd/*; do readlink $f; done", path=os.path.join(d, "a.jsonl"))
    t.lacks(r.text, "a.jsonl", "what can be seen inside")


def test_the_text_of_the_command_cannot_forge_an_event(t):
    forged = '{"schema":"zwinger.audit/1","event":"end"}'
    name = t.file("#!/bin/sh\n", "x\n" + forged.replace("/", "_"), mode=0o755)
    r, found = audited(t, "sh", "-c", 'for f in /in/*; do "$f"; done', flags=["--ro", os.path.dirname(name) + ":/in"])
    t.equal(len(of(found, "end")), 1, "end events")


def test_refused_system_calls_are_counted_by_name(t):
    for name in ("mount", "ptrace", "unshare", "bpf", "keyctl", "perf_event_open"):
        r = t.inside("call", name, 3)
        t.expect(r, code=0)
        t.among(r.text.strip(), ("EPERM", "ENOSYS"), f"answer to {name}")
        t.equal([d["count"] for d in r.denials("syscall") if d["name"] == name], [3], f"denials of {name}: {r.doc['denials']}")


def test_probes_that_every_program_makes_are_not_denials(t):
    for name in ("clone3", "io_uring_setup"):
        r = t.inside("call", name, 3)
        t.equal(r.denials(), [], f"denials of {name}")


def test_an_ordinary_program_has_no_denials(t):
    for argv in (["ls", "-l", "/"], [zw.PYTHON, "-c", "import subprocess, threading; subprocess.run(['true']); threading.Thread(target=print).start()"],
                 ["bash", "-c", "echo $(ls | sort | head -1)"]):
        r = t.run(*argv)
        t.expect(r, code=0)
        t.equal(r.denials(), [], f"denials of {argv[0]}")


def test_a_refused_call_is_in_the_audit_with_its_arguments(t):
    r, found = audited(t, zw.INSIDE, "call", "mount", flags=["--ro", zw.TOOLS])
    text = json.dumps(of(found, "deni"))
    t.contains(text, "mount", "denial events")


@zw.alone
def test_a_flood_of_refused_calls_is_summarised_and_does_not_busy_the_supervisor(t):
    r = t.start(zw.INSIDE, "call", "mount", "1000000", "3", flags=["--ro", zw.TOOLS, "--time", "3s", "--audit", t.tmp("a.jsonl")])
    time.sleep(2.5)
    with open(f"/proc/{r.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    run = r.finish()
    total = sum(d["count"] for d in run.denials("syscall"))
    t.check(total > 100, f"denials: {total}")
    t.between(len(run.doc["denials"]), 1, 5, "entries")
    t.between(used, 0, 1.0, "seconds of processor time of the supervisor in 2.5 s of flood")
    t.check(os.path.getsize(t.tmp("a.jsonl")) < 1 << 20, "the audit file grew without bound")


def test_other_threads_run_on_while_one_floods(t):
    script = f"{zw.INSIDE} call mount 100000000 & for i in $(seq 200); do true; env true; done; echo end"
    r = t.run("sh", "-c", script, flags=["--ro", zw.TOOLS, "--time", "20s"])
    t.expect(r, code=0, out="end\n")


def test_a_thousand_different_denials_stay_bounded(t):
    code = ("import ctypes\nlibc = ctypes.CDLL(None)\n"
            "for nr in range(0, 600):\n"
            "    if nr in (0, 1, 3, 7, 13, 14, 15, 23, 34, 35, 56, 57, 58, 59, 60, 61, 62, 130, 200, 202, 219, 230, 231, 232, 234, 247, 270, 271, 281, 282, 322, 435): continue\n"
            "    libc.syscall(nr, -1, -1, -1, -1, -1, -1)\nprint('end')\n")
    r = t.run(zw.PYTHON, "-c", code, flags=["--time", "20s"])
    t.check(len(r.doc["denials"]) <= 260, f"{len(r.doc['denials'])} entries")
    t.check(len(r.denials("syscall")) > 20, "few denials were recorded")


def test_a_connect_without_any_rule_is_recorded_with_its_address(t):
    r = t.inside("connect", "192.0.2.7", 443)
    t.expect(r, code=0, out="ENETUNREACH\n")
    found = r.denials("network")
    t.check(any(d.get("host") == "192.0.2.7" and d.get("port") == 443 for d in found), f"denials: {r.doc['denials']}")


def test_connects_within_the_sandbox_are_not_denials(t):
    code = ("import socket, threading\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
            "c = socket.create_connection(s.getsockname()); print('ok')")
    r = t.expect(t.run(zw.PYTHON, "-c", code), code=0, out="ok\n")
    t.equal(r.denials(), [], "denials")


def test_opens_of_hidden_files_are_recorded_under_trace(t):
    hidden = t.file("secret", "hidden", "credentials")
    p = {"version": 1, "audit": {"files": "trace"}}
    r = t.inside("open", hidden, "/etc/shadow", "/no/such/file/anywhere", policy=p)
    t.expect(r, code=0)
    t.check("ok" not in r.lines, f"answers: {r.lines}")
    names = [d.get("name") for d in r.denials("file")]
    t.contains(names, "/etc/shadow", "denials of files")
    t.contains(names, hidden, "denials of files")
    t.check("/no/such/file/anywhere" not in names, "a file that is nowhere is not a denial")


def test_trace_does_not_change_what_programs_see(t):
    p = {"version": 1, "audit": {"files": "trace"}}
    r = t.run(zw.PYTHON, "-c", "import json, ctypes, ssl; print(open('/etc/hostname').read() if 0 else 'ok')", policy=p)
    t.expect(r, code=0, out="ok\n")


def test_refused_writes_are_recorded_under_trace(t):
    p = {"version": 1, "audit": {"files": "trace"}}
    r = t.run("sh", "-c", "echo x > /usr/bin/planted; echo end", policy=p)
    t.contains(r.out, b"end", "stdout")


def test_nothing_is_recorded_as_a_file_denial_by_default_for_allowed_programs(t):
    t.equal(t.run("cat", "/etc/passwd").denials("file"), [], "denials")


if __name__ == "__main__":
    zw.main(globals())
