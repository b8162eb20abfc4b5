#!/usr/bin/python3 -B
"""Attempts on the network of a sandbox: by the code inside, by servers, and by a policy whose author did not think of everything."""
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import zw  # noqa: E402
from network import PRIVATE, PUBLIC, World  # noqa: E402

VALUE, NEXT = "zT0p-s3cret_VALUE.4711+x", "zAn0ther-VALUE.0815/y"
RULE = {"host": "origin.test", "ports": [8080]}
HTTP = {"host": "api.test", "protocol": "http", "secret": {"name": "key", "header": "Authorization", "format": "Bearer {}"}}


def tcp_mib():
    """What the kernel holds in the buffers of all TCP sockets of this machine."""
    with open("/proc/net/sockstat") as f:
        return next(int(line.split()[-1]) for line in f if line.startswith("TCP:")) * os.sysconf("SC_PAGE_SIZE") >> 20


def silent(t, port):
    """Listens, but lets no further connection be made: a queue that is full."""
    held = [socket.socket()]
    held[0].bind((PUBLIC, port))
    held[0].listen(0)
    for _ in range(2):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((PUBLIC, port))
        held.append(s)
    t.at_end(lambda: [s.close() for s in held])


# ---- Memory of the host ---------------------------------------------------------------------------------------------------

# Connections that are closed at once, with as many bytes on their way as the kernel takes.
STUFF = """
count, addr, ports = int(sys.argv[1]), sys.argv[2], [int(x) for x in sys.argv[3:]]
data = bytes(262144)
if addr == '127.0.0.1':
    l = socket.socket(); l.bind((addr, ports[0])); l.listen(4096)
else:
    addr = socket.gethostbyname(addr)
for i in range(count):
    s = socket.socket(); s.setblocking(False)
    try:
        s.connect((addr, ports[i % len(ports)]))
    except OSError: pass
    try:
        while True: s.send(data)
    except OSError: pass
    s.close()
say('done'); sys.stdin.readline()
"""


def held_by(t, w, *args, **more):
    before = tcp_mib()
    run = w.start_python(STUFF, *args, stdin=subprocess.PIPE, **more)
    t.equal(run.read_line(), b"done\n", "line")
    held = tcp_mib() - before
    r = run.finish(30, b"\n")
    t.equal(r.code, 0, "exit status")
    return held


@zw.alone
def test_connections_that_nobody_accepts_hold_little_of_the_host(t):
    w = World(t)
    w.name("sink.test", PUBLIC)
    for port in range(9000, 9004):
        silent(t, port)
    held = held_by(t, w, 6000, "sink.test", *range(9000, 9004), allow=[{"host": "sink.test", "ports": ["9000-9003"]}])
    counted = zw.AM_ROOT and os.path.exists("/sys/fs/cgroup/memory/memory.kmem.tcp.limit_in_bytes")  # what is not yet read is in its account
    t.check(held < (800 if counted else 2400), f"{held} MiB in buffers of TCP")


@zw.alone
def test_a_sandbox_that_talks_to_itself_is_held_to_its_memory(t):
    w = World(t)
    if not zw.AM_ROOT:
        raise zw.Skip("without control groups nobody counts it")
    held = held_by(t, w, 1000, "127.0.0.1", 9)
    t.check(held < 700, f"{held} MiB in buffers of TCP")


def test_who_comes_when_every_place_is_taken_is_turned_away(t):
    w = World(t)
    w.name("sink.test", PUBLIC)
    silent(t, 9000)
    code = ("held, addr = [], socket.gethostbyname('sink.test')\n"
            "for i in range(5000):\n"
            "    s = socket.socket(); s.setblocking(False); s.connect_ex((addr, 9000)); held.append(s)\n"
            "time.sleep(2); gone = 0\n"
            "for s in held:\n"
            "    try: s.send(b'x')\n"
            "    except OSError: gone += 1\n"
            "say(gone); say(socket.gethostbyname('sink.test') == addr)")
    r = w.python(code, allow=[{"host": "sink.test", "ports": [9000]}], policy_more={"limits": {"open_files": 8192}})
    t.expect(r, code=0)
    t.check(500 <= int(r.lines[0]) <= 4984, f"{r.lines[0]} of 5000 connections were reset")
    t.equal(r.lines[1], "True", "look-ups go on")
    t.check(any("too many connections" in (d.get("why") or "") for d in r.denials("network")), f"denials: {r.denials('network')}")


# ---- Ports that are served for all addresses ------------------------------------------------------------------------------


def test_rules_for_port_53_leave_look_ups_alone(t):
    w = World(t)
    w.origin(8080, "origin.test")
    for extra in ({"address": PRIVATE, "ports": [53], "protocol": "udp"}, {"address": PRIVATE, "ports": [53]},
                  {"host": "*.w.test", "ports": [53], "protocol": "udp"}, {"host": "*.w.test", "ports": [53]}):
        code = "say(reach('origin.test', 8080)); say(rcode(ask(question('origin.test'), tcp=True)), rcode(ask(question('evil.test'))))"
        t.expect(w.python(code, allow=[RULE, extra]), code=0, out="reached\n0 3\n")


def test_datagrams_to_a_name_go_there_beside_a_rule_for_all_addresses(t):
    w = World(t)
    w.name("echo.test", PUBLIC)
    w.udp_echo(5000)
    code = ("for h in (socket.gethostbyname('echo.test'), sys.argv[1]):\n"
            "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect((h, 5000)); s.send(b'x'); say(len(s.recv(9)) > 0)")
    r = w.python(code, PRIVATE, allow=[{"host": "echo.test", "ports": [5000], "protocol": "udp"}, {"address": PRIVATE, "ports": [5000], "protocol": "udp"}])
    t.expect(r, code=0, out="True\nTrue\n")
    t.equal({c["host"] for c in network.connections(r)}, {"echo.test", PRIVATE}, "connections")


# ---- What is around the rules ---------------------------------------------------------------------------------------------


def test_nothing_answers_beside_the_rules(t):
    w = World(t)
    w.origin(8080, "origin.test")
    w.origin(8081)
    a = socket.socket(socket.AF_UNIX)
    a.bind("\0zwinger-test-%d" % os.getpid())
    a.listen(1)
    t.at_end(a.close)
    code = r"""
def tcp(host, port=8080, source=None, family=socket.AF_INET):
    with socket.socket(family) as s:
        s.settimeout(3)
        if source: s.setsockopt(0, 15, 1); s.bind((source, 0))  # IP_FREEBIND
        s.connect(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)[0][4])
        s.sendall(b'GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
        return read_all(s)
def udp(host, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(0.3); s.setsockopt(1, 6, 1)
        s.sendto(question('origin.test'), socket.getaddrinfo(host, 53, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0][4])
        return s.recv(999)
def unix(name):
    with socket.socket(socket.AF_UNIX) as s: s.connect(name); return b'connected'
def made(*kind): socket.socket(*kind); return b'made'
origin = socket.gethostbyname('origin.test')
for f, *args in [(tcp, h) for h in ('198.19.0.1', '198.18.0.1', '198.18.0.2', '198.18.255.255', '198.19.255.255', '0.0.0.0', '127.0.0.1', '169.254.169.254', sys.argv[1])] + \
  [(tcp, '198.18.1.1', 8080), (tcp, origin, 8081), (tcp, origin, 53)] + [(tcp, origin, 8080, s) for s in ('198.18.1.0', '198.18.0.1', '10.9.8.7', '8.8.8.8')] + \
  [(tcp, h, 8080, None, socket.AF_INET6) for h in ('fe80::ff:fe00:1%eth0', 'fd7a:7769:6e67::1', '::1', '::ffff:' + sys.argv[1], '2606:2800:220:1::1')] + \
  [(udp, h) for h in ('255.255.255.255', '224.0.0.1', '224.0.0.251', '198.18.255.255', '198.18.1.0', '198.19.255.255')] + [(udp, 'ff02::1%eth0', socket.AF_INET6)] + \
  [(unix, sys.argv[2].replace('@', chr(0)))] + [(made, *k) for k in ((2, 3, 1), (17, 3), (2, 2, 1), (40, 1), (2, 6, 33), (2, 1, 132))]:
    try: got = f(*args)
    except OSError as e: got = b''
    if got: say(f.__name__, *args, got[:60])
say(reach('origin.test', 8080))
"""
    r = w.python(code, PRIVATE, "@zwinger-test-%d" % os.getpid(), allow=[RULE, {"host": "*.w.test", "ports": [8080]}, {"address": "2606:2800:220:1::2", "ports": [8080]}])
    t.expect(r, code=0, out="reached\n")


# ---- Secrets that are none ------------------------------------------------------------------------------------------------

ECHO = "say(http('api.test', 80, get('/echo'))[0])"


def refused(t, w, *words, code=ECHO, args=(), **more):
    r = w.python(code, *args, allow=[HTTP], **more)
    network.not_started(t, r, "key", *words)
    t.lacks(r.errors + json.dumps(r.doc), VALUE, "the message")


def test_a_secret_that_is_shown_inside_starts_nothing(t):
    w = World(t)
    o = w.origin(80, "api.test")
    shown = t.folder("shown")
    os.mkdir(shown + "/deep")
    path = os.path.join(shown, "deep", "token")
    with open(path, "w") as f:
        f.write(VALUE + "\n")
    link = os.path.join(t.folder("elsewhere"), "link")
    os.symlink(path, link)
    for mount in ({"read": [shown + ":/data"]}, {"write": [shown + ":/data"]}, {"read": [path + ":/data"]}, {"workspace": {"source": shown, "mode": "ro"}}):
        for name in (path, link):
            refused(t, w, "inside", secrets={"key": {"file": name}}, policy_more={"filesystem": mount})
    env = {"KEY": VALUE}
    refused(t, w, "env.pass", secrets={"key": {"env": "KEY"}}, env=env, policy_more={"env": {"pass": ["KEY"]}})
    refused(t, w, "OTHER", secrets={"key": {"env": "KEY"}}, env=env, policy_more={"env": {"set": {"OTHER": f"Bearer {VALUE}"}}})
    refused(t, w, "command", secrets={"key": {"file": path}}, args=(f"--token={VALUE}",))
    t.equal(o.accepted, 0, "connections")
    other = t.folder("other")
    r = w.python(ECHO, allow=[HTTP], secrets={"key": {"file": path}}, policy_more={"filesystem": {"write": [other + ":/data"], "read": [shown + "/../elsewhere:/more"]}})
    t.expect(r, code=0, out="200\n")


def test_what_is_read_for_a_secret_is_not_chosen_inside(t):
    w = World(t)
    w.origin(80, "api.test")
    inside = t.folder("inside")
    path = t.file(VALUE + "\n", "token")
    os.symlink(path, inside + "/token")
    with open(inside + "/program", "w") as f:
        f.write(f"#!/bin/sh\ncat {path}\n")
    os.chmod(inside + "/program", 0o755)
    write = {"filesystem": {"write": [inside + ":/data"]}}
    refused(t, w, "/data", secrets={"key": {"file": inside + "/token"}}, policy_more=write)
    refused(t, w, "/data", secrets={"key": {"command": [inside + "/program"]}}, policy_more=write)
    read = {"filesystem": {"read": [inside + ":/data"]}}
    for source in ({"file": inside + "/token"}, {"command": [inside + "/program"]}):
        t.expect(w.python(ECHO, allow=[HTTP], secrets={"key": source}, policy_more=read), code=0, out="200\n")


def test_the_trust_of_a_policy_is_not_chosen_inside(t):
    w = World(t)
    inside = t.folder("inside")
    with open(w.second.path) as f, open(inside + "/ca.pem", "w") as out:
        out.write(f.read())
    r = w.run("true", allow=[{"host": "tls.test", "protocol": "https"}], ca_file=inside + "/ca.pem", policy_more={"filesystem": {"write": [inside + ":/data"]}})
    network.not_started(t, r, "ca_file", "/data")


# ---- Secrets that change --------------------------------------------------------------------------------------------------


class Changing:
    """A run that asks the origin each time a line is read."""

    def __init__(self, t, w, path):
        self.t, self.o = t, w.origin(80, "api.test")
        self.run = w.start_python("for line in sys.stdin: say(http('api.test', 80, get('/echo'))[0])", stdin=subprocess.PIPE, allow=[HTTP], secrets={"key": {"file": path}})

    def ask(self):
        self.run.process.stdin.write(b"\n")
        self.run.process.stdin.flush()
        status = int(self.run.read_line())
        return self.o.last().header("Authorization") if status == 200 else status

    def becomes(self, wanted):
        end, got = time.monotonic() + 10, None
        while got != wanted and time.monotonic() < end:
            got = self.ask()
        self.t.equal(got, wanted, "what the origin sees")


def test_half_a_value_is_never_used(t):
    w = World(t)
    path = t.file(VALUE + "\n", "token")
    c = Changing(t, w, path)
    t.equal(c.ask(), f"Bearer {VALUE}", "at first")
    with open(path, "w") as f:
        f.write(NEXT[:1])
        f.flush()
        with open(path + ".neighbour", "w") as other:
            other.write("x")
        for _ in range(20):
            t.equal(c.ask(), f"Bearer {VALUE}", "while it is being written")
        f.write(NEXT[1:] + "\n")
    c.becomes(f"Bearer {NEXT}")
    t.expect(c.run.finish(20, b""), code=0)


def test_a_folder_that_goes_takes_its_secret_along(t):
    w = World(t)
    folder = t.folder("run") + "/secrets"
    os.mkdir(folder)
    with open(folder + "/token", "w") as f:
        f.write(VALUE)
    c = Changing(t, w, folder + "/token")
    t.equal(c.ask(), f"Bearer {VALUE}", "at first")
    os.rename(folder, folder + ".old")
    c.becomes(403)
    t.expect(c.run.finish(20, b""), code=0)


def test_a_link_that_is_led_to_another_version_is_followed(t):
    w = World(t)
    folder = t.folder("run")
    for version, value in (("1", VALUE), ("2", NEXT)):
        os.mkdir(f"{folder}/{version}")
        with open(f"{folder}/{version}/token", "w") as f:
            f.write(value)
    os.symlink("1", folder + "/now")
    os.symlink("now/token", folder + "/token")
    c = Changing(t, w, folder + "/token")
    t.equal(c.ask(), f"Bearer {VALUE}", "at first")
    os.symlink("2", folder + "/new")
    os.rename(folder + "/new", folder + "/now")
    c.becomes(f"Bearer {NEXT}")
    t.expect(c.run.finish(20, b""), code=0)


# ---- Servers that give a secret back --------------------------------------------------------------------------------------


def whole(body, *fields):
    return b"".join(f + b"\r\n" for f in (b"HTTP/1.1 200 OK", *fields, b"Content-Length: %d" % len(body))) + b"\r\n" + body


V = VALUE.encode()
ANSWERS = {
    "/names": b"HTTP/1.1 302 " + V + b"\r\nLocation: http://x/" + V + b"\r\nSet-Cookie: a=" + V + b"\r\n" + V + b": 1\r\nContent-Length: 0\r\n\r\n",
    "/interim": b"HTTP/1.1 103 " + V + b"\r\nLink: " + V + b"\r\n\r\n" + whole(b"x"),
    "/nothing": b"HTTP/1.1 204 " + V + b"\r\nX: " + V + b"\r\n\r\n",
    "/unchanged": b"HTTP/1.1 304 N\r\nETag: \"" + V + b"\"\r\n\r\n",
    "/framing": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=" + V + b"\r\nx\r\n0;" + V + b"\r\nX-Trailer: " + V + b"\r\n\r\n",
    "/bytes": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % c for c in V) + b"0\r\n\r\n",
    "/cut": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + V[:-1],
    "/ranges": whole(b"--x\r\nContent-Range: bytes 0-3/9\r\n\r\n" + V + b"\r\n--x--", b"Content-Type: multipart/byteranges; boundary=x"),
    "/twice": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx" + V,
    "/broken": b"HTTP/1.1 200 OK\r\nX " + V + b": y\r\n\r\n",
    "/raw": V + b"\r\n\r\n",
    "/version": b"HTTP/9.9 " + V + b"\r\n\r\n",
    "/coding": whole(V, b"Content-Encoding: " + V),
}


def raw_server(t, port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((PUBLIC, port))
    listener.listen(64)
    t.at_end(listener.close)

    def serve():
        while True:
            try:
                s, _ = listener.accept()
            except OSError:
                return
            with s, contextlib.suppress(OSError):
                head = b""
                while b"\r\n\r\n" not in head:
                    head += s.recv(65536) or b"\r\n\r\n"
                s.sendall(ANSWERS.get(head.split(b" ")[1].decode(), b"") if b" " in head else b"")
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass

    threading.Thread(target=serve, daemon=True).start()


def test_no_part_of_an_answer_gives_the_secret_back(t):
    w = World(t)
    w.name("api.test")
    raw_server(t, 80)
    code = ("for p in json.loads(sys.argv[1]):\n"
            "    for m in ('GET', 'HEAD'):\n"
            "        try: say(m, p, *exchange('api.test', 80, get(p, method=m)))\n"
            "        except OSError as e: say(m, p, word(e))")
    audit = t.tmp("audit")
    r = w.python(code, json.dumps(list(ANSWERS)), allow=[HTTP], secrets={"key": {"env": "KEY"}}, env={"KEY": VALUE}, policy_more={"audit": {"file": audit}})
    t.expect(r, code=0)
    t.equal(len(r.lines), 2 * len(ANSWERS), "answers")
    with open(audit) as f:
        told = f.read()
    for where, text in (("inside", r.out.decode()), ("result", json.dumps(r.doc)), ("stderr", r.errors), ("audit", told)):
        for part in (VALUE, VALUE[:-1]):
            t.lacks(text, part, where)


if __name__ == "__main__":
    network.main(globals())
