#!/usr/bin/python3 -B
"""network.limits: what a run may send, receive, ask and open, how fast, and what happens at the limit."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import zw  # noqa: E402
from network import World, connections, requests  # noqa: E402
from servers import read_all  # noqa: E402

TCP = {"host": "echo.test", "ports": [7]}
HTTP = {"host": "api.test", "protocol": "http"}

SEND = ("s = socket.create_connection(('echo.test', 7), 8); sent = 0\n"
        "try:\n    while sent < 3000000: sent += s.send(b'x' * 10000)\n    s.shutdown(1); s.recv(1); say('all')\nexcept OSError as e: say(word(e))\n")


def says(t, run, which, many=1):
    """The denials name the limit."""
    text = json.dumps(run.denials())
    t.contains(text, which, "denials")
    t.check(sum(d.get("count", 1) for d in run.denials() if which in json.dumps(d)) >= many, f"denials: {text}")


def test_bytes_out(t):
    w = World(t)
    sink = w.talker(7, lambda s: len(read_all(s)))
    w.name("echo.test")
    r = t.expect(w.python(SEND + "say(reach('echo.test', 7))", allow=[TCP], limits={"bytes_out": 100000}), code=0)
    t.among(r.lines[0], ("ECONNRESET", "EPIPE"), "what the sender met")
    t.check(r.lines[1] not in ("reached",), f"a connection afterwards: {r.lines[1]}")
    t.until(lambda: sink.results, 5, "the server's connection ended")
    took = [x for x in sink.results if isinstance(x, int)]
    t.check(sum(took) <= 100000, f"{took} bytes at the server")
    t.check(sum(c["sent"] for c in connections(r)) <= 100000, f"connections: {connections(r)}")
    says(t, r, "bytes_out")


def test_bytes_in(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("n = 0\ntry:\n    s = socket.create_connection(('api.test', 80), 8); s.sendall(get('/sized?n=3000000'))\n    while b := s.recv(65536): n += len(b)\n"
            "except OSError as e: say(word(e))\nsay(n)")
    for rule in (HTTP, {"host": "api.test", "ports": [80]}):
        r = t.expect(w.python(code, allow=[rule], limits={"bytes_in": 200000}), code=0)
        t.equal(r.lines[0], "ECONNRESET", "what the reader met")
        t.between(int(r.lines[-1]), 0, 201000, "bytes that came")
        says(t, r, "bytes_in")


def test_connections(t):
    w = World(t)
    w.origin(8080, "origin.test")
    r = t.expect(w.python("for _ in range(5): say(reach('origin.test', 8080))", allow=[{"host": "origin.test", "ports": [8080]}], limits={"connections": 3}), code=0)
    t.equal(r.lines[:3], ["reached"] * 3, "up to the limit")
    t.check("reached" not in r.lines[3:] and "timeout" not in r.lines[3:] and "empty" not in r.lines[3:], f"beyond it: {r.lines[3:]}")
    says(t, r, "connections", 2)


def test_requests(t):
    w = World(t)
    o = w.origin(80, "api.test")
    code = ("import http.client\nc = http.client.HTTPConnection('api.test', timeout=5)\n"
            "for i in range(5):\n    c.request('GET', '/v1/%d' % i); r = c.getresponse(); say(r.status, len(r.read().decode().strip().splitlines()))")
    r = t.expect(w.python(code, allow=[HTTP], limits={"requests": 3}), code=0)
    t.equal(r.lines[:3], ["200 1"] * 3, "up to the limit")
    t.check(all(x in ("429 1", "403 1") for x in r.lines[3:]), f"beyond it: {r.lines[3:]}")
    t.equal(o.paths(), ["/v1/0", "/v1/1", "/v1/2"], "at the origin")
    says(t, r, "requests", 2)
    t.equal([q[1] for q in requests(r, "api.test") if q[2] == 200], o.paths(), "requests in the record")


def test_denied_requests_and_names_do_not_use_up_the_limits(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("for _ in range(10): http('api.test', 80, get('/evil')); reach('evil.test', 80); reach('8.8.8.8', 80)\n"
            "say(http('api.test', 80, get('/v1/a'))[0])")
    t.expect(w.python(code, allow=[{**HTTP, "paths": ["/v1/*"]}], limits={"requests": 1, "connections": 20}), code=0, out="200\n")


def test_the_limits_hold_for_all_connections_together(t):
    w = World(t)
    sink = w.talker(7, lambda s: len(read_all(s)))
    w.name("echo.test")
    code = ("def one():\n    try:\n        s = socket.create_connection(('echo.test', 7), 8)\n        for _ in range(20): s.sendall(b'x' * 5000)\n        s.shutdown(1); s.recv(1)\n    except OSError: pass\n"
            "ts = [threading.Thread(target=one) for _ in range(20)]\nfor x in ts: x.start()\nfor x in ts: x.join()")
    r = t.expect(w.python(code, allow=[TCP], limits={"bytes_out": 300000}), code=0)
    t.until(lambda: len(sink.results) == sink.accepted, 5, "the server's connections ended")
    t.check(sum(x for x in sink.results if isinstance(x, int)) <= 300000, f"at the server: {sink.results}")
    t.check(sum(c["sent"] for c in connections(r)) <= 300000, f"connections: {connections(r)}")


@zw.alone
def test_rate(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("began = time.monotonic(); s, b = http('api.test', 80, get('/sized?n=1500000'), timeout=30); say(s, len(b)); say(time.monotonic() - began)")
    for rule in (HTTP, {"host": "api.test", "ports": [80]}):
        r = t.expect(w.python(code, allow=[rule], limits={"rate": 500000}), code=0)
        t.equal(r.lines[0], "200 1500000", "the answer")
        t.between(float(r.lines[1]), 1.8, 8, "seconds for 1.5 MB at 0.5 MB a second")


def test_a_limit_may_end_the_run(t):
    w = World(t)
    w.talker(7, lambda s: len(read_all(s)))
    w.origin(80, "api.test")
    w.name("echo.test")
    cases = [("bytes_out", 100000, SEND), ("connections", 2, "for _ in range(5): reach('api.test', 80)\n"), ("requests", 2,
                                                                                                             "for _ in range(5): http('api.test', 80, get('/v1/a'))\n"),
             ("bytes_in", 100000, "http('api.test', 80, get('/sized?n=3000000'))\n")]
    for which, value, code in cases:
        r = w.python("say('began')\n" + code + "time.sleep(20); say('still here')", allow=[TCP, HTTP], limits={which: value, "on_limit": "kill"})
        t.equal(r.code, 122, f"exit status at the limit of {which}")
        t.check(r.out.startswith(b"began\n") and b"still here" not in r.out, f"stdout: {r.out}")
        t.between(r.wall, 0, 10, "seconds")
        t.contains(r.reason, which, "reason")
        t.equal(len(r.own_lines), 1, f"lines of zwinger's: {r.errors}")
        t.contains(r.own_lines[0], which, "the line")


def test_null_is_no_limit(t):
    w = World(t)
    w.origin(80, "api.test")
    code = "for _ in range(20): say(http('api.test', 80, get('/sized?n=100000'))[0])"
    limits = {"bytes_out": None, "bytes_in": None, "requests": None, "connections": None, "rate": None}
    t.expect(w.python(code, allow=[HTTP], limits=limits), code=0, out="200\n" * 20)


if __name__ == "__main__":
    network.main(globals())
