#!/usr/bin/python3 -B
# shards: 2
"""What a network rule opens, and that nothing else is open: names, wildcards, ports, addresses, UDP, hosts, and what is never dialled."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import zw  # noqa: E402
from network import OTHER, PRIVATE, PRIVATE6, PUBLIC, PUBLIC6, World, connections, denied  # noqa: E402
from resolver import A, AAAA, CNAME, Answer  # noqa: E402

RULE = {"host": "origin.test", "ports": [8080]}


def refused(verdict):
    """An error that a program understands: not silence, not an orderly close, not a time-out."""
    return verdict in ("noname", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "EHOSTUNREACH", "EACCES", "EPERM")


# ---- Names --------------------------------------------------------------------------------------------------------------


def test_a_name_that_is_allowed_is_reached_and_recorded(t):
    w = World(t)
    w.origin(8080, "origin.test")
    r, found = w.verdicts(["origin.test"], allow=[RULE])
    t.equal(found, {"origin.test": "reached"}, "verdicts")
    t.equal(r.doc["denials"], [], "denials")
    c = connections(r, "origin.test", 8080)
    t.equal(len(c), 1, f"connections: {r.doc['connections']}")
    t.equal(c[0]["address"], PUBLIC, "address")
    t.check(c[0]["sent"] > 20 and c[0]["received"] > 20 and c[0]["seconds"] >= 0, f"figures: {c[0]}")
    t.between(r.doc["usage"]["net_sent_bytes"], 20, 5000, "net_sent_bytes")
    t.between(r.doc["usage"]["net_received_bytes"], 20, 5000, "net_received_bytes")
    t.contains(r.doc["enforcement"]["network"], "broker", "how the network is held")


def test_which_names_a_rule_covers(t):
    w = World(t)
    w.origin(8080)
    same = ["origin.test", "ORIGIN.Test", "origin.test."]
    below = ["api.origin.test", "a.b.origin.test", "API.Origin.TEST."]
    never = ["notorigin.test", "origin.test.evil.test", "origin.testx", "other.test", "test", "rigin.test", "xorigin.test", "origin-test", "origin..test",
             ".origin.test"]
    for name in same + below + never:
        w.name(name.lower().strip("."))
    exact, wild = RULE, {"host": "*.origin.test", "ports": [8080]}
    for rules, reached in (([exact], same), ([wild], below), ([exact, wild], same + below)):
        r, found = w.verdicts(same + below + never, allow=rules)
        t.equal([x for x, v in found.items() if v == "reached"], reached, f"reached with {rules}")
        t.equal({x: v for x, v in found.items() if v != "reached" and not refused(v)}, {}, "refusals of another kind")
    t.equal(w.dns.asked(), {x.lower().strip(".") for x in same + below}, "names that were looked up outside")


def test_the_most_specific_pattern_decides(t):
    w = World(t)
    o = w.origin(8080)
    for n in ("a.origin.test", "b.origin.test", "x.deep.origin.test"):
        w.name(n)
    rules = [{"host": "*.origin.test", "ports": [8080], "protocol": "http", "methods": ["GET"]},
             {"host": "a.origin.test", "ports": [8080], "protocol": "http", "paths": ["/only"]},
             {"host": "*.deep.origin.test", "ports": [8080], "protocol": "http", "methods": ["POST"]}]
    code = ("for h, m, p in (('a.origin.test', 'GET', '/ok'), ('a.origin.test', 'GET', '/only'), ('b.origin.test', 'GET', '/ok'), ('x.deep.origin.test', 'GET', '/ok'),\n"
            "             ('x.deep.origin.test', 'POST', '/ok')):\n"
            "    say(http(h, 8080, get(p, h + ':8080', m))[0])\n")
    r = t.expect(w.python(code, allow=rules), code=0)
    t.equal(r.lines, ["403", "404", "200", "403", "200"], "answers")
    t.equal(o.paths(), ["/only", "/ok", "/ok"], "what came to the origin")


def test_names_with_internationalised_letters_have_their_ascii_form(t):
    w = World(t)
    w.origin(8080, "xn--bcher-kva.test")
    _, found = w.verdicts(["xn--bcher-kva.test", "XN--Bcher-KVA.test"], allow=[{"host": "xn--bcher-kva.test", "ports": [8080]}])
    t.equal(set(found.values()), {"reached"}, "verdicts")


def test_an_entry_that_can_match_nothing_is_an_error_that_names_it(t):
    entries = ["*.", "*", "a.*.test", "*origin.test", "http://origin.test/", "origin.test/x", "", " ", "or igin.test", "origin..test", ".test", "-a.test", "a" * 64 + ".test",
               ".".join(["a" * 60] * 5), "origin.test\\r\\nx", "origin.test%00.evil.test", "user@origin.test", "[::1]", "*.*.test", "127.1",
               "0x7f000001", "0177.0.0.1", "2130706433", "fe80::1%eth0", "origin.test#", "origin.test?x", "b\\u00fccher.test"]
    missed = []
    for e in entries:
        text = '{"version": 1, "network": {"allow": [{"host": "%s", "ports": [80]}]}}' % e
        r = t.plain("policy", "check", t.file(text, "p.json"))
        if r.code != 125 or "network.allow[0]" not in r.errors:
            missed.append((e, r.code, r.errors))
    t.equal(missed, [], "entries that were taken, or whose message does not name the key")


def test_absent_empty_and_one_entry_are_three_outcomes_and_empty_never_widens(t):
    w = World(t)
    w.origin(8080, "origin.test")
    for more in ({}, {"allow": []}, {"hosts": {"origin.test": PUBLIC}}, {"allow": [], "hosts": {"origin.test": PUBLIC}}, {"allow": [], "proxy_env": True}):
        _, found = w.verdicts(["origin.test", PUBLIC, "198.18.1.0"], **more)
        t.equal([x for x, v in found.items() if v == "reached"], [], f"reached with {more}")
    _, found = w.verdicts(["origin.test"], allow=[RULE])
    t.equal(found["origin.test"], "reached", "with one entry")
    for key in ("ports", "methods", "paths"):
        rule = {"host": "origin.test", "ports": [8080], "protocol": "http", key: []}
        r = w.python("say(http('origin.test', 8080, get('/ok', 'origin.test:8080'))[0])", allow=[rule])
        t.check(r.code == 125 or r.text.strip() in ("0", "403"), f"an empty list of {key} opened something: {r.text!r}")


def test_allow_on_the_command_line(t):
    w = World(t)
    for port in (443, 8080, 8081):
        w.origin(port, "origin.test")
    targets = ["origin.test|443", "origin.test|8080", "origin.test|8081", "a.origin.test|443"]
    w.name("a.origin.test")
    for flags, reached in ((["--allow", "origin.test"], targets[:1]), (["--allow", "origin.test:8080,8081"], targets[1:3]),
                           (["--allow", "*.origin.test"], targets[3:]), (["--allow", "origin.test:8081", "--allow", "origin.test"], [targets[0], targets[2]])):
        _, found = w.verdicts(targets, flags=flags)
        t.equal([x for x, v in found.items() if v == "reached"], reached, f"reached with {flags}")


def test_two_sandboxes_do_not_have_each_others_rules(t):
    w = World(t)
    w.origin(8080, "one.test", "two.test")
    code = "say('up'); sys.stdin.readline(); say(reach('one.test', 8080), reach('two.test', 8080))"
    runs = [w.start_python(code, allow=[{"host": h, "ports": [8080]}], stdin=zw.subprocess.PIPE) for h in ("one.test", "two.test")]
    for r in runs:
        r.read_line()
    t.check(set(network.brokers(runs[0])) and not set(network.brokers(runs[0])) & set(network.brokers(runs[1])), "each has a broker of its own")
    for r, want in zip(runs, (b"reached noname\n", b"noname reached\n")):
        t.equal(r.finish(20, b"\n").out, want, "verdicts")


# ---- Ports and addresses ------------------------------------------------------------------------------------------------


def test_only_the_ports_of_a_rule_are_open(t):
    w = World(t)
    ports = [80, 443, 8000, 8005, 8010, 8011, 9000]
    for p in ports:
        w.origin(p, "origin.test")
    targets = [f"origin.test|{p}" for p in ports]
    r, found = w.verdicts(targets, allow=[{"host": "origin.test", "ports": [80, "8000-8010"]}])
    t.equal([p for p, v in zip(ports, found.values()) if v == "reached"], [80, 8000, 8005, 8010], "open ports")
    for p in (443, 8011, 9000):
        t.equal(denied(r, "network", "origin.test", p), 1, f"denials of port {p}: {r.doc['denials']}")
        t.check(refused(found[f"origin.test|{p}"]), f"port {p}: {found}")
    t.equal(w.wire().dialled() & {(PUBLIC, p) for p in (443, 8011, 9000)}, set(), "dialled")


def test_default_ports(t):
    w = World(t)
    for p in (80, 443):
        w.origin(p, "origin.test")
    targets = ["origin.test|80", "origin.test|443"]
    _, found = w.verdicts(targets, allow=[{"host": "origin.test"}])
    t.equal([x for x, v in found.items() if v == "reached"], targets[1:], "tcp")
    _, found = w.verdicts(targets, allow=[{"host": "origin.test", "protocol": "http"}])
    t.check(found[targets[1]] != "reached", "http opened port 443")
    t.equal(w.python("say(http('origin.test', 80, get('/ok', 'origin.test'))[0])", allow=[{"host": "origin.test", "protocol": "http"}]).text, "200\n", "http")


def test_address_rules_of_both_families(t):
    w = World(t)
    w.origin(8080)
    inside = ["203.0.114.5", "203.0.114.255", "2a00:1:2::1", "2a00:1:2:ffff::9", PRIVATE]
    outside = ["203.0.115.5", "203.0.113.1", "2a00:1:3::1", "10.9.8.6", "10.9.8.8", PUBLIC, PUBLIC6, "8.8.8.8"]
    rules = [{"address": a, "ports": ["8080-8081"]} for a in ("203.0.114.0/24", "2a00:1:2::/48", PRIVATE)]
    r, found = w.verdicts(inside + outside, allow=rules)
    t.equal([x for x, v in found.items() if v == "reached"], inside, "reached")
    t.equal({x: v for x, v in found.items() if x in outside and not refused(v)}, {}, "refusals of another kind")
    for a in outside:
        t.equal(denied(r, "network", a, 8080), 1, f"denials of {a}: {r.doc['denials']}")
    for a in inside:
        t.equal([c["address"] for c in connections(r) if a in (c.get("host"), c.get("address"))], [a], f"connections to {a}")
    _, found = w.verdicts([f"{PRIVATE}|8081", f"{PRIVATE}|8082"], allow=rules)
    t.check("reached" not in found.values(), "another port was reached")


def test_the_address_of_an_allowed_name_is_not_open_as_an_address(t):
    w = World(t)
    w.origin(8080, "origin.test", "two.test")
    code = ("a = socket.getaddrinfo('origin.test', 8080)[0][4][0]\n"
            "n = struct.unpack('!I', socket.inet_aton(a))[0]\n"
            "say(a.startswith('198.18.'))\n"
            f"say(*[reach(x, 8080) for x in ('{PUBLIC}', '::ffff:{PUBLIC}', socket.inet_ntoa(struct.pack('!I', n + 7)), '198.18.0.1', '198.18.200.200', '198.19.0.1')])\n"
            "say(reach(a, 8080), reach('two.test', 8080), reach(a, 8081))\n")
    r = t.expect(w.python(code, allow=[RULE, {"host": "two.test", "ports": [8080]}]), code=0)
    t.equal(r.lines[0], "True", "the name is an address of 198.18/16")
    t.check(all(refused(v) for v in r.lines[1].split()), f"verdicts: {r.lines[1]}")
    t.equal(r.lines[2].split()[:2], ["reached", "reached"], "by the addresses that the names have inside")
    t.check(refused(r.lines[2].split()[2]), f"verdicts: {r.lines[2]}")


def test_an_address_that_nobody_may_reach_answers_like_a_wall_and_not_like_silence(t):
    w = World(t)
    r, found = w.verdicts(["8.8.8.8", "1.1.1.1", "169.254.169.254", "2001:4860:4860::8888", "192.168.1.1", "100.100.100.200"], allow=[RULE])
    t.equal({x: v for x, v in found.items() if not refused(v)}, {}, "refusals of another kind")
    for a in found:
        t.equal(denied(r, "network", a, 8080), 1, f"denials of {a}: {r.doc['denials']}")


# ---- UDP ----------------------------------------------------------------------------------------------------------------


UDP = ("def tell(host, port, text=b'hi', timeout=1.0):\n"
       "    try:\n"
       "        f, k, _, _, a = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]\n"
       "        s = socket.socket(f, k); s.settimeout(timeout); s.connect(a); s.send(text)\n"
       "        return s.recv(65535).decode()\n"
       "    except OSError as e:\n"
       "        return word(e)\n")


def test_udp_goes_only_where_a_rule_says_udp(t):
    w = World(t)
    w.name("origin.test")
    echo = w.udp_echo(5000)
    other = w.udp_echo(5001)
    rules = [{"host": "origin.test", "ports": [5000], "protocol": "udp"}, {"host": "origin.test", "ports": [5001]}, {"address": PRIVATE, "ports": [5000], "protocol": "udp"}]
    code = UDP + (f"say(tell('origin.test', 5000), tell('{PRIVATE}', 5000), *[tell(h, p, timeout=0.3) for h, p in (('origin.test', 5001), ('{PRIVATE}', 5001), ('{PUBLIC}', 5000),\n"
                  "    ('8.8.8.8', 5000))])")
    r = t.expect(w.python(code, allow=rules), code=0)
    t.equal(r.text.split()[:2], ["echo:hi", "echo:hi"], "allowed")
    t.check(all("echo" not in x for x in r.text.split()[2:]), f"answers: {r.text}")
    t.equal((len(echo.received), len(other.received)), (2, 0), "datagrams")
    t.check(connections(r, "origin.test", 5000), f"connections: {r.doc['connections']}")


def test_a_tcp_connection_does_not_pass_a_udp_rule(t):
    w = World(t)
    w.origin(5000, "origin.test")
    _, found = w.verdicts(["origin.test|5000"], allow=[{"host": "origin.test", "ports": [5000], "protocol": "udp"}])
    t.check(refused(found["origin.test|5000"]), f"verdicts: {found}")


def test_many_udp_clients_get_their_own_answers(t):
    w = World(t)
    w.name("origin.test")
    w.udp_echo(5000)
    code = ("a = socket.getaddrinfo('origin.test', 5000)[0][4]\nss = []\n"
            "for i in range(100):\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(a); ss.append(s)\n"
            "for i, s in enumerate(ss): s.send(b'%d' % i)\n"
            "say(all(s.recv(100) == b'echo:%d' % i for i, s in enumerate(ss)))\n"
            "ss[0].send(b'x' * 9000); say(len(ss[0].recv(65535)))")
    t.expect(w.python(code, allow=[{"host": "origin.test", "ports": [5000], "protocol": "udp"}]), code=0, out="True\n9005\n")


# ---- network.hosts ------------------------------------------------------------------------------------------------------


def test_hosts_say_where_a_name_is_and_permit_that_address(t):
    w = World(t)
    o = w.origin(8080)
    p = w.origin(9999)
    hosts = {"db.internal": PRIVATE, "self.test": "127.0.0.1:9999", "six.test": f"[{PRIVATE6}]:9999"}
    rules = [{"host": h, "ports": [8080]} for h in hosts] + [{"host": "other.test", "ports": [8080]}]
    w.name("other.test", PRIVATE)
    r, found = w.verdicts([*hosts, "other.test", PRIVATE, "127.0.0.1"], allow=rules, hosts=hosts)
    t.equal([x for x, v in found.items() if v == "reached"], list(hosts), "reached")
    t.equal(w.dns.asked(), {"other.test"}, "names that were looked up")
    t.equal((o.accepted, p.accepted), (1, 2), "connections to the servers")
    t.equal([c["address"] for c in connections(r, "self.test")], ["127.0.0.1"], "address in the record")


def test_hosts_open_nothing_by_themselves(t):
    w = World(t)
    o = w.origin(8080)
    _, found = w.verdicts(["db.internal", PRIVATE], allow=[RULE], hosts={"db.internal": PRIVATE})
    t.check("reached" not in found.values() and o.accepted == 0, f"verdicts: {found}")


def test_hosts_permit_the_address_for_that_name_alone(t):
    w = World(t)
    w.origin(8080)
    w.name("sneaky.test", PRIVATE)
    w.name("self.test", "127.0.0.1")
    rules = [{"host": h, "ports": [8080]} for h in ("db.internal", "sneaky.test", "self.test")]
    _, found = w.verdicts(["db.internal", "sneaky.test", "self.test"], allow=rules, hosts={"db.internal": PRIVATE})
    t.equal([x for x, v in found.items() if v == "reached"], ["db.internal"], "reached")


def test_the_hosts_file_of_the_host_counts_and_opens_nothing(t):
    w = World(t)
    o = w.origin(8080)
    names = ["of-hosts.test", "inward.of-hosts.test"]
    _, found = w.verdicts(names, allow=[{"host": n, "ports": [8080]} for n in names])
    t.equal(found["of-hosts.test"], "reached", "a public address of /etc/hosts")
    t.check(refused(found["inward.of-hosts.test"]) and o.accepted == 1, f"verdicts: {found}")


# ---- Never dialled ------------------------------------------------------------------------------------------------------


NEVER = ["127.0.0.1", "127.200.0.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", PRIVATE, "100.64.0.1", "100.127.255.254", "169.254.1.1", "169.254.169.254", "172.16.0.1",
         "172.31.255.254", "192.0.0.8", "192.0.2.1", "192.168.0.1", "198.18.0.1", "198.18.1.0", "198.19.255.254", "198.51.100.1", "203.0.113.1", "224.0.0.251",
         "239.255.255.250", "240.0.0.1", "255.255.255.255",
         "::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe",
         "64:ff9b:1::10.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::1", "fe80::1", "febf::1", "fec0::1", "fc00::1", PRIVATE6, "fd00:ec2::254", "ff02::1",
         "ff0e::1"]
PUBLICS = [PUBLIC, OTHER, "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "169.253.0.1", "198.17.255.1", "198.20.0.1", "11.0.0.1", "126.0.0.1",
           PUBLIC6, "2a00::1"]


def test_an_allowed_name_that_leads_inwards_is_never_dialled(t):
    w = World(t)
    w.origin(8080)
    wire = w.wire()
    bad = {f"n{i}.bad.test": a for i, a in enumerate(NEVER)}
    good = {f"g{i}.bad.test": a for i, a in enumerate(PUBLICS)}
    for name, a in {**bad, **good}.items():
        w.name(name, a)
    r, found = w.verdicts([*bad, *good], allow=[{"host": "*.bad.test", "ports": [8080]}])
    t.equal({bad[x]: v for x, v in found.items() if x in bad and not refused(v)}, {}, "addresses that were not refused")
    t.equal({good[x]: v for x, v in found.items() if x in good and v != "reached"}, {}, "public addresses that were refused")
    t.equal({a for a, p in wire.dialled() if p == 8080} - set(PUBLICS), set(), "dialled")
    for name, a in bad.items():
        d = [d for d in r.denials("network") if d.get("host") == name]
        t.equal(len(d), 1, f"denials of {name} ({a}): {r.denials('network')}")
        t.check(a.startswith("::") or d[0].get("address"), f"the denial of {name} names no address: {d}")


def test_an_address_rule_lets_the_answer_for_a_name_lie_there(t):
    w = World(t)
    w.origin(8080)
    w.origin(8081)
    w.name("in.test", PRIVATE)
    w.name("beside.test", "10.9.8.6")
    rules = [{"host": h, "ports": ["8080-8081"]} for h in ("in.test", "beside.test")] + [{"address": "10.9.8.7/32", "ports": [8080]}]
    _, found = w.verdicts(["in.test", "beside.test", "in.test|8081"], allow=rules)
    t.equal(found["in.test"], "reached", "at the port of the address rule")
    t.check(refused(found["beside.test"]) and refused(found["in.test|8081"]), f"verdicts: {found}")


def test_an_answer_of_good_and_bad_addresses_leads_only_to_the_good(t):
    w = World(t)
    o = w.origin(8080)
    wire = w.wire()
    w.name("mixed.test", "127.0.0.1", "10.0.0.1", PUBLIC, "169.254.169.254")
    w.name("six.test", "::1", "fd00::1", PUBLIC6)
    w.name("alias.test", lambda q: Answer([(CNAME, "inner.evil.test"), (A, "10.1.1.1", "inner.evil.test")] if q.kind == A else []))
    rules = [{"host": h, "ports": [8080]} for h in ("mixed.test", "six.test", "alias.test")]
    r, found = w.verdicts(["mixed.test", "six.test", "alias.test"], allow=rules)
    t.check(refused(found["alias.test"]), f"verdicts: {found}")
    t.equal({a for a, p in wire.dialled() if p == 8080} - {PUBLIC, PUBLIC6}, set(), "dialled")
    t.equal({x.address for x in o.requests} - {PUBLIC, PUBLIC6}, set(), "reached")


def test_a_name_whose_address_changes_is_judged_at_every_connection(t):
    w = World(t)
    o = w.origin(8080)
    wire = w.wire()

    def rebinding(q):
        turn = [PUBLIC, "127.0.0.1", "169.254.169.254", "10.0.0.1"][min(q.number, 3)]
        return Answer([(A, turn)], ttl=0) if q.kind == A else Answer([(AAAA, "::ffff:10.0.0.1"), (AAAA, "64:ff9b::a00:1")] if q.number else [], ttl=0)

    w.name("rebind.test", rebinding)
    code = "for _ in range(6): say(reach('rebind.test', 8080))"
    r = t.expect(w.python(code, allow=[{"host": "rebind.test", "ports": [8080]}]), code=0)
    t.equal(r.lines[0], "reached", "the first connection")
    t.check(all(v == "reached" or refused(v) for v in r.lines), f"verdicts: {r.lines}")
    t.equal({a for a, p in wire.dialled() if p == 8080}, {PUBLIC}, "dialled")
    t.equal({x.address for x in o.requests}, {PUBLIC}, "reached")
    t.check("reached" not in r.lines[1:], "an answer with a TTL of 0 was used again")


def test_a_kept_address_serves_until_its_time_is_over(t):
    w = World(t)
    w.origin(8080)
    w.name("kept.test", lambda q: Answer([(A, PUBLIC)] if q.kind == A else [], ttl=600))
    r = t.expect(w.python("for _ in range(20): say(reach('kept.test', 8080))", allow=[{"host": "kept.test", "ports": [8080]}]), code=0, out="reached\n" * 20)
    t.between(w.dns.count("kept.test", A), 1, 2, "questions for 20 connections")
    t.equal(len(connections(r, "kept.test")), 20, "connections")


def test_a_connection_that_cannot_be_made_is_reset_and_says_why_in_the_result(t):
    w = World(t)
    w.name("refusing.test")
    w.name("failing.test", lambda q: Answer(rcode=2))
    names = ["refusing.test", "failing.test", "missing.test"]
    r, found = w.verdicts(names, allow=[{"host": h, "ports": [8080]} for h in names])
    t.equal({x: v for x, v in found.items() if v not in ("ECONNRESET", "ECONNREFUSED")}, {}, "verdicts")
    for n in names:
        t.check(any(c.get("error") for c in connections(r, n)), f"no error in the record of {n}: {r.doc['connections']}")


# ---- The record ---------------------------------------------------------------------------------------------------------


def test_denials_have_their_kind_and_count(t):
    w = World(t)
    w.origin(80, "origin.test")
    rules = [RULE, {"host": "web.test", "protocol": "http", "methods": ["GET"]}]
    w.name("web.test")
    code = ("for _ in range(3):\n"
            "    try: socket.getaddrinfo('evil.test', 443)\n    except OSError: pass\n"
            "    time.sleep(0.06)\n"
            "for _ in range(2): reach('origin.test', 81); reach('8.8.8.8', 443)\n"
            "say(http('web.test', 80, get('/a', 'web.test', 'POST', body=b'x'))[0])\n")
    r = t.expect(w.python(code, allow=rules), code=0, out="403\n")
    t.equal(denied(r, "dns", "evil.test"), 3, f"look-ups: {r.doc['denials']}")
    t.equal(denied(r, "network", "origin.test", 81), 2, f"denials: {r.doc['denials']}")
    t.equal(denied(r, "network", "8.8.8.8", 443), 2, f"denials: {r.doc['denials']}")
    t.equal(denied(r, "http", "web.test", 80, method="POST", path="/a"), 1, f"denials: {r.doc['denials']}")


def test_connections_and_denials_are_in_the_audit(t):
    w = World(t)
    w.origin(8080, "origin.test")
    audit = t.tmp("a.jsonl")
    w.verdicts(["origin.test", "evil.test", "8.8.8.8", "origin.test|81"], allow=[RULE], flags=["--audit", audit])
    with open(audit) as f:
        found = [json.loads(line) for line in f if line.strip()]
    text = [json.dumps(e) for e in found]
    t.check(any("origin.test" in x and PUBLIC in x and "8080" in x for x in text), f"no event of the connection: {found}")
    for part in ("evil.test", "8.8.8.8", '"port": 81'):
        t.check(any("deni" in e.get("event", "") and part in json.dumps(e) for e in found), f"no denial with {part}: {found}")


def test_a_refusal_names_the_rule_that_comes_nearest(t):
    w = World(t)
    w.name("origin.test")
    r, _ = w.verdicts(["origin.test|81", "orign.test"], allow=[RULE])
    t.contains(json.dumps(r.denials("network")), "network.allow[0]", "denials of the port")
    t.check(denied(r, "dns", "orign.test") == 1, f"denials: {r.doc['denials']}")


def test_more_than_a_hundred_connections_are_summed(t):
    w = World(t)
    w.echo(7)
    w.name("echo.test")
    code = ("for _ in range(300):\n"
            "    with socket.create_connection(('echo.test', 7)) as s: s.send(b'12345'); s.recv(5)\n")
    r = t.expect(w.python(code, allow=[{"host": "echo.test", "ports": [7]}]), code=0)
    c = connections(r, "echo.test", 7)
    t.between(len(c), 2, 110, "entries")
    t.equal(sum(x.get("count", 1) for x in c), 300, "connections in all")
    t.equal(sum(x["sent"] for x in c), 1500, "bytes sent in all")


def test_ten_thousand_refused_names_stay_bounded(t):
    w = World(t)
    code = ("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect((nameserver(), 53))\n"
            "bad = 0\n"
            "for i in range(10000):\n    s.send(question('data%d.evil.test' % i, number=i)); bad += rcode(s.recv(512)) != 3\n"
            "say(bad)")
    began = time.monotonic()
    r = t.expect(w.python(code, allow=[RULE]), code=0, out="0\n")
    t.between(time.monotonic() - began, 0, 30, "seconds")
    t.between(len(r.doc["denials"]), 1, 600, "entries")
    t.equal(sum(d["count"] for d in r.denials("dns")) + r.doc.get("denials_more", 0), 10000, "denials, with those that are only counted")
    t.equal(w.dns.questions, [], "questions outside")


if __name__ == "__main__":
    network.main(globals())
