#!/usr/bin/python3 -B
"""Secrets: used by the broker where a rule says so, and nowhere else to be found."""
import base64
import json
import os
import subprocess
import sys
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import zw  # noqa: E402
from network import OTHER, World  # noqa: E402

VALUE = "zT0p-s3cret_VALUE.4711+x"
NEXT = "zAn0ther-VALUE.0815/y"
USE = {"name": "key", "header": "Authorization", "format": "Bearer {}"}
HTTP = {"host": "api.test", "protocol": "http", "secret": USE}
FROM_ENV = {"secrets": {"key": {"env": "KEY"}}, "env": {"KEY": VALUE}}
ECHO = "say(http('api.test', 80, get('/echo'))[0])"


def rule(**keys):
    return {**HTTP, **keys}


# ---- Where it goes --------------------------------------------------------------------------------------------------------


def test_the_header_is_set_by_the_broker_and_its_own_value_is_lost(t):
    w = World(t)
    o = w.origin(80, "api.test")
    code = ("for extra in ('', 'Authorization: Bearer mine\\r\\n', 'authorization: a\\r\\nAUTHORIZATION: b\\r\\n', 'Connection: close, Authorization\\r\\n'):\n"
            "    say(http('api.test', 80, get('/echo', extra=extra))[0])")
    t.expect(w.python(code, allow=[HTTP], **FROM_ENV), code=0, out="200\n" * 4)
    t.equal([q.all("Authorization") for q in o.requests], [[f"Bearer {VALUE}"]] * 4, "Authorization at the origin")


def test_every_source(t):
    w = World(t)
    o = w.origin(80, "api.test")
    path = t.file(VALUE + "\n", "value")
    for source, env in (({"env": "KEY"}, {"KEY": VALUE}), ({"file": path}, {}), ({"command": ["printf", "%s\n", VALUE]}, {}), ({"command": ["sh", "-c", "cat " + path]}, {})):
        o.requests.clear()
        t.expect(w.python(ECHO, allow=[HTTP], secrets={"key": source}, env=env), code=0, out="200\n")
        t.equal(o.last().header("Authorization"), f"Bearer {VALUE}", f"from {source}")


def test_only_one_newline_at_the_end_is_taken_off_and_none_may_be_within(t):
    w = World(t)
    w.origin(80, "api.test")
    for text in (VALUE + "\n\n", "a\nb", "a\r\nX-Injected: y", "a\0b", "\r\n", ""):
        r = w.python(ECHO, allow=[HTTP], secrets={"key": {"file": t.file(text, "bad")}})
        network.not_started(t, r, "key")
        t.lacks(r.errors + json.dumps(r.doc), "Injected", "the message")


def test_a_secret_that_is_not_there_starts_nothing(t):
    w = World(t)
    o = w.origin(80, "api.test")
    for source in ({"env": "NOT_SET"}, {"file": t.tmp("none")}, {"command": ["false"]}, {"command": ["/no/such/program"]}, {"file": t.folder("folder")}):
        network.not_started(t, w.python(ECHO, allow=[HTTP], secrets={"key": source}), "key")
    t.equal(o.accepted, 0, "connections")


def test_a_placeholder_is_replaced_in_whatever_header_it_stands(t):
    w = World(t)
    o = w.origin(80, "api.test")
    use = {"name": "key", "placeholder": "PUT-THE-KEY-HERE"}
    code = ("say(http('api.test', 80, get('/echo', extra='X-One: key=PUT-THE-KEY-HERE;\\r\\nX-Two: PUT-THE-KEY-HERE PUT-THE-KEY-HERE\\r\\nX-Three: none\\r\\n'))[0])\n"
            "say(http('api.test', 80, get('/PUT-THE-KEY-HERE', method='POST', body=b'PUT-THE-KEY-HERE'))[0])")
    t.expect(w.python(code, allow=[rule(secret=use)], **FROM_ENV), code=0, out="200\n404\n")
    q = o.requests[0]
    t.equal([q.header("X-One"), q.header("X-Two"), q.header("X-Three")], [f"key={VALUE};", f"{VALUE} {VALUE}", "none"], "headers at the origin")
    t.equal(o.requests[1].target, "/PUT-THE-KEY-HERE", "target")


def test_it_goes_only_with_the_requests_of_its_rule(t):
    w = World(t)
    o = w.origin(80, "api.test")
    other = w.origin(81, "other.test", address=OTHER)
    w.name("other.test", OTHER)
    rules = [rule(methods=["GET"], paths=["/with/*"]), {"host": "api.test", "protocol": "http", "paths": ["/without/*"]}, {"host": "other.test", "protocol": "http",
                                                                                                                           "ports": [81]}]
    code = ("for m, p in (('GET', '/with/a'), ('GET', '/without/a'), ('POST', '/without/a'), ('POST', '/with/a'), ('GET', '/without/../with/a')):\n"
            "    say(http('api.test', 80, get(p, method=m))[0])\n"
            "say(http('other.test', 81, get('/with/a', 'other.test:81'))[0])")
    r = t.expect(w.python(code, allow=rules, **FROM_ENV), code=0)
    t.equal([r.lines[3], r.lines[4]], ["403", "403"], f"answers: {r.lines}")
    t.equal([(q.target, q.header("Authorization")) for q in o.requests], [("/with/a", f"Bearer {VALUE}"), ("/without/a", None), ("/without/a", None)], "at the origin")
    t.lacks(other.seen(), VALUE, "at the other host")


def test_a_redirect_to_another_host_does_not_carry_it(t):
    w = World(t)
    w.origin(80, "api.test")
    other = w.origin(81, "other.test", address=OTHER)
    w.name("other.test", OTHER)
    rules = [HTTP, {"host": "other.test", "protocol": "http", "ports": [81]}]
    t.need("curl")
    r = w.run("curl", "-sS", "-L", "--location-trusted", "-H", "Authorization: Bearer mine", "http://api.test/redirect?to=http://other.test:81/ok", allow=rules, **FROM_ENV)
    t.expect(r, code=0, out="ok\n")
    t.equal(other.accepted, 1, "connections")
    t.lacks(other.seen(), VALUE, "at the other host")


def test_it_goes_over_verified_tls(t):
    w = World(t)
    o = w.origin(443, "api.test", tls=True)
    bad = w.origin(444, "api.test", tls=True, authority=w.second)
    code = ("c = ssl.create_default_context()\nsay(http('api.test', 443, get('/echo'), c)[0], http('api.test', 444, get('/echo', 'api.test:444'), c)[0] in (0, 502))")
    t.expect(w.python(code, allow=[rule(protocol="https", ports=[443, 444])], **FROM_ENV), code=0, out="200 True\n")
    t.equal(o.last().header("Authorization"), f"Bearer {VALUE}", "at the origin")
    t.equal(bad.requests, [], "requests at a server that nobody vouches for")


# ---- Where it must not be -------------------------------------------------------------------------------------------------


SEARCH = r'''
answer = http("api.test", PORT, get("/v1/a"), TLS)
assert answer[0] == 200, answer
say("ready"); sys.stdin.readline()
'''


def hunt(t, w, code, rules, needles):
    """Runs, and looks for the needles wherever the sandbox or its owner could find them."""
    audit = t.tmp("audit.jsonl")
    run = w.start_python(code, allow=rules, flags=["--audit", audit], stdin=subprocess.PIPE, **FROM_ENV)
    t.equal(run.read_line(20), b"ready\n", "line")
    processes = network.inside(run)
    t.check(len(processes) >= 2, f"processes inside: {processes}")
    found = {}
    for pid in processes:
        if hit := network.memory_has(pid, needles):
            found[pid] = hit
    t.equal(found, {}, "processes inside with the secret in their memory")
    broker = network.brokers(run)
    t.check(any(network.memory_has(p, needles) for p in broker), "positive control: the broker has it")
    for pid in broker if zw.AM_ROOT else ():
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as f:
                text = f.read()
            t.check(not any(n in text for n in needles), f"{name} of the broker")
    r = t.expect(run.finish(20, b"\n"), code=0)
    with open(audit, "rb") as f:
        events = f.read()
    for n in needles:
        t.check(n not in events, "the audit file")
        t.check(n not in json.dumps(r.doc).encode() + r.out + r.err, "the result")
    return r


def test_it_is_in_no_memory_environment_or_record_inside(t):
    w = World(t)
    w.origin(80, "api.test")
    w.origin(443, "api.test", tls=True)
    needles = [VALUE.encode()]
    hunt(t, w, SEARCH.replace("PORT", "80").replace("TLS", "None"), [HTTP], needles)
    hunt(t, w, SEARCH.replace("PORT", "443").replace("TLS", "ssl.create_default_context()"), [rule(protocol="https")], needles)


def test_the_key_of_the_runs_authority_is_only_in_the_broker(t):
    w = World(t)
    w.origin(443, "api.test", tls=True)
    code = r'''
import subprocess
say(http("api.test", 443, get("/v1/a"), ssl.create_default_context())[0])
for top in ("/etc", "/run", "/tmp", "/dev/shm", os.environ["HOME"]):
    for folder, _, files in os.walk(top):
        for n in files:
            p = os.path.join(folder, n)
            try:
                if os.path.isfile(p) and not os.path.islink(p) and b"PRIVATE KEY" in open(p, "rb").read(1 << 20) and "ssl-cert" not in p: say(p)
            except OSError: pass
say(sorted(k for k in os.environ if "KEY" in k))
'''
    t.expect(w.python(code, allow=[rule(protocol="https")], **FROM_ENV), code=0, out="200\n[]\n")


def test_no_file_inside_has_it(t):
    w = World(t)
    w.origin(80, "api.test")
    path = t.file(VALUE, "secret", "value")
    code = r'''
say(http("api.test", 80, get("/v1/a"))[0])
needle = sys.argv[1][::-1].encode()
for top in ("/etc", "/run", "/tmp", "/dev/shm", os.environ["HOME"], os.path.dirname(sys.argv[2])):
    for folder, _, files in os.walk(top):
        for n in files:
            p = os.path.join(folder, n)
            try:
                if os.path.isfile(p) and needle in open(p, "rb").read(1 << 20): say("in", p)
            except OSError: pass
for p in os.listdir("/proc"):
    for n in ("environ", "cmdline"):
        try:
            if p.isdigit() and needle in open("/proc/%s/%s" % (p, n), "rb").read(): say("in", p, n)
        except OSError: pass
'''
    t.expect(w.python(code, VALUE[::-1], path, allow=[HTTP], secrets={"key": {"file": path}}), code=0, out="200\n")


def test_an_error_upstream_does_not_tell_it(t):
    w = World(t)
    w.recorder(80, response=lambda lines: b"HTTP/1.1 200 OK\r\nBroken " + b"\r\n".join(lines) + b"\r\n\r\n", hang_up=True)
    w.name("api.test")
    r = w.python("say(exchange('api.test', 80, get('/v1/a')))", allow=[HTTP], **FROM_ENV)
    t.lacks(r.text + r.errors + json.dumps(r.doc), VALUE, "what is seen")


# ---- Redaction ------------------------------------------------------------------------------------------------------------


def test_an_answer_that_gives_it_back_is_redacted(t):
    w = World(t)
    w.origin(80, "api.test")
    n = 900_000
    ways = ["plain", "json", "chunks", "base64", "percent", "gzip", "bytes", f"late&n={n}"]
    code = ("out = {}\nfor how in json.loads(sys.argv[1]):\n    s, b = http('api.test', 80, get('/value?name=X-Key&how=' + how)); out[how] = [s, len(b), b[-200:].decode('latin-1')]\n"
            "got = exchange('api.test', 80, get('/header?name=X-Key'))[0].decode(); out['header'] = [int(got.split()[1]), len(got), got]\nsay(json.dumps(out))")
    r = t.expect(w.python(code, json.dumps(ways), allow=[rule(secret={"name": "key", "header": "X-Key"})], **FROM_ENV), code=0)
    answers = json.loads(r.text)
    percent = "".join(f"%{ord(c):02X}" for c in VALUE)
    for how, (status, size, text) in answers.items():
        t.equal(status, 200, f"status of {how}")
        for needle in (VALUE, base64.b64encode(VALUE.encode()).decode()[:-4], percent, percent.lower()):
            t.check(needle not in text, f"{how}: the secret came back: {text!r}")
    for how in ("plain", "chunks", "gzip"):
        t.check(answers[how][2].startswith("before ") and answers[how][2].endswith(" after\n"), f"{how}: the rest of the text is lost: {answers[how]}")
    t.check(answers[ways[-1]][1] > n, "a large text is cut short")


def key_field(lines):
    return next(x for x in lines if x.lower().startswith(b"x-key"))[7:]


def test_no_other_part_of_an_answer_gives_it_back(t):
    w = World(t)
    rest = b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = {
        81: lambda k: b"HTTP/1.1 200 " + k + b"\r\nX-" + k + b": y\r\n" + rest + b"2\r\nok\r\n0\r\n\r\n",  # the reason, the name of a field
        82: lambda k: b"HTTP/1.1 200 OK\r\n" + rest + b"2;" + k + b"\r\nok\r\n0\r\nX-T: " + k + b"\r\n\r\n",  # an extension of a chunk, a trailer
        83: lambda k: b"HTTP/1.1 103 Early\r\nX: " + k + b"\r\n\r\nHTTP/1.1 200 OK\r\n" + rest + b"0\r\n\r\n",  # an interim answer
        84: lambda k: b"HTTP/1.1 302 Found\r\nLocation: http://evil.test/?" + k + b"\r\nContent-Length: 0\r\n\r\n",
        85: lambda k: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + k,  # beyond the body
        86: lambda k: b"HTTP/1.1 200 OK\r\n" + rest + b"zz" + k + b"\r\n",  # what is no answer
    }
    for port, answer in answers.items():
        w.recorder(port, response=lambda lines, answer=answer: answer(key_field(lines)), hang_up=True)
    w.name("api.test")
    code = "for p in map(int, sys.argv[1:]): say(exchange('api.test', p, get('/a', 'api.test:%d' % p)))"
    r = w.python(code, *answers, allow=[rule(ports=list(answers), secret={"name": "key", "header": "X-Key"})], **FROM_ENV)
    t.expect(r, code=0)
    t.equal(len(r.lines), len(answers), "answers")
    for line in r.lines:
        t.lacks(line, VALUE, "answer")


def test_base64_of_more_than_the_secret_is_redacted_too(t):
    """As in an Authorization field that a server shows: the secret begins anywhere in a group of three bytes."""
    w = World(t)
    o = w.origin(80, "api.test")
    o.routes["/v1/more"] = lambda h: h.reply(200, base64.b64encode(h.query["before"].encode() + h.headers["X-Key"].encode() + b"tail"), Content_Type="text/plain")
    code = ("import base64\nfor b in ('u', 'us', 'user:'):\n    s, x = http('api.test', 80, get('/v1/more?before=' + b)); say(s, x)\n")
    r = t.expect(w.python(code, allow=[rule(secret={"name": "key", "header": "X-Key"})], **FROM_ENV), code=0)
    for before, line in zip(("u", "us", "user:"), r.lines):
        t.check(line.startswith("200 "), f"answer: {line}")
        whole = base64.b64encode(before.encode() + VALUE.encode() + b"tail").decode()
        t.lacks(line, whole[8:24], "answer")


def test_text_that_only_looks_like_it_comes_back_whole(t):
    w = World(t)
    w.origin(80, "api.test")
    almost = [VALUE[:-1], VALUE[1:], VALUE.upper(), VALUE[:10] + VALUE]
    code = ("for v in sys.argv[1:]:\n    s, b = http('api.test', 80, get('/value?name=X-Mine&how=chunks', extra='X-Mine: %s\\r\\n' % v)); say(b.decode().strip())")
    r = t.expect(w.python(code, *[a for a in almost if VALUE not in a], allow=[HTTP], **FROM_ENV), code=0)
    t.equal(r.lines, [f"before {a} after" for a in almost if VALUE not in a], "answers")


def test_a_compressed_answer_that_grows_without_bound_is_cut_off(t):
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(bomb.compress(b"\0" * (1 << 20)) for _ in range(100)) + bomb.flush()
    w = World(t)
    o = w.origin(80, "api.test")
    o.routes["/v1/bomb"] = (200, {"Content-Encoding": "gzip", "Content-Type": "text/plain"}, data)
    code = "s, b = http('api.test', 80, get('/v1/bomb'), timeout=30); say(s, len(b) < 50 << 20); say('ready'); sys.stdin.readline()"
    run = w.start_python(code, allow=[HTTP], stdin=subprocess.PIPE, flags=["--memory", "1G"], **FROM_ENV)
    t.check(run.read_line(40).split()[1] == b"True", "the whole was passed on")
    run.read_line()
    with open(f"/proc/{network.brokers(run)[0]}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    t.check(peak < 64 << 10, f"the broker grew to {peak} KiB")
    run.finish(20, b"\n")


# ---- Replacing and revoking -----------------------------------------------------------------------------------------------


STEPS = ("for line in sys.stdin:\n"
         "    s, b = http('api.test', 80, get('/value?name=X-Mine&how=plain', extra='X-Mine: %s\\r\\n' % line.strip()) if line.strip() else get('/echo')); say(s, b'VALUE' in b)")


def ask(t, run, text=b""):
    run.process.stdin.write(text + b"\n")
    run.process.stdin.flush()
    return run.read_line().split()


def test_a_file_that_changes_is_read_again(t):
    w = World(t)
    o = w.origin(80, "api.test")
    path = t.file(VALUE + "\n", "d", "value")
    run = w.start_python(STEPS, allow=[HTTP], secrets={"key": {"file": path}}, stdin=subprocess.PIPE)
    t.equal(ask(t, run), [b"200", b"False"], "before")
    t.equal(o.last().header("Authorization"), f"Bearer {VALUE}", "before")

    def shows(value):
        def look():
            t.equal(ask(t, run)[1], b"False", "redaction")
            return o.last().header("Authorization") == f"Bearer {value}"
        t.until(look, 10, f"the new value {value} is in use")

    with open(path, "w") as f:  # in place
        f.write(NEXT)
    shows(NEXT)
    with open(path + ".new", "w") as f:  # by another file of that name
        f.write(VALUE + "\n")
    os.rename(path + ".new", path)
    shows(VALUE)
    t.equal(ask(t, run, NEXT.encode())[1], b"False", "the value that was replaced is still redacted")
    t.expect(run.finish(20, b""), code=0)


def test_a_file_that_is_emptied_or_removed_revokes(t):
    for how in (lambda p: open(p, "w").close(), os.unlink, lambda p: os.rename(p, p + ".old")):
        w = World(t)
        o = w.origin(80, "api.test")
        path = t.file(VALUE + "\n", "d", "value")
        run = w.start_python(STEPS, allow=[HTTP], secrets={"key": {"file": path}}, stdin=subprocess.PIPE)
        ask(t, run)
        t.equal(o.last().header("Authorization"), f"Bearer {VALUE}", "before")
        how(path)

        def revoked():
            o.requests.clear()
            ask(t, run)
            return all(q.header("Authorization") is None for q in o.requests)

        t.until(revoked, 10, "the value is no longer in use")
        t.expect(run.finish(20, b""), code=0)
        t.undo()


def test_two_sandboxes_have_their_secrets_in_brokers_of_their_own(t):
    w = World(t)
    w.origin(80, "api.test")
    code = "say(http('api.test', 80, get('/echo'))[0]); sys.stdin.readline()"
    runs = {v: w.start_python(code, allow=[HTTP], secrets={"key": {"env": "KEY"}}, env={"KEY": v}, stdin=subprocess.PIPE) for v in (VALUE, NEXT)}
    for r in runs.values():
        t.equal(r.read_line(), b"200\n", "line")
    for value, r in runs.items():
        t.equal(len(network.brokers(r)), 1, "brokers of a run")
        for pid in network.brokers(r):
            t.equal(network.memory_has(pid, [VALUE.encode(), NEXT.encode()]), {value.encode()}, "secrets in a broker")
    for r in runs.values():
        t.expect(r.finish(20, b"\n"), code=0)


def test_core_dumps_of_the_broker_are_off(t):
    w = World(t)
    w.origin(80, "api.test")
    run = w.start_python("say(http('api.test', 80, get('/echo'))[0]); sys.stdin.readline()", allow=[HTTP], stdin=subprocess.PIPE, **FROM_ENV)
    t.equal(run.read_line(), b"200\n", "line")
    t.equal(len(network.brokers(run)), 1, "brokers")
    for pid in network.brokers(run):
        with open(f"/proc/{pid}/limits") as f:
            core = next(line for line in f if line.startswith("Max core"))
        t.equal(core.split()[4:6], ["0", "0"], "limit of core dumps")
    run.finish(20, b"\n")


if __name__ == "__main__":
    network.main(globals())
