#!/usr/bin/python3 -B
"""What the daemon comes through: kills at any moment, restarts, the orderly end, and a host that runs out of something."""
import http.client
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import leftovers  # noqa: E402
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon, wait_for  # noqa: E402

LOOSE = {"version": 1, "enforcement": "best-effort"}  # this machine may not hold every limit for the caller
KILLS = int(os.environ.get("ZWINGER_TEST_KILLS", "20"))


def serve(t, *flags, before=None, **options):
    """A daemon; with `before` the next one on the state of that one, which has ended."""
    path = t.file(json.dumps(LOOSE), "policy.yaml")
    d = Daemon(t, "--ceiling", path, "--policy", path, *flags, state=before.state if before else options.pop("state", None), **options)
    if before:
        d.key = before.key
    return d


def create(t, d, headers=None, **wish):
    r = d.ask("POST", "/v1/sandboxes", wish, headers=headers)
    t.equal(r.status, 201, r.body)
    return r.json


def look(t, d, sandbox_id):
    r = d.ask("GET", f"/v1/sandboxes/{sandbox_id}")
    t.equal(r.status, 200, r.body)
    return r.json


def kill(d):
    d.process.kill()
    d.process.wait()


def nobody_left():
    zw.reap_zombies()
    return not zw.descendants()


# ---- Records ---------------------------------------------------------------------------------------------------------------


def test_records_outlive_the_daemon(t):
    d = serve(t)
    ids = [create(t, d, name=f"n{i}", template="python", policy=LOOSE, metadata={"n": str(i)}, timeout="60s", on_timeout="pause")["id"] for i in range(4)]
    deleted = d.ask("DELETE", f"/v1/sandboxes/{ids[0]}").json
    kill_time = time.time()
    t.equal(d.ask("POST", f"/v1/sandboxes/{ids[2]}/pause").status, 200, "pause")
    lived = look(t, d, ids[1])
    kill(d)
    d = serve(t, before=d)
    t.equal(look(t, d, ids[0]), deleted, "what had ended is told as before")
    now = look(t, d, ids[1])
    t.equal((now["state"], now["end"]["status"]), ("ended", "daemon_restarted"), now)
    t.check(now["end"]["at"] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(kill_time)), now["end"])
    t.equal({**now, "state": 0, "end": 0}, {**lived, "state": 0, "end": 0}, "all else is as it was")
    t.equal(look(t, d, ids[2])["end"]["status"], "daemon_restarted", "a paused one")

    def listed(query):
        return [s["id"] for s in d.ask("GET", "/v1/sandboxes" + query).json["sandboxes"]]

    t.equal(listed(""), [], "nothing lives")
    new = create(t, d)["id"]
    t.equal(listed("?state=running,ended"), [new, *reversed(ids)], "newest first, across the restart")
    t.equal(listed("?state=ended&metadata=n%3D2&template=python"), [ids[2]], "filters")
    r = d.ask("POST", f"/v1/sandboxes/{ids[1]}/run", {"command": ["true"]})
    t.equal((r.status, r.code), (410, "sandbox_ended"), r.body)
    t.equal(d.ask("DELETE", f"/v1/sandboxes/{ids[1]}").json, now, "deleted again")
    events = d.ask("GET", f"/v1/sandboxes/{ids[1]}/events").body.decode()
    t.contains(events, "daemon_restarted", "its events end")
    t.equal(d.end(), 0, "exit status")
    d = serve(t, before=d)
    t.equal(look(t, d, new)["end"]["status"], "daemon_stopped", "after the orderly end")
    t.equal(look(t, d, ids[1]), now, "the second restart changes nothing")


def test_records_are_forgotten_in_time(t):
    d = serve(t)
    ended = create(t, d)["id"]
    d.ask("DELETE", f"/v1/sandboxes/{ended}")
    lived = create(t, d)["id"]
    kill(d)
    d = serve(t, "--keep-record", "1ms", before=d)
    t.equal(d.ask("GET", f"/v1/sandboxes/{ended}").status, 404, "one that is too old")
    t.equal(look(t, d, lived)["state"], "ended", "one that has ended just now")


def test_idempotency_keys_outlive_the_daemon(t):
    d = serve(t)
    headers = {"Idempotency-Key": "k1"}
    first = create(t, d, headers=headers, name="one")
    kill(d)
    d = serve(t, before=d)
    r = d.ask("POST", "/v1/sandboxes", {"name": "one"}, headers=headers)
    t.equal((r.status, r.json["id"], r.headers.get("idempotency-replayed")), (201, first["id"], "true"), r.body)
    t.equal(d.ask("POST", "/v1/sandboxes", {"name": "two"}, headers=headers).status, 422, "another body")


def test_taking_over_is_refused_by_name(t):
    d = serve(t, "--on-restart", "adopt", wait=False)
    t.equal(d.process.wait(20), 125, "exit status")
    t.contains(d.errors(), "--on-restart", "the error")


# ---- Kills -----------------------------------------------------------------------------------------------------------------


class Load:
    """Clients that create, work, delete and run, until their daemon is gone; `told` is what they were told."""

    def __init__(self, d, count, seed):
        self.d, self.told, self.deleted, self.wrong = d, [], {}, []
        self.threads = [threading.Thread(target=self.work, args=(random.Random(seed * 100 + i),)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, dice):
        mine = []
        try:
            while True:
                what = dice.random()
                if what < 0.5 or not mine:
                    self.create(mine)
                elif what < 0.7:
                    self.expect(self.d.ask("POST", "/v1/run", {"command": ["true"]}), 200, 429)
                elif what < 0.85:
                    self.expect(self.d.ask("POST", f"/v1/sandboxes/{dice.choice(mine)}/processes", {"shell": "trap '' TERM; sleep 1000"}), 201)
                else:
                    gone = mine.pop(dice.randrange(len(mine)))
                    r = self.d.ask("DELETE", f"/v1/sandboxes/{gone}")
                    self.expect(r, 200)
                    self.deleted[gone] = r.json
        except (OSError, ValueError, http.client.HTTPException):
            pass  # killed: what was not answered whole was not told

    def create(self, mine):
        r = self.d.ask("POST", "/v1/sandboxes", {"metadata": {"k": "v"}})
        self.expect(r, 201, 429)
        if r.status == 201:
            mine.append(r.json["id"])
            self.told.append(r.json["id"])

    def expect(self, r, *wanted):
        if r.status not in wanted:
            self.wrong.append((r.status, r.body))

    def join(self):
        for thread in self.threads:
            thread.join(30)
        return not any(thread.is_alive() for thread in self.threads)


@tap.alone
def test_kills_at_random_moments_leave_nothing_and_no_lie(t):
    before = leftovers.Snapshot()
    seed = random.randrange(1 << 30)
    t.note(f"seed {seed}")
    dice = random.Random(seed)
    d, told, deleted = serve(t, "--max-sandboxes", "40"), [], {}
    for n in range(KILLS):
        load = Load(d, 4, seed + n)
        time.sleep(dice.uniform(0.02, 0.7))  # the moment of the kill: nothing is waited for
        kill(d)
        t.check(load.join(), "the clients end")
        t.equal(load.wrong, [], f"answers before kill {n}")
        t.until(nobody_left, 20, f"all processes are gone after kill {n}: {zw.descendants()}")
        told += load.told
        deleted.update(load.deleted)
        d = serve(t, "--max-sandboxes", "40", before=d)
        for sandbox_id in load.told:
            found = look(t, d, sandbox_id)
            if sandbox_id in load.deleted:
                t.equal(found, load.deleted[sandbox_id], "a deleted one")
            else:
                t.equal((found["state"], found["end"]["status"] in ("daemon_restarted", "deleted")), ("ended", True), found)
        t.equal(d.ask("GET", "/v1/sandboxes").json["sandboxes"], [], "nothing lives")
    t.check(len(told) >= KILLS, f"there was work: {len(told)} sandboxes, {len(deleted)} deleted")
    for sandbox_id in dice.sample(told, min(50, len(told))):
        t.equal(look(t, d, sandbox_id)["state"], "ended", "one of any time before")
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 20, "all processes are gone")
    t.equal(before.news(), [], "left behind")


def test_a_drained_service_lets_runs_end(t):
    d = serve(t, "--drain", "30s")
    lived = create(t, d)["id"]
    answer = []
    client = threading.Thread(target=lambda: answer.append(d.ask("POST", "/v1/run", {"shell": "sleep 1.5; echo done"})))
    waiting = d.connection()  # a new one would be refused or not be taken any more
    waiting.request("GET", "/health")
    waiting.getresponse().read()
    client.start()
    metric = "zwinger_sandboxes_running"
    t.until(lambda: f"{metric} 2" in d.ask("GET", "/metrics").body.decode(), 10, "the run is under way")
    d.process.send_signal(signal.SIGTERM)
    t.until(lambda: d.ask("GET", "/ready", key=None, connection=waiting).status == 503, 10, "no longer ready")
    r = d.ask("POST", "/v1/run", {"command": ["true"]}, connection=waiting)
    t.equal((r.status, r.code), (503, "unavailable"), r.body)
    client.join(30)
    t.equal((answer[0].status, answer[0].json["stdout"]), (200, "done\n"), answer[0].body)
    t.equal(d.process.wait(30), 0, "exit status")
    t.until(nobody_left, 10, f"all processes are gone: {zw.descendants()}")
    d = serve(t, before=d)
    t.equal(look(t, d, lived)["end"]["status"], "daemon_stopped", "why")


# ---- Running out -----------------------------------------------------------------------------------------------------------


def test_without_descriptors_work_is_refused_and_taken_again(t):
    d = serve(t, preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48)))
    made = []
    for _ in range(60):
        r = d.ask("POST", "/v1/sandboxes", {})
        if r.status != 201:
            break
        made.append(r.json["id"])
    t.equal((r.status, r.code), (503, "unavailable"), r.body)
    t.contains(r.json["message"], "descriptors", "the reason")
    t.check(len(made) > 5, f"{len(made)} before")
    t.equal(d.ask("GET", "/health").status, 200, "it serves")
    for sandbox_id in made[:3]:
        t.equal(d.ask("DELETE", f"/v1/sandboxes/{sandbox_id}").status, 200, "DELETE")
    create(t, d)
    t.equal(d.end(), 0, "exit status")


@tap.as_root
def test_a_full_disk_refuses_creation_and_keeps_serving(t):
    place = t.folder("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M,mode=0700", "tmpfs", place], check=True)
    t.at_end(lambda: subprocess.run(["umount", place], check=True))
    d = serve(t, state=os.path.join(place, "state"))
    first = create(t, d)["id"]
    with open(os.path.join(place, "filler"), "wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096):
                pass
        except OSError:
            pass
    for _ in range(200):  # what the log of the database has room for already
        r = d.ask("POST", "/v1/sandboxes", {"metadata": {"x": "y" * 4000}})
        if r.status != 201:
            break
        d.ask("DELETE", f"/v1/sandboxes/{r.json['id']}")
    t.equal((r.status, r.code), (507, "insufficient_storage"), r.body)
    t.equal(d.ask("POST", f"/v1/sandboxes/{first}/run", {"command": ["true"]}).status, 200, "what lives goes on")
    t.equal(d.ask("POST", "/v1/run", {"command": ["true"]}).status, 200, "a run needs no record")
    t.equal(d.ask("DELETE", f"/v1/sandboxes/{first}").json["end"]["status"], "deleted", "the end is told")
    os.unlink(os.path.join(place, "filler"))
    last = create(t, d)["id"]
    t.equal(d.end(), 0, "exit status")
    d = serve(t, before=d)
    t.equal(look(t, d, last)["end"]["status"], "daemon_stopped", "recorded again")
    t.equal(d.end(), 0, "exit status")


def test_clients_that_vanish_and_dawdle_leave_nothing_running(t):
    d = serve(t)
    body = json.dumps({"shell": "sleep 1000"})
    head = f"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {d.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = (head + body).encode()
    dice = random.Random(1)
    slow = [d.socket() for _ in range(8)]
    for s in slow:
        s.sendall(whole[:dice.randrange(1, len(whole))])  # and nothing more
    for _ in range(24):
        s = d.socket()
        s.sendall(whole[:dice.choice((len(whole), dice.randrange(len(whole))))])
        s.close()
    t.equal(d.ask("POST", "/v1/run", {"command": ["true"]}).status, 200, "others are served")
    t.check(wait_for(lambda: d.ask("GET", "/v1/info").json["running"] == 0, 20), "the runs of those who left have ended")
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 10, f"all processes are gone: {zw.descendants()}")


zw.become_subreaper()
tap.main(globals())
