#!/usr/bin/python3 -B
# shards: 2
"""http rules: which requests pass, that no way of writing a request passes another one, and that whole bodies arrive."""
import base64
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import zw  # noqa: E402
from network import OTHER, PRIVATE, World, connections, denied, requests  # noqa: E402
from servers import Recorder, read_all  # noqa: E402

OPEN = {"host": "api.test", "protocol": "http"}


def rule(**keys):
    return {**OPEN, **keys}


# ---- Rules of requests ----------------------------------------------------------------------------------------------------


def test_methods(t):
    w = World(t)
    o = w.origin(80, "api.test")
    code = "for m in sys.argv[1:]: say(m, http('api.test', 80, get('/v1/x', method=m))[0])"
    asked = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", "GETX", "TRACE", "CONNECT"]
    for methods, good in ((["GET"], ["GET", "HEAD"]), (["POST"], ["POST"]), (["HEAD"], ["HEAD"]), (None, asked[:7])):
        o.requests.clear()
        r = t.expect(w.python(code, *asked, allow=[rule(**({"methods": methods} if methods else {}))]), code=0)
        passed = [x.split()[0] for x in r.lines if x.split()[1] == "200"]
        t.equal([m for m in passed if m in asked[:9]], good, f"passed with the methods {methods}")
        t.equal([q.method for q in o.requests if q.method in asked[:7]], good, "seen by the origin")


def test_paths_are_globs_on_the_decoded_and_normalised_path(t):
    w = World(t)
    o = w.origin(80, "api.test")
    o.routes = {}
    paths = ["/v1/*", "/deep/**", "/exact", "/file-*.txt", "/caf\u00e9"]
    good = ["/v1/a", "/v1/a-b.c", "/v1/%61", "/v1/a?x=/etc/../y", "/deep/a", "/deep/a/b/c", "/exact", "/exact?q=1", "/file-1.txt", "/v1/a%20b", "/caf%c3%a9"]
    bad = ["/v1/a/b", "/v1", "/v1/a/../../x", "/v1/..", "/v1/%2e%2e", "/v1/%2E%2E%2Fx", "/deep/../exact/x", "/deep/%2e%2e/x", "/deep/a/../../x", "/v1/a%2fb", "/deep/a%2Fb",
           "/v1/a%5cb", "/v1/a\\b", "/deep/..\\x", "/v1/a%00", "/v1/%zz", "/v1/%", "/v1/a%2", "/V1/a", "/exact/", "/exactly", "/", "/other", "//v1/a", "/deep//a",
           "/./v1/a", "/v1/./a",
           "/file-1.txt/x", "/xfile-1.txt", "/v1/a%0d%0ab", "/%76%32/a", "/v1/%252e%252e/x/.."]
    code = "for p in json.loads(sys.argv[1]): say(http('api.test', 80, get(p))[0])"
    r = t.expect(w.python(code, json.dumps(good + bad), allow=[rule(paths=paths)]), code=0)
    verdicts = dict(zip(good + bad, r.lines))
    t.equal([p for p in good if verdicts[p] in ("403", "400", "0")], [], "allowed paths that were refused")
    t.equal([p for p in bad if verdicts[p] not in ("403", "400")], [], "other paths that passed")
    t.equal(o.paths(), good, "what came to the origin, letter by letter")


def test_a_denied_request_is_answered_by_one_line_that_helps(t):
    w = World(t)
    o = w.origin(80, "api.test")
    code = ("s = socket.create_connection(('api.test', 80), 8)\nimport http.client\n"
            "def ask(m, p, body=b''):\n"
            "    s.sendall(('%s %s HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Length: %d\\r\\n\\r\\n' % (m, p, len(body))).encode() + body)\n"
            "    r = http.client.HTTPResponse(s, method=m); r.begin(); return r.status, r.read().decode()\n"
            "say(json.dumps([ask('GET', '/v1/a'), ask('POST', '/v1/a', b'x' * 100), ask('GET', '/secret'), ask('GET', '/v1/b')]))")
    r = t.expect(w.python(code, allow=[rule(methods=["GET"], paths=["/v1/*"])]), code=0)
    answers = json.loads(r.text)
    t.equal([a[0] for a in answers], [200, 403, 403, 200], "one connection, four requests")
    for (_, body), method, path in ((answers[1], "POST", "/v1/a"), (answers[2], "GET", "/secret")):
        t.equal(len(body.strip().splitlines()), 1, f"lines of {body!r}")
        for part in (method, path, "api.test", "network.allow"):
            t.contains(body, part, "the answer")
        t.equal(denied(r, "http", "api.test", 80, method=method, path=path), 1, f"denials: {r.doc['denials']}")
    t.contains(json.dumps(r.denials("http")), "network.allow[0]", "the rule in the denial")
    t.equal(o.paths(), ["/v1/a", "/v1/b"], "what came to the origin")
    t.equal([q for q in requests(r, "api.test") if q[2] != 403], [("GET", "/v1/a", 200), ("GET", "/v1/b", 200)], "requests in the record")


def test_requests_in_the_record_have_no_query_and_are_the_newest_hundred(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import http.client\nc = http.client.HTTPConnection('api.test')\n"
            "for i in range(250): c.request('GET', '/v1/%d?token=hunt%s' % (i, 'er2')); c.getresponse().read()\n")
    r = t.expect(w.python(code, allow=[rule()], flags=["--audit", t.tmp("audit")]), code=0)
    c = connections(r, "api.test")
    t.equal(len(c), 1, "connections")
    t.equal(c[0]["request_count"], 250, "request_count")
    t.equal([q["path"] for q in c[0]["requests"]], [f"/v1/{i}" for i in range(150, 250)], "paths")
    with open(t.tmp("audit")) as f:
        t.lacks(f.read() + json.dumps(r.doc), "hunter2", "the record")


def test_request_max(t):
    w = World(t)
    o = w.origin(80, "api.test")
    code = ("def chunked(n): return get('/upload', method='POST', extra='Transfer-Encoding: chunked\\r\\n') + b''.join(b'a\\r\\n0123456789\\r\\n' for _ in range(n // 10)) + b'0\\r\\n\\r\\n'\n"
            "for n in (1000, 1001, 100000): say(http('api.test', 80, get('/upload', method='POST', body=b'x' * n))[0])\n"
            "for n in (1000, 1010, 100000): say(http('api.test', 80, chunked(n))[0])")
    r = t.expect(w.python(code, allow=[rule(request_max=1000)]), code=0)
    t.equal([x == "200" for x in r.lines], [True, False, False] * 2, f"answers {r.lines}")
    t.check(all(x in ("200", "403", "413", "0") for x in r.lines), f"answers {r.lines}")
    t.check(max(q.size for q in o.requests) <= 1000, f"bodies at the origin: {[q.size for q in o.requests]}")
    t.check(denied(r, "http", "api.test", 80, method="POST") >= 1, f"denials: {r.doc['denials']}")


def test_several_rules_of_one_name_are_alternatives(t):
    w = World(t)
    w.origin(80, "api.test")
    code = "for m, p in (('GET', '/v1/a'), ('POST', '/v1/a'), ('POST', '/v1/in/a'), ('GET', '/v1/in/a'), ('DELETE', '/v1/in/a')): say(http('api.test', 80, get(p, method=m))[0])"
    r = w.python(code, allow=[rule(methods=["GET"], paths=["/v1/*"]), rule(methods=["POST"], paths=["/v1/in/*"])])
    t.expect(r, code=0, out="200\n403\n200\n403\n403\n")


# ---- Requests that mean two things ----------------------------------------------------------------------------------------


EVIL = b"GET /evil HTTP/1.1\r\nHost: api.test\r\n\r\n"
CLOSE = b"GET /v1/end HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n"


def head(line=b"GET /v1/a HTTP/1.1", *fields, host=b"Host: api.test"):
    return b"\r\n".join([line] + ([host] if host is not None else []) + list(fields)) + b"\r\n\r\n"


def post(*fields):
    return head(b"POST /v1/a HTTP/1.1", *fields)


def smuggling():
    """(name, bytes, how many 200 may come at most). Those with a number above 0 and "control" in their name must get exactly that."""
    length = b"Content-Length: %d" % (len(EVIL) + 5)
    chunked = b"Transfer-Encoding: chunked"
    yield "control: plain", CLOSE, 1
    yield "control: length", post(b"Content-Length: 5", b"Connection: close") + b"hello", 1
    yield "control: chunks", post(chunked, b"Connection: close") + b"5\r\nhello\r\n0\r\n\r\n", 1
    yield "control: absolute form", head(b"GET http://api.test/v1/a HTTP/1.1", b"Connection: close"), 1
    yield "control: pipelined, the middle one denied", head() + EVIL + CLOSE, 2
    yield "control: evil as a body", post(b"Content-Length: %d" % len(EVIL), b"Connection: close") + EVIL, 1
    yield "length and chunks", post(length, chunked) + b"0\r\n\r\n" + EVIL, 0
    yield "chunks and length", post(chunked, length) + b"0\r\n\r\n" + EVIL, 0
    yield "short length and chunks", post(b"Content-Length: 4", chunked) + b"26\r\n" + EVIL + b"\r\n0\r\n\r\n", 0
    for value in (b"xchunked", b"chunked, identity", b"identity, chunked", b"identity", b"chunked;q=1", b"chunked\x0b", b"chunked\0", b'"chunked"', b"gzip, chunked",
                  b",chunked", b"",
                  b"chunked\r\nTransfer-Encoding: identity", b"chunked\r\nTransfer-Encoding: chunked"):
        yield f"encoding {value!r}", post(b"Transfer-Encoding: " + value, length) + b"0\r\n\r\n" + EVIL, 0
        yield f"encoding {value!r} alone", post(b"Transfer-Encoding: " + value) + b"0\r\n\r\n" + EVIL, 1 if value == b"" else 0
    yield "encoding in capitals", post(b"TRANSFER-ENCODING: CHUNKED") + b"0\r\n\r\n" + EVIL, 1
    for field in (b"Transfer-Encoding : chunked", b" Transfer-Encoding: chunked", b"Transfer-Encoding\t: chunked", b"\x0bTransfer-Encoding: chunked",
                  b"X: y\nTransfer-Encoding: chunked",
                  b"X: y\rTransfer-Encoding: chunked", b"X: y\r\n\tTransfer-Encoding: chunked", b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding\0: chunked", b": chunked",
                  b"Transfer-Encoding", b"Transfer Encoding: chunked", b"Content-Length : 0", b"Content\0-Length: 0"):
        yield f"field {field!r}", post(field, length) + b"0\r\n\r\n" + EVIL, 0
    for value in (b"+5", b"-1", b"0x5", b"5,5", b"5 5", b"5\r\nContent-Length: 6", b"5\r\nContent-Length: 5", b"18446744073709551621", b"9" * 40, b"5\x0b", b"", b"five",
                  b"5.0", b"5;x", b"'5'",
                  b"1e1", b"\xd9\xa5"):
        yield f"length {value[:30]!r}", post(b"Content-Length: " + value) + b"hello" + EVIL, 0
    for body in (b"0x5\r\nhello\r\n0\r\n\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n",
                 b"+5\r\nhello\r\n0\r\n\r\n",
                 b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n", b"10000000000000005\r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n",
                 b"5\r\nhello\r\n0\n\n", b"\r\n", b"g\r\n",
                 b"5;\n\r\nhello\r\n0\r\n\r\n", b"5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n", b"5\rhello\r\n0\r\n\r\n", b"5" + b";x" * 100000 + b"\r\nhello\r\n0\r\n\r\n",
                 b"0" * 5000 + b"5\r\nhello\r\n0\r\n\r\n"):
        yield f"chunks {body[:30]!r}", post(chunked) + body + EVIL, 1 if body == b"" else 0
    yield "a trailer that is no trailer", post(chunked) + b"0\r\nContent-Length: 50\r\nHost: evil.test\r\n\r\n" + EVIL, 1
    yield "trailers without end", post(chunked) + b"0\r\n" + b"X: y\r\n" * 20000, 0
    for line in (b"GET /v1/a HTTP/1.1 ", b"GET  /v1/a HTTP/1.1", b"GET\t/v1/a HTTP/1.1", b" GET /v1/a HTTP/1.1", b"GET /v1/a HTTP/1.2", b"GET /v1/a HTTP/2.0",
                 b"GET /v1/a HTTP/1.1x", b"GET /v1/a",
                 b"GET /v1/a HTTP/01.1", b"\0GET /v1/a HTTP/1.1", b"GET /v1/a\0/evil HTTP/1.1", b"GET /v1/a\x7f HTTP/1.1", b"GET /v1/a\xff HTTP/1.1",
                 b"GET /v1/a /evil HTTP/1.1", b"GET v1/a HTTP/1.1",
                 b"GET /v1/a\rGET /evil HTTP/1.1", b"G\0ET /v1/a HTTP/1.1", b"/v1/a", b"GET", b"", b"GET /v1/a#/evil HTTP/1.1", b"GET * HTTP/1.1", b"OPTIONS * HTTP/1.1",
                 b"GET /v1/a HTTP/0.9",
                 b"GET /v1/a\nHost: api.test\nX: HTTP/1.1", b"PRI * HTTP/2.0", b"GET /v1/../evil HTTP/1.1", b"GET /v1/%2e%2e/evil HTTP/1.1", b"GET /v1/..%2fevil HTTP/1.1",
                 b"GET //evil.test/v1/a HTTP/1.1", b"GET http://evil.test/v1/a HTTP/1.1", b"GET http://api.test:81/v1/a HTTP/1.1", b"GET http://user@api.test/v1/a HTTP/1.1",
                 b"GET http://api.test@evil.test/v1/a HTTP/1.1", b"GET https://api.test/v1/a HTTP/1.1", b"GET ftp://api.test/v1/a HTTP/1.1",
                 b"GET http://api.test\\@evil.test/v1/a HTTP/1.1",
                 b"GET http:///v1/a HTTP/1.1", b"GET http://api.test/evil HTTP/1.1", b"CONNECT evil.test:443 HTTP/1.1", b"CONNECT api.test:80 HTTP/1.1",
                 b"CONNECT 127.0.0.1:80 HTTP/1.1",
                 b"GET http://api.test%00.evil.test/v1/a HTTP/1.1", b"GET /v1/" + b"a" * 200000 + b" HTTP/1.1"):
        yield f"line {line[:60]!r}", head(line) + EVIL, 0
    for host in (None, b"Host:", b"Host: evil.test", b"Host: api.test\r\nHost: evil.test", b"Host: evil.test\r\nHost: api.test", b"Host: api.test\r\nHost: api.test",
                 b"Host: api.test:81",
                 b"Host: api.test@evil.test", b"Host: evil.test@api.test", b"Host: api.test\0.evil.test", b"Host: api.test, evil.test", b"Host: api.test evil.test",
                 b"Host : evil.test",
                 b"Host: api.test/evil", b"Host: api.test#.evil.test", b"Host: api.test:80:81", b"Host: api.test:x", b"Host: 127.0.0.1", b"Host: [::1]",
                 b"Host: xapi.test", b"Host: api.test.evil.test",
                 b"Host: api.test:080", b"Host: api.test%00"):
        yield f"host {host!r}", head(host=host) + EVIL, 0
    yield "absolute form and another Host", head(b"GET http://api.test/v1/a HTTP/1.1", host=b"Host: evil.test"), 0
    yield "another Host at the second request", head() + b"GET /v1/b HTTP/1.1\r\nHost: evil.test\r\n\r\n", 1
    yield "Host named as hop by hop", head(b"GET /v1/a HTTP/1.1", b"Connection: close, Host"), 1
    yield "length named as hop by hop", post(b"Content-Length: %d" % len(EVIL), b"Connection: close, Content-Length") + EVIL, 1
    yield "encoding named as hop by hop", post(chunked, b"Connection: close, Transfer-Encoding") + b"%x\r\n" % len(EVIL) + EVIL + b"\r\n0\r\n\r\n", 1
    yield "lines that end with LF alone", head().replace(b"\r\n", b"\n") + EVIL, 0
    yield "lines that end with CR alone", head().replace(b"\r\n", b"\r") + EVIL, 0
    yield "a folded field", head(b"GET /v1/a HTTP/1.1", b"X: a\r\n b") + EVIL, 0
    yield "NUL in a value", head(b"GET /v1/a HTTP/1.1", b"X: a\0b") + EVIL, 0
    yield "CR in a value", head(b"GET /v1/a HTTP/1.1", b"X: a\rb") + EVIL, 0
    yield "a field without a colon", head(b"GET /v1/a HTTP/1.1", b"X") + EVIL, 0
    yield "a large field", head(b"GET /v1/a HTTP/1.1", b"X: " + b"a" * 200000) + EVIL, 0
    yield "thousands of fields", head(b"GET /v1/a HTTP/1.1", *[b"X: y"] * 5000) + EVIL, 0
    yield "h2c by upgrade", head(b"GET /v1/a HTTP/1.1", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__") + EVIL, 1
    yield "h2 by its preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 0
    yield "TLS at a port of http", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 600, 0
    yield "expectation and then another request", post(b"Content-Length: 5", b"Expect: 100-continue") + EVIL, 1
    yield "method in a field", head(b"GET /v1/a HTTP/1.1", b"X-HTTP-Method-Override: DELETE", b"X-Original-URL: /evil", b"Connection: close"), 1


def test_no_way_of_writing_a_request_passes_another_one(t):
    w = World(t)
    o = w.recorder(80)
    w.name("api.test")
    table = list(smuggling())
    path = t.file(json.dumps([[n, base64.b64encode(b).decode()] for n, b, _ in table]), "in", "table.json")
    code = r'''
import base64, re
from concurrent.futures import ThreadPoolExecutor
def one(entry):
    try: got, how = exchange("api.test", 80, base64.b64decode(entry[1]), 2)
    except OSError as e: got, how = b"", word(e)
    return entry[0], [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d+)", got)], how
with ThreadPoolExecutor(32) as pool: say(json.dumps(list(pool.map(one, json.load(open(sys.argv[1]))))))
say(http("api.test", 80, get("/v1/after"))[0])
'''
    rules = [rule(methods=["GET", "POST"], paths=["/v1/*"])]
    r = t.expect(w.python(code, path, allow=rules, flags=["--ro", os.path.dirname(path), "--processes", "100"]), code=0)
    t.equal(r.lines[1], "200", "a request after all these")
    found = {n: (codes, how) for n, codes, how in json.loads(r.lines[0])}
    wrong = {}
    for name, _, most in table:
        count = found[name][0].count(200)
        if count > most or ("control" in name and count != most):
            wrong[name] = found[name]
    t.equal(wrong, {}, "answers to requests that should have been refused, or to proper ones that were")
    strange = {(line, hosts) for line, hosts in o.understood()
               if not line.startswith((b"GET /v1/", b"POST /v1/")) or line.count(b" ") != 2 or hosts not in ((b"api.test",), (b"api.test:80",))}
    t.equal(strange, set(), "requests at the origin, by any reading of what came")
    t.lacks(o.raw().lower(), b"h2c", "what came to the origin")
    t.lacks(o.raw(), b"\nHost: evil", "what came to the origin")


def test_a_request_by_way_of_a_relay_inside_is_judged_the_same(t):
    w = World(t)
    o = w.origin(80, "api.test")
    code = r'''
def relay(a, b):
    while d := a.recv(65536): b.sendall(d)
    b.shutdown(1)
def serve():
    while True:
        c, _ = l.accept(); u = socket.create_connection(("api.test", 80))
        for x, y in ((c, u), (u, c)): threading.Thread(target=relay, args=(x, y), daemon=True).start()
l = socket.create_server(("127.0.0.1", 8000)); threading.Thread(target=serve, daemon=True).start()
say(http("127.0.0.1", 8000, get("/v1/a"))[0], http("127.0.0.1", 8000, get("/evil"))[0], http("127.0.0.1", 8000, get("/v1/a", "evil.test"))[0] != 200)
if not os.fork(): say(http("api.test", 80, get("/evil"))[0]); os._exit(0)
os.wait(); os._exit(0)
'''
    t.expect(w.python(code, allow=[rule(paths=["/v1/*"])]), code=0, out="200 403 True\n403\n")
    t.equal(o.paths(), ["/v1/a"], "what came to the origin")


# ---- Bodies, connections --------------------------------------------------------------------------------------------------


def test_bodies_of_every_framing_arrive_whole(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import urllib.request\n"
            "def size(p): return len(urllib.request.urlopen('http://api.test' + p, timeout=20).read())\n"
            "for how, n in (('sized', 7728), ('sized', 3000000), ('chunked', 3000001), ('until-close', 7728), ('until-close', 3000000), ('until-close', 0), ('sized', 0), ('chunked', 1)):\n"
            "    say(how, n, sum(size('/%s?n=%d' % (how, n)) == n for _ in range(10 if n < 10000 else 3)))")
    r = t.expect(w.python(code, allow=[rule()]), code=0)
    t.equal([int(x.split()[2]) for x in r.lines], [10, 3, 3, 10, 3, 10, 10, 10], f"whole bodies: {r.lines}")


def test_answers_without_a_body(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import http.client\nc = http.client.HTTPConnection('api.test', timeout=5)\n"
            "for m, p in (('HEAD', '/sized?n=100'), ('GET', '/ok'), ('HEAD', '/ok'), ('GET', '/status?code=204'), ('GET', '/status?code=304'), ('GET', '/status?code=500'), ('GET', '/ok')):\n"
            "    c.request(m, p); r = c.getresponse(); say(r.status, len(r.read()), r.headers.get('Content-Length'))")
    t.expect(w.python(code, allow=[rule()]), code=0, out="200 0 100\n200 3 3\n200 0 3\n204 0 None\n304 0 None\n500 0 0\n200 3 3\n")


def test_a_body_that_the_origin_cut_short_does_not_look_whole(t):
    w = World(t)
    for port, response in ((81, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), (82, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"),
                           (83, b"HTTP/1.1 200 OK\r\nContent-Le"), (84, b"")):
        w.recorder(port, response=response, hang_up=True)
    w.name("api.test")
    code = "for p in (81, 82, 83, 84): say(http('api.test', p, get('/a'))[0])"
    r = t.expect(w.python(code, allow=[rule(ports=["81-84"])]), code=0)
    t.check(all(x in ("0", "502") for x in r.lines), f"answers: {r.lines}")


def test_answers_that_mean_two_things_do_not_pass(t):
    w = World(t)
    ok = b"HTTP/1.1 200 OK\r\n"
    table = [ok + b"Content-Length: 3\r\nContent-Length: 30\r\n\r\nok\n", ok + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             ok + b"Transfer-Encoding: xchunked\r\n\r\nok\n",
             ok + b"Content-Length: -3\r\n\r\nok\n", ok + b"Content-Length: 3\r\nX: a\0b\r\n\r\nok\n", ok + b"Content-Length : 3\r\n\r\nok\n",
             b"HTTP/1.1 2000 OK\r\n\r\n", b"nonsense\r\n\r\n",
             b"HTTP/1.1 200 OK\nContent-Length: 3\n\nok\n", ok + b"X: y\r\n" * 100000, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nfree bytes"]
    current = {}
    w.recorder(80, response=lambda lines: table[int(lines[0].split(b"/v1/")[1].split(b" ")[0])], hang_up=True)
    w.name("api.test")
    code = f"for i in range({len(table)}): say(json.dumps([http('api.test', 80, get('/v1/%d' % i))[0]]))"
    r = t.expect(w.python(code, allow=[rule()]), code=0)
    for i, line in enumerate(r.lines):
        current[i] = json.loads(line)[0]
    t.equal({table[i][:80]: s for i, s in current.items() if s not in (0, 502)}, {}, "answers that passed")


def test_an_endless_head_of_an_answer_is_cut_off(t):
    w = World(t)
    sent = []

    def endless(s):
        s.recv(65536)
        s.sendall(b"HTTP/1.1 200 OK\r\n")
        try:
            while sum(sent) < 100 << 20:
                sent.append(s.send(b"X-Pad: " + b"y" * 8000 + b"\r\n"))
        except OSError:
            return "cut"
        return "all taken"

    server = w.talker(80, endless)
    w.name("api.test")
    r = t.expect(w.python("say(http('api.test', 80, get('/a'))[0])", allow=[rule()]), code=0)
    t.among(r.text, ("0\n", "502\n"), "answer")
    t.equal(server.result(), "cut", "what the server met")
    t.check(sum(sent) < 16 << 20, f"{sum(sent)} bytes were taken")


def test_a_large_upload_passes_without_being_kept(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import hashlib\nbody = os.urandom(20 << 20)\nstatus, answer = http('api.test', 80, get('/upload', method='POST', body=body), timeout=30)\n"
            "n, digest = answer.split()\nsay(status, int(n) == len(body), digest.decode() == hashlib.sha256(body).hexdigest())\nsys.stdin.readline()")
    run = w.start_python(code, allow=[rule()], stdin=zw.subprocess.PIPE)
    t.equal(run.read_line(30), b"200 True True\n", "upload")
    broker = network.brokers(run)
    t.equal(len(broker), 1, "brokers")
    with open(f"/proc/{broker[0]}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    t.check(peak < 48 << 10, f"the broker grew to {peak} KiB")
    r = t.expect(run.finish(20, b"\n"), code=0)
    t.between(connections(r, "api.test")[0]["sent"], 20 << 20, (20 << 20) + 10000, "bytes sent")


def test_a_slow_reader_does_not_fill_the_broker(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("s = socket.create_connection(('api.test', 80)); s.sendall(get('/sized?n=40000000')); s.recv(1000); say('some'); sys.stdin.readline()\n"
            "n = 0\nwhile b := s.recv(1 << 20): n += len(b)\nsay(n > 39000000)")
    run = w.start_python(code, allow=[rule()], stdin=zw.subprocess.PIPE)
    t.equal(run.read_line(30), b"some\n", "line")
    pid = network.brokers(run)[0]
    last = None
    while last != (last := network.private_bytes(pid)):
        zw.time.sleep(0.05)
    t.check(last < 16 << 20, f"{last} bytes of the broker")
    t.expect(run.finish(30, b"\n"), code=0, out="True\n")


def test_expect_100_continue_and_early_hints(t):
    w = World(t)
    w.origin(80, "api.test")
    w.recorder(81, response=b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + Recorder.OK, hang_up=True)
    code = ("s = socket.create_connection(('api.test', 80), 5)\n"
            "s.sendall(b'POST /upload HTTP/1.1\\r\\nHost: api.test\\r\\nExpect: 100-continue\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\n')\n"
            "say(s.recv(1000).split(b'\\r\\n')[0].decode()); s.sendall(b'hello'); say(b' 200 ' in read_all(s))\n"
            "got = exchange('api.test', 81, get('/a', 'api.test:81'))[0]; say(got.count(b' 200 '), got.endswith(b'ok\\n'))")
    t.expect(w.python(code, allow=[rule(ports=[80, 81])]), code=0, out="HTTP/1.1 100 Continue\nTrue\n1 True\n")


WS = r'''
import base64
def websocket(host, port, path, tls=None):
    s = socket.create_connection((host, port), 8)
    if tls: s = tls.wrap_socket(s, server_hostname=host)
    s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (path, host,
        base64.b64encode(os.urandom(16)).decode())).encode())
    f = s.makefile("rb")
    status = int(f.readline().split()[1])
    while f.readline().strip(): pass
    return s, f, status
def send(s, data): s.sendall(b"\x81" + (bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))) + b"\0\0\0\0" + data)
def receive(f):
    n = f.read(2)[1]
    if n == 126: n = int.from_bytes(f.read(2), "big")
    return f.read(n)
'''


def test_websockets(t):
    w = World(t)
    w.origin(80, "api.test")
    code = WS + ("s, f, status = websocket('api.test', 80, '/ws'); say(status)\n"
                 "for i in range(50): send(s, b'hello %d' % i); assert receive(f) == b'hello %d' % i\n"
                 "send(s, b'x' * 60000); say(len(receive(f)))\n"
                 "s.sendall(b'\\x88\\x80\\0\\0\\0\\0'); say(f.read())\n"
                 "say(websocket('api.test', 80, '/other')[2])")
    r = t.expect(w.python(code, allow=[rule(methods=["GET"], paths=["/ws"])]), code=0, out="101\n60000\nb''\n403\n")
    t.equal(requests(r, "api.test")[0], ("GET", "/ws", 101), "the record")
    t.expect(w.python(WS + "say(websocket('api.test', 80, '/ws')[2])", allow=[rule(methods=["POST"])]), code=0, out="403\n")


def test_redirects_are_answers_and_open_nothing(t):
    w = World(t)
    w.origin(80, "api.test")
    other = w.origin(81, "evil.test", address=OTHER)
    w.name("evil.test", OTHER)
    code = ("import urllib.request\n"
            "for to in ('http://api.test/ok', 'http://evil.test:81/ok', 'http://93.184.216.40:81/ok', 'http://127.0.0.1:81/'):\n"
            "    try: say(urllib.request.urlopen('http://api.test/redirect?to=' + to, timeout=5).read())\n    except OSError: say('no')")
    t.expect(w.python(code, allow=[rule()]), code=0, out="b'ok\\n'\nno\nno\nno\n")
    t.equal(other.accepted, 0, "connections to the other host")


def test_a_connection_upstream_that_fails_is_a_reset_and_not_an_empty_close(t):
    w = World(t)
    w.name("api.test")
    code = "say(exchange('api.test', 80, get('/a')))"
    r = t.expect(w.python(code, allow=[rule()]), code=0)
    t.check("ECONNRESET" in r.text or " 502 " in r.text, f"answer: {r.text}")
    t.check(any(c.get("error") for c in connections(r, "api.test")), f"connections: {r.doc['connections']}")


# ---- The explicit proxy ---------------------------------------------------------------------------------------------------


def test_proxy_variables_are_set_only_on_request(t):
    w = World(t)
    w.name("api.test")
    code = "say(json.dumps({k: v for k, v in os.environ.items() if 'proxy' in k.lower()}))"
    t.equal(json.loads(w.python(code, allow=[rule()]).text), {}, "variables without proxy_env")
    found = json.loads(w.python(code, allow=[rule()], proxy_env=True).text)
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        t.check(found.get(name, "").startswith("http://"), f"{name}: {found}")
    for part in ("localhost", "127.0.0.1", "::1"):
        t.contains(found.get("NO_PROXY", ""), part, "NO_PROXY")
        t.contains(found.get("no_proxy", ""), part, "no_proxy")


def test_clients_that_use_the_proxy_get_what_the_rules_say(t):
    w = World(t)
    o = w.origin(80, "api.test")
    s = w.origin(443, "tls.test", tls=True)
    rules = [rule(paths=["/v1/*"]), {"host": "tls.test"}]
    ca = w.authority.path
    t.need("curl")
    code = (f"curl -sS -w ' %{{http_code}}\\n' http://api.test/v1/a; curl -sS -o /dev/null -w '%{{http_code}}\\n' http://api.test/evil\n"
            f"curl -sS --cacert {ca} https://tls.test/ok; curl -sS http://evil.test/ ; curl -sS -o /dev/null -w '%{{http_connect}}\\n' https://evil.test/ 2>/dev/null; echo end")
    wire = w.wire()
    r = t.expect(w.run("sh", "-c", code, allow=rules, proxy_env=True, flags=["--ro", ca]), code=0)
    t.equal(r.lines[:4], ["GET /v1/a", " 200", "403", "ok"], f"answers: {r.text}")
    body = r.lines[4:-2]
    t.equal(len(body), 1, f"lines of the refusal: {body}")
    for part in ("evil.test", "network.allow"):
        t.contains(body[0], part, "the refusal")
    t.equal(r.lines[-2:], ["403", "end"], "CONNECT to a name that is not allowed")
    t.equal(o.paths(), ["/v1/a"], "what came to the origin")
    t.equal(s.paths(), ["/ok"], "what came to the origin by CONNECT")
    t.equal(w.dns.asked(), {"api.test", "tls.test"}, "names that were looked up")
    t.check(not any(b"evil" in p.data for p in wire.packets()), "the denied name was on the wire")


def test_every_way_to_write_a_target_to_the_proxy(t):
    w = World(t)
    w.origin(80)
    w.origin(8443)
    wire = w.wire()
    w.name("api.test")
    w.name("tcp.test")
    bad = ["evil.test:8443", "api.test:8443", "tcp.test:80", "tcp.test", "tcp.test:", "tcp.test:0", "tcp.test:65536", "tcp.test:8443x", "tcp.test:+8443",
           "tcp.test:08443x", "tcp.test\0.evil.test:8443",
           "evil.test\0tcp.test:8443", "tcp.test%00:8443", "tcp.test%00.evil.test:8443", "tcp.test..:8443", "xtcp.test:8443", "tcp.test.evil.test:8443",
           "a.tcp.test:8443", "127.0.0.1:8443",
           "127.1:8443", "0x7f000001:8443", "0177.0.0.1:8443", "2130706433:8443", "0:8443", "[::1]:8443", "[::ffff:127.0.0.1]:8443", "[fe80::1%25eth0]:8443",
           "[::1%lo]:8443", "::1:8443", f"{PRIVATE}:8443",
           "169.254.169.254:8443", "user@tcp.test:8443", "tcp.test:8443/x", "tcp.test:8443@evil.test:8443", "http://tcp.test:8443", "tcp.test\\@evil.test:8443",
           "tcp.test#:8443", "tcp.test?:8443",
           "b\xfccher.test:8443", "a" * 64 + ".test:8443", "tcp.test\t:8443", ("a" * 60 + ".") * 5 + "test:8443", "198.18.1.0:8443", "198.18.0.1:53", "*.test:8443",
           "[tcp.test]:8443", "localhost:8443"]
    good = ["tcp.test:8443", "TCP.Test:8443", "tcp.test.:8443"]
    code = r'''
from urllib.parse import urlsplit
p = urlsplit(os.environ["http_proxy"]); out = []
for x in json.load(open(sys.argv[1])):
    for host in (x, "tcp.test:8443"):
        try: got, _ = exchange(p.hostname, p.port, ("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (x, host)).encode("latin-1") + b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 2)
        except OSError as e: got = word(e).encode()
        out.append([x, got.decode("latin-1")])
say(json.dumps(out))
'''
    path = t.file(json.dumps(bad + good), "in", "targets.json")
    r = w.python(code, path, allow=[OPEN, {"host": "tcp.test", "ports": [8443]}], proxy_env=True, flags=["--ro", os.path.dirname(path)], timeout=100)
    t.expect(r, code=0)
    answers = json.loads(r.text)
    t.equal({x: a[:80] for x, a in answers if x in bad and (" 200 " in a or a.endswith("ok\n"))}, {}, "targets that were taken")
    t.equal([x for x, a in answers if x in good and not a.endswith("ok\n")][2:], [], "targets that were refused, beyond those with a trailing dot")
    t.equal({a for a, p in wire.dialled() if p == 8443}, {network.PUBLIC}, "dialled")
    t.equal(w.dns.asked(), {"tcp.test"}, "names that were looked up")


def test_requests_of_one_proxy_connection_are_judged_one_by_one(t):
    w = World(t)
    o = w.origin(80, "api.test", "second.test")
    code = r'''
import http.client
from urllib.parse import urlsplit
p = urlsplit(os.environ["http_proxy"]); s = socket.create_connection((p.hostname, p.port), 8)
for url in ("http://api.test/v1/a", "http://evil.test/v1/a", "http://second.test/v1/b", "http://api.test/evil", "http://api.test:81/v1/a", "http://127.0.0.1/v1/a", "http://api.test/v1/c"):
    host = url.split("/")[2]
    try:
        s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (url, host)).encode())
        r = http.client.HTTPResponse(s); r.begin(); r.read(); say(r.status)
        again = r.will_close
    except (OSError, http.client.HTTPException): say("closed"); again = True
    if again: s = socket.create_connection((p.hostname, p.port), 8)
'''
    r = w.python(code, allow=[rule(paths=["/v1/*"]), {"host": "second.test", "protocol": "http"}], proxy_env=True)
    t.expect(r, code=0, out="200\n403\n200\n403\n403\n403\n200\n")
    t.equal([(q.header("Host"), q.target) for q in o.requests], [("api.test", "/v1/a"), ("second.test", "/v1/b"), ("api.test", "/v1/c")], "what came to the origin")


def test_half_closed_upgrades_end_in_order(t):
    w = World(t)

    def talk(s):
        s.recv(65536)
        s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        got = read_all(s)
        s.sendall(b"got %d" % len(got))
        return len(got)

    server = w.talker(80, talk)
    w.name("api.test")
    code = ("s = socket.create_connection(('api.test', 80), 8)\n"
            "s.sendall(get('/v1/ws', extra='Upgrade: websocket\\r\\nSec-WebSocket-Key: eA==\\r\\nSec-WebSocket-Version: 13\\r\\n').replace(b'Connection: close', b'Connection: Upgrade'))\n"
            "got = s.recv(1000)\ns.sendall(b'z' * 500000); s.shutdown(1); say(read_all(s)[-10:].decode())")
    r = w.python(code, allow=[rule()])
    t.equal(r.text, "got 500000\n", "the answer after the end of input")
    t.equal(server.result(), 500000, "bytes at the server")


if __name__ == "__main__":
    network.main(globals())
