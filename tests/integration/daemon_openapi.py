#!/usr/bin/python3 -B
"""The description of the native interface against what the daemon really answers: a walk through all of it."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import openapi  # noqa: E402
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon, wait_for  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller
# What this walk need not reach: it may be refused by name.
LATER = ("/fork", "/files/watch")


def serve(t):
    path = t.file(json.dumps({"version": 1, **LOOSE}), "loose.yaml")
    d = Daemon(t, "--ceiling", path, "--policy", path)
    return d, openapi.watch(d)


class Walk:
    def __init__(self, t, d):
        self.t, self.d = t, d

    def __call__(self, status, method, path, body=None, **options):
        r = self.d.ask(method, path, body, **options)
        self.t.equal(r.status, status, f"{method} {path}: {r.body[:400]}")
        return r


def walk_service(go):
    for path in ("/health", "/ready", "/metrics", "/v1/info", "/v1/templates", "/v1/openapi.json", "/v1/events?follow=false"):
        go(200, "GET", path)
    key = go(201, "POST", "/v1/keys", {"name": "k", "scope": "use", "expires_in": "1h"}).json
    go(200, "GET", "/v1/keys?limit=1")
    go(403, "POST", "/v1/sandboxes", {}, key=key["key"])
    go(204, "DELETE", f"/v1/keys/{key['id']}")
    go(404, "DELETE", f"/v1/keys/{key['id']}")
    go(401, "GET", "/v1/info", key=None)
    go(405, "PUT", "/v1/info")
    go(400, "POST", "/v1/keys", {"scope": "all", "more": 1})
    go(415, "POST", "/v1/run", b"x", headers={"Content-Type": "text/plain"})


def walk_runs(go, s):
    for body in ({"command": ["true"]}, {"shell": "cat; exit 3", "stdin": "x", "policy": LOOSE}, {"command": ["none-of-this-name"]},
                 {"command": ["sleep", "9"], "timeout": "50ms"}, {"shell": "kill -9 $$"}, {"shell": "printf '\\377'", "template": "python", "policy": LOOSE}):
        go(200, "POST", "/v1/run", body)
        if not set(body) & {"policy", "template"}:
            go(200, "POST", s + "/run", body)
    go(400, "POST", "/v1/run", {"command": ["true"], "policy": {"limits": {"memroy": 1}}})
    go(403, "POST", "/v1/run", {"command": ["true"], "policy": {"limits": {"memory": "300G"}}})
    go(404, "POST", "/v1/run", {"command": ["true"], "template": "none"})


def walk_processes(t, go, s):
    p = go(201, "POST", s + "/processes", {"shell": "read x; echo $x; printf '\\377' >&2", "stdin": True, "tag": "t"}, headers={"Idempotency-Key": "a"}).json
    go(200, "GET", s + "/processes")
    go(200, "GET", s + "/processes/tag:t")
    go(204, "POST", s + f"/processes/{p['pid']}/stdin?eof=true", b"line\n")
    go(200, "GET", s + f"/processes/{p['pid']}/output")
    go(409, "POST", s + f"/processes/{p['pid']}/stdin", b"line\n")
    p = go(201, "POST", s + "/processes", {"command": ["sleep", "1000"], "tty": {"columns": 80, "rows": 25}}).json
    go(204, "POST", s + f"/processes/{p['pid']}/resize", {"columns": 100, "rows": 30})
    go(204, "POST", s + f"/processes/{p['pid']}/signal", {"signal": "KILL", "tree": True})
    t.check(wait_for(lambda: go(200, "GET", s + f"/processes/{p['pid']}").json["state"] == "ended", 20), "it ends")
    go(200, "GET", s + f"/processes/{p['pid']}/output")
    go(404, "GET", s + "/processes/4242")
    go(200, "GET", s + "/logs")


def walk_files(go, s):
    f = s + "/files"
    go(201, "PUT", f + "?path=d/f&mode=0600", b"0123456789")
    go(200, "PUT", f + "?path=d/f", b"0123456789")
    go(409, "PUT", f + "?path=d/f&if_absent=true", b"x")
    go(200, "GET", f + "?path=d/f")
    go(206, "GET", f + "?path=d/f", headers={"Range": "bytes=2-3"})
    go(416, "GET", f + "?path=d/f", headers={"Range": "bytes=99-"})
    go(200, "GET", f + "/stat?path=d/f")
    go(201, "POST", f + "/directory", {"path": "e", "mode": "0700"})
    go(200, "POST", f + "/directory", {"path": "e"})
    go(200, "POST", f + "/move", {"source": "d/f", "destination": "e/g"})
    go(200, "POST", s + "/run", {"shell": "mkfifo p; ln -s /nowhere l; touch \"$(printf 'n\\377')\""})
    go(200, "GET", f + "/list?path=.&depth=3&limit=2")
    go(200, "GET", f + "/list?path=.&depth=3")
    go(400, "GET", f + "?path=p")
    go(400, "GET", f + "/stat")
    go(404, "GET", f + "/stat?path=none")
    go(409, "DELETE", f + "?path=e")
    go(204, "DELETE", f + "?path=e&recursive=true")


def walk_contexts(t, go, s):
    c = s + "/contexts"
    made = go(201, "POST", c, {"language": "python", "name": "n", "cwd": "/tmp", "env": {"A": "b"}}).json
    go(200, "GET", c)
    one = c + f"/{made['id']}"
    for code in ("1 + 1", "print(1)\n1 / 0", "import os; os._exit(3)", "display({'a': 1})"):
        go(200, "POST", one + "/execute", {"code": code, "timeout": "30s"})
        streamed = go(200, "POST", one + "/execute", {"code": code}, headers={"Accept": "text/event-stream"})
        t.contains(streamed.body, b"event: end", code)
    go(200, "POST", one + "/execute", {"code": "while True: pass", "timeout": "100ms"})
    go(204, "POST", one + "/interrupt")
    go(200, "POST", one + "/restart")
    go(200, "GET", one)
    go(400, "POST", one + "/execute", {"text": "1"})
    go(204, "DELETE", one)
    go(404, "GET", one)


def test_every_answer_is_as_described(t):
    d, api = serve(t)
    go = Walk(t, d)
    walk_service(go)
    made = go(201, "POST", "/v1/sandboxes", {"name": "n", "template": "base", "policy": LOOSE, "timeout": "5m", "on_timeout": "pause", "metadata": {"a": "b"}, "env": {"A": "b"}}).json
    s = f"/v1/sandboxes/{made['id']}"
    walk_runs(go, s)
    walk_processes(t, go, s)
    walk_files(go, s)
    walk_contexts(t, go, s)
    go(200, "POST", s + "/timeout", {"timeout": 60})
    go(200, "POST", s + "/pause")
    go(409, "POST", s + "/run", {"command": ["true"]})
    go(200, "GET", s + "/stats")
    go(200, "POST", s + "/resume")
    go(200, "GET", s + "/stats")
    go(200, "GET", "/v1/sandboxes?state=running,paused&metadata=a%3Db")
    go(200, "GET", s)
    go(200, "DELETE", s)
    go(410, "GET", s + "/stats")
    go(200, "GET", s + "/events")
    go(200, "GET", "/v1/sandboxes?state=ended&limit=1")
    go(200, "GET", "/v1/events?follow=false")
    go(404, "GET", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaaaaaa")
    missing = [o for o in api.uncovered() if not any(part in o for part in LATER)]
    t.equal(missing, [], "operations that this walk has not reached")
    t.equal(d.end(), 0, "exit status")


def test_what_is_not_supported_says_so_as_described(t):
    d, _ = serve(t)
    s = f"/v1/sandboxes/{d.ask('POST', '/v1/sandboxes', {}).json['id']}"
    r = d.ask("POST", s + "/fork", {})
    t.among(r.status, (201, 501), r.body)
    r = d.ask("GET", s + "/files", None)
    t.equal((r.status, r.code), (400, "bad_request"), r.body)


def test_a_wrong_answer_is_noticed(t):
    d, api = serve(t)
    r = d.ask("GET", "/v1/info")

    def noticed(change):
        body = r.json
        change(body)
        r.body = json.dumps(body).encode()
        try:
            api.check("GET", "/v1/info", r)
        except zw.Failure:
            return True
        finally:
            r.body = whole
        return False

    whole = r.body
    t.check(not noticed(lambda b: b.update(more=1)), "more members are welcome")
    t.check(noticed(lambda b: b.pop("levels")), "a member is missing")
    t.check(noticed(lambda b: b.update(running=-1)), "a value is wrong")
    t.check(noticed(lambda b: b.update(levels=["thick"])), "a word is wrong")


tap.main(globals())
