#!/usr/bin/python3 -B
"""A gigabyte up and down: right to the byte, and in little memory."""
import hashlib
import json
import os
import select
import socket

import soaklib
from soaklib import MIB, Client, say, serve, size

SIZE = size(1024, 64) * MIB
OVER_IDLE = 64 * MIB  # of zwingerd; of the others less
OTHERS_OVER_IDLE = 16 * MIB
PIECE = os.urandom(MIB - 7)  # no power of two, so that no boundary falls together


def pieces():
    left = SIZE
    while left > 0:
        yield PIECE[:left]
        left -= min(left, len(PIECE))


def digest(parts):
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(part)
    return h.hexdigest()


WANTED = digest(pieces())


def helpers():
    """Supervisor, agent and the program that works on files."""
    return {p: comm for p, (_, comm, state) in soaklib.zw.descendants().items() if comm not in ("zwingerd", "zwinger") and state != "Z"}


class Watch:
    """How far the daemon and all below it grow while something is done."""

    def __init__(self, t, d):
        self.t, self.d = t, d

    def __enter__(self):
        self.daemon = soaklib.resident(self.d.process.pid)
        self.others = {p: soaklib.resident(p) for p in helpers()}
        for p in [self.d.process.pid, *self.others]:
            soaklib.forget_peak(p)
        return self

    def check(self, what):
        grown = soaklib.peak(self.d.process.pid) - self.daemon
        others = {}
        for p, comm in helpers().items():
            others[comm] = max(others.get(comm, 0), soaklib.peak(p) - self.others.get(p, 0))
        say(f"{what}: zwingerd grew by {grown >> 10} KiB, " + ", ".join(f"{k} by {v >> 10}" for k, v in sorted(others.items())))
        self.t.check(grown <= OVER_IDLE, f"{what}: zwingerd grew by {grown} bytes")
        self.t.check(max(others.values()) <= OTHERS_OVER_IDLE, f"{what}: {others}")

    def __exit__(self, *_):
        pass


def download(client, path, headers):
    """The digest of what comes, read in pieces."""
    connection = client.d.connection(timeout=120)
    connection.request("GET", path, None, headers)
    r = connection.getresponse()
    if r.status != 200:
        raise soaklib.Unexpected(f"GET {path}: {r.status} {r.read()[:300]!r}")
    parts = iter(lambda: r.read(MIB), b"")
    found = digest(parts)
    connection.close()
    return found


def upload(client, method, path, body, headers):
    connection = client.d.connection(timeout=120)
    connection.request(method, path, body, headers, encode_chunked="Content-Length" not in headers)
    r = connection.getresponse()
    data = r.read()
    connection.close()
    if r.status not in (200, 201):
        raise soaklib.Unexpected(f"{method} {path}: {r.status} {data[:300]!r}")


def room(t):
    """The file lies in memory, in the scratch of a sandbox."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    if free < 3 * SIZE:
        t.skip(f"{free} bytes of memory are free")
    return {"limits": {"memory": "3G"}, "filesystem": {"scratch": {"size": "2560M"}}}  # a file is replaced by a whole one beside it


def start(t):
    wide = room(t)
    d = serve(t, "--templates", template(t, wide), policy=wide, ceiling=wide)
    return d, Client(d)


def template(t, policy):
    """What E2B's creation names."""
    path = t.file(json.dumps({**soaklib.LOOSE, **policy}), "templates", "base.yaml")
    return os.path.dirname(path)


def test_files_of_the_native_interface(t):
    d, client = start(t)
    sandbox = client.create()
    path = f"/v1/sandboxes/{sandbox}/files?path=big"
    key = {"Authorization": f"Bearer {d.key}"}
    client.ask("GET", f"/v1/sandboxes/{sandbox}/files/list?path=.")  # the program that does it is there
    for what, extra in (("PUT with a length", {"Content-Length": str(SIZE)}), ("PUT in chunks", {"Transfer-Encoding": "chunked"})):
        with Watch(t, d) as w:
            upload(client, "PUT", path, pieces(), {**key, **extra})
            w.check(what)
    t.equal(client.run(sandbox, "stat -c %s big")["stdout"], f"{SIZE}\n", "size inside")
    with Watch(t, d) as w:
        t.equal(download(client, path, key), WANTED, "content")
        w.check("GET")
    with Watch(t, d) as w:
        slow = d.connection(timeout=60)
        slow.request("GET", path, None, key)
        r = slow.getresponse()
        t.equal(len(r.read(MIB)), MIB, "the first mebibyte")
        client.ask("GET", f"/v1/sandboxes/{sandbox}/files/stat?path=big")  # others go on
        slow.close()
        w.check("GET that is left")
    soaklib.end(t, d)


def test_files_of_e2b(t):
    d, client = start(t)
    facts = client.e2b("POST", "/sandboxes", {"templateID": "base", "timeout": 3600}, 201).json
    head = soaklib.traffic(facts)
    client.ask("GET", "/files?path=/etc/hostname", key=None, headers=head)
    boundary = "x" * 30

    def form():
        yield f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="big"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode()
        yield from pieces()
        yield f"\r\n--{boundary}--\r\n".encode()

    for what, body, kind in (("POST of bytes", pieces, "application/octet-stream"), ("POST of a form", form, f"multipart/form-data; boundary={boundary}")):
        with Watch(t, d) as w:
            upload(client, "POST", "/files?path=/home/user/big", body(), {**head, "Content-Type": kind, "Transfer-Encoding": "chunked"})
            w.check(what)
        with Watch(t, d) as w:
            t.equal(download(client, "/files?path=/home/user/big", head), WANTED, "content")
            w.check("GET")
    soaklib.end(t, d)


def test_output_of_a_process(t):
    d, client = start(t)
    sandbox = client.create()
    with Watch(t, d) as w:
        done = client.run(sandbox, f"head -c {SIZE} /dev/zero | tr '\\0' x")
        t.equal(done["stdout_bytes"], SIZE, "counted")
        w.check("output of a run")
    pid = client.ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"shell": f"sleep 1; head -c {SIZE} /dev/zero | tr '\\0' x"}, 201).json["pid"]
    connection = d.connection(timeout=120)
    with Watch(t, d) as w:
        connection.request("GET", f"/v1/sandboxes/{sandbox}/processes/{pid}/output", None, {"Authorization": f"Bearer {d.key}"})
        r = connection.getresponse()
        count, last = 0, b""
        while True:
            part = r.read(MIB)
            if not part:
                break
            count += part.count(b"x") - part.count(b"ex")
            last = (last + part)[-2000:]
        w.check("output that is followed")
    t.contains(last, b"event: exit", "the end")
    t.check(count >= SIZE, f"{count} bytes came")
    connection.close()
    soaklib.end(t, d)


def test_answers_that_nobody_reads(t):
    """Clients that ask for much and take nothing: those that come too many are told, and service goes on."""
    d, client = start(t)
    sandbox = client.create()
    body = json.dumps({"shell": f"head -c {8 * MIB} /dev/zero | tr '\\0' x"}).encode()
    head = f"POST /v1/sandboxes/{sandbox}/run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {d.key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with Watch(t, d) as w:
        held = []
        for _ in range(45):
            s = d.socket(60)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.sendall(head + body)
            t.until(lambda s=s: select.select([s], [], [], 0)[0], 60, "it is answered")
            held.append(s)
        grown = soaklib.peak(d.process.pid) - w.daemon
    first = [s.recv(12, socket.MSG_PEEK) for s in held]
    say(f"{len(held)} answers of 8 MiB: {first.count(b'HTTP/1.1 200')} come, {first.count(b'HTTP/1.1 503')} are refused; zwingerd grew by {grown >> 10} KiB")
    t.check(first.count(b"HTTP/1.1 200") >= 20 and first.count(b"HTTP/1.1 503") >= 5, first)
    t.check(grown < 256 * MIB + OVER_IDLE, f"zwingerd grew by {grown} bytes")
    t.equal(client.run(sandbox, "echo small")["stdout"], "small\n", "a small one")
    for s in held:
        s.close()
    t.until(lambda: client.ask("POST", f"/v1/sandboxes/{sandbox}/run", json.loads(body), (200, 503)).status == 200, 60, "there is room again")
    soaklib.end(t, d)


def test_output_that_nobody_reads(t):
    """Each process may keep its share; all together have a bound, and the modest keep what they have."""
    d, client = start(t)
    greedy, modest = client.create(), client.create()
    count = size(150, 50)
    pid = client.ask("POST", f"/v1/sandboxes/{modest}/processes", {"shell": "echo modest"}, 201).json["pid"]
    with Watch(t, d) as w:
        for _ in range(count):
            client.ask("POST", f"/v1/sandboxes/{greedy}/processes", {"shell": f"head -c {8 * MIB} /dev/zero | tr '\\0' x"}, 201)

        def listed():
            return client.ask("GET", f"/v1/sandboxes/{greedy}/processes?limit=1000").json["processes"]

        t.until(lambda: all(p["state"] == "ended" for p in listed()), 120, "all have ended")
        grown = soaklib.peak(d.process.pid) - w.daemon
    say(f"{count} processes wrote {count * 8} MiB: zwingerd grew by {grown >> 10} KiB")
    t.check(grown < 256 * MIB + OVER_IDLE, f"zwingerd grew by {grown} bytes")
    t.check(sum(p["dropped"] for p in listed()) >= count * 8 * MIB - 256 * MIB, "what is not kept is counted")
    t.contains(client.ask("GET", f"/v1/sandboxes/{modest}/processes/{pid}/output").body, b"modest", "the other's output")
    soaklib.end(t, d)


soaklib.main(globals())
