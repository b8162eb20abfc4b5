#!/usr/bin/python3 -B
"""What the daemon tells of what has happened: logs, events, metrics, what it can do."""
import json
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
from daemon import Daemon, events, wait_for  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller


def serve(t, *flags):
    path = t.file(json.dumps({"version": 1, **LOOSE}), "loose.yaml")
    return Daemon(t, "--ceiling", path, "--policy", path, *flags)


class Sandbox:
    def __init__(self, t, d, **wish):
        self.t, self.d = t, d
        r = d.ask("POST", "/v1/sandboxes", wish)
        t.equal(r.status, 201, r.body)
        self.id = r.json["id"]

    def ask(self, method, path="", body=None, status=200, **options):
        r = self.d.ask(method, f"/v1/sandboxes/{self.id}{path}", body, **options)
        self.t.equal(r.status, status, f"{method} {path}: {r.body[:500]}")
        return r

    def run(self, line, **members):
        return self.ask("POST", "/run", {"shell": line, **members}).json

    def end_of(self, pid):
        self.t.check(wait_for(lambda: self.ask("GET", f"/processes/{pid}").json["state"] == "ended", 20), "the process ends")


def figures(t, d):
    """The metrics, {name{labels}: value}."""
    r = d.ask("GET", "/metrics")
    t.equal(r.status, 200, r.body)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in r.body.decode().splitlines() if not line.startswith("#")}


# ---- Logs --------------------------------------------------------------------------------------------------------------------


def test_logs_have_each_line_with_pid_and_stream(t):
    s = Sandbox(t, serve(t))
    first = s.ask("POST", "/processes", {"shell": "echo one; echo bad >&2; printf half; sleep 0.1; printf 'more\\nend'"}, 201).json["pid"]
    s.end_of(first)
    second = s.ask("POST", "/processes", {"shell": "echo two"}, 201).json["pid"]
    s.end_of(second)
    r = s.ask("GET", "/logs")
    t.equal(r.headers["content-type"], "text/plain; charset=utf-8", "type")
    lines = r.body.decode().splitlines()
    t.equal(sorted(lines[:4]), sorted([f"{first} stdout one", f"{first} stderr bad", f"{first} stdout halfmore", f"{first} stdout end"]), lines)
    t.equal(lines[4:], [f"{second} stdout two"], "in the order of the starts")
    s.run("echo from a run")
    t.contains(s.ask("GET", "/logs").body.decode(), " stdout from a run\n", "what a run wrote")
    s.ask("DELETE")
    t.contains(s.ask("GET", "/logs").body.decode(), f"{second} stdout two\n", "after the end")


def test_logs_of_much_output_stream_to_a_slow_client(t):
    d = serve(t)
    s = Sandbox(t, d)
    pid = s.ask("POST", "/processes", {"shell": "seq 1 400000; head -c 100000 /dev/zero | tr '\\0' x"}, 201).json["pid"]
    s.end_of(pid)
    lines = s.ask("GET", "/logs").body.decode().splitlines()
    numbers = [x.split(" ", 2)[2] for x in lines if "x" not in x.split(" ", 2)[2]]
    t.equal(numbers, [str(i) for i in range(1, 400001)], "every line once")
    t.equal([len(x.split(" ", 2)[2]) for x in lines if x.endswith("x")], [65536, 100000 - 65536], "a long line is cut")
    t.equal(s.ask("GET", "/logs").body.decode().splitlines(), lines, "again the same")
    t.equal(d.end(), 0, "exit status")


def test_logs_of_bytes_that_are_no_text_pass(t):
    s = Sandbox(t, serve(t))
    pid = s.ask("POST", "/processes", {"shell": "printf '\\377\\000\\n'"}, 201).json["pid"]
    s.end_of(pid)
    t.equal(s.ask("GET", "/logs").body, b"%d stdout \xff\0\n" % pid, "the same bytes")


class Follower:
    """GET logs?follow=true, read as it comes."""

    def __init__(self, t, s):
        self.c = s.d.connection(timeout=30)
        t.at_end(self.c.close)
        self.c.request("GET", f"/v1/sandboxes/{s.id}/logs?follow=true", headers={"Authorization": f"Bearer {s.d.key}"})
        self.r = self.c.getresponse()
        t.equal((self.r.status, self.r.headers["content-type"]), (200, "text/plain; charset=utf-8"), "the answer")

    def line(self):
        return self.r.readline().decode()


def test_logs_are_followed_until_the_sandbox_ends(t):
    d = serve(t)
    s = Sandbox(t, d)
    first = s.ask("POST", "/processes", {"shell": "echo old; read x; printf half; read y; echo $x $y >&2; read z", "stdin": True}, 201).json["pid"]
    t.check(wait_for(lambda: s.ask("GET", "/logs").body == f"{first} stdout old\n".encode(), 20), "without follow it ends at the present")
    f, late = Follower(t, s), Follower(t, s)
    t.equal(f.line(), f"{first} stdout old\n", "what was there")
    second = s.ask("POST", "/processes", {"shell": "echo new"}, 201).json["pid"]
    t.equal(f.line(), f"{second} stdout new\n", "another process")
    s.ask("POST", f"/processes/{first}/stdin", b"a\nb\n", 204, headers={"Content-Type": "application/octet-stream"})
    t.equal(f.line(), f"{first} stderr a b\n", "a whole line")
    f.c.close()
    s.run("echo by run")
    s.ask("DELETE")
    rest = late.r.read().decode().splitlines()
    by_run = [x for x in rest if x.endswith(" stdout by run")]
    t.equal(sorted(rest), sorted([f"{first} stdout old", f"{second} stdout new", f"{first} stderr a b", f"{first} stdout half", *by_run]), rest)
    t.equal(len(by_run), 1, rest)
    t.equal(s.ask("GET", "/logs?follow=true").body.decode().splitlines().count(f"{second} stdout new"), 1, "an ended one")
    t.equal(s.ask("GET", "/logs?follow=perhaps", status=400).code, "bad_request", "a value")
    t.equal(d.end(), 0, "exit status")


def test_a_slow_follower_stops_no_program(t):
    d = serve(t)
    s = Sandbox(t, d, policy={"version": 1, "limits": {"output": "1M"}})
    f, gone = Follower(t, s), Follower(t, s)
    pid = s.ask("POST", "/processes", {"shell": "seq 1 8000000; echo done"}, 201).json["pid"]
    s.end_of(pid)
    gone.c.close()
    s.ask("DELETE")
    lines = f.r.read().decode().splitlines()
    lost = [x for x in lines if x.startswith(f"{pid} - [zwinger: ")]
    t.check(lost and all(x.endswith(" bytes left out]") for x in lost), "what is missing is told")
    text = sum(len(x) - len(f"{pid} stdout ") + 1 for x in lines if x not in lost)
    cuts = sum(int(x.split()[3]) for x in lost)
    total = len("".join(f"{i}\n" for i in range(1, 8000001))) + 5
    t.check(total <= text + cuts <= total + 2 * len(lost), f"nothing else is: {text} + {cuts}, {total}")
    t.equal(lines[-1], f"{pid} stdout done", "the end")


# ---- Events ------------------------------------------------------------------------------------------------------------------


def test_events_of_all_sandboxes_are_told_and_resumed(t):
    d = serve(t)
    a, b = Sandbox(t, d), Sandbox(t, d)
    a.run("true")
    d.ask("POST", "/v1/run", {"command": ["true"]})
    b.ask("DELETE")
    found = events(d.ask("GET", "/v1/events?follow=false").body)
    numbers = [int(i) for i, _, _ in found]
    t.equal(numbers, sorted(set(numbers)), "numbers grow")
    t.check(all(data["schema"] == "zwinger.event/1" and data["kind"] == event and data["time"] for _, event, data in found), found)
    t.equal([e for _, e, data in found if data["sandbox_id"] == a.id and e != "exec"], ["created", "process_started", "process_ended"], found)
    t.equal([e for _, e, data in found if data["sandbox_id"] == b.id], ["created", "ended"], found)
    t.equal(len({data["sandbox_id"] for _, _, data in found}), 3, "the single run too")
    rest = events(d.ask("GET", "/v1/events?follow=false", headers={"Last-Event-ID": found[2][0]}).body)
    t.equal(rest, found[3:], "resumed")
    key = d.ask("POST", "/v1/keys", {"scope": "create"}).json["key"]
    t.equal(d.ask("GET", "/v1/events?follow=false", key=key).status, 403, "for admin alone")
    t.equal(d.end(), 0, "exit status")


def test_events_are_followed_as_they_come(t):
    d = serve(t)
    c = d.connection(timeout=20)
    c.request("GET", "/v1/events", headers={"Authorization": f"Bearer {d.key}"})
    r = c.getresponse()
    s = Sandbox(t, d)
    s.ask("POST", "/pause")
    s.ask("POST", "/resume")
    s.ask("DELETE")
    seen = []
    while "ended" not in seen:
        line = r.readline().decode()
        t.check(line, f"the stream has ended: {seen}")
        if line.startswith("event: "):
            seen.append(line[7:].strip())
    t.equal(seen, ["created", "paused", "resumed", "ended"], "kinds")
    c.close()
    t.equal(d.end(), 0, "exit status")


def test_a_gap_in_the_record_is_told(t):
    s = Sandbox(t, serve(t))
    s.ask("POST", "/processes", {"shell": "i=0; while [ $i -lt 1100 ]; do /bin/true; i=$((i+1)); done"}, 201)
    t.check(wait_for(lambda: events(s.ask("GET", "/events?follow=false").body)[0][1] in ("lost", "created") and
                     events(s.ask("GET", "/events?follow=false").body)[-1][1] == "process_ended", 60), "it is over")
    found = events(s.ask("GET", "/events?follow=false").body)
    if not any(e == "exec" for _, e, _ in found):
        t.skip("executions are not told here")
    t.equal(found[0][1], "lost", found[0])
    t.equal(int(found[1][0]), found[0][2]["count"] + 1, "how many")
    t.equal(len(found), 1001, "the newest thousand")


# ---- Runs ------------------------------------------------------------------------------------------------------------------------


def test_a_run_tells_what_was_denied_to_it_alone(t):
    s = Sandbox(t, serve(t))
    other = s.ask("POST", "/processes", {"shell": "while :; do unshare -m true 2>/dev/null; sleep 0.01; done"}, 201).json["pid"]
    clean = s.run("sleep 0.2")
    t.equal((clean["denials"], clean["connections"]), ([], []), "another process was denied something meanwhile")
    line = "(unshare -m true & wait) 2>/dev/null; setsid sh -c 'mount -t tmpfs x /tmp' 2>/dev/null; python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 5)' 2>/dev/null; true"
    found = {(d["kind"], d.get("name") or d.get("host")): d["count"] for d in s.run(line)["denials"]}
    t.equal(found.get(("network", "192.0.2.1")), 1, found)
    for name in ("unshare", "mount"):
        t.among(found.get(("syscall", name)), (1, None), found)  # not every level refuses these by its filter
    t.equal(s.run("true")["denials"], [], "none of the run before")
    s.ask("POST", f"/processes/{other}/signal", {"signal": "KILL", "tree": True}, 204)
    t.check(len(s.ask("DELETE").json["end"]["status"]) > 0, "the end")


def test_a_run_tells_its_connections_and_refused_names(t):
    server = socket.create_server(("127.0.0.1", 0))
    t.at_end(server.close)
    port = server.getsockname()[1]

    def serve_one():
        for _ in range(3):
            c, _ = server.accept()
            c.sendall(b"hello")
            c.close()

    threading.Thread(target=serve_one, daemon=True).start()
    network = {"network": {"allow": [f"out.test:{port}"], "hosts": {"out.test": f"127.0.0.1:{port}"}}}
    path = t.file(json.dumps({"version": 1, **LOOSE, **network}), "net.yaml")
    d = Daemon(t, "--ceiling", path)
    s = Sandbox(t, d, policy={**LOOSE, **network})
    program = f"import socket; print(socket.create_connection(('out.test', {port}), 10).recv(100))"
    for _ in range(3):
        r = s.ask("POST", "/run", {"command": ["python3", "-c", program]}).json
        t.equal(r["stdout"], "b'hello'\n", r)
        t.equal([(c["host"], c["port"], c["received"]) for c in r["connections"]], [("out.test", port, 5)], r)
        t.equal(r["denials"], [], r)
    r = s.ask("POST", "/run", {"command": ["python3", "-c", "import socket; socket.getaddrinfo('evil.test', 443)"]}).json
    t.equal([(x["kind"], x["host"]) for x in r["denials"]], [("dns", "evil.test")], r)
    t.equal(r["connections"], [], r)
    found = figures(t, d)
    t.equal(found['zwinger_egress_connections_total{verdict="allowed"}'], 3, "connections")
    t.check(found['zwinger_egress_connections_total{verdict="denied"}'] >= 1, "refused")
    t.equal(d.end(), 0, "exit status")


# ---- Numbers -----------------------------------------------------------------------------------------------------------------


def test_metrics_count_what_sandboxes_do(t):
    d = serve(t)
    before = figures(t, d)
    t.equal((before["zwinger_sandboxes_running"], before["zwinger_sandboxes_cpu_seconds_total"]), (0, 0), "at first")
    a, b = Sandbox(t, d), Sandbox(t, d)
    a.run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
    s = b.ask("POST", "/processes", {"command": ["python3", "-c", "x = b'x' * 50_000_000; print('there', flush=True); import time; time.sleep(1000)"]}, 201).json
    t.check(wait_for(lambda: b"there" in b.ask("GET", "/logs").body, 30), f"it runs: {s}")
    b.ask("POST", "/pause")
    d.ask("POST", "/v1/run", {"command": ["sleep", "10"], "timeout": "100ms"})
    found = figures(t, d)
    t.equal((found["zwinger_sandboxes_running"], found["zwinger_sandboxes_paused"]), (1, 1), "states")
    t.equal(found['zwinger_sandboxes_started_total{isolation="container"}'], 3, "started")
    t.equal(found["zwinger_sandbox_start_seconds_count"], 3, "starts measured")
    t.equal((found['zwinger_runs_total{status="exited"}'], found['zwinger_runs_total{status="timeout"}']), (1, 1), "runs")
    t.equal(found["zwinger_processes_started_total"], 3, "processes")
    t.check(found["zwinger_sandboxes_cpu_seconds_total"] > 0.01, "processor time of one that lives")
    t.check(found["zwinger_sandboxes_memory_bytes"] > 50_000_000, "memory")
    a.ask("DELETE")
    b.ask("DELETE")
    last = figures(t, d)
    t.equal((last["zwinger_sandboxes_running"], last["zwinger_sandboxes_paused"], last["zwinger_sandboxes_memory_bytes"]), (0, 0, 0), "after the end")
    t.equal(last['zwinger_sandboxes_ended_total{status="deleted"}'], 3, "ended")
    t.check(last["zwinger_sandboxes_cpu_seconds_total"] >= found["zwinger_sandboxes_cpu_seconds_total"], "a counter only grows")


def test_metrics_count_every_denial(t):
    d = serve(t)
    s = Sandbox(t, d)
    line = "i=0; while [ $i -lt 15 ]; do unshare -U true 2>/dev/null; i=$((i+1)); done; true"
    t.equal(s.run(line)["exit_code"], 0, "attempts")
    found = figures(t, d)
    name = 'zwinger_denials_total{kind="syscall"}'
    if name not in found:
        t.skip("this system call is not refused here")
    t.equal(found[name], 15, "each attempt, also those that the record sums up")
    t.lacks(d.ask("GET", "/metrics").body.decode(), s.id, "no id in a label")


def test_info_tells_what_was_measured(t):
    d = serve(t)
    info = d.ask("GET", "/v1/info").json
    t.equal(info["running"], 0, "nothing runs")
    t.contains(info["levels"], "container", "tried")
    Sandbox(t, d)
    again = d.ask("GET", "/v1/info").json
    t.equal((again["running"], again["levels"]), (1, info["levels"]), again)
    t.equal(again["ceiling"]["enforcement"], "best-effort", again["ceiling"])


tap.main(globals())
