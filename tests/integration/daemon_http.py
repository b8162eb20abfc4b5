#!/usr/bin/python3 -B
# shards: 2
"""The daemon's HTTP: what is served, what is refused and how, limits, slow clients, TLS, and the end."""
import json
import os
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import HOST, Daemon, descriptors, exchange, memory, read_until_closed, split_answers, wait_for  # noqa: E402
from zw import ZWINGER  # noqa: E402

GET = "GET /health HTTP/1.1\r\n" + HOST + "\r\n"


def refused(t, flags, code, *parts):
    """A start that is refused: nothing listens, the reason is on standard error."""
    r = subprocess.run([ZWINGER, "serve", "--state", t.tmp("refused"), *flags], capture_output=True, text=True, timeout=15,
                       env=zw.caller_environment())
    t.equal(r.returncode, code, f"status of serve {flags}: {r.stderr}")
    for part in parts:
        t.contains(r.stderr, part, f"serve {flags}")
    t.equal(r.stdout, "", "standard output")
    return r


# ---- The start ------------------------------------------------------------------------------------------------------------


def test_one_command_serves_and_says_how(t):
    d = Daemon(t)
    t.equal(d.ask("GET", "/health", key=None).json, {"status": "ok"}, "health")
    t.equal(d.ask("GET", "/ready", key=None).json, {"status": "ready"}, "ready")
    info = d.ask("GET", "/v1/info")
    t.equal(info.status, 200, "info with the first key")
    t.check("container" in info.json["levels"], info.json)
    t.equal(sorted(d.announced), ["key", "key_id", "pid", "scope", "url"], "the key file")
    t.equal((d.announced["pid"], d.announced["scope"]), (d.process.pid, "admin"), "the key file")
    t.equal(os.stat(d.key_file).st_mode & 0o777, 0o600, "mode of the key file")
    t.equal(os.stat(d.state).st_mode & 0o777, 0o700, "mode of the state directory")
    t.equal(os.stat(os.path.join(d.state, "zwinger.sock")).st_mode & 0o777, 0o600, "mode of the socket")
    t.equal(d.end(), 0, "exit status")
    out = d.out()
    for part in (d.url, d.key, "curl "):
        t.contains(out, part, "standard output")
    line = next(x for x in out.splitlines() if "curl " in x)
    t.equal(line.count(d.key), 1, line)
    t.lacks(d.errors(), d.key, "the log")


def test_the_printed_line_works(t):
    t.need("curl")
    d = Daemon(t)
    os.set_blocking(d.process.stdout.fileno(), False)
    line = next(x for x in d.process.stdout.read().decode().splitlines() if x.startswith("try it: "))
    r = subprocess.run(["sh", "-c", line[8:]], capture_output=True, text=True, timeout=10)
    t.check("version" in json.loads(r.stdout), r.stdout + r.stderr)


def test_the_owner_needs_no_key_at_the_socket(t):
    d = Daemon(t)
    t.equal(d.ask("GET", "/v1/keys", key=None, unix=True).status, 200, "without a key")
    t.equal(d.ask("GET", "/v1/keys", key="zwk_" + "0" * 40, unix=True).status, 401, "with a wrong one")
    t.equal(d.ask("GET", "/v1/keys", key=None, unix=True, headers={"Host": "anything.example"}).status, 200, "any Host")


@tap.as_root
def test_another_user_needs_a_key_at_the_socket(t):
    d = Daemon(t)
    path = os.path.join(d.state, "zwinger.sock")
    os.chmod(os.path.dirname(d.state), 0o755)
    os.chmod(d.state, 0o755)
    os.chmod(path, 0o666)
    code = ("import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "s.sendall(b'GET /v1/keys HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'); print(s.recv(4096).split()[1].decode())")
    r = subprocess.run(["setpriv", "--reuid=54399", "--regid=54399", "--clear-groups", "--", "/usr/bin/python3", "-c", code, path], capture_output=True, text=True)
    t.equal(r.stdout.strip(), "401", r.stderr)


def test_one_daemon_a_directory(t):
    d = Daemon(t)
    r = subprocess.run([ZWINGER, "serve", "--listen", "127.0.0.1:0", "--state", d.state], capture_output=True, text=True, timeout=10)
    t.equal(r.returncode, 1, r.stderr)
    t.contains(r.stderr, f"process {d.process.pid}", "why")
    t.equal(d.ask("GET", "/health", key=None).status, 200, "the first one goes on")
    t.equal(d.ask("GET", "/v1/info", key=None, unix=True).status, 200, "at its socket too")


def test_plain_http_is_for_this_machine_alone(t):
    for address in ("0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"):
        r = refused(t, ["--listen", "127.0.0.1:0", "--listen", address], 125, "--tls", "--allow-plain-http", address)
        t.check(not os.path.exists(t.tmp("refused") + "/zwinger.sock"), "nothing was bound")
    d = Daemon(t, "--allow-plain-http", listen=("0.0.0.0:0",))
    t.equal(d.url, f"http://127.0.0.1:{d.port}", "an address that can be used")
    t.equal(d.ask("GET", "/health", key=None).status, 200, "with --allow-plain-http")


def test_wrong_settings_are_named(t):
    cert = t.file("no certificate", "cert.pem")
    policy = t.file("version: 1\nlimts: {}\n", "policy.yaml")
    for flags, part in ((["--lisen", "x"], "--listen"), (["--listen", "nowhere"], "--listen"), (["--drain", "x"], "--drain"), (["--ceiling", "/nonexistent"], "--ceiling"),
                        (["--policy", policy], "limts"), (["--templates", "/nonexistent"], "--templates"), (["--tls-cert", cert, "--tls-key", cert], cert),
                        (["--tls-cert", cert], "--tls-key"), (["--config", "/nonexistent"], "/nonexistent"), (["--allow-origin", "x"], "--allow-origin"),
                        (["--log", "/nonexistent/log"], "/nonexistent/log"), (["--listen", "no-such-name.invalid:80"], "no-such-name.invalid")):
        refused(t, flags, 125, part)
    busy = socket.create_server(("127.0.0.1", 0))
    refused(t, ["--listen", f"127.0.0.1:{busy.getsockname()[1]}"], 1, "Address already in use")
    busy.close()


def test_a_file_says_what_flags_say(t):
    config = t.file(f"listen:\n  - 127.0.0.1:0\n  - unix:{t.tmp('more.sock')}\nallow_host: box.example\nlog_format: json\ndrain: 1s\n", "serve.yaml")
    d = Daemon(t, "--config", config, listen=())
    t.equal(d.ask("GET", "/health", key=None, headers={"Host": "box.example:99"}).status, 200, "Host")
    for line in d.errors().splitlines():
        json.loads(line)
    s = socket.socket(socket.AF_UNIX)
    s.connect(t.tmp("more.sock"))
    t.equal(os.stat(t.tmp("more.sock")).st_mode & 0o777, 0o600, "mode of the socket")
    answer, _ = exchange(s, "GET /v1/keys HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    t.contains(answer, b"401", "there a key is needed")
    t.equal(d.end(), 0, "exit status")
    t.check(not os.path.exists(t.tmp("more.sock")), "the socket is gone")


def test_a_first_key_that_nobody_was_told_is_none(t):
    state = t.tmp("state")
    r = subprocess.run([ZWINGER, "serve", "--listen", "127.0.0.1:0", "--state", state, "--print-key-file", t.folder("key")], capture_output=True, text=True,
                       timeout=10, env=zw.caller_environment())
    t.equal((r.returncode, r.stdout), (1, ""), r.stderr)
    t.check(Daemon(t, state=state).key, "the next start has a first key")


def test_ipv6_and_several_addresses(t):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        t.skip("no IPv6 here")
    d = Daemon(t, listen=("[::1]:0", "127.0.0.1:0"))
    t.contains(d.url, "http://[::1]:", "the first address")
    t.equal(d.ask("GET", "/health", key=None).status, 200, "IPv6")


# ---- What is refused ------------------------------------------------------------------------------------------------------

BODY = "POST /v1/keys HTTP/1.1\r\n" + HOST + "Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
MALFORMED = [
    ("both lengths", BODY + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("two lengths", BODY + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    ("a list of lengths", BODY + "Content-Length: 2, 2\r\n\r\n{}", 400),
    ("a signed length", BODY + "Content-Length: +2\r\n\r\n{}", 400),
    ("a negative length", BODY + "Content-Length: -1\r\n\r\n", 400),
    ("a hexadecimal length", BODY + "Content-Length: 0x2\r\n\r\n{}", 400),
    ("an empty length", BODY + "Content-Length:\r\n\r\n", 400),
    ("a huge length", BODY + "Content-Length: 99999999999999999999\r\n\r\n", 400),
    ("another coding", BODY + "Transfer-Encoding: gzip\r\n\r\n", 400),
    ("two codings", BODY + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    ("chunked twice", BODY + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("identity", BODY + "Transfer-Encoding: identity\r\n\r\n", 400),
    ("chunked with a vertical tab", BODY + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("chunked of HTTP/1.0", BODY.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ("a bad chunk size", BODY + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    ("a chunk size with 0x", BODY + "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
    ("a signed chunk size", BODY + "Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk size of two numbers", BODY + "Transfer-Encoding: chunked\r\n\r\n2 2\r\n{}\r\n0\r\n\r\n", 400),
    ("an overflowing chunk size", BODY + "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n", 400),
    ("an empty chunk size", BODY + "Transfer-Encoding: chunked\r\n\r\n\r\n{}\r\n0\r\n\r\n", 400),
    ("a chunk without its end", BODY + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n", 400),
    ("a chunk that ends in LF", BODY + "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", 400),
    ("a space before the colon", "GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
    ("a folded header", "GET /health HTTP/1.1\r\n" + HOST + "A: b\r\n c\r\n\r\n", 400),
    ("a NUL", "GET /health HTTP/1.1\r\n" + HOST + "A: b\x00c\r\n\r\n", 400),
    ("a NUL in the target", "GET /hea\x00lth HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a bare CR", "GET /health HTTP/1.1\r\n" + HOST + "A: b\rc\r\n\r\n", 400),
    ("a bare LF", "GET /health HTTP/1.1\n" + HOST + "\r\n", 400),
    ("no Host", "GET /health HTTP/1.1\r\n\r\n", 400),
    ("no Host of HTTP/1.0", "GET /health HTTP/1.0\r\n\r\n", 400),
    ("two Hosts", "GET /health HTTP/1.1\r\n" + HOST + HOST + "\r\n", 400),
    ("an empty Host", "GET /health HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("a Host with a user", "GET /health HTTP/1.1\r\nHost: a@localhost\r\n\r\n", 400),
    ("a Host with a bad port", "GET /health HTTP/1.1\r\nHost: localhost:99999\r\n\r\n", 400),
    ("another host in the target", "GET http://evil.example/health HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a target without path", "GET http://localhost HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a target that is no path", "GET health HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a fragment", "GET /health#x HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a method in small letters", "get /health HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("CONNECT", "CONNECT localhost:80 HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("three spaces", "GET /health  HTTP/1.1\r\n" + HOST + "\r\n", 505),
    ("no version", "GET /health\r\n" + HOST + "\r\n", 400),
    ("version 2", "GET /health HTTP/2.0\r\n" + HOST + "\r\n", 505),
    ("a high byte in the target", "GET /h\xe9 HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a line without colon", "GET /health HTTP/1.1\r\n" + HOST + "Hello\r\n\r\n", 400),
    ("an empty name", "GET /health HTTP/1.1\r\n" + HOST + ": x\r\n\r\n", 400),
    ("a control byte in a value", "GET /health HTTP/1.1\r\n" + HOST + "A: \x01\r\n\r\n", 400),
    ("a look-alike of the length", "POST /v1/keys HTTP/1.1\r\n" + HOST + "Content_Length: 5\r\n\r\n", 400),
    ("an empty first line", "\r\nGET /health HTTP/1.1\r\n" + HOST + "\r\n", 400),
    ("a TLS handshake", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "x" * 500 + "\r\n\r\n", 400),
    ("too many fields", "GET /health HTTP/1.1\r\n" + HOST + "A: b\r\n" * 200 + "\r\n", 431),
    ("a long first line", "GET /" + "x" * 17000 + " HTTP/1.1\r\n" + HOST + "\r\n", 414),
    ("a first line without end", "GET /" + "x" * 17000, 414),
    ("a long head", "GET /health HTTP/1.1\r\n" + HOST + "A: " + "x" * 70000 + "\r\n\r\n", 431),
    ("a head without end", "GET /health HTTP/1.1\r\n" + HOST + "A: " + "x" * 70000, 431),
]


def test_what_is_ambiguous_is_refused_and_the_connection_closed(t):
    d = Daemon(t)
    smuggled = GET.replace("/health", "/smuggled")
    wrong = []
    for name, text, status in MALFORMED:
        data, how = d.raw(text.replace("{key}", d.key) + smuggled, timeout=8)
        try:
            answers = split_answers(data)
        except tap.Failure as e:
            answers = []
            wrong.append(f"{name}: {e}")
        if [a[0] for a in answers] != [status] or how != "closed":
            wrong.append(f"{name}: {[a[0] for a in answers]}, {how}, expected {status}")
            continue
        _, headers, body = answers[0]
        if headers.get("connection") != "close" or "x-request-id" not in headers or headers["content-type"] != "application/problem+json":
            wrong.append(f"{name}: headers {headers}")
        if json.loads(body)["request_id"] != headers["x-request-id"]:
            wrong.append(f"{name}: {body}")
    t.equal(wrong, [], "malformed requests")
    t.equal(d.ask("GET", "/health", key=None).status, 200, "and it still serves")


def test_good_forms_are_taken(t):
    d = Daemon(t)
    for name, text in (("an absolute target", "GET http://localhost/health HTTP/1.1\r\n" + HOST + "\r\n"), ("another port in Host", "GET /health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n"),
                       ("a name below localhost", "GET /health HTTP/1.1\r\nHost: a.localhost\r\n\r\n"), ("empty values", "GET /health HTTP/1.1\r\n" + HOST + "A:\r\nB: \t \r\n\r\n"),
                       ("IPv6 in Host", "GET /health HTTP/1.1\r\nHost: [::1]\r\n\r\n"), ("a query", "GET /health?a=b&c HTTP/1.1\r\n" + HOST + "\r\n"),
                       ("many fields", "GET /health HTTP/1.1\r\n" + HOST + "A: b\r\n" * 90 + "\r\n"), ("a head of 60 KiB", "GET /health HTTP/1.1\r\n" + HOST + ("A: " + "x" * 10000 + "\r\n") * 6 + "\r\n"),
                       ("a line of 16 KB", "GET /health?" + "x" * 16000 + " HTTP/1.1\r\n" + HOST + "\r\n")):
        data, how = d.raw(text, end=True)
        t.equal([a[0] for a in split_answers(data)], [200], f"{name}: {data[:300]}")
    chunked = BODY.replace("{key}", d.key) + "Transfer-Encoding: Chunked\r\n\r\n"
    for body in ('f\r\n{"scope":"use"}\r\n0\r\n\r\n', '000F;x="y"\r\n{"scope":"use"}\r\n0;z\r\nTrailer: x\r\n\r\n', '1\r\n{\r\nE  \r\n"scope":"use"}\r\n0\r\n\r\n'):
        data, _ = d.raw(chunked + body, timeout=1)
        t.equal([a[0] for a in split_answers(data)], [201], f"chunked {body!r}: {data[:400]}")


def test_a_byte_at_a_time_is_the_same(t):
    d = Daemon(t)
    s = d.socket()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    text = BODY.replace("{key}", d.key) + 'Transfer-Encoding: chunked\r\n\r\n5\r\n{"sco\r\na\r\npe":"use"}\r\n0\r\n\r\n' + GET
    for c in text:
        s.sendall(c.encode())
    s.settimeout(1)
    t.equal([a[0] for a in split_answers(read_until_closed(s)[0])], [201, 200], "answers")


def test_only_known_hosts_and_origins(t):
    d = Daemon(t, "--allow-origin", "https://app.example", "--allow-host", "box.example", "--domain", "sbx.example:8443")
    for host, status in (("evil.example", 421), ("127.0.0.1.evil.example", 421), ("169.254.169.254", 421), ("10.0.0.1", 421), ("box.example", 200), ("3000-x.sbx.example", 502), ("x.sbx.example", 200), ("xsbx.example", 421)):
        t.equal(d.ask("GET", "/health", key=None, headers={"Host": host}).status, status, f"Host {host}")
    for origin, status in (("https://evil.example", 403), ("null", 403), ("https://app.example", 200), ("http://app.example", 403), (f"http://localhost:{d.port}", 200), ("http://3000-x.localhost", 403)):
        a = d.ask("GET", "/v1/info", headers={"Origin": origin})
        t.equal(a.status, status, f"Origin {origin}")
        t.equal(a.headers.get("access-control-allow-origin"), origin if status == 200 else None, f"for Origin {origin}")
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    t.equal(d.ask("OPTIONS", "/v1/keys", key=None, headers={"Origin": "https://app.example", **ask}).status, 204, "a browser asks first")
    t.equal(d.ask("OPTIONS", "/v1/keys", key=None, headers={"Origin": "https://evil.example", **ask}).status, 403, "and is refused")
    t.equal(d.ask("OPTIONS", "/v1/keys", key=None).status, 401, "OPTIONS alone")


def test_paths_are_not_resolved(t):
    d = Daemon(t)
    for path, status in (("/v1/../health", 404), ("/v1/%2e%2e/health", 404), ("/./health", 404), ("//health", 404), ("/health/", 404), ("/v1/keys%2fx", 404), ("/v1/keys/%00", 404), ("/v1/keys/a%2Fb", 404),
                         ("/v1/%", 400), ("/v1/%zz", 400), ("/HEALTH", 404), ("/v1/k%65ys", 200), ("/", 404)):
        t.equal(d.ask("GET", path).status, status, path)
        if path not in ("/health",):
            t.equal(d.ask("GET", path, key=None).status, 401, f"{path} without a key")


def test_methods_and_scopes(t):
    d = Daemon(t)
    use = d.ask("POST", "/v1/keys", {"scope": "use"}).json["key"]
    a = d.ask("PUT", "/v1/keys", b"")
    t.equal((a.status, a.headers["allow"], a.code), (405, "GET, HEAD, POST", "method_not_allowed"), "PUT /v1/keys")
    t.equal(d.ask("GET", "/v1/keys", key=use).code, "forbidden", "a key of scope use")
    t.equal(d.ask("GET", "/metrics", key=use).status, 403, "metrics need admin")
    t.equal(d.ask("GET", "/v1/info", key=use).status, 200, "info needs use")
    a = d.ask("HEAD", "/health", key=None)
    t.equal((a.status, a.body, a.headers["content-length"]), (200, b"", "15"), "HEAD")
    t.equal(d.ask("POST", "/health", b"").status, 405, "POST /health")
    t.equal(d.ask("POST", "/health", b"", key=None).status, 401, "POST /health without a key")


def test_json_is_read_strictly(t):
    d = Daemon(t)
    json_type = {"Content-Type": "application/json"}
    deep = b'{"name":' + b"[" * 70 + b"]" * 70 + b"}"
    for body, path in ((b'{"scope":"use","scope":"use"}', "scope"), (b'{"scope":"use","nam":"x"}', "nam"), (b'{"scope":1}', "scope"), (b'{"scope":"use","expires_in":1e999}', "expires_in"),
                       (b'{"scope":"use","expires_in":NaN}', "expires_in"), (b'{"scope":"use","name":"a\\u0000b"}', "name"), (b'{"scope":"use\xff"}', ""), (b'{"sc\\u0000ope":1}', ""), (b"", ""),
                       (b"[]", ""), (b'{"scope":"use"} x', ""), (deep, None), (b'{"scope":"root"}', "scope"), (b'{"name":"x"}', "scope"), (b'{"scope":"use","expires_in":"soon"}', "expires_in"),
                       (b'{"scope":"use","expires_in":-1}', "expires_in"), (b'{"scope":"use","expires_in":0}', "expires_in"), (b"\xef\xbb\xbf{}", "")):
        a = d.ask("POST", "/v1/keys", body, headers=json_type)
        t.equal((a.status, a.code), (400, "bad_request"), f"{body[:60]}: {a.body}")
        if path is not None:
            t.equal(a.json["errors"][0]["path"], path, f"the place in {body[:60]}")
    a = d.ask("POST", "/v1/keys", b'{"scope":"use","nam":"x"}', headers=json_type)
    t.equal(a.json["errors"][0]["suggestion"], "name", "a suggestion")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        t.equal(d.ask("POST", "/v1/keys", b'{"scope":"use"}', headers={"Content-Type": kind}).status, 415, kind)
    t.equal(d.ask("POST", "/v1/keys", b'{"scope":"use"}', headers={"Content-Type": "application/json; charset=utf-8"}).status, 201, "with a parameter")
    t.equal(d.ask("POST", "/v1/keys", b'{"scope":"use"}', headers={**json_type, "Content-Encoding": "gzip"}).status, 415, "encoded")


def test_bodies_have_a_ceiling(t):
    d = Daemon(t)
    t.equal(d.ask("POST", "/v1/keys", b"", headers={"Content-Type": "application/json", "Content-Length": str(17 << 20)}).status, 413, "announced")
    before = memory(d.process.pid)
    s = d.socket(20)
    s.sendall((BODY.replace("{key}", d.key) + "Transfer-Encoding: chunked\r\n\r\n").encode())
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    try:
        for _ in range(40):
            s.sendall(chunk)
    except OSError:
        pass
    data, _ = read_until_closed(s)
    if data:  # else the reset of so much unread data has overtaken the answer
        t.equal(split_answers(data)[0][0], 413, "chunked")
    t.check(memory(d.process.pid) - before < 60 << 20, "memory of a body that is too large")
    t.equal(d.ask("GET", "/health", key=None).status, 200, "and it still serves")


def test_what_is_held_of_bodies_is_what_came(t):
    """The bound on all of them is on what is counted; pieces from a socket have room behind them that would not be."""
    d = Daemon(t)
    d.ask("POST", "/v1/keys", {"scope": "use"})
    before, size, held = memory(d.process.pid), 12 << 20, []
    for coding in ("sized", "chunked") * 2:
        s = d.socket(20)
        head = BODY.replace("{key}", d.key) + (f"Content-Length: {size + 15}\r\n\r\n" if coding == "sized" else f"Transfer-Encoding: chunked\r\n\r\n{size + 15:x}\r\n")
        s.sendall(head.encode() + b" " * size)
        held.append((coding, s))
    most = len(held) * size
    t.until(lambda: memory(d.process.pid) - before > most * 0.9, 20, lambda: f"it has come: {memory(d.process.pid) - before} of {most} bytes")
    seen = [0]

    def rests():
        seen.append(memory(d.process.pid) - before)
        return d.ask("GET", "/health").status == 200 and len(seen) > 20 and len(set(seen[-20:])) == 1

    t.until(rests, 20, "all has come")
    t.between(seen[-1], most * 0.9, most * 1.2, "bytes of memory")
    for coding, s in held:
        s.sendall(b'{"scope":"use"}' + (b"\r\n0\r\n\r\n" if coding == "chunked" else b""))
        t.contains(s.recv(4096), b"HTTP/1.1 201 ", f"a {coding} body")


# ---- Connections ----------------------------------------------------------------------------------------------------------


def test_connections_are_kept_and_requests_may_be_ahead(t):
    d = Daemon(t)
    c = d.connection()
    for _ in range(100):
        t.equal(d.ask("GET", "/v1/info", connection=c).status, 200, "one connection")
    c.close()
    data, how = d.raw((GET * 500)[:-2] + "Connection: close\r\n\r\n", timeout=10)
    answers = split_answers(data)
    t.equal((len(answers), {a[0] for a in answers}, how), (500, {200}, "closed"), "500 requests at once")
    t.equal(len({a[1]["x-request-id"] for a in answers}), 500, "each has an id of its own")
    data, how = d.raw("GET /health HTTP/1.0\r\n" + HOST + "\r\n", timeout=5)
    t.equal((split_answers(data)[0][0], how), (200, "closed"), "HTTP/1.0")


def test_an_unread_body_does_not_become_a_request(t):
    d = Daemon(t)
    inner = "GET /v1/inner HTTP/1.1\r\n" + HOST + "\r\n"
    data, how = d.raw(f"POST /nowhere HTTP/1.1\r\n{HOST}Content-Length: {len(inner)}\r\n\r\n{inner}{GET}", timeout=1)
    t.equal([a[0] for a in split_answers(data)], [401, 200], "a body that is there is passed over")
    data, how = d.raw(f"POST /nowhere HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n{inner}{GET}", timeout=5)
    t.equal(([a[0] for a in split_answers(data)], how), ([401], "closed"), "one that is not ends the connection")


def test_a_client_that_half_closes_is_answered(t):
    d = Daemon(t)
    data, how = d.raw(GET + GET, end=True)
    t.equal(([a[0] for a in split_answers(data)], how), ([200, 200], "closed"), "answers after the end")


@tap.asleep
def test_slow_clients_are_cut(t):
    """All at once, since each takes its time."""
    d = Daemon(t)
    results = {}

    def watch(name, s, limit):
        start = time.monotonic()
        s.settimeout(limit)
        data, how = read_until_closed(s)
        results[name] = (time.monotonic() - start, how, data)

    def drip(s):
        try:
            for c in "GET /health HTTP/1.1\r\n" + "A: b\r\n" * 100:
                s.sendall(c.encode())
                time.sleep(0.5)
        except OSError:
            pass

    silent, half, dripping, body = (d.socket(90) for _ in range(4))
    half.sendall(b"GET /health HTT")
    body.sendall((BODY.replace("{key}", d.key) + "Content-Length: 100\r\n\r\n{").encode())
    threads = [threading.Thread(target=watch, args=a) for a in (("silent", silent, 40), ("half", half, 40), ("dripping", dripping, 40), ("body", body, 80))]
    threads.append(threading.Thread(target=drip, args=(dripping,), daemon=True))
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    for name, low, high in (("silent", 18, 35), ("half", 18, 35), ("dripping", 18, 35), ("body", 58, 75)):
        took, how, data = results[name]
        t.check(how != "open" and data == b"", f"{name}: {how} {data!r}")
        t.between(took, low, high, f"seconds of {name}")


test_slow_clients_are_cut.limit = 180


def test_when_connections_run_out_the_next_one_is_told(t):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))

    d = Daemon(t, preexec=few)
    held = [d.socket(5) for _ in range(20)]
    wait_for(lambda: descriptors(d.process.pid) > 30, 3)
    held[0].sendall(GET.encode())
    t.equal(held[0].recv(15), b"HTTP/1.1 200 OK", "one of those that are in")
    answers = []
    for _ in range(5):
        data, how = d.raw(b"", timeout=3)
        answers.append((data[:12], how))
        if data:
            a = split_answers(data)[0]
            t.equal((json.loads(a[2])["code"], a[1]["retry-after"]), ("unavailable", "1"), "the refusal")
    t.check((b"HTTP/1.1 503", "closed") in answers, answers)
    for s in held:
        s.close()
    t.until(d.is_ready, 5, "it serves again")


def test_the_longest_idle_makes_room(t):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))

    d = Daemon(t, preexec=few)
    held = [d.socket(5) for _ in range(20)]
    time.sleep(5.5)  # what is idle for less may be about to be used
    t.equal(d.ask("GET", "/health", key=None).status, 200, "a new one gets in")
    t.equal(sum(read_until_closed_now(s) for s in held) >= 1, True, "an old one had to go")


def read_until_closed_now(s):
    s.settimeout(0.05)
    return read_until_closed(s)[1] != "open"


def test_connections_leave_nothing(t):
    d = Daemon(t)
    for _ in range(20):
        d.ask("GET", "/v1/info")
    before = descriptors(d.process.pid)
    for i in range(200):
        s = socket.create_connection((d.host, d.port))
        s.sendall((GET if i % 3 else "GET /hea").encode())
        if i % 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    t.until(lambda: descriptors(d.process.pid) <= before, 5, lambda: f"{before} descriptors, then {descriptors(d.process.pid)}")


# ---- TLS ------------------------------------------------------------------------------------------------------------------


def test_tls_with_a_certificate_of_its_own(t):
    d = Daemon(t, "--tls", "self-signed", "--allow-host", "box.example")
    t.check(d.url.startswith("https://"), d.url)
    t.equal(d.ask("GET", "/v1/info").status, 200, "by the certificate in the state directory")
    t.equal(os.stat(os.path.join(d.state, "tls/key.pem")).st_mode & 0o777, 0o600, "mode of the private key")
    before = open(os.path.join(d.state, "tls/cert.pem")).read()
    context = ssl.create_default_context(cafile=os.path.join(d.state, "tls/cert.pem"))
    for name in ("localhost", "127.0.0.1", "box.example"):
        with context.wrap_socket(d.socket(), server_hostname=name) as s:
            t.check(s.version() in ("TLSv1.2", "TLSv1.3"), s.version())
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(d.socket(), server_hostname="localhost") as s:
        t.equal(s.selected_alpn_protocol(), "http/1.1", "ALPN")
        data, how = exchange(s, GET * 20 + GET[:-2] + "Connection: close\r\n\r\n")
        t.equal((len(split_answers(data)), how), (21, "closed"), "many requests")
    plain, how = d.raw(GET, timeout=5)
    t.check(b"200" not in plain, plain)
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.wrap_socket(d.socket(), server_hostname="localhost")
        t.fail("TLS 1.1 was spoken")
    except (ssl.SSLError, OSError, ValueError):
        pass
    t.equal(d.end(), 0, "exit status")
    d = Daemon(t, "--tls", "self-signed", "--allow-host", "box.example", state=d.state)
    t.equal(open(os.path.join(d.state, "tls/cert.pem")).read(), before, "the certificate is made once")


def test_large_bodies_over_tls(t):
    d = Daemon(t, "--tls", "self-signed")
    body = b'{"scope":"use"' + b" " * (8 << 20) + b"}"
    t.equal(d.ask("POST", "/v1/keys", body, headers={"Content-Type": "application/json"}).status, 201, "eight mebibytes")


def test_tls_where_others_connect(t):
    d = Daemon(t, "--tls", "self-signed", listen=("0.0.0.0:0",))
    t.equal(d.ask("GET", "/health", key=None).status, 200, "every address, with TLS")


# ---- Metrics and log ------------------------------------------------------------------------------------------------------


def test_metrics_are_prometheus_text(t):
    d = Daemon(t)
    secret = "/v1/keys/" + d.key
    d.ask("GET", secret)
    d.ask("GET", "/nowhere/" + "x" * 100)
    a = d.ask("GET", "/metrics")
    t.contains(a.headers["content-type"], "text/plain; version=0.0.4", "type")
    text = a.body.decode()
    families = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            t.check(name not in families, f"{name} twice")
            families[name] = kind
        elif not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            float(value)
            base = name.split("{")[0]
            t.check(base in families or any(base == f + s for f in families for s in ("_bucket", "_sum", "_count")), line)
    for name in ("zwinger_build_info", "zwinger_sandboxes_running", "zwinger_http_requests_total", "zwinger_http_request_seconds", "process_open_fds", "process_resident_memory_bytes"):
        t.check(name in families, f"{name} is missing")
    t.lacks(text, d.key, "metrics")
    t.lacks(text, "nowhere", "metrics")
    t.contains(text, 'zwinger_http_requests_total{route="none",method="GET",code="404"} 1', "what has no route")


def test_the_log_has_requests_and_no_secrets(t):
    d = Daemon(t, "--log-format", "json")
    a = d.ask("GET", "/v1/info?token=hunter2")
    d.ask("GET", "/v1/info", key="zwk_" + "7" * 40)
    d.end()
    lines = [json.loads(x) for x in d.errors().splitlines()]
    mine = [x for x in lines if x.get("request_id") == a.headers["x-request-id"]]
    t.equal([(x["path"], x["code"], x["method"]) for x in mine], [("/v1/info", "200", "GET")], "the request")
    for secret in ("hunter2", d.key, "7" * 40):
        t.lacks(d.errors(), secret, "the log")


def test_the_log_file_is_opened_anew(t):
    log = t.tmp("log")
    d = Daemon(t, "--log", log)
    os.rename(log, log + ".1")
    d.process.send_signal(signal.SIGHUP)
    t.until(lambda: os.path.exists(log), 5, "a new file")
    d.ask("GET", "/health", key=None)
    t.until(lambda: "path=/health" in open(log).read(), 5, "lines in it")
    t.equal(os.stat(log).st_mode & 0o777, 0o600, "mode of the log")


# ---- The end --------------------------------------------------------------------------------------------------------------


def test_signals_end_it(t):
    for number in (signal.SIGTERM, signal.SIGINT):
        d = Daemon(t, state=t.tmp(f"state-{number}"))
        idle = d.socket()
        d.ask("GET", "/health", key=None)
        start = time.monotonic()
        t.equal(d.end(number), 0, "exit status")
        t.check(time.monotonic() - start < 2, "nothing was under way")
        t.equal(read_until_closed(idle)[1] in ("closed", "reset"), True, "idle connections are closed")
        t.equal(sorted(os.listdir(d.state)), ["lock", "sessions", "snapshots", "tokens.key", "zwinger.db"], "what is left")


def test_requests_may_end_while_it_drains(t):
    d = Daemon(t, "--drain", "20s")
    s = d.socket()
    text = BODY.replace("{key}", d.key) + "Content-Length: 15\r\n\r\n"
    s.sendall(text.encode() + b'{"scope":')
    time.sleep(0.2)
    d.process.send_signal(signal.SIGTERM)
    t.until(lambda: d.ask("GET", "/ready", key=None).status == 503, 5, "not ready")
    t.equal(d.ask("GET", "/ready", key=None).code, "unavailable", "ready")
    t.equal(d.ask("GET", "/health", key=None).status, 200, "health")
    t.equal(d.process.poll(), None, "still there")
    s.sendall(b'"use"}')
    data, how = read_until_closed(s)
    t.equal((split_answers(data)[0][0], how), (201, "closed"), "the answer")
    t.equal(d.process.wait(5), 0, "exit status")


def test_the_drain_has_an_end(t):
    for again in (False, True):
        d = Daemon(t, "--drain", "30s" if again else "1s", state=t.tmp(f"state-{again}"))
        s = d.socket()
        s.sendall((BODY.replace("{key}", d.key) + "Content-Length: 15\r\n\r\n{").encode())
        time.sleep(0.2)
        d.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        time.sleep(0.3)
        t.equal(d.process.poll(), None, "it waits")
        if again:
            d.process.send_signal(signal.SIGTERM)
        t.equal(d.process.wait(10), 0, "exit status")
        t.equal(read_until_closed(s), (b"", "reset"), "what was not finished")
        t.between(time.monotonic() - start, 0.3, 4, "seconds")


def test_killed_and_started_again(t):
    d = Daemon(t)
    key, port = d.key, d.port
    d.process.kill()
    d.process.wait()
    t.check(os.path.exists(os.path.join(d.state, "zwinger.sock")), "what a kill leaves")
    again = Daemon(t, state=d.state, listen=(f"127.0.0.1:{port}",))
    t.equal(again.key, None, "no second first key")
    t.equal(again.ask("GET", "/v1/info", key=key).status, 200, "the key holds")
    t.equal(again.ask("GET", "/v1/info", key=None, unix=True).status, 200, "the socket is new")
    again.end()
    t.lacks(again.out(), "zwk_", "standard output")


def test_the_service_manager_is_told(t):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(t.tmp("notify"))
    s.settimeout(10)
    Daemon(t, environment={"NOTIFY_SOCKET": t.tmp("notify")})
    t.equal(s.recv(100), b"READY=1", "the message")
    s.close()


tap.main(globals())
