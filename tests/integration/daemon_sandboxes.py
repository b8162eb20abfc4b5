#!/usr/bin/python3 -B
"""Sandboxes over the native interface: life, ceiling, runs, processes with their streams, files, and what clients do that leave."""
import json
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon, descriptors, events, wait_for  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller


def serve(t, *flags, ceiling=None):
    path = t.file(json.dumps({"version": 1, **LOOSE, **(ceiling or {})}), "ceiling.yaml")
    policy = t.file(json.dumps({"version": 1, **LOOSE}), "policy.yaml")
    return Daemon(t, "--ceiling", path, "--policy", policy, *flags)


class Sandbox:
    def __init__(self, t, d, **wish):
        self.t, self.d = t, d
        if "policy" in wish or "template" in wish:
            wish["policy"] = {**LOOSE, **wish.get("policy", {})}
        r = d.ask("POST", "/v1/sandboxes", wish)
        t.equal(r.status, 201, r.body)
        self.facts, self.id = r.json, r.json["id"]
        self.path = f"/v1/sandboxes/{self.id}"
        t.equal(r.headers["location"], self.path, "Location")

    def ask(self, method, path="", body=None, status=None, **options):
        r = self.d.ask(method, self.path + path, body, **options)
        if status is not None:
            self.t.equal(r.status, status, f"{method} {path}: {r.body[:500]}")
        return r

    def run(self, *argv, **members):
        return self.ask("POST", "/run", {"command": list(argv), **members}, 200).json

    def shell(self, line, **members):
        return self.ask("POST", "/run", {"shell": line, **members}, 200).json

    def start(self, line, **members):
        return self.ask("POST", "/processes", {"shell": line, **members}, 201).json

    def output(self, pid, query="", **headers):
        return events(self.ask("GET", f"/processes/{pid}/output{query}", status=200, headers=headers).body)


def text_of(found, stream):
    return "".join(data["text"] for _, event, data in found if event == stream)


# ---- Life ------------------------------------------------------------------------------------------------------------------


def test_a_sandbox_lives_from_creation_to_deletion(t):
    d = serve(t)
    s = Sandbox(t, d, template="python", name="mine", metadata={"user": "u1"}, env={"COLOUR": "green"})
    t.equal((s.facts["state"], s.facts["template"], s.facts["name"]), ("running", "python", "mine"), s.facts)
    t.equal(s.shell("echo $COLOUR > note; echo $COLOUR $MORE", env={"MORE": "blue"})["stdout"], "green blue\n", "environment")
    t.equal(s.run("cat", "note")["stdout"], "green\n", "files persist from run to run")
    t.equal(s.ask("GET").json["id"], s.id, "GET")
    end = s.ask("DELETE", status=200).json
    t.equal((end["state"], end["end"]["status"]), ("ended", "deleted"), end)
    t.equal(s.ask("DELETE", status=200).json["end"], end["end"], "again")
    t.equal(s.ask("GET", status=200).json["end"], end["end"], "the record")
    t.equal(s.ask("POST", "/run", {"command": ["id"]}, 410).code, "sandbox_ended", "work in it")
    t.equal(d.ask("GET", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa").status, 404, "unknown")
    t.equal(d.end(), 0, "exit status")


def test_lists_are_filtered_and_paged(t):
    d = serve(t)
    made = [Sandbox(t, d, metadata={"n": str(i), "all": "a=b c"}) for i in range(3)]
    made[0].ask("DELETE", status=200)

    def ids(query):
        return [x["id"] for x in d.ask("GET", "/v1/sandboxes" + query).json["sandboxes"]]

    t.equal(ids(""), [made[2].id, made[1].id], "the default: those that live, newest first")
    t.equal(ids("?state=ended"), [made[0].id], "ended")
    t.equal(ids("?metadata=n%3D1&metadata=all%3Da%3Db%20c"), [made[1].id], "metadata")
    t.equal(ids("?metadata=n%3D1&metadata=n%3D2"), [], "both must hold")
    page = d.ask("GET", "/v1/sandboxes?limit=1").json
    t.equal(len(page["sandboxes"]), 1, page)
    t.equal(ids(f"?limit=1&cursor={page['next_cursor']}"), [made[1].id], "the next page")
    t.equal(d.ask("GET", "/v1/sandboxes?state=asleep").status, 400, "unknown state")


def test_a_sandbox_ends_when_its_time_is_over(t):
    d = serve(t, "--max-timeout", "1h")
    s = Sandbox(t, d, timeout="300ms")
    t.check(wait_for(lambda: s.ask("GET").json["state"] == "ended", 5), "it has ended")
    t.equal(s.ask("GET").json["end"]["status"], "timeout", "why")
    s = Sandbox(t, d, timeout="300ms")
    s.ask("POST", "/timeout", {"timeout": "60s"}, 200)
    time.sleep(0.5)
    t.equal(s.ask("GET").json["state"], "running", "longer")
    t.equal(d.ask("POST", "/v1/sandboxes", {"timeout": "2h"}).status, 400, "beyond --max-timeout")


def test_pausing_stops_processes_and_the_clock(t):
    d = serve(t)
    s = Sandbox(t, d, timeout="2s")
    s.start("while :; do echo x >> ticks; sleep 0.02; done")
    paused = s.ask("POST", "/pause", status=200).json
    t.equal((paused["state"], paused["expires_at"]), ("paused", None), paused)
    t.equal(s.ask("POST", "/pause").status, 409, "already so")
    t.equal(s.ask("POST", "/run", {"command": ["id"]}).status, 409, "work in it")
    time.sleep(2.2)
    t.equal(s.ask("POST", "/resume", status=200).json["state"], "running", "after more than its time")
    t.equal(s.ask("POST", "/resume").status, 409, "already so")
    t.equal(s.run("true")["exit_code"], 0, "work again")


def test_the_time_over_can_mean_a_pause(t):
    s = Sandbox(t, serve(t), timeout="200ms", on_timeout="pause")
    t.check(wait_for(lambda: s.ask("GET").json["state"] == "paused", 5), "paused")
    t.equal(s.ask("POST", "/resume", status=200).json["state"], "running", "and back")


def test_the_end_of_the_service_leaves_nothing(t):
    d = serve(t)
    for _ in range(3):
        Sandbox(t, d).start("sleep 1000")
    before = [pid for pid, (_, comm, state) in zw.descendants().items() if comm.startswith("zwinger") and state not in "ZX"]
    t.check(len(before) >= 4, before)
    t.equal(d.end(), 0, "exit status")
    t.check(wait_for(lambda: not any(os.path.exists(f"/proc/{pid}/exe") and os.path.exists(f"/proc/{pid}/fd/0") for pid in before), 5), "all are gone")


def test_a_killed_service_leaves_nothing(t):
    d = serve(t)
    for _ in range(3):
        Sandbox(t, d).start("sleep 1000")
    before = [pid for pid, (_, comm, state) in zw.descendants().items() if comm.startswith("zwinger") and state not in "ZX"]
    d.process.kill()
    d.process.wait()

    def alive(pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    t.check(wait_for(lambda: not any(alive(pid) for pid in before), 10), [pid for pid in before if alive(pid)])


def test_more_sandboxes_than_allowed_are_refused(t):
    d = serve(t, "--max-sandboxes", "2")
    first = Sandbox(t, d)
    Sandbox(t, d)
    r = d.ask("POST", "/v1/sandboxes", {})
    t.equal((r.status, r.code, r.headers.get("retry-after") is not None), (429, "busy", True), r.body)
    first.ask("DELETE", status=200)
    Sandbox(t, d)


def test_a_dead_supervisor_ends_its_sandbox_alone(t):
    d = serve(t)
    kept = Sandbox(t, d)
    known = set(zw.descendants())
    s = Sandbox(t, d)
    # the only supervisor that is new
    new = [pid for pid, (_, comm, _) in zw.descendants().items() if comm == "zwinger-session" and pid not in known]
    t.equal(len(new), 1, "one supervisor a sandbox")
    os.kill(new[0], signal.SIGKILL)
    t.check(wait_for(lambda: s.ask("GET").json["state"] == "ended", 5), "it is told as ended")
    t.equal(s.ask("GET").json["end"]["status"], "error", "why")
    t.equal(kept.run("true")["exit_code"], 0, "the other one")


# ---- What may be asked -------------------------------------------------------------------------------------------------------


def refused(t, d, policy, status, code, *paths):
    r = d.ask("POST", "/v1/run", {"command": ["true"], "policy": policy})
    t.equal((r.status, r.code), (status, code), r.body)
    t.equal(sorted(e["path"] for e in r.json["errors"]), sorted(paths), r.body)
    return r.json["errors"]


def test_nothing_above_the_default_ceiling_is_given(t):
    d = Daemon(t)
    points = {
        "filesystem.read[0]": {"filesystem": {"read": [{"source": "/usr", "target": "/data"}]}},
        "filesystem.write[0]": {"filesystem": {"write": [{"source": "/srv", "target": "/data"}]}},
        "filesystem.workspace": {"filesystem": {"workspace": "/srv:/data"}},
        "network.allow[0]": {"network": {"allow": ["example.org"]}},
        "network.publish[0]": {"network": {"publish": [8080]}},
        "secrets.token": {"secrets": {"token": {"env": "HOME"}}},
        "env.pass[0]": {"env": {"pass": ["HOME"]}},
        "audit.file": {"audit": {"file": "/tmp/audit"}},
        "isolation": {"isolation": "process"},
        "enforcement": {"enforcement": "best-effort"},
        "syscalls.profile": {"syscalls": {"profile": "debug"}},
        "syscalls.allow[0]": {"syscalls": {"allow": ["mount"]}},
        "limits.memory": {"limits": {"memory": "3G"}},
        "limits.processes": {"limits": {"processes": 1025}},
        "limits.disk": {"limits": {"disk": None}},
        "limits.output": {"limits": {"output": "65M"}},
        "root": {"root": "/srv"},
    }
    for path, policy in points.items():
        e = refused(t, d, policy, 403, "above_ceiling", path)[0]
        t.check(e["asked"] and e["allowed"], e)
    both = {"limits": {"memory": "3G", "processes": 4000}}
    t.equal(len(refused(t, d, both, 403, "above_ceiling", "limits.memory", "limits.processes")), 2, "one entry a point")
    t.equal(d.ask("POST", "/v1/sandboxes", {"policy": both}).code, "above_ceiling", "also for sandboxes")


def test_policies_are_checked_and_name_no_file(t):
    d = Daemon(t)
    t.equal(refused(t, d, {"limits": {"memroy": 1}}, 400, "invalid_policy", "limits.memroy")[0]["suggestion"], "memory", "a typing error")
    for text in ("/etc/passwd", "-", "policy.yaml"):
        refused(t, d, text, 400, "invalid_policy", "policy")
    for name in ("../../etc/passwd", "nothing", ".hidden"):
        t.equal(d.ask("POST", "/v1/run", {"command": ["true"], "template": name}).status, 404, name)


def test_the_ceiling_is_what_its_file_says(t):
    data = t.folder("data")
    os.chmod(data, 0o755)
    t.file("inside", "data", "note")
    os.makedirs(os.path.join(data, "deep"))
    d = serve(t, ceiling={"limits": {"memory": "128M", "processes": 64}, "filesystem": {"read": [{"source": data, "target": "/data"}]}})
    s = Sandbox(t, d)
    t.equal(s.facts["limits"]["memory_bytes"], 128 << 20, "the default is never above it")
    refused(t, d, {**LOOSE, "limits": {"memory": "129M"}}, 403, "above_ceiling", "limits.memory")
    s = Sandbox(t, d, policy={"filesystem": {"read": [{"source": data, "target": "/here"}]}})
    t.equal(s.run("cat", "/here/note")["stdout"], "inside", "a path that the ceiling names")
    refused(t, d, {**LOOSE, "filesystem": {"read": [{"source": data + "/deep", "target": "/here"}]}}, 403, "above_ceiling", "filesystem.read[0]")


def test_templates_of_the_operator(t):
    folder = t.folder("templates")
    t.file("version: 1\nenforcement: best-effort\nenv: {set: {FROM: template}}\n", "templates", "own.yaml")
    d = serve(t, "--templates", folder)
    names = [x["name"] for x in d.ask("GET", "/v1/templates").json["templates"]]
    for name in ("own", "base", "code-interpreter-v1", "python", "offline-tests", "tutor", "research"):
        t.check(name in names, names)
    t.equal(Sandbox(t, d, template="own").shell("echo $FROM")["stdout"], "template\n", "its policy")


# ---- Runs --------------------------------------------------------------------------------------------------------------------


def test_a_run_has_a_result_document(t):
    d = serve(t)
    r = d.ask("POST", "/v1/run", {"shell": "cat; echo err >&2; exit 3", "stdin": "in\0put"}).json
    t.equal((r["schema"], r["status"], r["exit_code"], r["stdout"], r["stderr"]), ("zwinger.result/1", "exited", 3, "in\0put", "err\n"), r)
    r = d.ask("POST", "/v1/run", {"command": ["nothing-of-this-name"]}).json
    t.equal((r["status"], r["exit_code"]), ("error", 127), r)
    r = d.ask("POST", "/v1/run", {"command": ["sleep", "20"], "timeout": "200ms"}).json
    t.equal(r["status"], "timeout", r)
    r = d.ask("POST", "/v1/run", {"command": ["printf", r"\377"]}).json
    t.equal((r["stdout"], r["stdout_encoding"]), ("/w==", "base64"), r)
    r = d.ask("POST", "/v1/run", {"command": ["cat"], "stdin_base64": "/w=="}).json
    t.equal(r["stdout"], "/w==", r)
    for bad in ({}, {"command": ["a"], "shell": "b"}, {"command": []}, {"command": [1]}, {"shell": "x", "stdin": "a", "stdin_base64": "YQ=="},
                {"shell": "x", "cwd": "/nowhere"}, {"shell": "x", "user": "nobody-known"}):
        t.equal(d.ask("POST", "/v1/run", bad).status, 400, bad)


def test_the_tree_of_a_run_ends_with_it(t):
    s = Sandbox(t, serve(t))
    t.equal(s.shell("sleep 1000 & echo done")["stdout"], "done\n", "it does not wait for what is left")
    t.lacks(s.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"], "sleep 1000", "it is gone")


def test_output_is_cut_and_counted(t):
    d = serve(t)
    policy = {**LOOSE, "limits": {"output": "64K"}}
    r = d.ask("POST", "/v1/run", {"shell": "head -c 3000000 /dev/zero | tr '\\0' x", "policy": policy}).json
    t.equal((r["status"], r["stdout_bytes"], r["stdout_truncated"], r["stdout_dropped_bytes"]), ("exited", 3000000, True, 3000000 - 65536), r["reason"])
    policy["limits"]["on_output_limit"] = "kill"
    r = d.ask("POST", "/v1/run", {"command": ["yes"], "policy": policy}).json
    t.equal(r["status"], "output_limit", r["reason"])


def test_leaving_ends_a_run(t):
    d = serve(t)
    s = Sandbox(t, d)
    for path in ("/v1/run", s.path + "/run"):
        before = set(zw.descendants())
        c = d.connection()
        c.request("POST", path, json.dumps({"command": ["sleep", "987"]}), {"Authorization": f"Bearer {d.key}", "Content-Type": "application/json"})

        def runs():
            return [pid for pid, (_, comm, state) in zw.descendants().items() if comm == "sleep" and pid not in before and state not in "ZX"]

        t.check(wait_for(runs, 10), "it runs")
        c.close()
        t.check(wait_for(lambda: not runs(), 5), f"{path}: it has ended with the connection")
    t.equal(s.run("true")["exit_code"], 0, "the sandbox lives on")


# ---- Processes ---------------------------------------------------------------------------------------------------------------


def test_a_process_is_written_to_and_read_from(t):
    s = Sandbox(t, serve(t))
    p = s.start("echo one; cat; echo two >&2; exit 5", stdin=True, tag="mine")
    t.equal(s.ask("GET", f"/processes/{p['pid']}").json["tag"], "mine", "by pid")
    s.ask("POST", "/processes/tag:mine/stdin", b"typed\n", 204)
    s.ask("POST", "/processes/tag:mine/stdin?eof=true", b"more\n", 204)
    found = s.output("tag:mine")
    t.equal((text_of(found, "stdout"), text_of(found, "stderr")), ("one\ntyped\nmore\n", "two\n"), found)
    t.equal((found[-1][1], found[-1][2]["exit_code"], found[-1][2]["state"]), ("exit", 5, "ended"), found[-1])
    t.equal(s.output("tag:mine", **{"Last-Event-ID": found[-2][0]}), found[-1:], "resumed behind the last event")
    t.equal(s.ask("POST", "/processes/tag:mine/stdin", b"x").status, 409, "input of one that has ended")
    t.equal([x["pid"] for x in s.ask("GET", "/processes").json["processes"]], [p["pid"]], "the list")
    t.equal(s.ask("POST", "/processes", {"command": ["nothing-of-this-name"]}).status, 400, "no such program")
    t.equal(s.ask("GET", "/processes/4242").status, 404, "unknown")


def test_input_waits_for_who_does_not_read(t):
    d = serve(t)
    s = Sandbox(t, d)
    p = s.start("until test -e go; do sleep 0.02; done; wc -c", stdin=True)
    path = f"{s.path}/processes/{p['pid']}/stdin"
    taken, waiting = 0, None
    while waiting is None:
        c = d.connection(timeout=1)
        c.request("POST", path, b"x" * 4096, {"Authorization": f"Bearer {d.key}"})
        try:
            t.equal(c.getresponse().status, 204, "taken")
            taken += 1
            c.close()
        except TimeoutError:
            waiting = c
        t.check(taken * 4096 <= 1 << 20, "a bound")
    t.check(taken * 4096 >= 65536, f"a pipe's worth is taken: {taken}")
    t.equal(d.ask("POST", path, b"y").status, 409, "one at a time")
    waiting.sock.shutdown(socket.SHUT_RDWR)  # it leaves
    waiting.close()
    s.run("touch", "go")
    t.check(wait_for(lambda: d.ask("POST", path, b"").status == 204, 20), "the next one's turn")
    t.equal(d.ask("POST", path + "?eof=true", b"").status, 204, "the end")
    # What the one that has left had sent is dropped, or was all there.
    t.contains([f"{(taken + more) * 4096}\n" for more in (0, 1)], text_of(s.output(p["pid"]), "stdout"), "what was taken was read")


def test_a_terminal_has_a_size_and_an_end(t):
    s = Sandbox(t, serve(t))
    s.ask("POST", "/processes", {"shell": "stty size; read x; stty size; cat", "tty": {"rows": 10, "columns": 20}, "tag": "t"}, 201)
    s.ask("POST", "/processes/tag:t/resize", {"rows": 11, "columns": 22}, 204)
    s.ask("POST", "/processes/tag:t/stdin", b"\n", 204)
    s.ask("POST", "/processes/tag:t/stdin?eof=true", b"last\n", 204)
    text = text_of(s.output("tag:t"), "tty")
    t.contains(text, "11 22", "after the resize")
    t.contains(text, "last", "input")


def test_signals_reach_a_process(t):
    s = Sandbox(t, serve(t))
    p = s.start("exec sleep 1000")
    s.ask("POST", f"/processes/{p['pid']}/signal", {"signal": "TERM"}, 204)
    end = s.output(p["pid"])[-1][2]
    t.equal((end["status"], end["signal"], end["exit_code"]), ("signaled", signal.SIGTERM, None), end)
    t.equal(s.ask("POST", f"/processes/{p['pid']}/signal", {"signal": "TERM"}).status, 409, "once more")
    t.equal(s.ask("POST", f"/processes/{p['pid']}/signal", {"signal": "NONSENSE"}).status, 409, "order of checks")


def test_without_a_reader_the_newest_output_is_kept(t):
    s = Sandbox(t, serve(t), policy={"limits": {"output": "64K"}})
    p = s.start("head -c 1000000 /dev/zero | tr '\\0' x; echo end")
    t.check(wait_for(lambda: s.ask("GET", f"/processes/{p['pid']}").json["state"] == "ended", 20), "it has ended")
    found = s.output(p["pid"])
    text = text_of(found, "stdout")
    t.equal((len(text), text.endswith("xend\n"), found[-1][2]["dropped"]), (65536, True, 1000004 - 65536), "kept")


def test_a_slow_reader_sets_the_pace_and_loses_nothing(t):
    d = serve(t)
    s = Sandbox(t, d, policy={"limits": {"output": "64K"}})
    p = s.start("read go; head -c 20000000 /dev/zero | tr '\\0' x; touch written", stdin=True)
    c = d.connection(timeout=30)
    c.request("GET", f"{s.path}/processes/{p['pid']}/output", headers={"Authorization": f"Bearer {d.key}"})
    r = c.getresponse()
    s.ask("POST", f"/processes/{p['pid']}/stdin?eof=true", b"go\n", 204)
    time.sleep(1)
    t.equal(s.run("test", "-e", "written")["exit_code"], 1, "the program waits for its reader")
    found = events(r.read())
    c.close()
    t.equal(len(text_of(found, "stdout")), 20000000, "every byte")
    t.equal(found[-1][2]["dropped"], 0, "nothing dropped")


def test_characters_are_not_cut(t):
    s = Sandbox(t, serve(t))
    p = s.start("i=0; while [ $i -lt 300 ]; do printf '\\303'; sleep 0.001; printf '\\244'; i=$((i+1)); done")
    t.equal(text_of(s.output(p["pid"]), "stdout"), "ä" * 300, "output")


def test_events_are_told(t):
    s = Sandbox(t, serve(t))
    s.run("true")
    kinds = [e for _, e, _ in events(s.ask("GET", "/events?follow=false", status=200).body)]
    t.equal([k for k in kinds if k in ("created", "process_started", "process_ended")], ["created", "process_started", "process_ended"], kinds)
    s.ask("DELETE", status=200)
    t.equal(events(s.ask("GET", "/events", status=200).body)[-1][1], "ended", "to the end")


# ---- Files -------------------------------------------------------------------------------------------------------------------


def test_files_are_written_read_listed_moved_and_removed(t):
    s = Sandbox(t, serve(t))
    data = os.urandom(3_000_000)
    entry = s.ask("PUT", "/files?path=a/b/data&mode=0640", data, 201).json
    t.equal((entry["path"], entry["type"], entry["size"], entry["mode"]), ("/home/user/a/b/data", "file", len(data), "0640"), entry)
    t.check(s.ask("GET", "/files?path=a/b/data", status=200).body == data, "the same bytes")
    t.check(s.ask("GET", "/files?path=a/b/data", status=206, headers={"Range": "bytes=10-19"}).body == data[10:20], "a part")
    t.equal(s.ask("GET", "/files?path=a/b/data", headers={"Range": "bytes=9999999-"}).status, 416, "behind the end")
    s.ask("PUT", "/files?path=a/b/data", b"", 200)
    t.equal(s.ask("GET", "/files?path=a/b/data", status=200).body, b"", "replaced, empty")
    t.equal(s.ask("PUT", "/files?path=a/b/data&if_absent=true", b"x").status, 409, "if_absent")
    s.ask("POST", "/files/directory", {"path": "a/c"}, 201)
    s.ask("POST", "/files/directory", {"path": "a/c"}, 200)
    s.ask("POST", "/files/move", {"source": "a/b/data", "destination": "a/c/moved"}, 200)
    names = [e["path"] for e in s.ask("GET", "/files/list?path=a&depth=2", status=200).json["entries"]]
    t.equal(names, ["/home/user/a/b", "/home/user/a/c", "/home/user/a/c/moved"], "the list")
    t.equal(s.ask("DELETE", "/files?path=a").status, 409, "not empty")
    s.ask("DELETE", "/files?path=a&recursive=true", status=204)
    t.equal(s.ask("GET", "/files/stat?path=a").status, 404, "gone")


def test_what_is_no_file_is_refused_at_once(t):
    s = Sandbox(t, serve(t))
    s.shell("mkfifo fifo; ln -s /nowhere link; mkdir dir")
    for path, status, code in (("fifo", 400, "not_a_regular_file"), ("/dev/zero", 400, "not_a_regular_file"), ("dir", 400, "is_a_directory"),
                               ("none", 404, "not_found"), ("link", 404, "not_found")):
        r = s.ask("GET", f"/files?path={path}")
        t.equal((r.status, r.code), (status, code), path)
    t.equal(s.ask("GET", "/files/stat?path=link", status=200).json["target"], "/nowhere", "a link is described")
    t.equal(s.ask("GET", "/files").status, 400, "no path")


def test_half_an_upload_leaves_nothing(t):
    d = serve(t)
    s = Sandbox(t, d)
    s.ask("PUT", "/files?path=f", b"old", 201)
    raw = d.socket()
    raw.sendall(f"PUT {s.path}/files?path=f HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {d.key}\r\nContent-Length: 1000\r\n\r\nhalf".encode())
    time.sleep(0.2)
    raw.close()
    t.equal(s.ask("GET", "/files?path=f", status=200).body, b"old", "the old content")
    t.check(wait_for(lambda: [e["name"] for e in s.ask("GET", "/files/list?path=.").json["entries"]] == ["f"], 5), "no rest of it")


def test_descriptors_do_not_grow(t):
    d = serve(t)
    s = Sandbox(t, d)
    s.ask("PUT", "/files?path=f", b"x" * 100000, 201)
    s.run("true")
    before = descriptors(d.process.pid)
    for _ in range(20):
        s.run("true")
        s.ask("GET", "/files?path=f", status=200)
        s.ask("PUT", "/files?path=f", b"y" * 100000, 200)
        p = s.start("true")
        s.output(p["pid"])
        d.ask("POST", "/v1/run", {"command": ["true"]})
    t.check(wait_for(lambda: descriptors(d.process.pid) <= before + 2, 5), f"{before} before, {descriptors(d.process.pid)} now")


tap.main(globals())
