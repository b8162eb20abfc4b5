#!/usr/bin/python3 -B
"""network.publish: a port of the host leads to a port inside, and only there."""
import os
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import zw  # noqa: E402
from network import PRIVATE, PUBLIC, World  # noqa: E402
from servers import read_all  # noqa: E402

# Says who asked, and gives back what came once the input has ended.
SERVER = r'''
def serve(s):
    while True:
        c, peer = s.accept()
        def talk(c=c):
            data = read_all(c); c.sendall(b"inside:" + data[:100] + b":%d" % len(data)); c.close()
        threading.Thread(target=talk, daemon=True).start()
for address in json.loads(sys.argv[1]):
    s = socket.create_server((address, int(sys.argv[2])), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=1000)
    threading.Thread(target=serve, args=(s,), daemon=True).start()
say("up"); sys.stdin.readline()
'''


def served(t, w, publish, port=8080, listen=("127.0.0.1",), **more):
    run = w.start_python(SERVER, zw.json.dumps(listen), port, publish=publish, stdin=subprocess.PIPE, **more)
    t.equal(run.read_line(), b"up\n", "line")
    return run


def ask(address, port, data=b"hello", seconds=10):
    try:
        with socket.create_connection((address, port), seconds) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            return read_all(s)
    except OSError as e:
        return type(e).__name__


def test_a_published_port_leads_inside_from_loopback_alone(t):
    w = World(t, resolving=False)
    run = served(t, w, [8080])
    t.equal(ask("127.0.0.1", 8080), b"inside:hello:5", "by loopback")
    for address in (PRIVATE, PUBLIC, "127.0.0.2"):
        t.equal(ask(address, 8080), "ConnectionRefusedError", f"by {address}")
    r = t.expect(run.finish(20, b"\n"), code=0)
    t.check(any(c.get("port") == 8080 or c.get("inbound") for c in r.doc["connections"]), f"connections: {r.doc['connections']}")
    t.equal(ask("127.0.0.1", 8080), "ConnectionRefusedError", "after the run")


def test_another_port_or_address_by_explicit_word(t):
    w = World(t, resolving=False)
    for publish, good, bad in ((["127.0.0.1:9000:8080"], [("127.0.0.1", 9000)], [("127.0.0.1", 8080), (PRIVATE, 9000)]),
                               (["0.0.0.0:9001:8080"], [("127.0.0.1", 9001), (PRIVATE, 9001)], [("127.0.0.1", 8080)]),
                               ([f"{PRIVATE}:9002:8080"], [(PRIVATE, 9002)], [("127.0.0.1", 9002)])):
        run = served(t, w, publish)
        for address, port in good:
            t.equal(ask(address, port), b"inside:hello:5", f"{publish} by {address}:{port}")
        for address, port in bad:
            t.equal(ask(address, port), "ConnectionRefusedError", f"{publish} by {address}:{port}")
        t.expect(run.finish(20, b"\n"), code=0)


def test_the_flag(t):
    w = World(t, resolving=False)
    run = w.start_python(SERVER, '["127.0.0.1"]', 8080, flags=["--publish", "9000:8080"], stdin=subprocess.PIPE)
    t.equal(run.read_line(), b"up\n", "line")
    t.equal(ask("127.0.0.1", 9000), b"inside:hello:5", "answer")
    t.expect(run.finish(20, b"\n"), code=0)


def test_it_is_found_on_whatever_address_it_serves_inside(t):
    w = World(t, resolving=False)
    for listen in (["127.0.0.1"], ["0.0.0.0"], ["::"], ["::1"]):
        run = served(t, w, [8080], listen=listen)
        t.equal(ask("127.0.0.1", 8080), b"inside:hello:5", f"served on {listen}")
        t.expect(run.finish(20, b"\n"), code=0)


def test_a_low_port_inside(t):
    w = World(t, resolving=False)
    run = served(t, w, ["127.0.0.1:9080:80"], port=80)
    t.equal(ask("127.0.0.1", 9080), b"inside:hello:5", "answer")
    t.expect(run.finish(20, b"\n"), code=0)


def test_large_amounts_in_both_directions_and_many_at_once(t):
    w = World(t, resolving=False)
    run = served(t, w, [8080])
    t.check(ask("127.0.0.1", 8080, b"x" * 5_000_000, 20).endswith(b":5000000"), "a large upload")
    answers = []
    threads = [threading.Thread(target=lambda i=i: answers.append(ask("127.0.0.1", 8080, b"%d" % i) == b"inside:%d:%d" % (i, len(str(i))))) for i in range(100)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    t.equal(answers, [True] * 100, "answers of a hundred at once")
    t.expect(run.finish(20, b"\n"), code=0)


def test_when_nothing_listens_inside_the_connection_is_reset(t):
    w = World(t, resolving=False)
    run = w.start_python("say('up'); sys.stdin.readline()", publish=[8080], stdin=subprocess.PIPE)
    t.equal(run.read_line(), b"up\n", "line")
    t.among(ask("127.0.0.1", 8080), ("ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"), "answer")
    t.expect(run.finish(20, b"\n"), code=0)


def test_publishing_opens_no_way_out(t):
    w = World(t)
    o = w.origin(9999, "origin.test")
    run = served(t, w, [8080])
    t.expect(run.finish(20, b"\n"), code=0)
    _, found = w.verdicts(["origin.test|9999", f"{PUBLIC}|9999", "127.0.0.1|9999", f"{PRIVATE}|9999"], publish=[8080])
    t.check("reached" not in found.values() and o.accepted == 0, f"verdicts: {found}")


def test_a_port_that_is_taken_starts_nothing(t):
    w = World(t, resolving=False)
    w.echo(8080)
    r = w.run("true", publish=[8080])
    t.equal(r.code, 125, "exit status")
    t.contains(r.errors, "8080", "message")


@zw.as_user
def test_a_port_that_the_caller_may_not_open_starts_nothing(t):
    w = World(t, resolving=False)
    r = w.run("true", publish=["127.0.0.1:81:8080"])
    t.equal(r.code, 125, "exit status")
    t.contains(r.errors, "81", "message")


def test_two_sandboxes_publish_beside_each_other(t):
    w = World(t, resolving=False)
    runs = [served(t, w, [f"127.0.0.1:{9100 + i}:8080"]) for i in range(3)]
    for i in range(3):
        t.equal(ask("127.0.0.1", 9100 + i), b"inside:hello:5", f"sandbox {i}")
    for r in runs:
        t.expect(r.finish(20, b"\n"), code=0)


def test_publishing_and_rules_together(t):
    w = World(t)
    w.origin(80, "api.test")
    code = "say(http('api.test', 80, get('/ok'))[0])\n" + SERVER
    run = w.start_python(code, '["0.0.0.0"]', 8080, publish=[8080], allow=[{"host": "api.test", "protocol": "http"}], stdin=subprocess.PIPE)
    t.equal(run.read_line(), b"200\n", "outwards")
    t.equal(run.read_line(), b"up\n", "line")
    t.equal(ask("127.0.0.1", 8080), b"inside:hello:5", "inwards")
    t.expect(run.finish(20, b"\n"), code=0)


if __name__ == "__main__":
    network.main(globals())
