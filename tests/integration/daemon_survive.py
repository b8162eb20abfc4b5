#!/usr/bin/python3 -B
"""What the daemon comes through: kills at any moment, restarts, the orderly end, and a host that runs out of something."""
import datetime
import http.client
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import leftovers  # noqa: E402
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon, events, read_until_closed, split_answers, wait_for  # noqa: E402

LOOSE = {"version": 1, "enforcement": "best-effort"}  # this machine may not hold every limit for the caller
KILLS = int(os.environ.get("ZWINGER_TEST_KILLS", "20"))
ADOPTING_KILLS = int(os.environ.get("ZWINGER_TEST_KILLS", "6"))


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


# ---- Taking over -----------------------------------------------------------------------------------------------------------


def carrying(t, *flags, before=None, **options):
    """A daemon whose sandboxes wait for the next one; it ends in order with the test."""
    d = serve(t, "--on-restart", "adopt", "--adopt-wait", "30s", *flags, before=before, **options)
    t.at_end(d.end)
    return d


def alive(name):
    return [comm for _, comm, state in zw.descendants().values() if state not in "ZX"].count(name)


def start(t, d, sandbox, shell, **wish):
    r = d.ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"shell": shell, **wish})
    t.equal(r.status, 201, r.body)
    return r.json


def output(t, d, sandbox, name, query="", **headers):
    r = d.ask("GET", f"/v1/sandboxes/{sandbox}/processes/{name}/output{query}", headers=headers)
    t.equal(r.status, 200, r.body)
    return events(r.body)


def text_of(found, stream="stdout"):
    return "".join(data["text"] for _, event, data in found if event == stream)


def read_some(d, sandbox, name, count, last=None):
    """The first `count` events of a stream that is then left: [(id, event, data)]"""
    c = d.connection()
    c.request("GET", f"/v1/sandboxes/{sandbox}/processes/{name}/output", headers={"Authorization": f"Bearer {d.key}", **({"Last-Event-ID": last} if last else {})})
    r, data = c.getresponse(), b""
    while data.count(b"\n\n") < count:
        data += r.readline()
    c.close()
    return events(data)


def test_what_was_started_goes_on_under_the_next_daemon(t):
    d = carrying(t)
    s = create(t, d, env={"A": "kept"}, name="n", metadata={"k": "v"}, timeout="90s")["id"]
    path = f"/v1/sandboxes/{s}"
    t.equal(d.ask("POST", path + "/run", {"shell": "mkfifo gate late; echo f > file"}).json["exit_code"], 0, "prepared")
    start(t, d, s, "cat; echo $A >&2; exit 4", tag="cat", stdin=True)
    start(t, d, s, "echo here; read x < gate; echo gone; exit 5", tag="ends")
    start(t, d, s, "echo early; read x < late; (sleep 0.1; echo never) & exit 6", tag="over")
    d.ask("POST", path + "/run", {"shell": "echo > late"})
    first = output(t, d, s, "tag:over")
    start(t, d, s, "stty size; cat", tag="tty", tty={"rows": 9, "columns": 33}, stdin=True)
    t.equal(d.ask("POST", path + "/processes/tag:cat/stdin", b"one\n").status, 204, "input")
    t.contains(read_some(d, s, "tag:tty", 1)[0][2]["text"], "9 33", "the terminal")
    before, lived = read_some(d, s, "tag:cat", 1), look(t, d, s)
    listed = d.ask("GET", path + "/processes").json["processes"]
    kill(d)
    d = carrying(t, before=d)
    now = look(t, d, s)
    t.equal({**now, "usage": 0}, {**lived, "usage": 0}, "the sandbox is as it was")
    t.equal(d.ask("GET", path + "/processes").json["processes"], listed, "and its processes")
    t.equal(d.ask("POST", path + "/processes/tag:cat/stdin?eof=true", b"two\n").status, 204, "input goes on")
    found = output(t, d, s, "tag:cat", **{"Last-Event-ID": before[-1][0]})
    t.equal((text_of(found), text_of(found, "stderr"), found[-1][2]["exit_code"]), ("two\n", "kept\n", 4), "behind what was read")
    t.equal(text_of(output(t, d, s, "tag:cat")), "one\ntwo\n", "and from the start")
    t.equal(output(t, d, s, "tag:over"), first, "one that had ended before")
    t.equal(d.ask("POST", path + "/run", {"shell": "echo $A; cat file; echo > gate"}).json["stdout"], "kept\nf\n", "environment and files")
    t.equal((text_of(output(t, d, s, "tag:ends"))), "here\ngone\n", "one that ends now")
    t.equal(d.ask("POST", path + "/processes/tag:tty/stdin?eof=true", b"typed\n").status, 204, "into the terminal")
    t.contains(text_of(output(t, d, s, "tag:tty"), "tty"), "typed", "and out of it")
    t.equal(d.ask("GET", path + "/files?path=file").body, b"f\n", "the program for files")
    r = d.ask("POST", path + "/fork", {})
    t.equal((r.status, r.json["sandboxes"][0]["metadata"]), (201, {"k": "v"}), r.body)
    fork = r.json["sandboxes"][0]["id"]
    t.equal(d.ask("POST", f"/v1/sandboxes/{fork}/run", {"shell": "echo $A; cat file"}).json["stdout"], "kept\nf\n", "a fork of it")
    t.equal(d.ask("DELETE", path).json["end"]["status"], "deleted", "DELETE")
    t.equal(os.listdir(os.path.join(d.state, "sessions")), [fork], "sockets")


def test_how_a_process_ended_while_nobody_was_there_is_told(t):
    d = carrying(t)
    s = create(t, d)["id"]
    start(t, d, s, "sleep 0.3; seq 20000; exit 7", tag="long")  # more than a pipe holds
    start(t, d, s, "sleep 0.3; kill -9 $$", tag="killed")
    at = time.time()
    kill(d)
    t.equal(alive("zwinger-session"), 1, "its supervisor waits")
    t.until(lambda: alive("sleep") == 0, 20, "they went on")
    d = carrying(t, before=d)
    found = output(t, d, s, "tag:long")
    t.equal(text_of(found), "".join(f"{i}\n" for i in range(1, 20001)), "nothing is lost")
    t.equal((found[-1][2]["exit_code"], found[-1][2]["dropped"]), (7, 0), found[-1])
    found = output(t, d, s, "tag:killed")
    t.equal((found[-1][2]["signal"], found[-1][2]["status"]), (9, "signaled"), found[-1])
    t.check(found[-1][2]["ended_at"] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)), found[-1])


def test_no_byte_is_lost_or_told_twice(t):
    """Kills while output comes fast, to a reader and to nobody."""
    d = carrying(t)
    s = create(t, d)["id"]
    line = "x" * 56
    for tag in ("read", "unread"):
        start(t, d, s, f"i=100000; while [ $i -lt 140000 ]; do echo ${{i}}{line}; i=$((i+1)); done; exit 3", tag=tag)
    got, last = "", None
    dice = random.Random()
    for _ in range(4):
        some = read_some(d, s, "tag:read", dice.randrange(1, 8), last)
        got, last = got + text_of(some), some[-1][0]
        kill(d)
        d = carrying(t, before=d)
    whole = "".join(f"{i}{line}\n" for i in range(100000, 140000))
    t.check(got == whole[:len(got)], "what was read before the kills")
    rest = output(t, d, s, "tag:read", **{"Last-Event-ID": last})
    t.check(got + text_of(rest) == whole, f"{len(got)} + {len(text_of(rest))} of {len(whole)} bytes")
    t.equal((rest[-1][2]["exit_code"], rest[-1][2]["dropped"]), (3, 0), rest[-1])
    t.check(text_of(output(t, d, s, "tag:unread")) == whole, "what nobody has read")


def test_what_is_over_the_kept_bytes_is_counted(t):
    d = carrying(t)
    s = create(t, d, policy={**LOOSE, "limits": {"output": 200000}})["id"]
    start(t, d, s, "seq 100000; read x", tag="t", stdin=True)
    size = len("".join(f"{i}\n" for i in range(1, 100001)))
    t.until(lambda: d.ask("GET", f"/v1/sandboxes/{s}/processes/tag:t").json["dropped"] == size - 200000, 20, "all is written")
    kill(d)
    d = carrying(t, before=d)
    t.equal(d.ask("GET", f"/v1/sandboxes/{s}/processes/tag:t").json["dropped"], size - 200000, "dropped")
    d.ask("POST", f"/v1/sandboxes/{s}/processes/tag:t/stdin", b"\n")
    text = text_of(output(t, d, s, "tag:t"))
    t.equal((len(text), text[-7:]), (200000, "100000\n"), "what is kept")


def test_clocks_go_on(t):
    d = carrying(t)
    short, asleep, long, frozen = (create(t, d, **wish)["id"] for wish in (
        {"timeout": "1500ms"}, {"timeout": "1500ms", "on_timeout": "pause"}, {"timeout": "80s"}, {"timeout": "70s"}))
    start(t, d, long, "sleep 1000", timeout="4s", tag="timed")
    t.equal(d.ask("POST", f"/v1/sandboxes/{frozen}/pause").status, 200, "pause")
    expires = look(t, d, long)["expires_at"]
    kill(d)
    time.sleep(2)  # the time of two of them, with nobody to end them
    d = carrying(t, before=d)
    t.until(lambda: look(t, d, short)["end"] is not None, 5, "one whose time is over ends")
    t.equal(look(t, d, short)["end"]["status"], "timeout", "why")
    t.until(lambda: look(t, d, asleep)["state"] == "paused", 5, "and another one is paused")
    t.between(len(expires), 20, 30, expires)
    t.check(abs(seconds(look(t, d, long)["expires_at"]) - seconds(expires)) < 1, "expiry")
    t.equal(output(t, d, long, "tag:timed")[-1][2]["status"], "timeout", "the clock of a process")
    t.equal((look(t, d, frozen)["state"], look(t, d, frozen)["expires_at"]), ("paused", None), "a paused one")
    t.equal(d.ask("POST", f"/v1/sandboxes/{frozen}/run", {"command": ["true"]}).status, 409, "stands still")
    t.equal(d.ask("POST", f"/v1/sandboxes/{frozen}/resume").status, 200, "resume")
    t.between(seconds(look(t, d, frozen)["expires_at"]) - time.time(), 40, 71, "its time goes on")
    t.equal(d.ask("POST", f"/v1/sandboxes/{frozen}/run", {"command": ["true"]}).json["exit_code"], 0, "and it")


def seconds(timestamp):
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def execute(t, d, sandbox, code, context="python", **members):
    c = d.connection(timeout=60)
    r = d.ask("POST", f"/v1/sandboxes/{sandbox}/contexts/{context}/execute", {"code": code, **members}, connection=c)
    c.close()
    t.equal(r.status, 200, r.body)
    return r.json


LANGUAGES = {  # a program that has to be there, x = 1, x shown, what never ends, and a file that is not there yet is waited for
    "python": ("python3", "x = 1", "print(x)", "import time\nwhile True: time.sleep(0.1)"),
    "bash": ("bash", "x=1", "echo $x", "while :; do sleep 0.1; done"),
    "javascript": ("node", "globalThis.x = 1", "console.log(x)", "for (;;) ;"),
}


def languages():
    return {name: words[1:] for name, words in LANGUAGES.items() if shutil.which(words[0])}


def test_contexts_keep_their_state(t):
    d = carrying(t)
    s = create(t, d, env={"A": "kept"})["id"]
    path = f"/v1/sandboxes/{s}/contexts"
    for name, (make, _, _) in languages().items():
        t.equal(execute(t, d, s, make, name)["status"], "ok", name)
    r = d.ask("POST", path, {"name": "own", "cwd": "/tmp", "env": {"B": "own"}})
    t.equal(r.status, 201, r.body)
    own = r.json["id"]
    execute(t, d, s, "import os; y = os.environ['A'] + os.environ['B'] + os.getcwd()", own)
    r = d.ask("POST", path, {"language": "bash"})
    gone = r.json["id"]
    t.equal(execute(t, d, s, "exit 3", gone)["context_state"], "restarted", "one whose interpreter ends")
    listed = d.ask("GET", path).json["contexts"]
    for n in (1, 2):
        kill(d)
        d = carrying(t, before=d)
        t.equal(d.ask("GET", path).json["contexts"], listed, f"the list after kill {n}")
        for name, (_, show, _) in languages().items():
            r = execute(t, d, s, show, name)
            t.equal((r["stdout"], r["fresh"], r["execution_count"]), ("1\n", False, n + 1), r)
        t.equal(execute(t, d, s, "print(y)", own)["stdout"], "keptown/tmp\n", "another one")
        t.equal(execute(t, d, s, "echo new", gone)["stdout"], "new\n", "and one that began anew")
        listed = d.ask("GET", path).json["contexts"]
    t.equal(d.ask("DELETE", f"{path}/{own}").status, 204, "DELETE")
    kill(d)
    d = carrying(t, before=d)
    t.lacks([c["id"] for c in d.ask("GET", path).json["contexts"]], own, "a removed one")


def test_what_ran_in_a_context_is_interrupted_and_its_state_stays(t):
    d = carrying(t)
    s = create(t, d)["id"]
    left = []
    for name, (make, _, endless) in languages().items():
        execute(t, d, s, make, name)
        c = d.connection()
        left.append(c)  # open until the kill
        c.request("POST", f"/v1/sandboxes/{s}/contexts/{name}/execute", json.dumps({"code": endless}), {
            "Authorization": f"Bearer {d.key}", "Content-Type": "application/json"})
    t.until(lambda: {c["state"] for c in d.ask("GET", f"/v1/sandboxes/{s}/contexts").json["contexts"]} == {"busy"}, 20, "all are busy")
    kill(d)
    d = carrying(t, before=d)
    for name, (_, show, _) in languages().items():
        r = execute(t, d, s, show, name)
        t.equal((r["stdout"].splitlines()[-1:], r["fresh"]), (["1"], False), r)


@tap.alone
def test_a_context_is_told_the_truth_about_at_any_kill(t):
    """Executions without a pause, kills within them: what is told as executed is executed, and the state is there or said to be new."""
    d = carrying(t)
    s = create(t, d)["id"]
    dice, told, lost = random.Random(), 0, 0
    execute(t, d, s, "n = 0", timeout="30s")
    for k in range(ADOPTING_KILLS):
        threading.Timer(dice.uniform(0.01, 0.3), d.process.kill).start()
        try:
            while True:
                r = execute(t, d, s, f"n += 1; print(n, '{'x' * dice.randrange(3000)}')")
                told = int(r["stdout"].split()[0])
        except (OSError, ValueError, http.client.HTTPException):
            d.process.wait()
        d = carrying(t, before=d)
        r = execute(t, d, s, "print(n)")
        if r["fresh"]:
            lost += 1
            told = 0
            execute(t, d, s, "n = 0")
            continue
        # One more may have been executed, of which nobody was told.
        t.check(told <= int(r["stdout"].split()[-1]) <= told + 1, f"kill {k}: told {told}, then {r}")
        told = int(r["stdout"].split()[-1])
    t.note(f"{lost} of {ADOPTING_KILLS} kills cost the interpreter")
    t.check(lost <= 1, "an interpreter is lost in an instant alone")


def test_the_interface_of_e2b_goes_on(t):
    templates = t.tmp("templates")
    os.mkdir(templates, 0o755)
    with open(os.path.join(templates, "base.yaml"), "w", encoding="utf-8") as f:
        json.dump(LOOSE, f)
    d = carrying(t, "--templates", templates)
    wish = {"templateID": "base", "timeout": 60, "metadata": {"k": "v"}, "envVars": {"A": "kept"}, "network": {"allowPublicTraffic": False}}
    r = d.ask("POST", "/v2/sandboxes", wish, key=None, headers={"X-API-KEY": d.key})
    t.equal(r.status, 201, r.body)
    s, facts = r.json["sandboxID"], r.json
    start(t, d, s, "echo served > index.html; exec python3 -m http.server 8000", tag="server")

    def served(**headers):
        return d.ask("GET", "/index.html", key=None, headers={"Host": f"8000-{s}.localhost", **headers})

    token = {"e2b-traffic-access-token": facts["trafficAccessToken"]}
    t.until(lambda: served(**token).status == 200, 20, "the server serves")
    files = {"e2b-sandbox-id": s, "e2b-sandbox-port": "49983", "X-Access-Token": facts["envdAccessToken"]}
    kill(d)
    d = carrying(t, "--templates", templates, before=d)
    t.equal((served(**token).body, served().status), (b"served\n", 403), "traffic, and none without its token")
    t.equal(d.ask("GET", "/files?path=index.html", key=None, headers=files).body, b"served\n", "files, by the token of before")
    listed = d.ask("GET", "/v2/sandboxes", key=None, headers={"X-API-KEY": d.key}).json
    t.equal([(x["sandboxID"], x["metadata"]) for x in listed], [(s, {"k": "v"})], "the list")
    t.equal(d.ask("POST", f"/v1/sandboxes/{s}/run", {"shell": "echo $A"}).json["stdout"], "kept\n", "environment")


def test_a_run_ends_with_its_client(t):
    d = carrying(t)
    s = create(t, d)["id"]
    clients = []
    for path in ("/v1/run", f"/v1/sandboxes/{s}/run"):
        c = d.connection()
        clients.append(c)
        c.request("POST", path, json.dumps({"command": ["sleep", "986"]}), {"Authorization": f"Bearer {d.key}", "Content-Type": "application/json"})
    t.until(lambda: alive("sleep") == 2, 10, "they run")
    kill(d)
    d = carrying(t, before=d)
    t.until(lambda: alive("sleep") == 0, 10, "they have ended")
    t.equal(d.ask("GET", f"/v1/sandboxes/{s}/processes").json["processes"], [], "nor are they listed")
    t.equal(look(t, d, s)["state"], "running", "the sandbox lives")


def test_nobody_waits_for_a_daemon_for_ever(t):
    d = serve(t, "--on-restart", "adopt", "--adopt-wait", "1500ms")
    ids = [create(t, d)["id"] for _ in range(3)]
    start(t, d, ids[0], "trap '' TERM; sleep 1000")
    d.ask("POST", f"/v1/sandboxes/{ids[1]}/pause")
    kill(d)
    time.sleep(0.5)
    t.equal(alive("zwinger-session"), 3, "they wait")
    t.until(nobody_left, 20, f"all are gone: {zw.descendants()}")
    d = carrying(t, before=d)
    t.equal({look(t, d, i)["end"]["status"] for i in ids}, {"daemon_restarted"}, "found as ended")
    t.equal(os.listdir(os.path.join(d.state, "sessions")), [], "sockets")


def test_a_daemon_that_takes_nothing_over_ends_all(t):
    d = carrying(t)
    s = create(t, d)["id"]
    start(t, d, s, "sleep 1000")
    kill(d)
    d = serve(t, before=d)
    t.equal(look(t, d, s)["end"]["status"], "daemon_restarted", "as ever")
    t.until(lambda: alive("zwinger-session") == 0, 10, "and it is gone")
    t.equal(d.end(), 0, "exit status")


def test_a_living_daemon_loses_nothing_and_a_failing_one_either(t):
    d = carrying(t)
    s = create(t, d)["id"]
    start(t, d, s, "cat", tag="cat", stdin=True)
    folder = os.open(os.path.join(d.state, "sessions"), os.O_PATH)
    t.at_end(os.close, folder)
    t.equal(os.stat(folder).st_mode & 0o777, 0o700, "mode of the folder")
    thief = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    t.at_end(thief.close)
    thief.settimeout(0.5)
    thief.connect(f"/proc/self/fd/{folder}/{s}")
    thief.send(b'{"t":"adopt","id":2147483647}')
    try:
        t.fail(f"it was answered: {thief.recv(65536)}")
    except TimeoutError:
        pass
    t.equal(d.ask("POST", f"/v1/sandboxes/{s}/processes/tag:cat/stdin", b"x\n").status, 204, "the daemon has it")
    second = serve(t, "--on-restart", "adopt", wait=False, state=d.state)
    t.equal(second.process.wait(20), 1, "a second daemon")
    thief.close()
    kill(d)
    busy = socket.create_server(("127.0.0.1", 0))
    t.at_end(busy.close)
    failed = serve(t, "--on-restart", "adopt", wait=False, before=d, listen=(f"127.0.0.1:{busy.getsockname()[1]}",))
    t.equal(failed.process.wait(20), 1, "one whose address is taken")
    d = carrying(t, before=d)
    t.equal(d.ask("POST", f"/v1/sandboxes/{s}/processes/tag:cat/stdin?eof=true", b"y\n").status, 204, "the next one has it")
    t.equal(text_of(output(t, d, s, "tag:cat")), "x\ny\n", "output")
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 10, f"an orderly end leaves nobody: {zw.descendants()}")


# ---- Kills -----------------------------------------------------------------------------------------------------------------


class Load:
    """Clients that create, work, delete and run, until their daemon is gone; `told` is what they were told."""

    def __init__(self, d, count, seed, owned=(), also=()):
        self.also = also  # statuses that are fine beside the usual
        self.d, self.told, self.deleted, self.wrong = d, [], {}, []
        self.unwanted = set()  # its deletion was asked for
        self.threads = [threading.Thread(target=self.work, args=(random.Random(seed * 100 + i), list(owned[i::count]))) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, dice, mine):
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
                    self.unwanted.add(gone)
                    r = self.d.ask("DELETE", f"/v1/sandboxes/{gone}")
                    self.expect(r, 200)
                    if r.status == 200:
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
        if r.status not in wanted and r.status not in self.also:
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


@tap.alone
def test_kills_lose_no_sandbox_that_is_taken_over(t):
    before = leftovers.Snapshot()
    seed = random.randrange(1 << 30)
    t.note(f"seed {seed}")
    dice = random.Random(seed)
    d, mine, deleted = carrying(t, "--max-sandboxes", "30"), [], {}
    for n in range(ADOPTING_KILLS):
        load = Load(d, 4, seed + n, mine)
        time.sleep(dice.uniform(0.02, 0.7))  # the moment of the kill: nothing is waited for
        kill(d)
        t.check(load.join(), "the clients end")
        t.equal(load.wrong, [], f"answers before kill {n}")
        deleted.update(load.deleted)
        d = carrying(t, "--max-sandboxes", "30", before=d)
        mine = [i for i in [*mine, *load.told] if i not in deleted]
        living = {s["id"]: s for s in d.ask("GET", "/v1/sandboxes").json["sandboxes"]}
        for sandbox_id in mine:
            found = look(t, d, sandbox_id)
            state = (found["state"], (found["end"] or {}).get("status"))
            # The answer to a deletion may not have come, nor have been written.
            t.among(state, [("running", None), *([("ended", "deleted"), ("ended", "daemon_restarted")] if sandbox_id in load.unwanted else [])], found)
            t.equal(found["state"] == "running", sandbox_id in living, "in the list")
        for sandbox_id in living:
            r = d.ask("POST", f"/v1/sandboxes/{sandbox_id}/run", {"command": ["echo", "it lives"]})
            t.equal((r.status, r.status == 200 and r.json["stdout"]), (200, "it lives\n"), r.body)
        for sandbox_id in load.deleted:
            t.equal(look(t, d, sandbox_id), load.deleted[sandbox_id], "a deleted one")
        mine = [i for i in mine if i in living]
    t.check(len(mine) + len(deleted) > ADOPTING_KILLS / 2, f"there was work: {len(mine)} sandboxes, {len(deleted)} deleted")
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 20, "all processes are gone")
    t.equal(before.news(), [], "left behind")


@tap.alone
def test_the_orderly_end_under_load(t):
    before = leftovers.Snapshot()
    d = serve(t, "--max-sandboxes", "40", "--drain", "20s")
    for n in range(3):
        load = Load(d, 6, n, also=(503, 410))  # it takes no new work; its sandboxes have ended
        t.until(lambda: len(load.told) >= 12, 30, "there is work")
        start = time.monotonic()
        t.equal(d.end(timeout=40), 0, "exit status")
        took = time.monotonic() - start
        t.check(load.join(), "the clients end")
        t.equal(load.wrong, [], "answers")
        t.check(took < 15, f"it took {took} s: nothing of this load lasts")
        t.until(nobody_left, 20, f"all processes are gone: {zw.descendants()}")
        d = serve(t, "--max-sandboxes", "40", "--drain", "20s", before=d)
        for sandbox_id in load.told:
            found = look(t, d, sandbox_id)
            if sandbox_id in load.deleted:
                t.equal(found, load.deleted[sandbox_id], "a deleted one")
            else:
                t.equal((found["state"], found["end"]["status"] in ("daemon_stopped", "deleted")), ("ended", True), found)
    t.equal(d.end(), 0, "exit status")
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


def children_called(pid, name):
    return [p for p, (parent, comm, _) in zw.descendants().items() if parent == pid and comm == name]


def test_more_at_once_than_the_launcher_takes(t):
    d = serve(t, "--max-sandboxes", "60")
    launcher, = children_called(d.process.pid, "zwinger")
    answers = []

    def ask():
        answers.append(d.ask("POST", "/v1/sandboxes", {"policy": {**LOOSE, "env": {"set": {"FILLER": "x" * 20000}}}}))

    clients = [threading.Thread(target=ask) for _ in range(70)]
    os.kill(launcher, signal.SIGSTOP)
    for client in clients:
        client.start()
    refused = wait_for(lambda: len(answers) >= 10, 20)
    t.equal(d.ask("GET", "/health").status, 200, "it serves meanwhile")
    os.kill(launcher, signal.SIGCONT)
    for client in clients:
        client.join(60)
    t.check(refused, "those beyond --max-sandboxes are told at once")
    t.equal(sorted(a.status for a in answers), [201] * 60 + [429] * 10, [a.body for a in answers if a.status not in (201, 429)])
    for a in answers:
        if a.status == 429:
            t.check(a.code == "busy" and a.json["hint"] and int(a.headers["retry-after"]) > 0, (a.headers, a.body))
    gone = next(a.json["id"] for a in answers if a.status == 201)
    t.equal(d.ask("DELETE", f"/v1/sandboxes/{gone}").status, 200, "DELETE")
    create(t, d)
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 20, f"all processes are gone: {zw.descendants()}")


def ask_many(t, d, path, count):
    """Requests on as many connections; the sockets, of which none is read."""
    text = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {d.key}\r\nConnection: close\r\n\r\n".encode()
    sockets = [d.socket(60) for _ in range(count)]
    for s in sockets:
        s.sendall(text)
    return sockets


def statuses(sockets):
    found = []
    for s in sockets:
        found += [a[0] for a in split_answers(read_until_closed(s)[0])]
        s.close()
    return found


def test_a_sandbox_that_cannot_be_asked_holds_up_nobody(t):
    d = serve(t)
    first = create(t, d)["id"]
    supervisor, = [p for p, (_, comm, _) in zw.descendants().items() if comm == "zwinger-session"]
    other = create(t, d)["id"]
    path = f"/v1/sandboxes/{first}"
    for last in (False, True):
        os.kill(supervisor, signal.SIGSTOP)
        waiting = ask_many(t, d, path + "/stats", 700)
        poll = select.poll()
        for s in waiting:
            poll.register(s, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(20000)}
        answered = [s for s in waiting if s.fileno() in ready]
        t.check(answered, "some are refused at once")
        t.equal(set(statuses(answered)), {429}, "those that are")
        for method, rest, body in (("POST", "/run", {"command": ["true"]}), ("POST", "/processes", {"command": ["true"]}), ("POST", "/pause", None), ("POST", "/contexts/bash/execute", {"code": "true"}),
                                   ("GET", "/files/list?path=.", None), ("GET", "/stats", None)):
            r = d.ask(method, path + rest, body)
            t.equal((r.status in (429, 503), bool(r.json["hint"]), "retry-after" in r.headers), (True, True, True), f"{method} {rest}: {r.status} {r.body}")
        t.equal(d.ask("GET", path).json["state"], "running", "what needs no supervisor")
        t.equal(d.ask("POST", f"/v1/sandboxes/{other}/run", {"command": ["true"]}).status, 200, "another sandbox")
        t.equal(d.ask("GET", "/metrics").status, 200, "metrics")
        if last:
            t.equal(d.ask("DELETE", path).json["end"]["status"], "deleted", "DELETE")
            os.kill(supervisor, signal.SIGCONT)
        else:
            os.kill(supervisor, signal.SIGCONT)
        rest = statuses([s for s in waiting if s not in answered])
        t.check(len(rest) == 700 - len(answered) and set(rest) <= ({200, 429, 410} if last else {200, 429}), f"the others: {sorted(set(rest))}, {len(rest)}")
        t.check(last or 200 in rest, "most are answered when it goes on")
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 20, f"all processes are gone: {zw.descendants()}")


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


def test_a_full_sandbox_says_so_and_goes_on(t):
    d = serve(t)
    small = {**LOOSE, "filesystem": {"scratch": {"size": "1M"}}}
    path = f"/v1/sandboxes/{create(t, d, policy=small)['id']}"
    r = d.ask("PUT", path + "/files?path=big", b"x" * (3 << 20))
    t.equal((r.status, r.code, bool(r.json["hint"])), (507, "insufficient_storage", True), r.body)
    t.equal(d.ask("GET", path + "/files/list?path=.").json["entries"], [], "nothing is left of it")
    t.equal(d.ask("PUT", path + "/files?path=fits", b"x" * (700 << 10)).status, 201, "what fits")
    r = d.ask("PUT", path + "/files?path=fits", b"y" * (700 << 10))
    t.equal(r.status, 507, "a file is replaced by a whole one beside it")
    t.equal(d.ask("GET", path + "/files?path=fits").body, b"x" * (700 << 10), "the old one")
    r = d.ask("POST", path + "/files/directory", {"path": "/dev/full/x"})
    t.equal(r.status, 400, r.body)
    t.equal(d.ask("DELETE", path + "/files?path=fits").status, 204, "DELETE")
    t.equal(d.ask("PUT", path + "/files?path=fits", b"y" * (700 << 10)).status, 201, "there is room again")
    t.equal(d.ask("POST", path + "/run", {"command": ["cat", "fits"]}).json["stdout_bytes"], 700 << 10, "work goes on")


@tap.as_user
@tap.alone
def test_where_no_process_can_be_made(t):
    mine = 0
    for name in os.listdir("/proc"):
        try:
            mine += len(os.listdir(f"/proc/{name}/task")) if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid() else 0
        except OSError:
            pass  # it has ended
    most = mine + 40
    d = serve(t, preexec=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (most, most)))
    made = []
    for _ in range(60):
        r = d.ask("POST", "/v1/sandboxes", {})
        if r.status != 201:
            break
        made.append(r.json["id"])
    t.equal((r.status, r.code, bool(r.json["hint"]), "retry-after" in r.headers), (503, "unavailable", True, True), r.body)
    t.check(len(made) > 3, f"{len(made)} before")
    r = d.ask("POST", "/v1/run", {"command": ["true"]})
    t.equal((r.status, r.code), (503, "unavailable"), r.body)
    for sandbox_id in made[:3]:
        t.equal(d.ask("DELETE", f"/v1/sandboxes/{sandbox_id}").status, 200, "DELETE")
    t.until(lambda: d.ask("POST", "/v1/run", {"command": ["true"]}).status == 200, 20, "there is room again")
    t.equal(d.end(), 0, "exit status")
    t.until(nobody_left, 20, f"all processes are gone: {zw.descendants()}")


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
