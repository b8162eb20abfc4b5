#!/usr/bin/python3 -B
"""Minutes of everything at once: no request fails, and nothing grows.

The load goes in rounds. Between them it stands until all sandboxes are gone and forgotten; what is left then is compared with what was left after the rounds
of the warm-up."""
import json
import os
import random
import socket
import threading
import time

import soaklib
from daemon import events
from soaklib import MIB, Client, leftovers, say, serve, size

CLIENTS = 6
ROUND = size(60, 5)  # seconds
WARM = 3  # rounds
ROUNDS = WARM + max(3, round(size(soaklib.MINUTES * 60, 25) / ROUND))
MEMORY_MAY_GROW = {"zwingerd": 12 * MIB, "launcher": 512 * 1024}  # private memory after the warm-up: the heap's own disorder
KEEP = 1  # seconds that a record is kept


class Load:
    """One client, which has some sandboxes and does with them whatever the dice say."""

    def __init__(self, d, seed):
        self.d, self.dice = d, random.Random(seed)
        self.client, self.mine = Client(d), []
        self.counts, self.errors = {}, []

    def until(self, end):
        steps = [(self.run_alone, 6), (self.run_alone_and_leave, 2), (self.command, 10), (self.process, 6), (self.process_and_leave, 4), (self.input, 3), (self.file, 8), (self.half_an_upload, 3),
                 (self.watch, 3), (self.python, 2), (self.bash, 3), (self.execution_and_leave, 1), (self.pause, 3), (self.fork, 2), (self.over_e2b, 3), (self.looks, 4), (self.refused, 3), (self.renew, 2)]
        names, weights = zip(*steps)
        try:
            while time.monotonic() < end and not self.errors:
                while len(self.mine) < 3:
                    self.mine.append(self.client.create(metadata={"n": "1"}, env={"COLOUR": "green"}))
                step = self.dice.choices(names, weights)[0]
                self.counts[step.__name__] = self.counts.get(step.__name__, 0) + 1
                try:
                    step()
                except Exception as e:
                    self.errors.append(f"{step.__name__}: {type(e).__name__}: {e}"[:600])
        finally:
            for sandbox in self.mine:
                self.client.ask("DELETE", f"/v1/sandboxes/{sandbox}")
            self.mine = []
            self.client.close()

    # ---- What is asked for ----

    def path(self, rest=""):
        return f"/v1/sandboxes/{self.dice.choice(self.mine)}{rest}"

    def expect(self, good, what):
        if not good:
            raise soaklib.Unexpected(str(what)[:400])

    def leave(self, method, path, body, after=0, kind="application/json"):
        """Sends it, reads `after` bytes of the answer, and goes."""
        with socket.create_connection((self.d.host, self.d.port), 30) as s:
            s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.d.key}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            while after > 0:
                data = s.recv(after)
                if not data:
                    raise soaklib.Unexpected(f"{method} {path}: the answer ended")
                after -= len(data)

    def run_alone(self):
        r = self.client.ask("POST", "/v1/run", {"shell": "echo $((6 * 7)); exit 3"}).json
        self.expect((r["stdout"], r["exit_code"]) == ("42\n", 3), r)

    def run_alone_and_leave(self):
        self.leave("POST", "/v1/run", b'{"shell":"sleep 1000"}')

    def command(self):
        r = self.client.ask("POST", self.path("/run"), {"shell": "echo $COLOUR; head -c 100000 /dev/zero >&2"}).json
        self.expect((r["stdout"], r["stderr_bytes"]) == ("green\n", 100000), r["stdout"])

    def process(self):
        path = self.path("/processes")
        pid = self.client.ask("POST", path, {"shell": "for i in 1 2 3; do echo line $i; done"}, 201).json["pid"]
        found = events(self.client.ask("GET", f"{path}/{pid}/output").body)
        text = "".join(data["text"] for _, event, data in found if event == "stdout")
        self.expect(text == "line 1\nline 2\nline 3\n" and found[-1][1] == "exit", found)

    def process_and_leave(self):
        path = self.path("/processes")
        pid = self.client.ask("POST", path, {"shell": "head -c 3000000 /dev/urandom"}, 201).json["pid"]
        self.leave("GET", f"{path}/{pid}/output", b"", after=self.dice.choice((1, 1000, 200000)))

    def input(self):
        path = self.path("/processes")
        pid = self.client.ask("POST", path, {"command": ["cat"], "stdin": True}, 201).json["pid"]
        self.client.ask("POST", f"{path}/{pid}/stdin?eof=true", b"x" * 10000, 204)
        found = events(self.client.ask("GET", f"{path}/{pid}/output").body)
        self.expect(sum(len(data["text"]) for _, event, data in found if event == "stdout") == 10000, found[-1])

    def file(self):
        path = self.path("/files")
        data = self.dice.randbytes(self.dice.choice((0, 100, 70000, 400000)))
        name = f"d/{self.dice.randrange(10)}"
        self.client.ask("PUT", f"{path}?path={name}", data, (200, 201))
        self.expect(self.client.ask("GET", f"{path}?path={name}").body == data, "content")
        self.expect(len(self.client.ask("GET", f"{path}/list?path=d").json["entries"]) > 0, "list")
        self.client.ask("POST", f"{path}/move", {"source": name, "destination": "moved"})
        self.client.ask("DELETE", f"{path}?path=moved", status=204)

    def half_an_upload(self):
        path = self.path("/files?path=half")
        with socket.create_connection((self.d.host, self.d.port), 30) as s:
            s.sendall(f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.d.key}\r\nContent-Length: 900000\r\n\r\n".encode() + b"x" * 300000)

    def watch(self):
        path = self.path("/files")
        connection = self.d.connection(timeout=30)
        connection.request("GET", f"{path}/watch?path=.", None, {"Authorization": f"Bearer {self.d.key}"})
        stream = connection.getresponse()
        self.expect(stream.status == 200, stream.status)
        while b"event: ready" not in stream.readline():
            pass
        self.client.ask("PUT", f"{path}?path=watched", b"x", (200, 201))
        line = stream.readline()
        while b"watched" not in line and line:
            line = stream.readline()
        self.expect(line, "the stream ended")
        stream.close()
        connection.close()

    def execute(self, language, code, text):
        r = self.client.ask("POST", self.path(f"/contexts/{language}/execute"), {"code": code}).json
        self.expect(r["status"] == "ok" and text in (r["text"] or "") + r["stdout"], r)

    def python(self):
        self.execute("python", "x = 21\nx * 2", "42")

    def bash(self):
        self.execute("bash", "echo $((6 * 7))", "42")

    def execution_and_leave(self):
        self.leave("POST", self.path("/contexts/bash/execute"), b'{"code":"sleep 1000"}')

    def pause(self):
        path = self.path()
        self.client.ask("POST", path + "/pause")
        self.expect(self.client.ask("POST", path + "/run", {"command": ["true"]}, 409).code == "conflict", "work while paused")
        self.client.ask("POST", path + "/resume")

    def fork(self):
        path = self.path()
        self.client.ask("PUT", f"{path}/files?path=forked", b"carried", (200, 201))
        new = self.client.ask("POST", path + "/fork", {"count": 1}, 201).json["sandboxes"][0]["id"]
        self.expect(self.client.run(new, "cat forked")["stdout"] == "carried", "the file of the fork")
        self.client.ask("DELETE", f"/v1/sandboxes/{new}")

    def over_e2b(self):
        facts = self.client.e2b("POST", "/sandboxes", {"templateID": "base", "timeout": 60}, 201).json
        head = soaklib.traffic(facts)
        self.client.ask("POST", "/files?path=/home/user/e", b"e2b", key=None, headers={**head, "Content-Type": "application/octet-stream"})
        self.expect(self.client.ask("GET", "/files?path=/home/user/e", key=None, headers=head).body == b"e2b", "content")
        self.client.e2b("GET", f"/sandboxes/{facts['sandboxID']}")
        self.client.e2b("DELETE", f"/sandboxes/{facts['sandboxID']}", status=204)

    def looks(self):
        path = self.path()
        self.expect(self.client.ask("GET", path).json["state"] == "running", "state")
        self.expect(self.client.ask("GET", path + "/stats").json["processes"] >= 0, "stats")
        self.client.ask("GET", path + "/logs")
        self.client.ask("GET", path + "/events?follow=false")
        self.client.ask("GET", "/v1/sandboxes?limit=5")
        self.client.ask("GET", "/metrics")

    def refused(self):
        self.client.ask("POST", "/v1/sandboxes", {"timeuot": 1}, 400)
        self.client.ask("POST", "/v1/run", {"command": ["true"], "policy": {"limits": {"memory": "900G"}}}, 403)
        self.client.ask("GET", self.path("/files?path=nowhere"), status=404)

    def renew(self):
        sandbox = self.mine.pop(self.dice.randrange(len(self.mine)))
        self.expect(self.client.ask("DELETE", f"/v1/sandboxes/{sandbox}").json["end"]["status"] == "deleted", "end")


def state(d):
    """What is there when nothing is going on."""
    daemon, launcher = d.process.pid, soaklib.launcher(d)
    return {"memory": {"zwingerd": soaklib.private(daemon), "launcher": soaklib.private(launcher)}, "resident": soaklib.resident(daemon),
            "descriptors": {"zwingerd": len(os.listdir(f"/proc/{daemon}/fd")), "launcher": len(os.listdir(f"/proc/{launcher}/fd"))},
            "processes": sorted(comm for _, comm, _ in soaklib.zw.descendants().values())}


def quiet(t, d, warm):
    """Nothing lives, nothing is remembered, and connections of those who left are closed."""
    most = warm["descriptors"]["zwingerd"] if warm else 25

    def is_quiet():
        soaklib.zw.reap_zombies()
        there = d.ask("GET", "/v1/sandboxes?state=running,paused,ended").json["sandboxes"]
        return not there and len(soaklib.zw.descendants()) == 2 and len(os.listdir(f"/proc/{d.process.pid}/fd")) <= most

    t.until(is_quiet, 60, lambda: f"all has ended and is forgotten: {soaklib.zw.descendants()}, {d.ask('GET', '/v1/sandboxes?state=running,paused,ended').body[:300]}")


def one_round(t, d, loads):
    end = time.monotonic() + ROUND
    threads = [threading.Thread(target=load.until, args=(end,)) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ROUND + 120)
    t.equal([e for load in loads for e in load.errors], [], "what failed")
    t.check(not any(thread.is_alive() for thread in threads), "the clients end")


def same_but_memory(s):
    return {k: v for k, v in s.items() if k not in ("memory", "resident")}


def test_everything_at_once(t):
    before = leftovers.Snapshot()
    folder = os.path.dirname(t.file(json.dumps(soaklib.LOOSE), "templates", "base.yaml"))
    d = serve(t, "--keep-record", f"{KEEP}s", "--templates", folder)
    seed = random.randrange(1 << 30)
    t.note(f"seed {seed}")
    loads = [Load(d, seed + i) for i in range(CLIENTS)]
    warm, requests = None, 0
    for number in range(ROUNDS):
        one_round(t, d, loads)
        quiet(t, d, warm)
        now = state(d)
        text = soaklib.counts_add_up(t, d)
        requests = soaklib.metric(text, "zwinger_http_requests_total")
        say(f"round {number + 1} of {ROUNDS}: {int(requests)} requests so far; {now['memory']['zwingerd'] >> 10} KiB of zwingerd, {now['memory']['launcher'] >> 10} of the launcher,"
            f" {now['descriptors']['zwingerd']} descriptors")
        t.equal(before.news(), [], f"left behind by round {number + 1}")
        if number == WARM - 1:
            warm = now
        if number >= WARM:
            t.equal(same_but_memory(now), same_but_memory(warm), f"after round {number + 1} as after round {WARM}")
            for name, room in MEMORY_MAY_GROW.items():
                grown = now["memory"][name] - warm["memory"][name]
                t.check(grown <= room, f"private memory of {name} has grown by {grown} bytes from {warm['memory'][name]}")
    total = {}
    for load in loads:
        for name, count in load.counts.items():
            total[name] = total.get(name, 0) + count
    say(f"steps: {total}")
    t.check(soaklib.metric(text, "zwinger_sandboxes_running") == 0, "running")
    soaklib.end(t, d)
    t.equal(before.news(), [], "left behind")


test_everything_at_once.limit = int(ROUNDS * (ROUND + 60)) + 120

soaklib.main(globals())
