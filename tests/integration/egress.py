#!/usr/bin/python3 -B
"""zwinger-egress alone: its walls, its bounds, what it relays and what it reports. The test is its supervisor, sandbox and world."""
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import broker  # noqa: E402
import tap  # noqa: E402

DB = "db.example.org"


def begin(t, rules=None, hosts=(), wrap=(), **limits):
    if os.environ.get(broker.ENTERED) != "yes":
        t.skip("no network namespace can be made here")
    if broker.PROGRAM is None:
        t.skip("zwinger-egress is not built")
    b = broker.Broker(broker.network(rules if rules is not None else [broker.rule(DB, ((5432, 5432),))], hosts, **limits), wrap=wrap)
    t.at_end(b.close)
    b.ready()
    b.serve_names()
    return b


def upstream(t, kind=socket.SOCK_STREAM):
    s = broker.listener(kind=kind)
    t.at_end(s.close)
    return s, s.getsockname()[1]


def connected(t, **limits):
    """A broker with one rule, a server behind it, and the address inside."""
    server, port = upstream(t)
    b = begin(t, hosts=[(DB, "127.0.0.1", port)], **limits)
    b.listen("0.0.0.0", 5432)
    return b, server, b.lookup(DB)


def dial(t, address, port=5432):
    s = socket.create_connection((address, port), timeout=10)
    t.at_end(s.close)
    return s


def pair(t, server, address):
    client = dial(t, address)
    far, _ = server.accept()
    far.settimeout(10)
    t.at_end(far.close)
    return client, far


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def is_reset(s):
    try:
        return s.recv(1) and False
    except ConnectionResetError:
        return True


def is_refused(address, port=5432):
    """Is a connection reset right after it was accepted? That may show while connecting or afterwards."""
    try:
        with socket.create_connection((address, port), timeout=10) as s:
            return is_reset(s)
    except ConnectionResetError:
        return True


def status(b):
    with open(f"/proc/{b.process.pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


# ---- Walls. ----

def test_it_has_no_capability_no_new_privileges_and_a_filter(t):
    b = begin(t)
    s = status(b)
    t.equal((s["Seccomp"], s["NoNewPrivs"]), ("2", "1"), "Seccomp, NoNewPrivs")
    for key in ("CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"):
        t.equal(int(s[key], 16), 0, key)


def test_it_holds_nothing_but_its_sockets(t):
    extra = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(extra, True)
    t.at_end(os.close, extra)
    b = begin(t)
    try:
        held = {os.readlink(f"/proc/{b.process.pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{b.process.pid}/fd")}
    except PermissionError:
        return t.skip("only root of the host may look into it, which is as it should be")
    held -= {os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in (1, 2)}
    t.equal(held - {"socket", "anon_inode", "/dev/null", "pipe"}, set(), "open files")


def test_it_ends_when_the_supervisor_is_gone(t):
    b, server, address = connected(t)
    client, far = pair(t, server, address)
    b.line.close()
    t.equal(b.process.wait(10), 0, "exit status")
    t.check(is_closed(client) and is_closed(far), "a connection outlived the broker")


def is_closed(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


def test_it_ends_when_the_supervisor_sends_nonsense(t):
    b, server, address = connected(t)
    client, far = pair(t, server, address)
    b.line.send(b"{nonsense")
    t.equal(b.process.wait(10), 0, "exit status")
    t.check(is_closed(client) and is_closed(far), "a connection outlived the broker")


def test_a_configuration_that_it_does_not_understand_is_refused(t):
    if os.environ.get(broker.ENTERED) != "yes" or broker.PROGRAM is None:
        t.skip("no network namespace, or no program")
    for config in (b"", b"[]", b'{"network": {}}', b'{"network": {"rules": [7]}}'):
        b = broker.Broker(config)
        t.at_end(b.close)
        t.check(b.wait("refused")["why"], "no reason was given")
        t.equal(b.process.wait(10), 1, "exit status")


# ---- What it relays. ----

def test_bytes_ends_and_records(t):
    b, server, address = connected(t)
    client, far = pair(t, server, address)
    client.sendall(b"question")
    t.equal(far.recv(100), b"question", "what the server got")
    client.shutdown(socket.SHUT_WR)
    t.equal(far.recv(100), b"", "the end")
    for _ in range(3):
        far.sendall(b"answer")
        t.equal(client.recv(100), b"answer", "what came back after the half close")
    far.close()
    t.equal(client.recv(100), b"", "the other end")
    record = b.wait("connection")
    t.equal({k: record[k] for k in ("host", "port", "protocol", "address", "sent", "received", "rule")},
            {"host": DB, "port": 5432, "protocol": "tcp", "address": "127.0.0.1", "sent": 8, "received": 18, "rule": "network.allow[0]"}, "record")
    t.lacks(record, "error", "record")


def test_a_server_that_refuses_is_a_reset_and_a_record(t):
    b, server, address = connected(t)
    server.close()
    t.check(is_refused(address), "the client was not reset")
    t.contains(b.wait("connection")["error"].lower(), "refused", "error")


def test_resets_are_passed_on_both_ways(t):
    b, server, address = connected(t)
    client, far = pair(t, server, address)
    client.sendall(b"x")
    far.recv(1)
    reset(far)
    t.check(is_reset(client), "the client was not reset")
    client, far = pair(t, server, address)
    client.sendall(b"x")
    far.recv(1)
    reset(client)
    t.check(is_reset(far), "the server was not reset")
    t.equal(b.end(), 0, "exit status")


def test_a_port_without_a_rule_is_refused_with_a_reason(t):
    b, _, address = connected(t)
    b.listen("0.0.0.0", 22)
    t.check(is_refused(address, 22), "the client was not reset")
    denied = b.wait("denied", host=DB)
    t.equal((denied["kind"], denied["port"], denied["count"], denied["rule"]), ("network", 22, 1, "network.allow[0]"), "denial")
    t.equal(denied["why"], f"{DB}:22 is not in network.allow (network.allow[0] covers port 5432)", "why")


def test_an_address_that_was_never_given_out_is_refused(t):
    b, _, _ = connected(t)
    t.check(is_refused("198.18.77.7"), "the client was not reset")
    t.equal(b.wait("denied")["host"], "198.18.77.7", "host")


def test_a_thousand_connections_at_once_within_the_memory(t):
    b, server, address = connected(t)
    pairs, rss = [], 0
    for i in range(1000):
        pairs.append(pair(t, server, address))
        if i == 99:
            rss = int(status(b)["RssAnon"].split()[0])
    for i, (client, far) in enumerate(pairs):
        client.sendall(b"%d" % i)
        far.sendall(b"-%d" % i)
    for i, (client, far) in enumerate(pairs):
        t.equal((far.recv(100), client.recv(100)), (b"%d" % i, b"-%d" % i), f"bytes of connection {i}")
    t.between(rss, 1, 6 * 1024, "KiB of private memory with 100 connections")
    for client, far in pairs:
        client.close()
        far.close()
    for _ in range(1000):
        b.wait("connection")


def test_connections_that_find_no_place_are_turned_away_in_the_end(t):
    t.need("prlimit")
    server, port = upstream(t)
    b = begin(t, hosts=[(DB, "127.0.0.1", port)], wrap=("prlimit", f"--nofile={1024 + 4 * 32}"))
    b.listen("0.0.0.0", 5432)
    address = b.lookup(DB)
    clients = [dial(t, address) for _ in range(32)]
    far = [server.accept()[0] for _ in range(32)]
    for s in [dial(t, address) for _ in range(8)]:
        s.settimeout(10)
        try:
            t.fail(f"one more than there are places got {s.recv(1)!r}")
        except ConnectionResetError:
            pass
    clients[0].close()
    far[0].close()
    b.wait("connection")
    client = dial(t, address)
    far.append(server.accept()[0])
    client.sendall(b"x")
    t.equal(far[-1].recv(1), b"x", "what came through the place that was freed")
    for s in far:
        s.close()


def test_bulk_is_whole_both_ways_at_once(t):
    b, server, address = connected(t)
    client, far = pair(t, server, address)
    size = 64 << 20
    block = os.urandom(1 << 20)

    def send(s):
        for _ in range(size >> 20):
            s.sendall(block)
        s.shutdown(socket.SHUT_WR)

    def check(s, result):
        got, at = 0, 0
        while True:
            data = s.recv(1 << 20)
            if not data:
                break
            at = got % len(block)
            if data != (block[at:] + block)[:len(data)]:
                result.append("bytes differ")
                break
            got += len(data)
        result.append(got)

    results = [], []
    threads = [threading.Thread(target=send, args=(s,)) for s in (client, far)]
    threads += [threading.Thread(target=check, args=(s, r)) for s, r in zip((client, far), results)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    t.equal(results, ([size], [size]), "bytes that came")
    record = b.wait("connection")
    t.equal((record["sent"], record["received"]), (size, size), "bytes on record")


# ---- Datagrams. ----

def datagram_world(t):
    server, port = upstream(t, socket.SOCK_DGRAM)
    b = begin(t, rules=[broker.rule("time.example.org", ((123, 123),), "udp")], hosts=[("time.example.org", "127.0.0.1", port)])
    b.listen("0.0.0.0", 123, udp=True)
    return b, server, b.lookup("time.example.org")


def datagram_client(t, address, port=123):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((address, port))  # so that an answer from another address would not arrive
    t.at_end(s.close)
    return s


def test_datagrams_and_their_answers_find_their_flow(t):
    b, server, address = datagram_world(t)
    clients = [datagram_client(t, address) for _ in range(10)]
    for i, c in enumerate(clients):
        for k in range(3):
            c.send(b"%d.%d" % (i, k))
    seen = {}
    for _ in range(30):
        data, peer = server.recvfrom(100)
        seen.setdefault(peer, []).append(data)
        server.sendto(b"re " + data, peer)
    t.equal(len(seen), 10, "sockets of the broker")
    for i, c in enumerate(clients):
        t.equal(sorted(c.recv(100) for _ in range(3)), [b"re %d.%d" % (i, k) for k in range(3)], f"answers of client {i}")
    b.end()
    records = [m for m in b.messages if m["t"] == "connection"]
    t.equal(len(records), 10, "records")
    t.equal({(r["host"], r["protocol"], r["sent"], r["received"]) for r in records}, {("time.example.org", "udp", 9, 18)}, "records")


def test_datagrams_of_every_size_keep_their_borders(t):
    b, server, address = datagram_world(t)
    c = datagram_client(t, address)
    for size in (0, 1, 1400, 9000, 65507):
        c.send(b"x" * size)
        data, peer = server.recvfrom(1 << 17)
        t.equal(len(data), size, "size outside")
        server.sendto(data, peer)
        t.equal(len(c.recv(1 << 17)), size, "size of the answer")
    t.equal(b.end(), 0, "exit status")


def test_the_oldest_datagram_flow_goes_for_a_new_one(t):
    b, server, address = datagram_world(t)
    clients = [datagram_client(t, address) for _ in range(600)]
    for c in clients:
        c.send(b"x")
        server.recvfrom(10)
    b.wait("connection")
    b.end()
    t.equal(len([m for m in b.messages if m["t"] == "connection"]), 599, "further records")


def test_datagrams_without_a_rule_are_refused(t):
    b, _, address = datagram_world(t)
    b.listen("0.0.0.0", 124, udp=True)
    datagram_client(t, address, 124).send(b"x")
    t.equal(b.wait("denied")["port"], 124, "port")


# ---- Limits. ----

def test_bytes_out_are_held_exactly(t):
    b, server, address = connected(t, bytes_out=1000)
    client, far = pair(t, server, address)
    client.sendall(b"x" * 1000)
    got = b""
    while len(got) < 1000:
        got += far.recv(1000)
    client.sendall(b"y")
    t.check(is_reset(far) and is_reset(client), "the connection goes on")
    t.equal(b.wait("limit"), {"t": "limit", "which": "bytes_out", "kill": False}, "limit")
    t.contains(b.wait("denied")["why"], "network.limits.bytes_out", "why")
    t.check(is_refused(address), "a new connection was let through")
    b.end()
    t.equal([m["sent"] for m in b.messages if m["t"] == "usage"][-1], 1000, "usage")


def test_a_limit_may_ask_for_the_end_of_the_run(t):
    b, server, address = connected(t, connections=2, kill=True)
    for _ in range(2):
        client, far = pair(t, server, address)
        client.close()
        far.close()
    t.check(is_refused(address), "a third connection was let through")
    t.equal(b.wait("limit"), {"t": "limit", "which": "connections", "kill": True}, "limit")


# ---- Reports. ----

def test_the_same_refusal_a_thousand_times_is_a_few_lines(t):
    b, _, address = connected(t)
    b.listen("0.0.0.0", 22)
    for _ in range(1000):
        t.check(is_refused(address, 22), "the client was not reset")
    b.end()
    denied = [m for m in b.messages if m["t"] == "denied"]
    t.equal(sum(m["count"] for m in denied), 1000, "refusals on record")
    t.between(len(denied), 1, 200, "lines")


def test_a_supervisor_that_does_not_read_holds_nothing_up(t):
    b, server, address = connected(t)
    for i in range(6000):
        client = socket.create_connection((address, 5432), timeout=10)
        far, _ = server.accept()
        client.close()
        far.close()
    client, far = pair(t, server, address)
    client.sendall(b"still")
    t.equal(far.recv(10), b"still", "bytes")
    b.end()
    t.equal(sum(m.get("count", 1) for m in b.messages if m["t"] == "connection"), 6001, "connections on record")
    t.equal(b.messages[-1], {"t": "bye"}, "last message")


def test_what_is_open_at_the_end_is_on_record(t):
    b, server, address = connected(t)
    client, far = pair(t, server, address)
    client.sendall(b"12345")
    far.recv(10)
    t.equal(b.end(), 0, "exit status")
    t.equal([m["sent"] for m in b.messages if m["t"] == "connection"], [5], "connections")
    t.check(is_closed(client), "the connection outlived the broker")


# ---- Published ports. ----

def published(t):
    b = begin(t)
    outside = broker.listener()
    b.send({"t": "publish", "entries": [{"port": 8080, "label": "127.0.0.1:9000"}]}, [outside.fileno()])
    port = outside.getsockname()[1]
    outside.close()
    return b, port


def test_a_peer_reaches_the_port_inside(t):
    b, port = published(t)
    peer = dial(t, "127.0.0.1", port)
    asked = b.wait("inbound")
    t.equal(asked["port"], 8080, "port")
    listening = broker.listener()
    near = socket.create_connection(listening.getsockname(), timeout=10)
    inside, _ = listening.accept()
    inside.settimeout(10)
    for s in (near, inside, listening):
        t.at_end(s.close)
    b.send({"t": "inbound", "id": asked["id"]}, [near.fileno()])
    near.close()
    peer.sendall(b"hello inside")
    t.equal(inside.recv(100), b"hello inside", "what came inside")
    inside.sendall(b"hello outside!")
    t.equal(peer.recv(100), b"hello outside!", "what came outside")
    peer.close()
    t.equal(inside.recv(10), b"", "the end")
    inside.close()
    record = b.wait("connection")
    t.equal({k: record.get(k) for k in ("host", "port", "protocol", "sent", "received", "rule", "inbound")},
            {"host": "127.0.0.1", "port": 8080, "protocol": "publish", "sent": 14, "received": 12, "rule": "127.0.0.1:9000", "inbound": True}, "record")


def test_without_a_listener_inside_the_peer_is_reset(t):
    b, port = published(t)
    peer = dial(t, "127.0.0.1", port)
    b.send({"t": "inbound", "id": b.wait("inbound")["id"], "error": "connection refused"})
    t.check(is_reset(peer), "the peer was not reset")
    t.contains(b.wait("connection")["error"], "8080", "error")


if __name__ == "__main__":
    if "--list" not in sys.argv:
        broker.enter()
    tap.main(globals())
