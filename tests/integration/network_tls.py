#!/usr/bin/python3 -B
# shards: 2
"""tls rules check the name and touch nothing; https rules end TLS with a certificate that clients inside trust, and verify the far end."""
import base64
import json
import os
import ssl
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import certificates  # noqa: E402
import network  # noqa: E402
import zw  # noqa: E402
from network import World, connections, denied, requests  # noqa: E402

TLS = {"host": "tls.test", "protocol": "tls"}
HTTPS = {"host": "api.test", "protocol": "https"}


# ---- Passed through -------------------------------------------------------------------------------------------------------


# A ClientHello as OpenSSL writes it, and ways to change it.
HELLO = r'''
def hello(name, **options):
    c = ssl._create_unverified_context()
    for k, v in options.items(): setattr(c, k, v)
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    s = c.wrap_bio(i, o, server_hostname=name)
    try: s.do_handshake()
    except ssl.SSLWantReadError: pass
    return o.read()
def take_apart(record):
    """(what comes before the extensions, [(type, data)]) of a ClientHello in one record."""
    m = record[9:]
    at = 34; at += 1 + m[at]; at += 2 + int.from_bytes(m[at:at+2], "big"); at += 1 + m[at]
    before, at, out = m[:at], at + 2, []
    while at < len(m):
        kind, n = struct.unpack("!HH", m[at:at+4]); out.append((kind, m[at+4:at+4+n])); at += 4 + n
    return before, out
def put_together(before, extensions):
    e = b"".join(struct.pack("!HH", k, len(d)) + d for k, d in extensions)
    m = before + struct.pack("!H", len(e)) + e
    m = b"\x01" + len(m).to_bytes(3, "big") + m
    return b"\x16\x03\x01" + struct.pack("!H", len(m)) + m
def server_name(*names, kind=0):
    entries = b"".join(bytes([kind]) + struct.pack("!H", len(n)) + n for n in names)
    return struct.pack("!H", len(entries)) + entries
def changed(name_data=None, more=(), drop=()):
    before, ext = take_apart(hello("tls.test"))
    ext = [(k, name_data if k == 0 and name_data is not None else d) for k, d in ext if k not in drop]
    return put_together(before, ext + list(more))
def answered(data, pieces=None):
    """Did a server answer: "hello" for its ServerHello, else what happened."""
    try:
        with socket.create_connection(("tls.test", 443), 5) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for p in pieces or [data]: s.sendall(p)
            got = s.recv(100)
            return "hello" if got[:1] == b"\x16" else "empty" if not got else "alert" if got[:1] == b"\x15" else "odd %r" % got
    except OSError as e: return word(e)
'''


def test_a_handshake_with_the_name_of_the_rule_passes_untouched(t):
    w = World(t)
    o = w.origin(443, "tls.test", tls=True)
    code = ("c = ssl.create_default_context(cafile=sys.argv[1])\n"
            "s = c.wrap_socket(socket.create_connection(('tls.test', 443), 8), server_hostname='tls.test')\n"
            "say(dict(x[0] for x in s.getpeercert()['subject'])['commonName'], dict(x[0] for x in s.getpeercert()['issuer'])['commonName'])\n"
            "s.sendall(get('/ok', 'tls.test')); say(read_all(s).endswith(b'ok\\n'))")
    r = t.expect(w.python(code, w.authority.path, allow=[TLS], flags=["--ro", w.authority.path]), code=0, out="tls.test Test of the Host\nTrue\n")
    t.equal(o.server_names, ["tls.test"], "SNI at the server")
    c = connections(r, "tls.test", 443)
    t.equal([x["protocol"] for x in c], ["tls"], "protocol in the record")
    t.check("requests" not in c[0], f"requests in the record of a connection that nobody reads: {c}")


def test_every_other_hello_is_refused_before_the_server_hears_of_it(t):
    w = World(t)
    o = w.origin(443, "tls.test", tls=True)
    code = HELLO + r'''
good = hello("tls.test")
table = {
 "none": hello(None), "other": hello("evil.test"), "below": hello("a.tls.test"), "above": hello("test"), "longer": hello("tls.test.evil.test"),
 "empty list": changed(b"\0\0"), "no data": changed(b""), "empty name": changed(server_name(b"")), "two names": changed(server_name(b"tls.test", b"evil.test")),
 "two names, other first": changed(server_name(b"evil.test", b"tls.test")), "the same twice": changed(server_name(b"tls.test", b"tls.test")),
 "NUL": changed(server_name(b"tls.test\0.evil.test")), "NUL at the end": changed(server_name(b"tls.test\0")), "NUL before": changed(server_name(b"evil.test\0tls.test")),
 "line": changed(server_name(b"tls.test\r\n")), "blank": changed(server_name(b"tls.test ")), "%00": changed(server_name(b"tls.test%00")), "address": changed(server_name(b"127.0.0.1")),
 "another kind": changed(server_name(b"tls.test", kind=1)), "list longer than the extension": changed(b"\0\xff" + server_name(b"tls.test")[2:]),
 "list shorter": changed(b"\0\4" + server_name(b"tls.test")[2:]), "rubbish after": changed(server_name(b"tls.test") + b"x"),
 "a second extension of names": changed(more=[(0, server_name(b"evil.test"))]), "none, and one of ECH": changed(more=[(0xfe0d, os.urandom(200))], drop=[0]),
 "ECH": changed(more=[(0xfe0d, b"\0\0\1\0\1" + b"\x2a" + b"\0\x20" + os.urandom(32) + b"\0\x90" + os.urandom(144))]), "ECH as an inner hello": changed(more=[(0xfe0d, b"\1")]),
 "the draft of ESNI": changed(more=[(0xffce, os.urandom(100))], drop=[0]),
 "http": b"GET / HTTP/1.1\r\nHost: tls.test\r\n\r\n", "ssh": b"SSH-2.0-OpenSSH_9.2\r\n" + b"x" * 600, "zeros": b"\0" * 2000, "SSL 2": b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10" + b"\0" * 37,
 "alert": b"\x15\x03\x01\0\2\2\x28" + good, "application data": b"\x17\x03\x03\0\x10" + b"x" * 16 + good, "empty record": b"\x16\x03\x01\0\0" + good, "huge record": b"\x16\x03\x01\xff\xff" + b"x" * 65535,
 "huge hello": b"\x16\x03\x01\x40\0\1\xff\xff\xff" + b"x" * 16380 + (b"\x16\x03\x01\x40\0" + b"x" * 16384) * 20, "another message": good[:5] + b"\2" + good[6:],
 "cut and closed": good[:100],
}
out = {}
def one(n, d):
    if n == "cut and closed":
        with socket.create_connection(("tls.test", 443), 5) as s: s.sendall(d); s.shutdown(1); out[n] = s.recv(10) and "odd" or "ECONNRESET"
    else: out[n] = answered(d)
def safely(n, d):
    try: one(n, d)
    except OSError as e: out[n] = word(e)
ts = [threading.Thread(target=safely, args=x) for x in table.items()]
for x in ts: x.start()
for x in ts: x.join()
say(json.dumps(out)); say(answered(good))
'''
    r = t.expect(w.python(code, allow=[TLS]), code=0)
    t.equal(r.lines[1], "hello", "a proper one afterwards")
    answers = json.loads(r.lines[0])
    t.equal({n: a for n, a in answers.items() if a not in ("ECONNRESET", "EPIPE")}, {}, "hellos that were not answered by a reset")
    t.equal(o.server_names, ["tls.test"], "SNI at the server")
    t.equal(o.accepted, 1, "connections at the server")
    t.check(denied(r, "network", "tls.test", 443) >= 25, f"denials: {r.denials('network')}")
    text = json.dumps(r.denials("network"))
    t.contains(text, "network.allow[0]", "the denials")


def test_hellos_that_are_only_written_differently_pass(t):
    w = World(t)
    w.origin(443, "tls.test", tls=True)
    code = HELLO + r'''
good = hello("tls.test")
split = b"".join(b"\x16\x03\x01" + struct.pack("!H", len(p)) + p for p in (good[5:105], good[105:205], good[205:]))
say(answered(None, [good[i:i+1] for i in range(len(good))]), answered(None, [good[:3], good[3:9], good[9:60], good[60:]]), answered(changed(server_name(b"TLS.Test"))))
say(answered(split), answered(changed(more=[(0x2a2a, b"\0" * 4000)])), answered(changed(more=[(0x1a1a, b"\0")])), answered(hello("tls.test", maximum_version=ssl.TLSVersion.TLSv1_2)))
'''
    r = t.expect(w.python(code, allow=[TLS]), code=0)
    t.equal(r.text.split(), ["hello"] * 7, "answers")


def test_a_wildcard_tls_rule_lets_each_name_reach_its_own_server(t):
    w = World(t)
    o = w.origin(443, "a.wild.test", "b.wild.test", tls=True)
    code = ("c = ssl.create_default_context(cafile=sys.argv[1])\n"
            "def go(host, sni):\n"
            "    try: s = c.wrap_socket(socket.create_connection((host, 443), 5), server_hostname=sni); s.sendall(get('/ok', sni)); return read_all(s)[-3:] == b'ok\\n'\n"
            "    except OSError as e: return word(e)\n"
            "say(go('a.wild.test', 'a.wild.test'), go('b.wild.test', 'b.wild.test'), go('a.wild.test', 'b.wild.test'))")
    t.expect(w.python(code, w.authority.path, allow=[{"host": "*.wild.test", "protocol": "tls"}], flags=["--ro", w.authority.path]), code=0, out="True True ECONNRESET\n")
    t.equal(o.server_names, ["a.wild.test", "b.wild.test"], "SNI at the server")


# ---- Ended and begun again ------------------------------------------------------------------------------------------------


FETCH = "say(http('api.test', 443, get('/v1/a'), ssl.create_default_context()))"


def test_https_rules_judge_requests_within_tls(t):
    w = World(t)
    o = w.origin(443, "api.test", tls=True)
    code = ("c = ssl.create_default_context()\n"
            "for m, p, h in (('GET', '/v1/a', 'api.test'), ('HEAD', '/v1/a', 'api.test'), ('POST', '/v1/a', 'api.test'), ('GET', '/evil', 'api.test'), ('GET', '/v1/a', 'evil.test')):\n"
            "    say(http('api.test', 443, get(p, h, m), c)[0])\n"
            "s = c.wrap_socket(socket.create_connection(('api.test', 443)), server_hostname='api.test'); say(s.selected_alpn_protocol(), s.version() >= 'TLSv1.2')\n"
            "c.set_alpn_protocols(['h2', 'http/1.1']); s = c.wrap_socket(socket.create_connection(('api.test', 443)), server_hostname='api.test'); say(s.selected_alpn_protocol())")
    r = t.expect(w.python(code, allow=[{**HTTPS, "methods": ["GET"], "paths": ["/v1/*"]}]), code=0)
    t.equal(r.lines[:4], ["200", "200", "403", "403"], "answers")
    t.among(r.lines[4], ("403", "400", "421"), "answer to another Host")
    t.equal(r.lines[5:], ["None True", "http/1.1"], "ALPN and version")
    t.equal([q.target for q in o.requests], ["/v1/a"] * 2, "what came to the origin")
    t.equal(set(o.server_names), {"api.test"}, "SNI at the origin")
    t.equal(denied(r, "http", "api.test", 443, method="POST", path="/v1/a"), 1, f"denials: {r.doc['denials']}")
    t.contains(requests(r, "api.test"), ("GET", "/v1/a", 200), "requests in the record")


def test_the_far_end_is_verified(t):
    w = World(t)
    nobody = certificates.Authority(t.folder("nobody"), "Nobody")
    servers = {
        "wrong-name.test": w.authority.issue("another.test"),
        "below.wrong-name.test": w.authority.issue("*.below.wrong-name.test"),
        "expired.test": w.authority.issue("expired.test", expired=True),
        "self-signed.test": certificates.self_signed(t.folder("self"), "self-signed.test"),
        "unknown.test": nobody.issue("unknown.test"),
        "good.test": w.authority.issue("good.test"),
        "wild.good.test": w.authority.issue("*.good.test"),
    }
    origins, hosts, rules = {}, {}, []
    for i, (name, certificate) in enumerate(servers.items()):
        origins[name] = w.origin(8400 + i, certificate=certificate)
        hosts[name] = f"{network.PUBLIC}:{8400 + i}"
        rules.append({"host": name, "protocol": "https", "secret": {"name": "key", "header": "X-Key"}})
    code = "c = ssl.create_default_context()\nfor h in sys.argv[1:]: say(json.dumps([h, http(h, 443, get('/v1/a', h), c)[0]]))"
    r = t.expect(w.python(code, *servers, allow=rules, hosts=hosts, secrets={"key": {"env": "KEY"}}, env={"KEY": "tops3cret"}), code=0)
    found = dict(json.loads(x) for x in r.lines)
    t.equal({n for n, s in found.items() if s == 200}, {"good.test", "wild.good.test"}, f"answers: {found}")
    for name, o in origins.items():
        if "good" not in name:
            t.check(found[name] in (0, 502), f"{name}: {found[name]}")
            t.equal(o.requests, [], f"requests at {name}")
            t.check(any(c.get("error") for c in connections(r, name)), f"no error in the record of {name}: {connections(r, name)}")


def test_ca_file_adds_to_what_is_trusted(t):
    w = World(t)
    w.origin(443, "api.test", tls=True, authority=w.second)
    w.origin(444, "api.test", tls=True)
    code = FETCH + "\n" + FETCH.replace("443", "444").replace("get('/v1/a')", "get('/v1/a', 'api.test:444')")
    rules = [{**HTTPS, "ports": [443, 444]}]
    r = t.expect(w.python(code, allow=rules), code=0)
    t.check(r.lines[0].startswith(("(0", "(502")) and r.lines[1].startswith("(200"), f"without ca_file: {r.lines}")
    r = t.expect(w.python(code, allow=rules, ca_file=w.second.path), code=0)
    t.check(all(x.startswith("(200") for x in r.lines), f"with ca_file: {r.lines}")
    network.not_started(t, w.run("true", allow=rules, ca_file=t.tmp("none")), "none")
    network.not_started(t, w.run("true", allow=rules, ca_file=t.file("no certificate\n", "rubbish")), "rubbish")


def test_old_versions_of_tls_upstream_are_refused(t):
    w = World(t)
    o = w.origin(443, "api.test", tls=True)
    o.context.minimum_version = ssl.TLSVersion.TLSv1
    o.context.maximum_version = ssl.TLSVersion.TLSv1_1
    o.context.set_ciphers("ALL:@SECLEVEL=0")
    r = t.expect(w.python(FETCH, allow=[HTTPS]), code=0)
    t.check(r.text.startswith(("(0", "(502")), f"answer: {r.text}")


def test_a_hello_for_another_name_is_refused_by_an_https_rule(t):
    w = World(t)
    o = w.origin(443, "api.test", "evil.test", tls=True)
    code = ("c = ssl._create_unverified_context()\n"
            "for n in (None, 'evil.test', 'a.api.test'):\n"
            "    try: s = c.wrap_socket(socket.create_connection(('api.test', 443), 5), server_hostname=n); s.sendall(get('/v1/a')); say('got', len(read_all(s)))\n"
            "    except OSError as e: say('refused')\n"
            "say(exchange('api.test', 443, get('/v1/a'))[0][:12])")
    r = t.expect(w.python(code, allow=[HTTPS]), code=0)
    t.equal(r.lines[:3], ["refused"] * 3, "hellos")
    t.lacks(r.lines[3], "200", "plain HTTP at a port of https")
    t.equal(o.requests, [], "requests at the origin")


def test_the_authority_of_a_run_is_bound_to_its_rules_and_to_the_run(t):
    w = World(t)
    w.origin(443, "api.test", tls=True)
    code = r'''
import subprocess
out = subprocess.run(["openssl", "s_client", "-connect", "api.test:443", "-servername", "api.test", "-showcerts"], input="", capture_output=True, text=True).stdout
chain = ["-----BEGIN CERTIFICATE-----" + x.split("-----END")[0] + "-----END CERTIFICATE-----\n" for x in out.split("-----BEGIN CERTIFICATE-----")[1:]]
ca = chain[-1] if len(chain) > 1 else open(os.environ["SSL_CERT_FILE"]).read().split("-----BEGIN")[-1].join(["-----BEGIN", ""])
say(subprocess.run(["openssl", "x509", "-noout", "-text", "-fingerprint", "-sha256"], input=ca, capture_output=True, text=True).stdout)
'''
    texts = [t.expect(w.python(code, allow=[HTTPS, {"host": "*.wild.test", "protocol": "https"}]), code=0).text for _ in range(2)]
    for text in texts:
        for part in ("CA:TRUE", "pathlen:0", "Name Constraints: critical", "DNS:api.test", "wild.test"):
            t.contains(text, part, "the authority")
    prints = [x.split("ingerprint=")[1].split()[0] for x in texts]
    t.check(prints[0] != prints[1], "two runs have the same authority")


CLIENTS = {
    "curl": ["curl", "-sS", "https://api.test/ok"],
    "wget": ["wget", "-q", "-O", "-", "https://api.test/ok"],
    "python urllib": [zw.PYTHON, "-c", "import urllib.request; print(urllib.request.urlopen('https://api.test/ok').read().decode(), end='')"],
    "openssl": ["sh", "-c", "printf 'GET /ok HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -connect api.test:443 2>/dev/null | tail -1"],
    "python requests": [zw.PYTHON, "-c", "import requests; print(requests.get('https://api.test/ok').text, end='')"],
    "node": ["node", "-e", "fetch('https://api.test/ok').then(r => r.text()).then(x => process.stdout.write(x))"],
    "git": ["sh", "-c", "git ls-remote https://api.test/git/x 2>&1 | grep -c -i -e certificate -e SSL; echo ok"],
}


def trusted(name):
    def test(t):
        argv = CLIENTS[name]
        t.need(name if name in ("curl", "wget", "openssl", "node", "git") else "python3")
        w = World(t)
        o = w.origin(443, "api.test", tls=True)
        want = "0\nok\n" if name == "git" else "ok\n"
        t.expect(w.run(*argv, allow=[HTTPS], flags=["--memory", "1G"]), code=0, out=want)
        t.check(o.requests, "nothing came to the origin")
    test.__name__ = f"test_{name.replace(' ', '_')}_trusts_the_certificates_of_the_run"
    return test


for _name in CLIENTS:
    globals()[f"test_{_name.replace(' ', '_')}_trusts_the_certificates_of_the_run"] = trusted(_name)

JAVA = """
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] a) throws Exception {
        System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""


def test_java_trusts_the_certificates_of_the_run(t):
    t.need("java", "javac")
    w = World(t)
    o = w.origin(443, "api.test", tls=True)
    source = t.file(JAVA, "in", "Fetch.java")
    r = w.run("java", "-XX:TieredStopAtLevel=1", source, "https://api.test/ok", allow=[HTTPS], flags=["--memory", "1500M", "--ro", os.path.dirname(source)], timeout=90)
    t.expect(r, code=0, out="ok\n")
    t.check(o.requests, "nothing came to the origin")


def test_trust_in_the_certificates_of_the_host_stays(t):
    """A pass-through beside an https rule: what the host trusts is still trusted inside."""
    w = World(t)
    w.origin(443, "api.test", "tls.test", tls=True)
    code = FETCH + "\nsay(http('tls.test', 443, get('/v1/b', 'tls.test'), ssl.create_default_context()))"
    t.expect(w.python(code, allow=[HTTPS, TLS]), code=0, out="(200, b'GET /v1/a\\n')\n(200, b'GET /v1/b\\n')\n")


def test_nothing_of_certificates_is_changed_without_an_https_rule(t):
    w = World(t)
    code = "say(sorted(k for k in os.environ if 'CERT' in k or 'CA_' in k or 'SSL' in k or 'JAVA' in k))"
    t.expect(w.python(code, allow=[TLS]), code=0, out="[]\n")


def test_large_bodies_and_uploads_through_an_https_rule(t):
    w = World(t)
    w.origin(443, "api.test", tls=True)
    code = ("import hashlib, urllib.request\n"
            "for how, n in (('sized', 8000000), ('chunked', 3000001), ('until-close', 3000000)): say(len(urllib.request.urlopen('https://api.test/%s?n=%d' % (how, n)).read()) == n)\n"
            "body = os.urandom(5 << 20)\nr = urllib.request.urlopen('https://api.test/upload', body).read().split()\n"
            "say(int(r[0]) == len(body), r[1].decode() == hashlib.sha256(body).hexdigest())")
    t.expect(w.python(code, allow=[HTTPS]), code=0, out="True\nTrue\nTrue\nTrue True\n")


def test_a_body_that_ends_with_a_cut_connection_does_not_look_whole(t):
    """A close without close_notify may be somebody's attempt to cut an answer short."""
    w = World(t)

    def cut(s):
        s.recv(65536)
        s.sendall(b"HTTP/1.1 200 OK\r\n\r\npart")
        s._sslobj = None
        os.close(s.detach())

    w.talker(443, cut, certificate=w.authority.issue("api.test"))
    w.name("api.test")
    code = ("c = ssl.create_default_context(); c.options &= ~0x80  # SSL_OP_IGNORE_UNEXPECTED_EOF\n"
            "s = c.wrap_socket(socket.create_connection(('api.test', 443), 5), server_hostname='api.test', suppress_ragged_eofs=False)\n"
            "s.sendall(get('/v1/a'))\n"
            "got = b''\ntry:\n    while b := s.recv(65536): got += b\n    say('whole' if got.endswith(b'0\\r\\n\\r\\n') or b'hunked' not in got and b'part' in got else 'cut')\n"
            "except OSError as e: say('cut')")
    t.expect(w.python(code, allow=[HTTPS]), code=0, out="cut\n")


def test_a_websocket_within_tls(t):
    from network_http import WS
    w = World(t)
    w.origin(443, "api.test", tls=True)
    code = WS + ("s, f, status = websocket('api.test', 443, '/ws', ssl.create_default_context()); send(s, b'hello'); say(status, receive(f))\n"
                 "send(s, b'x' * 60000); say(len(receive(f)))")
    t.expect(w.python(code, allow=[HTTPS]), code=0, out="101 b'hello'\n60000\n")


def test_hostile_bytes_within_the_handshake_harm_nobody_else(t):
    w = World(t)
    w.origin(443, "api.test", tls=True)
    seed = base64.b64encode(os.urandom(8)).decode()
    t.note(f"seed {seed}")
    code = HELLO + r'''
import random
random.seed(sys.argv[1])
good = hello("api.test")
for i in range(200):
    p = bytearray(good)
    for _ in range(random.randrange(1, 20)): p[random.randrange(len(p))] = random.randrange(256)
    try:
        with socket.create_connection(("api.test", 443), 5) as s: s.sendall(p[:random.randrange(1, len(p))]); s.shutdown(1) if i % 2 else None
    except OSError: pass
''' + FETCH
    t.expect(w.python(code, seed, allow=[HTTPS]), code=0, out="(200, b'GET /v1/a\\n')\n")


if __name__ == "__main__":
    network.main(globals())
