#!/usr/bin/python3 -B
"""The interface of E2B, spoken as the JavaScript SDK does: control plane, dispatch, tokens, files over HTTP, user ports."""
import base64
import gzip
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
from certificates import Authority  # noqa: E402
from daemon import Answer, Daemon, read_until_closed, wait_for  # noqa: E402

LOOSE = "enforcement: best-effort\n"  # this machine may not hold every limit for the caller


def serve(t, *flags, ceiling="", template="", state=None):
    folder = t.tmp("templates")
    os.mkdir(folder, 0o755)
    for name in ("base", "code-interpreter-v1", "other"):
        with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as f:
            f.write("version: 1\n" + LOOSE + template)
    path = t.file("version: 1\n" + LOOSE + ceiling, "ceiling.yaml")
    return E2B(Daemon(t, "--ceiling", path, "--templates", folder, *flags, state=state))


def again(t, e, ceiling=""):
    """The same state, after a restart."""
    path = t.file("version: 1\n" + LOOSE + ceiling, "ceiling.yaml")
    d = Daemon(t, "--ceiling", path, *e.daemon.flags[2:], state=e.daemon.state)
    d.key = e.daemon.key
    return E2B(d)


class E2B:
    """The control plane: bodies are chunked, as those of the SDK."""

    def __init__(self, daemon):
        self.daemon, self.t = daemon, daemon.t
        self.key = "e2b_" + daemon.key.removeprefix("zwk_")

    def send(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.daemon.connection(timeout=30)
        try:
            c.request(method, path, body, headers or {}, encode_chunked=body is not None and not isinstance(body, bytes))
            r = c.getresponse()
            return Answer(r.status, r.getheaders(), r.read())
        finally:
            if connection is None:
                c.close()

    def ask(self, method, path, body=None, status=None, headers=None):
        h = {"X-API-KEY": self.key, "browser": "unknown", "lang": "js", "publisher": "e2b", **(headers or {})}
        chunks = None
        if body is not None:
            h |= {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
            chunks = iter([json.dumps(body).encode()])
        r = self.send(method, path, chunks, h)
        if status is not None:
            self.t.equal(r.status, status, f"{method} {path}: {r.body[:500]}")
        return r

    def create(self, **wish):
        return Sandbox(self, self.ask("POST", "/v2/sandboxes", {"templateID": "base", **wish}, 201).json)

    def refused(self, method, path, status, body=None):
        """An error in the form that the SDK looks at."""
        r = self.ask(method, path, body, status)
        self.t.equal(r.json["code"], status, f"{method} {path}: code of the body")
        self.t.check(isinstance(r.json["message"], str) and r.json["message"], "a message")
        return r.json["message"]


class Sandbox:
    def __init__(self, e, facts):
        self.e, self.t, self.facts = e, e.t, facts
        self.id, self.token = facts["sandboxID"], facts["envdAccessToken"]
        self.path = "/sandboxes/" + self.id

    def ask(self, method, path="", body=None, status=None):
        return self.e.ask(method, self.path + path, body, status)

    def place(self, port=49983, **more):
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port), **more}

    def envd(self, method, path, body=None, status=None, token=True, **headers):
        h = self.place(**headers)
        if token:
            h["X-Access-Token"] = self.token if token is True else token
        r = self.e.send(method, path, body, h)
        if status is not None:
            self.t.equal(r.status, status, f"{method} {path}: {r.body[:500]}")
        return r

    def alive(self):
        return self.envd("GET", "/health", token=False).status

    def shell(self, line):
        r = self.e.daemon.ask("POST", f"/v1/sandboxes/{self.id}/run", {"shell": line})
        self.t.equal(r.status, 200, r.body)
        return r.json["stdout"]

    def start(self, *argv):
        r = self.e.daemon.ask("POST", f"/v1/sandboxes/{self.id}/processes", {"command": list(argv)})
        self.t.equal(r.status, 201, r.body)

    def port(self, port, method="GET", path="/", body=None, headers=None, connection=None):
        return self.e.send(method, path, body, {"Host": f"{port}-{self.id}.localhost", **(headers or {})}, connection)


def ids(r):
    return [x["sandboxID"] for x in r.json]


# ---- Life ------------------------------------------------------------------------------------------------------------------


def test_a_sandbox_is_created_looked_at_and_killed(t):
    e = serve(t, "--domain", "sbx.example.test:8443")
    s = e.create(metadata={"job": "42"}, envVars={"MODE": "test"}, secure=True, unknown={"is": "ignored"})
    t.check(set(s.facts) >= {"sandboxID", "templateID", "envdVersion", "envdAccessToken", "trafficAccessToken", "domain"}, s.facts)
    t.equal((s.facts["domain"], s.facts["trafficAccessToken"], s.facts["templateID"]), ("sbx.example.test:8443", None, "base"), s.facts)
    t.check(tuple(map(int, s.facts["envdVersion"].split("."))) >= (0, 6, 4), "the version")
    info = s.ask("GET", status=200).json
    t.equal((info["state"], info["metadata"], info["envdAccessToken"]), ("running", {"job": "42"}, s.token), info)
    t.check(info["cpuCount"] >= 1 and info["memoryMB"] == 512, info)
    t.equal(info["lifecycle"], {"onTimeout": "kill", "autoResume": False}, info)
    t.equal(s.shell("echo $MODE $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID"), f"test true {s.id} base\n", "the environment")
    t.equal(s.alive(), 204, "health")
    r = s.ask("DELETE", status=204)
    t.equal(r.body, b"", "no body")
    t.equal(s.alive(), 502, "health of a dead one")
    e.refused("DELETE", s.path, 404)
    e.refused("GET", s.path, 404)
    t.equal(e.daemon.end(), 0, "exit status")


def test_the_older_routes_and_names_are_understood(t):
    e = serve(t)
    s = Sandbox(e, e.ask("POST", "/sandboxes", {"templateID": "local/base:default", "timeout": 300}, 201).json)
    t.equal(ids(e.ask("GET", "/sandboxes", status=200)), [s.id], "list")
    t.equal(e.ask("GET", f"/sandboxes/{s.id}-client", status=200).json["sandboxID"], s.id, "an id with the client's")
    t.equal(s.ask("POST", "/connect", {"timeout": 10}, 200).json["sandboxID"], s.id, "connect")
    h = {"E2b-Sandbox-Id": s.id + "-client", "E2b-Sandbox-Port": "49983"}
    t.equal(e.send("GET", "/health", headers=h).status, 204, "health")


def test_bad_requests_are_refused_in_the_form_of_the_protocol(t):
    e = serve(t, "--max-timeout", "1h")
    create = "/v2/sandboxes"
    for status, wish in ((404, {"templateID": "nowhere"}), (400, {}), (400, {"templateID": "base", "timeout": 0}),
                         (400, {"templateID": "base", "timeout": 3601}), (400, {"templateID": "base", "timeout": "5"}),
                         (400, {"templateID": "base", "metadata": {"a": 1}}), (501, {"templateID": "base", "volumeMounts": [{"name": "x", "path": "/x"}]}),
                         (501, {"templateID": "base", "network": {"egressProxy": {"address": "p:1"}}}),
                         (400, {"templateID": "base", "network": {"httpsPorts": [49983]}}), (400, {"templateID": "base", "network": {"httpsPorts": "1"}}),
                         (400, {"templateID": "base", "network": {"maskRequestHost": "a\r\nb"}})):
        e.refused("POST", create, status, wish)
    r = e.send("POST", create, b"{}", {"X-API-KEY": "e2b_" + "0" * 40, "Content-Type": "application/json"})
    t.equal((r.status, r.json["code"]), (401, 401), r.body)
    for method, path in (("POST", "/v3/templates"), ("GET", "/volumes"), ("POST", "/secrets"), ("GET", "/sandboxes/metrics")):
        e.refused(method, path, 501)
    t.equal(e.ask("GET", "/templates/aliases/base").status, 200, "a template that is there")
    e.refused("GET", "/templates/aliases/nowhere", 404)
    t.equal(e.ask("GET", create, status=200).json, [], "nothing was made")


def test_lists_are_filtered_ordered_and_paged(t):
    e = serve(t)
    odd = {"a b": "c&d", "k": "ü%20+="}
    made = [e.create(metadata={"n": str(i)}) for i in range(3)] + [e.create(templateID="other", metadata=odd)]
    every = [s.id for s in made]

    def listed(query=""):
        return e.ask("GET", "/v2/sandboxes" + query, status=200)

    t.equal(ids(listed()), every[::-1], "the newest first")
    t.equal(ids(listed("?order=asc")), every, "the oldest first")
    for order in ("asc", "desc"):
        found, token = [], None
        while token is None or token:
            r = listed(f"?order={order}&limit=3" + (f"&nextToken={token}" if token else ""))
            found += ids(r)
            token = r.headers.get("x-next-token", "")
            t.check(len(found) <= len(every), "pages do not repeat")
        t.equal(found, every if order == "asc" else every[::-1], "all pages: " + order)
    # Encoded three times: each key and value, as a form, as a part of the query.
    form = urllib.parse.urlencode([(urllib.parse.quote(k, safe=""), urllib.parse.quote(v, safe="")) for k, v in odd.items()])
    t.equal(ids(listed("?metadata=" + urllib.parse.quote(form, safe=""))), every[3:], "metadata")
    t.equal(ids(listed("?metadata=n%3D1")), [every[1]], "metadata, written by hand")
    t.equal(ids(listed("?metadata=n%3D1%26n2%3D1")), [], "all must hold")
    t.equal(ids(listed("?template=other")), every[3:], "template")
    started = made[2].ask("GET").json["startedAt"]
    t.equal(ids(listed("?startedAfter=" + urllib.parse.quote(started))), every[:1:-1], "startedAfter is inclusive")
    made[0].ask("POST", "/pause", {}, 204)
    t.equal(ids(listed("?state=paused")), every[:1], "paused")
    t.equal(ids(listed("?state=running%2Cpaused")), every[::-1], "both")
    for query in ("?limit=0", "?limit=101", "?nextToken=x", "?state=asleep", "?order=up", "?startedAfter=yesterday"):
        e.refused("GET", "/v2/sandboxes" + query, 400)


def test_time_is_set_and_connecting_never_shortens_it(t):
    e = serve(t)
    s = e.create(timeout=300)

    def left():
        end = s.ask("GET", status=200).json["endAt"]
        return time.mktime(time.strptime(end[:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())

    for call in ("/sandboxes", "/v2/sandboxes"):
        e.ask("POST", f"{call}/{s.id}/connect", {"timeout": 5}, 200)
        t.check(left() > 200, "not shorter")
    s.ask("POST", "/connect", {"timeout": 1000}, 200)
    t.check(left() > 900, "longer")
    s.ask("POST", "/timeout", {"timeout": 100}, 204)
    t.check(left() < 200, "timeout may shorten")
    s.ask("POST", "/timeout", {"timeout": -5}, 204)
    t.check(wait_for(lambda: s.ask("GET").status == 404, 10), "a negative one ends it")
    e.refused("POST", s.path + "/timeout", 404, {"timeout": 5})
    e.refused("POST", f"/v2/sandboxes/{s.id}/connect", 404, {})


def test_pausing_stops_everything_and_connecting_wakes(t):
    e = serve(t)
    s = e.create()
    s.start("sh", "-c", "while :; do echo x >> ticks; sleep 0.05; done")
    t.check(wait_for(lambda: s.envd("GET", "/files?path=ticks").status == 200, 10), "it runs")
    s.ask("POST", "/pause", status=204)
    t.equal((s.ask("GET").json["state"], s.alive()), ("paused", 502), "paused")
    t.equal(s.envd("GET", "/files?path=ticks", status=502).json, {"sandboxId": s.id, "message": "The sandbox was not found", "code": 502}, "gone")
    e.refused("POST", s.path + "/pause", 409)
    back = e.ask("POST", f"/v2/sandboxes/{s.id}/connect", {"timeout": 60}, 201).json
    t.equal((back["sandboxID"], back["envdAccessToken"], s.alive()), (s.id, s.token, 204), "the same one")
    before = s.envd("GET", "/files?path=ticks", status=200).body
    t.check(wait_for(lambda: s.envd("GET", "/files?path=ticks").body != before, 10), "its processes go on")
    e.refused("POST", s.path + "/pause", 501, {"memory": False})


def test_one_that_pauses_by_itself_wakes_by_traffic(t):
    e = serve(t)
    s = e.create(timeout=1, autoPause=True, autoResume={"enabled": True})
    t.equal(s.ask("GET").json["lifecycle"], {"onTimeout": "pause", "autoResume": True}, "lifecycle")
    t.check(wait_for(lambda: s.ask("GET").json["state"] == "paused", 20), "it pauses")
    t.equal(s.alive(), 502, "a question does not wake it")
    t.equal(s.envd("GET", "/files?path=x", token=False).status, 401, "nor does a stranger")
    t.equal(s.ask("GET").json["state"], "paused", "still paused")
    s.envd("GET", "/files?path=/etc/hostname", status=200)
    s.ask("POST", "/timeout", {"timeout": 60}, 204)
    t.equal(s.ask("GET").json["state"], "running", "it is awake")


def test_metrics_are_numbers_of_now(t):
    e = serve(t)
    s = e.create()
    s.shell("head -c 1000000 /dev/zero > x")
    m = s.ask("GET", "/metrics", status=200).json[0]
    t.check(abs(m["timestampUnix"] - time.time()) < 60 and m["cpuCount"] >= 1 and m["memTotal"] == 512 << 20, m)
    t.equal(s.ask("GET", "/metrics?start=1&end=2", status=200).json, [], "a window without any")
    e.refused("GET", "/sandboxes/aaaaaaaaaaaaaaaaaaaaaaaa/metrics", 404)


# ---- Copies ----------------------------------------------------------------------------------------------------------------


def fork(s, **wish):
    return [Sandbox(s.e, x["sandbox"]) for x in s.ask("POST", "/fork", wish, 201).json]


def test_forks_have_files_environment_and_metadata(t):
    e = serve(t)
    s = e.create(metadata={"job": "42"}, envVars={"MODE": "test"}, network={"allowPublicTraffic": False})
    s.shell("echo kept > note; echo too > /tmp/note")
    made = fork(s, count=2, timeout=77)
    t.equal(len({s.id, *(f.id for f in made)}), 3, "ids of their own")
    for f in made:
        t.equal(f.shell("cat note /tmp/note; echo $MODE $E2B_SANDBOX_ID"), f"kept\ntoo\ntest {f.id}\n", "what is carried")
        info = f.ask("GET", status=200).json
        t.equal((info["state"], info["metadata"], info["templateID"]), ("running", {"job": "42"}, "base"), info)
        t.check(f.token != s.token and f.facts["trafficAccessToken"] not in (None, s.facts["trafficAccessToken"]), "tokens of their own")
        t.equal(f.port(3000).status, 403, "closed as the original is")
        f.shell("echo changed > note")
    t.equal(s.shell("cat note"), "kept\n", "they share nothing")
    (f,) = fork(s)
    left = f.e.daemon.ask("GET", f"/v1/sandboxes/{f.id}").json["timeout_seconds"]
    t.equal(left, 15, "the time where none is asked for")


def test_forks_that_cannot_be_had_say_so_each_for_itself(t):
    e = serve(t, "--max-sandboxes", "3")
    s = e.create()
    for wish in ({"count": 0}, {"count": 101}, {"count": "2"}, {"timeout": 0}, {"timeout": 10**9}):
        e.refused("POST", s.path + "/fork", 400, wish)
    entries = s.ask("POST", "/fork", {"count": 4}, 201).json
    t.equal(sorted(next(iter(x)) for x in entries), ["error", "error", "sandbox", "sandbox"], entries)
    t.equal({x["error"]["code"] for x in entries if "error" in x}, {429}, entries)
    t.equal(len(ids(e.ask("GET", "/v2/sandboxes"))), 3, "no others")
    s.ask("POST", "/pause", {}, 204)
    e.refused("POST", s.path + "/fork", 409)
    s.ask("DELETE", status=204)
    e.refused("POST", s.path + "/fork", 404)


def snapshot(s, **wish):
    return s.ask("POST", "/snapshots", wish, 201).json


def quoted(snapshot_id):
    return "/templates/" + urllib.parse.quote(snapshot_id, safe="")


def kept(e):
    return sorted(os.listdir(os.path.join(e.daemon.state, "snapshots")))


def test_a_snapshot_outlives_its_sandbox_and_the_daemon(t):
    e = serve(t)
    s = e.create(metadata={"job": "42", "a": "b"}, envVars={"MODE": "test", "X": "1"}, network={"allowPublicTraffic": False})
    s.shell("echo one > note; ln note same; echo two > /tmp/note; mkfifo fifo; truncate -s 1G sparse; head -c 3000000 /dev/urandom > big; sha256sum big > sum")
    made = snapshot(s, name="team/snap:v1")
    t.equal(made, {"snapshotID": "snap:v1", "names": ["snap:v1"]}, made)
    s.shell("echo later > note")
    t.equal(s.alive(), 204, "the original goes on")
    s.ask("DELETE", status=204)
    (file,) = kept(e)
    st = os.stat(os.path.join(e.daemon.state, "snapshots", file))
    t.check(st.st_mode == 0o100600 and 3000000 < st.st_size < 4000000, (oct(st.st_mode), st.st_size))
    t.equal(e.daemon.end(), 0, "exit status")
    e = again(t, e)
    f = e.create(templateID="snap:v1", metadata={"a": "c"}, envVars={"X": "2"})
    t.equal(f.shell("cat note same /tmp/note; stat -c %h note; test -p fifo && sha256sum -c sum; stat -c '%s %b' sparse; echo $MODE $X $E2B_SANDBOX_ID $E2B_TEMPLATE_ID"),
            f"one\none\ntwo\n2\nbig: OK\n1073741824 0\ntest 2 {f.id} snap:v1\n", "what is carried")
    info = f.ask("GET", status=200).json
    t.equal((info["metadata"], info["templateID"]), ({"job": "42", "a": "c"}, "snap:v1"), info)
    t.equal(f.port(3000).status, 403, "closed as the original was")
    t.equal(e.ask("DELETE", quoted("snap:v1"), status=204).body, b"", "no body")
    t.equal(kept(e), [], "no file is left")
    e.refused("DELETE", quoted("snap:v1"), 404)
    e.refused("POST", "/v2/sandboxes", 404, {"templateID": "snap:v1"})
    t.equal(f.shell("cat note"), "one\n", "what was made from it stays")


def test_snapshots_are_listed_by_sandbox_and_name_in_pages(t):
    e = serve(t)
    a, b = e.create(), e.create()
    unnamed = snapshot(a)
    t.check(unnamed["snapshotID"].endswith(":default") and unnamed["names"] == [], unnamed)
    for s, name in ((a, "x"), (a, "x:v2"), (b, "y")):
        snapshot(s, name=name)

    def ask(query=""):
        r = e.ask("GET", "/snapshots" + query, status=200)
        return [x["snapshotID"] for x in r.json], r.headers.get("x-next-token")

    everything = ["y:default", "x:v2", "x:default", unnamed["snapshotID"]]
    t.equal(ask(), (everything, None), "newest first")
    t.equal(ask(f"?sandboxID={a.id}")[0], everything[1:], "of one sandbox")
    t.equal([ask("?name=" + n)[0] for n in ("x", "x%3Av2", "team%2Fx%3Adefault", "z", "%20")], [everything[1:3], ["x:v2"], ["x:default"], [], []], "by name")
    first, token = ask("?limit=3")
    second, end = ask(f"?limit=3&nextToken={token}")
    t.equal((first + second, end), (everything, None), "pages")
    for query in ("?limit=0", "?limit=101", "?nextToken=x"):
        e.refused("GET", "/snapshots" + query, 400)
    a.shell("echo newer > note")
    snapshot(a, name="x")
    t.equal(ask()[0], ["x:default", "y:default", "x:v2", unnamed["snapshotID"]], "a name that is taken changes hands")
    t.equal(len(kept(e)), 4, "the older one's file is gone")
    t.equal(e.create(templateID="x").shell("cat note"), "newer\n", "and leads to the newer")
    e.create(templateID=unnamed["snapshotID"])
    t.equal([e.ask("GET", "/templates/aliases/" + x).status for x in ("x", "x%3Av2", "x%3Av3", "base", "none")], [200, 200, 404, 200, 404], "what exists")
    for wish in ({"name": "a b"}, {"name": ""}, {"name": "x:"}, {"name": "../x y"}, {"name": 5}, {"name": "n" * 65}):
        e.refused("POST", a.path + "/snapshots", 400, wish)
    e.refused("POST", a.path + "/snapshots", 409, {"name": "base"})
    e.refused("DELETE", "/templates/base", 501)
    e.refused("DELETE", "/templates/none", 404)
    a.ask("POST", "/pause", {}, 204)
    e.refused("POST", a.path + "/snapshots", 409)
    a.ask("DELETE", status=204)
    e.refused("POST", a.path + "/snapshots", 404)


def test_a_snapshot_is_held_against_the_ceiling_of_the_day(t):
    e = serve(t, ceiling="limits: {memory: 1G}\n")
    r = e.daemon.ask("POST", "/v1/sandboxes", {"policy": {"version": 1, "enforcement": "best-effort", "limits": {"memory": "900M"}}})
    t.equal(r.status, 201, r.body)
    e.ask("POST", f"/sandboxes/{r.json['id']}/snapshots", {"name": "big"}, 201)
    t.equal(e.create(templateID="big").ask("GET", status=200).json["memoryMB"], 900, "its policy is carried")
    t.equal(e.daemon.end(), 0, "exit status")
    e = again(t, e, ceiling="limits: {memory: 600M}\n")
    t.check("memory" in e.refused("POST", "/v2/sandboxes", 403, {"templateID": "big"}), "the point is named")
    t.equal(ids(e.ask("GET", "/v2/sandboxes", status=200)), [], "nothing is left")


def test_a_snapshot_that_is_cut_off_leaves_nothing(t):
    e = serve(t)
    s = e.create()
    s.shell("for i in 1 2 3 4; do head -c 25000000 /dev/zero | tr '\\0' x > f$i; done")
    c = e.daemon.connection(timeout=30)
    c.request("POST", s.path + "/snapshots", "{}", {"X-API-KEY": e.key, "Content-Type": "application/json"})
    t.until(lambda: kept(e), 20, "its file is begun")
    c.close()
    t.until(lambda: not kept(e), 20, "the file is gone when the client is")
    t.equal(e.ask("GET", "/snapshots", status=200).json, [], "nor is there a row")
    c = e.daemon.connection(timeout=30)
    c.request("POST", s.path + "/snapshots", "{}", {"X-API-KEY": e.key, "Content-Type": "application/json"})
    t.until(lambda: kept(e), 20, "its file is begun")
    e.daemon.process.kill()
    e.daemon.process.wait()
    c.close()
    with open(os.path.join(e.daemon.state, "snapshots", "stray"), "w"):
        pass
    e = again(t, e)
    t.equal((kept(e), e.ask("GET", "/snapshots", status=200).json), ([], []), "nothing after a kill of the daemon")


def test_a_snapshot_whose_file_was_changed_makes_no_sandbox(t):
    e = serve(t)
    s = e.create()
    s.shell("head -c 300000 /dev/urandom > big")
    for name in "abc":
        snapshot(s, name=name)
    where = os.path.join(e.daemon.state, "snapshots")
    order = sorted(kept(e), key=lambda name: os.stat(os.path.join(where, name)).st_mtime_ns)
    with open(os.path.join(where, order[0]), "r+b") as f:
        f.write(os.urandom(1000))
    with open(os.path.join(where, order[1]), "r+b") as f:
        f.truncate(100000)
    os.unlink(os.path.join(where, order[2]))
    for name in "abc":
        e.refused("POST", "/v2/sandboxes", 503, {"templateID": name})
    t.equal(ids(e.ask("GET", "/v2/sandboxes", status=200)), [s.id], "nothing else is left")
    t.check(wait_for(lambda: e.daemon.ask("GET", "/v1/info").json["running"] == 1, 20), "also none that is hidden")
    t.equal(e.daemon.end(), 0, "exit status")
    e = again(t, e)
    t.equal([x["snapshotID"] for x in e.ask("GET", "/snapshots", status=200).json], ["b:default", "a:default"], "one without a file is none")


@tap.as_root
def test_a_full_disk_refuses_a_snapshot_and_keeps_serving(t):
    place = t.folder("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100M,mode=0700", "tmpfs", place], check=True)
    t.at_end(lambda: subprocess.run(["umount", place], check=True))
    e = serve(t, state=os.path.join(place, "state"))
    s = e.create()
    s.shell("head -c 1000000 /dev/zero > f")
    snapshot(s, name="small")
    s.shell("head -c 60000000 /dev/zero > f")
    t.check("no room" in e.refused("POST", s.path + "/snapshots", 507, {"name": "small"}), "why")
    t.equal(len(kept(e)), 1, "what was there stays, and nothing else")
    t.equal(e.create(templateID="small").shell("stat -c %s f"), "1000000\n", "and is good")
    t.equal(e.daemon.end(), 0, "exit status")


# ---- Network ---------------------------------------------------------------------------------------------------------------

CEILING = """network:
  allow:
    - {host: "*.example.test", ports: [443]}
    - {address: 10.1.0.0/16, ports: [5432]}
"""


def test_the_network_is_within_the_ceiling(t):
    e = serve(t)
    for wish, status in (({"allow_internet_access": True}, 403), ({"network": {"allowOut": ["10.1.2.3"]}}, 403),
                         ({"network": {"denyOut": ["example.test"]}}, 400), ({"network": {"allowOut": ["a.example.test"]}}, 400)):
        e.refused("POST", "/v2/sandboxes", status, {"templateID": "base", **wish})
    older = {"templateID": "base", "timeout": 60, "secure": True, "allow_internet_access": True}
    t.equal(e.ask("POST", "/sandboxes", older, 201).json["templateID"], "base", "older clients say so of themselves")
    s = e.create(allow_internet_access=False, network={"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": True})
    info = s.ask("GET").json
    t.equal((info["allowInternetAccess"], info["network"]), (False, {"denyOut": ["0.0.0.0/0"], "allowPublicTraffic": True}), info)
    s.ask("PUT", "/network", {"denyOut": ["0.0.0.0/0"]}, 204)
    e.refused("PUT", s.path + "/network", 403, {"allowOut": ["1.1.1.1"], "denyOut": ["0.0.0.0/0"]})


def test_a_ceiling_that_opens_something_is_what_one_gets(t):
    e = serve(t, ceiling=CEILING)
    lookup = "getent hosts a.example.test > /dev/null && echo found; getent hosts b.example.test > /dev/null && echo both; true"
    t.equal(e.create().shell(lookup), "found\nboth\n", "nothing said: all that the ceiling opens")
    t.equal(e.create(allow_internet_access=False).shell(lookup), "", "denied")
    t.equal(e.create(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["a.example.test", "10.1.2.3"]}).shell(lookup), "found\n", "one name")
    deny = {"denyOut": ["0.0.0.0/0"]}
    e.refused("POST", "/v2/sandboxes", 403, {"templateID": "base", "network": {**deny, "allowOut": ["example.org"]}})
    e.refused("POST", "/v2/sandboxes", 403, {"templateID": "base", "network": {**deny, "allowOut": ["10.2.0.1"]}})
    e.refused("POST", "/v2/sandboxes", 501, {"templateID": "base", "network": {"denyOut": ["10.1.2.0/24"]}})


class Greeter:
    """A service of the host that greets, and then keeps the connection until the other side ends it."""

    def __init__(self, t):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        t.at_end(self.listener.close)

    def serve(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            c.sendall(b"hello\n")
            threading.Thread(target=self.hold, args=(c,), daemon=True).start()

    @staticmethod
    def hold(c):
        with c:
            try:
                while c.recv(100):
                    pass
            except OSError:
                pass


TALK = r"""
import socket, sys
for name in ("a", "b"):
    try:
        with socket.create_connection((name + ".example.test", PORT), 10) as c: print(name, c.recv(100).decode().strip())
    except OSError: print(name, "none")
"""
HOLD = r"""
import os, socket
c = socket.create_connection(("b.example.test", PORT), 10)
c.recv(100)
open("open", "w")
try: what = "end" if c.recv(100) == b"" else "data"
except OSError: what = "reset"
open("new", "w").write(what)
os.rename("new", "cut")
"""


def test_the_network_of_a_running_sandbox_is_narrowed_and_opened_again(t):
    g = Greeter(t)
    ceiling = f"network: {{allow: [{{host: '*.example.test', ports: [{g.port}], protocol: tcp}}, {{address: 10.1.0.0/16, ports: [5432]}}], " \
              f"hosts: {{a.example.test: '127.0.0.1:{g.port}', b.example.test: '127.0.0.1:{g.port}'}}}}\n"
    e = serve(t, ceiling=ceiling)
    s = e.create(network={"allowPublicTraffic": False})
    deny = {"denyOut": ["0.0.0.0/0"]}

    def talk(box=s):
        return box.shell(f"PORT={g.port}; python3 -B - <<'EOF'\n{TALK.replace('PORT', str(g.port))}\nEOF")

    t.equal(talk(), "a hello\nb hello\n", "at the start")
    s.start("python3", "-B", "-c", HOLD.replace("PORT", str(g.port)))
    t.until(lambda: s.shell("ls open 2> /dev/null || true"), 20, "a connection is there")
    s.ask("PUT", "/network", {**deny, "allowOut": ["a.example.test"]}, 204)
    t.until(lambda: s.shell("ls cut 2> /dev/null || true"), 20, "it was cut")
    t.equal(s.shell("cat cut"), "reset", "how it ended")
    t.equal(talk(), "a hello\nb none\n", "the rest is closed")
    info = s.ask("GET", status=200).json
    t.equal(info["network"], {**deny, "allowOut": ["a.example.test"], "allowPublicTraffic": False}, "what is said of it")
    events = e.daemon.ask("GET", f"/v1/sandboxes/{s.id}/events?follow=false").body.decode()
    t.check("the rules were changed" in events and "event: network_changed" in events, events)
    (f,) = fork(s)
    t.equal(talk(f), "a hello\nb none\n", "a fork has what is left")
    for wish, status in (({**deny, "allowOut": ["example.org"]}, 403), ({"allow_internet_access": True}, 403), ({"denyOut": ["10.0.0.0/8"]}, 501),
                         ({"allowOut": ["a.example.test"]}, 400), ({"denyOut": ["x.test"]}, 400), ({"allow_internet_access": 5}, 400),
                         ({"rules": {"x.test": []}}, 501)):
        e.refused("PUT", s.path + "/network", status, wish)
    t.equal(talk(), "a hello\nb none\n", "what is refused changes nothing")
    s.ask("PUT", "/network", {"allow_internet_access": False}, 204)
    t.equal(talk(), "a none\nb none\n", "nothing")
    s.ask("PUT", "/network", {}, 204)
    t.equal(talk(), "a hello\nb hello\n", "all of the start")
    info = s.ask("GET", status=200).json
    t.equal((info["network"], info["allowInternetAccess"]), ({"allowPublicTraffic": False}, None), info)


def test_a_running_sandbox_gets_no_more_than_its_start(t):
    e = serve(t, ceiling=CEILING)
    deny = {"denyOut": ["0.0.0.0/0"]}
    lookup = "for n in a b; do getent hosts $n.example.test > /dev/null && echo $n; done; true"
    s = e.create(network={**deny, "allowOut": ["a.example.test"]})
    for wish in ({}, {**deny, "allowOut": ["b.example.test"]}, {**deny, "allowOut": ["*.example.test"]}, {**deny, "allowOut": ["10.1.0.0/16"]}):
        e.refused("PUT", s.path + "/network", 501, wish)
    s.ask("PUT", "/network", deny, 204)
    t.equal(s.shell(lookup), "", "less")
    e.refused("PUT", s.path + "/network", 501, {})
    (f,) = fork(s)
    e.refused("PUT", f.path + "/network", 501, {**deny, "allowOut": ["a.example.test"]})
    s.ask("PUT", "/network", {**deny, "allowOut": ["a.example.test"]}, 204)
    t.equal(s.shell(lookup), "a\n", "and back")
    closed = e.create(allow_internet_access=False)
    closed.ask("PUT", "/network", deny, 204)
    e.refused("PUT", closed.path + "/network", 501, {})
    e.refused("PUT", closed.path + "/network", 501, {**deny, "allowOut": ["a.example.test"]})


def test_a_wide_ceiling_is_narrowed(t):
    e = serve(t, ceiling="network: {allow: [{address: 0.0.0.0/0}]}\n")
    deny = {"denyOut": ["0.0.0.0/0"]}
    s = e.create(network={**deny, "allowOut": ["1.1.1.1", "8.8.8.0/24"]})
    rules = json.loads(s.shell("cat /run/zwinger/policy.json"))["network"]["allow"]
    t.equal([r["address"] for r in rules], ["1.1.1.1/32", "8.8.8.0/24"], "the rules inside")
    for special in ("10.2.0.1", "10.0.0.0/8", "127.0.0.1", "169.254.169.254/32", "224.0.0.0/4"):
        e.refused("POST", "/v2/sandboxes", 403, {"templateID": "base", "network": {**deny, "allowOut": [special]}})


# ---- Dispatch and tokens ---------------------------------------------------------------------------------------------------


def test_header_fields_and_host_names_lead_to_the_sandbox(t):
    e = serve(t)
    s = e.create()
    for h in (s.place(), {"e2b-sandbox-id": s.id, "e2b-sandbox-port": "49983"}, {"Host": f"49983-{s.id}.localhost"}):
        t.equal(e.send("GET", "/health", headers=h).status, 204, h)
    for h in ({"E2b-Sandbox-Id": s.id}, {"E2b-Sandbox-Port": "49983"}, s.place(port=0), s.place(port="x"), s.place(port=65536)):
        t.equal((e.send("GET", "/health", headers=h).status), 400, h)
    gone = {"sandboxId": "i" * 24, "message": "The sandbox was not found", "code": 502}
    for port in (49983, 49999, 3000):
        r = e.send("GET", "/health", headers={"E2b-Sandbox-Id": "i" * 24, "E2b-Sandbox-Port": str(port)})
        t.equal((r.status, r.json), (502, gone), port)
    t.equal(e.send("GET", "/health").json, {"status": "ok"}, "without any it is the daemon's own")
    t.equal(s.envd("POST", "/process.Process/List", b"{}", token=False).status, 401, "no token")
    t.equal(s.envd("POST", "/process.Process/List", b"{}", token="0" * 64).json["code"], 401, "a wrong token")
    other = e.create()
    t.equal(s.envd("GET", "/files?path=/etc/hostname", token=other.token).status, 401, "another sandbox's token")
    t.equal(s.envd("GET", "/files?path=/etc/hostname", token=e.key).status, 401, "a key is no token")


def test_browsers_may_come_from_anywhere(t):
    e = serve(t)
    s = e.create()
    ask = {"Origin": "https://app.example.test", "Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "x-access-token,e2b-sandbox-id,e2b-sandbox-port"}
    r = e.send("OPTIONS", "/files", headers=ask)
    t.equal((r.status, r.headers["access-control-allow-origin"]), (204, "*"), "before a request with header fields")
    r = e.send("OPTIONS", "/files", headers={**ask, "Host": f"49983-{s.id}.localhost"})
    t.equal((r.status, r.headers["access-control-allow-origin"]), (204, "*"), "before one by host name")
    r = s.envd("GET", "/health", Origin="https://app.example.test")
    t.equal((r.status, r.headers["access-control-allow-origin"]), (204, "*"), "the request")


def test_tokens_survive_a_restart_of_the_daemon(t):
    e = serve(t)
    token = e.create().token
    state = e.daemon.state
    with open(os.path.join(state, "tokens.key"), "rb") as f:
        key = f.read()
    t.equal((len(key), os.stat(os.path.join(state, "tokens.key")).st_mode & 0o777), (32, 0o600), "the key file")
    e.daemon.end()
    d = Daemon(t, state=state)
    with open(os.path.join(state, "tokens.key"), "rb") as f:
        t.equal(f.read(), key, "the same key")
    t.check(token not in d.errors(), "not in the log")


# ---- Files -----------------------------------------------------------------------------------------------------------------


def multipart(*parts):
    """As undici writes it: raw UTF-8 in quotes."""
    mark = "----formdata-undici-012345678901"
    body = b""
    for name, filename, content in parts:
        escaped = filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        body += f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{escaped}"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode()
        body += content + b"\r\n"
    return body + f"--{mark}--\r\n".encode(), "multipart/form-data; boundary=" + mark


def pieces(data, size):
    return iter([data[i:i + size] for i in range(0, len(data), size)])


def upload(s, query, *parts, size=1 << 16, **options):
    body, kind = multipart(*parts)
    return s.envd("POST", "/files" + query, pieces(body, size), **{"Content-Type": kind, "Transfer-Encoding": "chunked"}, **options)


def test_files_are_uploaded_as_forms_and_downloaded(t):
    s = serve(t).create()
    r = upload(s, "?path=a%20b.txt", ("file", "ignored", b"hello"), status=200)
    t.equal(r.json, [{"name": "a b.txt", "path": "/home/user/a b.txt", "type": "file"}], "exactly these members")
    t.equal(s.envd("GET", "/files?path=/home/user/a%20b.txt", status=200).body, b"hello", "as it was")
    t.equal(s.shell("stat -c '%a %U' 'a b.txt'"), "644 user\n", "mode and owner")
    big = os.urandom(3_000_001)
    for size in (1 << 18, 1 << 14):
        upload(s, "?path=~/deep/er/big", ("file", "x", big), size=size, status=200)
        t.equal(s.envd("GET", "/files?path=deep/er/big", status=200).body, big, "a large one")
    upload(s, "?path=mark", ("file", "x", b"\r\n--\r\n----formdata-undici-01234567890\r\n-"), size=1, status=200)
    t.equal(s.envd("GET", "/files?path=mark").body, b"\r\n--\r\n----formdata-undici-01234567890\r\n-", "almost a boundary, byte by byte")
    r = upload(s, "", ("file", "many/1", b"one"), ("other", "no", b"not this"), ("file", "/tmp/ü \"2\"", b""), status=200)
    t.equal([x["path"] for x in r.json], ["/home/user/many/1", '/tmp/ü "2"'], "several, by their names")
    r = s.envd("GET", "/files?path=" + urllib.parse.quote('/tmp/ü "2"'), status=200)
    t.equal((r.body, r.headers["content-length"]), (b"", "0"), "an empty one")
    t.check(b"MemTotal" in s.envd("GET", "/files?path=/proc/meminfo", status=200).body, "one whose size is not known")


def test_files_are_uploaded_as_bytes_and_as_gzip(t):
    s = serve(t).create()
    stream = {"Content-Type": "application/octet-stream", "Transfer-Encoding": "chunked"}
    data = os.urandom(700_000) + b"end"
    r = s.envd("POST", "/files?path=raw", pieces(data, 65536), status=200, **stream)
    t.equal(r.json, [{"name": "raw", "path": "/home/user/raw", "type": "file"}], "the answer")
    t.equal(s.envd("GET", "/files?path=raw").body, data, "raw")
    s.envd("POST", "/files?path=zipped", pieces(gzip.compress(data), 10000), status=200, **stream, **{"Content-Encoding": "gzip"})
    t.equal(s.envd("GET", "/files?path=zipped").body, data, "gzip")
    zeros = gzip.compress(bytes(20_000_000))
    s.envd("POST", "/files?path=zipped", pieces(zeros, 1000), status=200, **stream, **{"Content-Encoding": "gzip"})
    t.equal(s.shell("wc -c < zipped"), "20000000\n", "what compresses well")
    s.envd("POST", "/files?path=empty", iter([]), status=200, **stream)
    t.equal(s.envd("GET", "/files?path=empty").body, b"", "nothing")
    t.equal(s.envd("POST", "/files?path=bad", iter([b"no gzip"]), **stream, **{"Content-Encoding": "gzip"}).status, 400, "no gzip")
    t.equal(s.envd("POST", "/files?path=half", iter([gzip.compress(data)[:-100]]), **stream, **{"Content-Encoding": "gzip"}).status, 400, "half")
    t.equal(s.shell("ls"), "empty\nraw\nzipped\n", "what failed is not there")


def test_files_that_cannot_be_had_are_refused(t):
    s = serve(t).create()
    s.shell("mkdir d; mkfifo p; echo x > f")
    for status, query in ((404, "path=nowhere"), (400, "path=d"), (400, "path=p"), (400, "path="), (400, ""), (400, "path=~root/x"), (400, "path=f/g"),
                          (401, "path=f&username=nobody-here")):
        r = s.envd("GET", "/files?" + query)
        t.equal((r.status, r.json["code"]), (status, status), f"GET {query}: {r.body}")
    t.equal(upload(s, "", ("file", "same", b"1"), ("file", "./same", b"2")).status, 400, "the same path twice")
    t.equal(upload(s, "?path=d", ("file", "x", b"1")).status, 400, "a directory is there")
    t.equal(upload(s, "", ("other", "x", b"1")).status, 400, "no file at all")
    t.equal(upload(s, "?path=/etc/hostname", ("file", "x", b"1")).status, 403, "read-only inside")
    body, kind = multipart(("file", "x", b"content"))
    for broken in (body[:-20], b"nonsense", body.replace(b"form-data;", b"attachment;"), b"--" + body):
        r = s.envd("POST", "/files?path=broken", broken, **{"Content-Type": kind})
        t.equal(r.status, 400, f"{broken[:40]}...")
    t.equal(s.envd("POST", "/files?path=x", b"1", **{"Content-Type": "application/octet-stream", "Content-Encoding": "br"}).status, 415, "br")
    t.equal(s.envd("GET", "/files?path=broken").status, 404, "nothing is left of it")


def signature(path, operation, user, token, expiration=None):
    text = ":".join([path, operation, user, token] + ([str(expiration)] if expiration is not None else []))
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_files_are_sent_as_they_are(t):
    s = serve(t).create()
    upload(s, "?path=a", ("file", "x", b"content"), status=200)
    for accepted, status in (("gzip, deflate, br", 200), ("gzip;q=1.0, identity;q=0.5, *;q=0", 200), ("", 200), ("*", 200), ("identity;q=0.001", 200),
                             ("gzip, identity;q=0", 406), ("*;q=0", 406), ("gzip;q=0, *;q=0.0", 406), ("*;q=0,identity", 200)):
        r = s.envd("GET", "/files?path=a", status=status, **{"Accept-Encoding": accepted})
        t.equal(r.body == b"content" if status == 200 else r.json["code"] == 406, True, accepted)


def test_signed_urls_need_neither_token_nor_id(t):
    t.equal(signature("/home/user/report.txt", "read", "", "tok_example_1"), "v1_Od+hC3Y29potJFgjU2gYAuQS86x9zOR4UFbZ0HSZ+kE", "a known one")
    e = serve(t)
    e.create()
    s = e.create()
    upload(s, "?path=a%20b", ("file", "x", b"mine"), status=200)

    def url(path, operation, token=s.token, user="", expiration=None):
        q = {"path": path, "signature": signature(path, operation, user, token, expiration)}
        if user:
            q = {"username": user, **q}
        if expiration is not None:
            q["signature_expiration"] = expiration
        return "/files?" + urllib.parse.urlencode(q)

    t.equal(e.send("GET", url("a b", "read")).body, b"mine", "read")
    t.equal(e.send("GET", url("a b", "read", user="user", expiration=int(time.time()) + 60)).body, b"mine", "with a time and a user")
    t.equal(e.send("GET", url("a b", "read"), headers={"Host": f"49983-{s.id}.localhost"}).body, b"mine", "by host name")
    r = e.send("GET", url("a b", "read", expiration=int(time.time()) - 5))
    t.equal((r.status, r.json), (401, {"code": 401, "message": "signature is already expired"}), "expired")
    for bad in (url("a b", "write"), url("a b", "read", token="0" * 64), url("a b", "read").replace("path=a", "path=c")):
        t.equal(e.send("GET", bad).status, 401, bad)
    body, kind = multipart(("file", "signed.txt", b"by form"))
    r = e.send("POST", url("", "write"), body, {"Content-Type": kind})
    t.equal((r.status, r.json[0]["path"]), (200, "/home/user/signed.txt"), r.body)
    s.ask("DELETE", status=204)
    t.equal(e.send("GET", url("a b", "read")).status, 401, "with the sandbox the URL is gone")


# ---- Streams and the end ---------------------------------------------------------------------------------------------------


def raw_request(e, s, head, body=b""):
    sock = e.daemon.socket(timeout=30)
    place = "".join(f"{k}: {v}\r\n" for k, v in s.place(**{"X-Access-Token": s.token}).items())
    sock.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\n{place}".encode() + body)
    return sock


def test_a_kill_cuts_what_streams_and_nothing_else(t):
    e = serve(t)
    s, other = e.create(), e.create()
    for how in ("DELETE", "pause"):
        s.shell("truncate -s 200M big")
        down = raw_request(e, s, "GET /files?path=big", b"\r\n")
        t.check(down.recv(100).startswith(b"HTTP/1.1 200 "), "the file comes")
        up = raw_request(e, s, "POST /files?path=up", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        kept = e.daemon.connection(timeout=30)
        t.equal(e.send("GET", "/files?path=/etc/hostname", headers={**s.place(), "X-Access-Token": s.token}, connection=kept).status, 200, "a whole answer")
        if how == "DELETE":
            s.ask("DELETE", status=204)
        else:
            s.ask("POST", "/pause", {}, 204)
        t.equal(read_until_closed(down)[1], "reset", how + ": the download is cut")
        t.equal(read_until_closed(up)[1], "reset", how + ": the upload is cut")
        r = e.send("GET", "/files?path=/etc/hostname", headers={**other.place(), "X-Access-Token": other.token}, connection=kept)
        t.equal(r.status, 200, how + ": the connection whose answer was whole serves others")
        kept.close()
        s, other = other, e.create()


# ---- Ports -----------------------------------------------------------------------------------------------------------------

SERVER = r"""
import base64, hashlib, http.server, os, socketserver, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body, status=200):
        self.send_response(status)
        self.send_header("X-Seen-Host", self.headers["Host"])
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    def do_GET(self):
        if self.path == "/socket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                             + base64.b64encode(hashlib.sha1(key.encode()).digest()) + b"\r\n\r\nfirst")
            while True:
                data = self.connection.recv(65536)
                if not data:
                    break
                self.connection.sendall(data.upper())
            self.close_connection = True
        elif self.path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b"2710\r\n" + b"y" * 10000 + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
            self.close_connection = True
        elif self.path == "/until-close":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"z" * 100000)
            self.close_connection = True
        elif self.path == "/nonsense":
            self.wfile.write(b"SSH-2.0-me\r\n")
            self.close_connection = True
        elif self.path == "/forever":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            self.connection.recv(1)
        else:
            self.answer((self.path + " " + str(sorted(k.lower() for k in self.headers))).encode())
    do_HEAD = do_GET
    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while True:
                n = int(self.rfile.readline(), 16)
                body += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    break
        else:
            body = self.rfile.read(size)
        self.answer(hashlib.sha256(body).hexdigest().encode(), 201)
    def log_message(self, *a):
        pass
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
server = S(("127.0.0.1", int(sys.argv[1])), H)
if len(sys.argv) > 2:
    import ssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[2:])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def with_server(t, e, **wish):
    s = e.create(**wish)
    upload(s, "?path=server.py", ("file", "x", SERVER.encode()), status=200)
    s.start("python3", "server.py", "3000")
    if "httpsPorts" in wish.get("network", {}):
        return s
    place = {"E2B-Traffic-Access-Token": s.facts["trafficAccessToken"]} if s.facts["trafficAccessToken"] else {}
    t.check(wait_for(lambda: s.port(3000, headers=place).status == 200, 20), "the server listens")
    return s


def test_ports_are_served_over_http(t):
    e = serve(t)
    s = with_server(t, e)
    r = s.port(3000, path="/a%2Fb/../c?d=%20e")
    t.check(r.body.startswith(b"/a%2Fb/../c?d=%20e "), "the path is passed as it is")
    t.equal(r.headers["x-seen-host"], f"3000-{s.id}.localhost", "Host")
    t.check("x-request-id" not in r.headers and "x-content-type-options" not in r.headers, "the answer is the server's own")
    r = e.send("GET", "/", headers=s.place(port=3000, **{"X-API-KEY": e.key, "X-Own": "1"}))
    seen = r.body.decode()
    t.check("'x-own'" in seen and "'x-api-key'" not in seen and "'e2b-sandbox-id'" not in seen, seen)
    c = e.daemon.connection(timeout=30)
    data = os.urandom(2_000_000)
    for body, h in ((data, {}), (pieces(data, 50000), {"Transfer-Encoding": "chunked"})):
        r = s.port(3000, "POST", "/up", body, h, connection=c)
        t.equal((r.status, r.body.decode()), (201, hashlib.sha256(data).hexdigest()), "a body, on a kept connection")
    c.request("GET", "/", headers={"Host": f"3000-{s.id}.localhost"})
    t.equal(c.getresponse().headers.get_all("Set-Cookie"), ["a=1", "b=2"], "fields that are there twice")
    c.close()
    t.equal(s.port(3000, path="/chunks").body, b"y" * 1_000_000, "chunks")
    r = s.port(3000, "HEAD")
    t.equal((r.status, r.body), (200, b""), "HEAD")
    try:
        t.check(False, f"half an answer looks whole: {s.port(3000, path='/half').body}")
    except (http.client.IncompleteRead, ConnectionError):
        pass
    t.equal(s.port(3000, path="/nonsense").status, 502, "no HTTP")
    closed = {"sandboxId": s.id, "message": "The sandbox is running but port is not open", "port": 3001, "code": 502}
    r = s.port(3001)
    t.equal((r.status, r.json), (502, closed), "nobody listens")


def test_ports_speak_websocket(t):
    e = serve(t)
    s = with_server(t, e)
    sock = e.daemon.socket(timeout=30)
    sock.sendall(f"GET /socket HTTP/1.1\r\nHost: 3000-{s.id}.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
    got = b""
    while not got.endswith(b"first"):
        got += sock.recv(65536)
    t.check(got.startswith(b"HTTP/1.1 101 ") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in got, got)
    for n in (1, 1000, 300_000):
        data, back = b"a" * n, b""
        sock.sendall(data)
        while len(back) < n:
            back += sock.recv(65536)
        t.equal(back, data.upper(), f"{n} bytes there and back")
    s.ask("DELETE", status=204)
    t.equal(read_until_closed(sock)[0], b"", "it ends with the sandbox")


def test_ports_may_speak_tls_inside(t):
    t.need("openssl")
    e = serve(t)
    s = with_server(t, e, network={"httpsPorts": [3443, 3000]})
    t.equal(s.ask("GET").json["network"]["httpsPorts"], [3443, 3000], "told")
    for name, path in zip(("cert", "key"), Authority(t.tmp("ca"), "inside").issue("localhost")):
        with open(path, "rb") as f:
            upload(s, "?path=" + name, ("file", "x", f.read()), status=200)
    s.start("python3", "server.py", "3443", "cert", "key")
    t.check(wait_for(lambda: s.port(3443).status == 200, 20), "the server listens")
    t.equal(s.port(3443).headers["x-seen-host"], f"3443-{s.id}.localhost", "Host")
    data = os.urandom(2_000_000)
    c = e.daemon.connection(timeout=30)
    for body, h in ((data, {}), (pieces(data, 50000), {"Transfer-Encoding": "chunked"})):
        r = s.port(3443, "POST", "/up", body, h, connection=c)
        t.equal((r.status, r.body.decode()), (201, hashlib.sha256(data).hexdigest()), "a body")
    c.close()
    t.equal(s.port(3443, path="/chunks").body, b"y" * 1_000_000, "chunks")
    t.equal(s.port(3443, path="/until-close").body, b"z" * 100_000, "an answer that ends with its connection")
    try:
        t.check(False, f"half an answer looks whole: {s.port(3443, path='/half').body}")
    except (http.client.IncompleteRead, ConnectionError):
        pass
    sock = e.daemon.socket(timeout=30)
    sock.sendall(f"GET /socket HTTP/1.1\r\nHost: 3443-{s.id}.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
    got = b""
    while not got.endswith(b"first"):
        got += sock.recv(65536)
    sock.sendall(b"a" * 300_000)
    back = b""
    while len(back) < 300_000:
        back += sock.recv(65536)
    t.equal(back, b"A" * 300_000, "a tunnel")
    t.check(wait_for(lambda: s.port(3000).json["message"] == "The server on that port gave no answer in HTTP", 20), "a server without TLS")
    s.ask("DELETE", status=204)
    t.equal(read_until_closed(sock)[0], b"", "it ends with the sandbox")


def test_ports_may_ask_for_a_token_and_have_a_mask(t):
    e = serve(t)
    s = with_server(t, e, network={"allowPublicTraffic": False, "maskRequestHost": "app.example.test:${PORT}"})
    token = s.facts["trafficAccessToken"]
    r = s.port(3000)
    t.equal((r.status, r.json["code"], r.json["sandboxId"]), (403, 403, s.id), "no token")
    t.equal(s.port(3000, headers={"E2B-Traffic-Access-Token": s.token}).status, 403, "another token")
    r = s.port(3000, headers={"e2b-traffic-access-token": token})
    t.equal((r.status, r.headers["x-seen-host"]), (200, "app.example.test:3000"), "the mask")
    t.check("traffic" not in r.body.decode(), "the token stays outside")
    t.equal(s.alive(), 204, "envd asks for none")
    t.equal(e.send("GET", "/contexts", headers=s.place(port=49999)).status, 403, "the interpreter does")


def test_a_port_wakes_its_sandbox_and_streams_end_with_it(t):
    e = serve(t)
    s = with_server(t, e, autoResume={"enabled": True})
    sock = e.daemon.socket(timeout=30)
    sock.sendall(f"GET /forever HTTP/1.1\r\nHost: 3000-{s.id}.localhost\r\n\r\n".encode())
    t.check(sock.recv(10).startswith(b"HTTP/1.1 2"), "a stream")
    s.ask("POST", "/pause", {}, 204)
    t.equal(read_until_closed(sock)[1], "reset", "cut by the pause")
    t.equal(s.port(3000).status, 200, "traffic wakes it")
    t.equal(s.ask("GET").json["state"], "running", "state")
    plain = e.create()
    plain.ask("POST", "/pause", {}, 204)
    r = plain.port(3000)
    t.equal((r.status, r.json["message"]), (502, "The sandbox was not found"), "one that was not made so stays")


if __name__ == "__main__":
    tap.main(globals())
