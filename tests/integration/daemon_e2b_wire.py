#!/usr/bin/python3 -B
"""The RPCs and the code interpreter of E2B, byte for byte as its SDKs send and read them: envelopes, events, lines, error forms."""
import base64
import concurrent.futures
import hashlib
import json
import os
import socket
import struct
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]
import tap  # noqa: E402
from daemon import wait_for  # noqa: E402
from daemon_e2b import Sandbox, serve  # noqa: E402

PATIENCE = 30


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


class Cut(Exception):
    """The body ended without the end that its framing has."""


class Stream:
    """One request whose answer is read as it comes. The connection is its own."""

    def __init__(self, s, method, path, body, headers):
        self.t = s.t
        self.socket = socket.create_connection((s.e.daemon.host, s.e.daemon.port), PATIENCE)
        self.t.at_end(self.close)
        head = "".join(f"{k}: {v}\r\n" for k, v in {"Host": "localhost", "Content-Length": len(body), **headers}.items())
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self._receive()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:])}
        self.body, self.over = b"", False

    def _receive(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError as e:
            raise Cut() from e
        if not data:
            raise Cut()
        self.rest += data

    def _chunk(self):
        """One more piece of the body."""
        if "content-length" in self.headers:
            while len(self.rest) < int(self.headers["content-length"]):
                self._receive()
            self.body, self.rest, self.over = self.body + self.rest, b"", True
            return
        while b"\r\n" not in self.rest:
            self._receive()
        line, _, after = self.rest.partition(b"\r\n")
        size = int(line, 16)
        while len(after) < size + 2:
            self._receive()
            after = self.rest.partition(b"\r\n")[2]
        self.body, self.rest = self.body + after[:size], after[size + 2:]
        self.over = size == 0

    def take(self, size):
        while len(self.body) < size:
            if self.over:
                raise Cut()
            self._chunk()
        data, self.body = self.body[:size], self.body[size:]
        return data

    def whole(self):
        while not self.over:
            self._chunk()
        return self.body

    def line(self):
        while b"\n" not in self.body and not self.over:
            self._chunk()
        line, mark, self.body = self.body.partition(b"\n")
        if not mark and not line:
            return None
        self.t.equal(mark, b"\n", "a line ends")
        return line

    def is_cut(self):
        try:
            self.whole()
        except Cut:
            return True
        return False

    def close(self):
        self.socket.close()


class Rpc(Stream):
    """A call with a stream of envelopes."""

    def message(self):
        """A message, or None at the end, whose envelope is kept in `last`."""
        flags, size = struct.unpack(">BI", self.take(5))
        data = json.loads(self.take(size))
        if flags == 0:
            return data
        self.t.equal(flags, 2, "no flag but that of the end")
        self.t.equal(self.whole(), b"", "nothing comes behind the last envelope")
        self.last = data
        return None

    def event(self):
        m = self.message()
        return None if m is None else m["event"]

    def rest_of(self):
        events = []
        while (e := self.event()) is not None:
            events.append(e)
        return events


class Call:
    def __init__(self, s):
        self.s, self.t = s, s.t

    def headers(self, port=49983, **more):
        return {**self.s.place(port), "X-Access-Token": self.s.token, "Connect-Protocol-Version": "1", **more}

    def stream(self, method, message, service="process.Process", body=None, **headers):
        h = self.headers(**{"Content-Type": "application/connect+json", **headers})
        r = Rpc(self.s, "POST", f"/{service}/{method}", envelope(message) if body is None else body, h)
        self.t.equal((r.status, r.headers["content-type"].partition(";")[0]), (200, "application/connect+json"), method)
        return r

    def unary(self, method, message, code=None, service="process.Process"):
        """The answer; with a code, the refusal in its form."""
        r = self.s.envd("POST", f"/{service}/{method}", json.dumps(message).encode(), **{"Content-Type": "application/json"})
        statuses = {None: 200, "not_found": 404, "invalid_argument": 400, "already_exists": 409, "internal": 500, "unimplemented": 501,
                    "failed_precondition": 400, "permission_denied": 403, "resource_exhausted": 429}
        self.t.equal((r.status, r.json.get("code")), (statuses[code], code), f"{method} {message}: {r.body[:300]}")
        if code is not None:
            self.t.check(isinstance(r.json["message"], str) and r.json["message"], "a message")
        return r.json

    def files(self, method, message, code=None):
        return self.unary(method, message, code, "filesystem.Filesystem")

    def start(self, *argv, stdin=False, pty=None, tag=None, timeout=None, user=None, keepalive=None, **config):
        wish = {"process": {"cmd": argv[0], "args": list(argv[1:]), **config}, "stdin": stdin}
        headers = {}
        if pty:
            wish["pty"] = {"size": {"cols": pty[0], "rows": pty[1]}}
            del wish["stdin"]
        if tag:
            wish["tag"] = tag
        if timeout:
            headers["Connect-Timeout-Ms"] = str(timeout)
        if keepalive:
            headers["Keepalive-Ping-Interval"] = str(keepalive)
        if user:
            headers["Authorization"] = "Basic " + b64(user + ":")
        return self.stream("Start", wish, **headers)

    def pid(self, stream):
        first = stream.event()
        self.t.equal(list(first), ["start"], "the first event")
        return first["start"]["pid"]

    def shell(self, line, **how):
        """(stdout, stderr, end)"""
        r = self.start("/bin/bash", "-c", line, **how)
        self.pid(r)
        events = r.rest_of()
        self.t.equal((r.last, list(events[-1])), ({}, ["end"]), "the end")
        return joined(events, "stdout"), joined(events, "stderr"), events[-1]["end"]

    def execute(self, code, status=200, token=True, **more):
        h = self.headers(49999, **{"Content-Type": "application/json"})
        if not token:
            del h["X-Access-Token"]
        r = Stream(self.s, "POST", "/execute", json.dumps({"code": code, **more}).encode(), h)
        self.t.equal(r.status, status, f"{code}: {r.body}")
        return r

    def lines(self, r):
        """Every line until the end, checked for what clients of the SDK need."""
        found = []
        while (line := r.line()) is not None:
            self.t.check(line.isascii() and line.strip(), f"ASCII, and not blank: {line!r}")
            found.append(json.loads(line))
        self.t.equal(found[-1]["type"], "end_of_execution", "the last line")
        return found

    def cell(self, code, **more):
        """Of one execution by type; texts joined."""
        found = self.lines(self.execute(code, **more))
        one = {x["type"]: x for x in found}
        return {"count": one.get("number_of_executions", {}).get("execution_count"), "error": one.get("error"),
                "results": [x for x in found if x["type"] == "result"],
                **{k: "".join(x["text"] for x in found if x["type"] == k) for k in ("stdout", "stderr")}}

    def contexts(self, method, path="/contexts", body=None, status=200):
        r = self.s.e.send(method, path, None if body is None else json.dumps(body).encode(),
                          self.s.place(49999, **{"Content-Type": "application/json"}))
        self.t.equal(r.status, status, f"{method} {path}: {r.body[:300]}")
        return r.json if status == 200 else r.body.decode()


def joined(events, kind):
    return b"".join(base64.b64decode(e["data"][kind], validate=True) for e in events if kind in e.get("data", {})).decode()


def one(t, **wish):
    return Call(serve(t).create(**wish))


# ---- Processes -------------------------------------------------------------------------------------------------------------


def test_a_command_is_events_in_envelopes(t):
    c = one(t, envVars={"COLOUR": "green"})
    out, err, end = c.shell('echo "$COLOUR $SHAPE"; pwd; echo grüße >&2', envs={"SHAPE": "round"}, cwd="/tmp")
    t.equal((out, err), ("green round\n/tmp\n", "grüße\n"), "the streams")
    t.equal(end, {"exitCode": 0, "exited": True, "status": "exit status 0"}, "the end")
    out, _, _ = c.shell("pwd; id -un; echo $HOME")
    t.equal(out, "/home/user\nuser\n/home/user\n", "without a wish")
    t.equal(c.shell("pwd", cwd="~")[0], "/home/user\n", "~")
    big = c.shell("head -c 1000000 /dev/zero | tr '\\0' x")[0]
    t.equal((len(big), set(big)), (1000000, {"x"}), "all of much output")


def test_a_command_ends_by_evidence(t):
    c = one(t)
    end = c.shell("exit 3")[2]
    t.equal((end["exitCode"], end["exited"], end["error"]), (3, True, "exit status 3"), end)
    end = c.shell("kill -9 $$")[2]
    t.equal((end["exitCode"], end["exited"]), (-1, False), end)
    t.check("killed" in end["error"].lower(), end)


def test_what_cannot_be_started_is_an_end_of_stream(t):
    c = one(t)
    for argv, how, code in (
            (("/nowhere/program",), {}, "invalid_argument"), (("/bin/true",), {"cwd": "/nowhere"}, "invalid_argument"),
            (("/bin/true",), {"cwd": "~other"}, "invalid_argument"), (("/bin/true",), {"user": "nobody-here"}, "unauthenticated"),
            (("/bin/true",), {"envs": {"A": 1}}, "invalid_argument"), (("",), {}, "invalid_argument"),
            (("/bin/true",), {"pty": (0, 24)}, "invalid_argument")):
        r = c.start(*argv, **how)
        t.equal((r.message(), r.last["error"]["code"]), (None, code), f"{argv} {how}")
        t.check(r.last["error"]["message"], "a message")
    t.equal(c.shell("echo still")[0], "still\n", "it goes on")


def test_envelopes_that_are_none_are_refused(t):
    c = one(t)
    good = {"process": {"cmd": "/bin/true"}}
    for body in (b"", b"\0", envelope(good)[:-1], envelope(good) + b"x", envelope(good, 1), envelope(good, 2), envelope(b"[]"), envelope(b"{"),
                 envelope(b'{"a":"\xff"}'), b"\0\xff\xff\xff\xff{}", envelope(good) * 2, envelope(b"[" * 100000)):
        r = c.stream("Start", None, body=body)
        t.equal((r.message(), r.last["error"]["code"]), (None, "invalid_argument"), body[:60])
    for path, type_, status in (("/process.Process/Start", "application/json", 415), ("/process.Process/List", "application/connect+json", 415),
                                ("/process.Process/List", "application/proto", 415), ("/process.Process/Nothing", "application/json", 501),
                                ("/other.Service/List", "application/json", 501)):
        c.s.envd("POST", path, b"{}", status, **{"Content-Type": type_})
    t.equal(c.s.envd("POST", "/process.Process/List", b"{}", 401, token=False, **{"Content-Type": "application/json"}).json["code"], 401, "no token")
    c.s.envd("POST", "/process.Process/List", b"{}", 401, token="x" * 64, **{"Content-Type": "application/json"})
    t.equal(c.unary("List", {}), {"processes": []}, "nothing was started")


@tap.alone
def test_bodies_that_are_held_are_bounded_together(t):
    """Nobody needs a token to make a context."""
    c = one(t)
    piece, held = b" " * (1 << 20), []
    for path, port, kind in (("/contexts", 49999, "application/json"), ("/process.Process/Start", 49983, "application/connect+json")):
        answers = 0
        for _ in range(22):
            s = c.s.e.daemon.socket(PATIENCE)
            held.append(s)
            head = "".join(f"{k}: {v}\r\n" for k, v in {"Host": "localhost", "Content-Length": 15 << 20, **c.headers(port, **{"Content-Type": kind})}.items())
            s.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode())
            try:
                for _ in range(14):
                    s.sendall(piece)
            except ConnectionError:
                answers += 1  # refused, and closed
                continue
            s.settimeout(0)
            try:
                answers += s.recv(1 << 16) != b""
            except BlockingIOError:
                pass
        t.check(answers > 0, f"{path}: some are refused")
        while held:
            held.pop().close()
        t.check(wait_for(lambda: c.s.e.ask("GET", c.s.path).status == 200, PATIENCE), "it serves")
        t.equal(c.shell("echo still")[0], "still\n", "and what was held is free again")


def test_input_signals_and_the_list(t):
    c = one(t)
    r = c.start("/bin/bash", "-c", 'read a; echo "got $a"; cat; echo over; exec sleep 600', stdin=True, tag="worker")
    pid = c.pid(r)
    listed = c.unary("List", {})["processes"]
    t.equal([(p["pid"], p["tag"], p["config"]["cmd"], p["config"]["args"][0]) for p in listed], [(pid, "worker", "/bin/bash", "-c")], listed)
    t.equal(c.shell(f"kill -0 {pid}")[2]["exitCode"], 0, "the pid inside")
    for text in ("", "hello\n", "x"):
        t.equal(c.unary("SendInput", {"process": {"tag": "worker"}, "input": {"stdin": b64(text)}}), {}, text)
    c.unary("SendInput", {"process": {"pid": pid}, "input": {"pty": b64("x")}}, "internal")
    c.unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": "***"}}, "invalid_argument")
    for _ in range(2):
        t.equal(c.unary("CloseStdin", {"process": {"pid": pid}}), {}, "closed")
    c.unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}}, "internal")
    seen = ""
    while "over\n" not in seen:
        seen += joined([r.event()], "stdout")
    t.equal(seen, "got hello\nxover\n", "what it read")
    c.unary("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGHUP"}, "invalid_argument")
    t.equal(c.unary("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"}), {}, "TERM")
    end = r.rest_of()[-1]["end"]
    t.equal((end["exitCode"], end["error"].lower()), (-1, "signal: terminated"), end)
    t.equal(c.shell(f"kill -0 {pid} 2>/dev/null")[2]["exitCode"], 1, "it was reaped")
    t.equal(c.unary("List", {}), {"processes": []}, "only what lives")
    for method, more in (("SendSignal", {"signal": "SIGNAL_SIGKILL"}), ("SendInput", {"input": {"stdin": ""}}), ("CloseStdin", {}), ("Update", {})):
        for which in ({"pid": 99999}, {"tag": "nobody"}, {}, {"pid": pid}):
            c.unary(method, {"process": which, **more}, "not_found")
    none = c.start("/bin/cat")
    t.equal([list(e) for e in none.rest_of()], [["start"], ["end"]], "without input it reads the end")


def unread(c, stdin=True):
    """A process that reads nothing before it is told to, by a file."""
    r = c.start("/bin/bash", "-c", "until test -e go; do sleep 0.02; done; exec sha256sum", stdin=stdin)
    return r, c.pid(r)


def test_input_waits_for_who_does_not_read(t):
    c = one(t)
    r, pid = unread(c)
    piece, sums = b"x" * 4096, hashlib.sha256()
    message = json.dumps({"process": {"pid": pid}, "input": {"stdin": b64(piece)}}).encode()
    head = c.headers(**{"Content-Type": "application/json"})
    taken, waiting = 0, None
    while waiting is None:
        x = socket.create_connection((c.s.e.daemon.host, c.s.e.daemon.port), PATIENCE)
        t.at_end(x.close)
        x.sendall((f"POST /process.Process/SendInput HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(message)}\r\n"
                   + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode() + message)
        x.settimeout(1)
        try:
            t.check(x.recv(65536).startswith(b"HTTP/1.1 200 "), f"number {taken}")
            taken += 1
        except TimeoutError:
            waiting = x
        t.check(taken * 4096 <= 1 << 20, "a bound")
    t.check(taken * 4096 >= 65536, f"a pipe's worth is taken: {taken}")
    # More than may wait; they wait, or are told that there are too many.
    call = {"process": {"pid": pid}, "input": {"stdin": b64(b"y" * 4096)}}
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(c.s.envd, "POST", "/process.Process/SendInput", json.dumps(call).encode(), **{"Content-Type": "application/json"})
                   for _ in range(20)]
        over = next(concurrent.futures.as_completed(answers, PATIENCE)).result()
        t.equal((over.status, over.json["code"]), (429, "resource_exhausted"), "too many")
        waiting.close()  # it leaves: what it sent is dropped
        c.s.shell("touch go")
        kinds = [f.result().status for f in answers]
    t.equal((set(kinds), kinds.count(200) >= 10), ({200, 429}, True), kinds)
    t.equal(c.unary("CloseStdin", {"process": {"pid": pid}}), {}, "closed")
    sums.update(piece * taken + b"y" * 4096 * kinds.count(200))
    t.equal(joined(r.rest_of(), "stdout").split()[0], sums.hexdigest(), "what was taken was read, and nothing else")


def test_input_is_streamed_as_it_is_read(t):
    c = one(t)
    r, pid = unread(c)
    data = os.urandom(3_000_000)
    pieces = [data[i:i + 50_000] for i in range(0, len(data), 50_000)]
    messages = [{"start": {"process": {"pid": pid}}}, {"keepalive": {}}] + [{"data": {"input": {"stdin": b64(p)}}} for p in pieces]
    x = socket.create_connection((c.s.e.daemon.host, c.s.e.daemon.port), PATIENCE)
    t.at_end(x.close)
    head = c.headers(**{"Content-Type": "application/connect+json", "Host": "localhost", "Transfer-Encoding": "chunked"})
    x.sendall(("POST /process.Process/StreamInput HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode())
    x.settimeout(1)
    part, parts = b"".join(envelope(m) for m in messages[:2]), 0
    try:
        while parts < 2000:  # more than all buffers on the way hold
            x.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            part, parts = envelope(messages[2]), parts + 1
        t.check(False, "all of it went to a process that reads nothing")
    except TimeoutError:
        pass
    again = c.stream("StreamInput", None, body=envelope(messages[0]))
    t.equal((again.message(), again.last["error"]["code"]), (None, "failed_precondition"), "one at a time")
    t.equal(c.s.e.daemon.ask("POST", f"/v1/sandboxes/{c.s.id}/processes/{pid}/stdin", b"x").status, 409, "also of the other interface")
    x.close()
    c.s.shell("touch go")  # and then what was sent is read up to its broken end
    t.check(wait_for(lambda: c.stream("StreamInput", None, body=envelope(messages[0])).message() == {}, PATIENCE), "its end frees the process")
    c.unary("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    r.rest_of()
    r = c.start("/usr/bin/sha256sum", stdin=True)
    pid = c.pid(r)
    messages[0] = {"start": {"process": {"pid": pid}}}
    answer = c.stream("StreamInput", None, body=b"".join(envelope(m) for m in messages))
    t.equal((answer.message(), answer.message(), answer.last), ({}, None, {}), "one message, and the end")
    c.unary("CloseStdin", {"process": {"pid": pid}})
    t.equal(joined(r.rest_of(), "stdout").split()[0], hashlib.sha256(data).hexdigest(), "every byte, in order")


def test_streams_of_input_that_are_none_are_refused(t):
    c = one(t)
    r = c.start("/bin/cat", stdin=True)
    start, data = {"start": {"process": {"pid": c.pid(r)}}}, {"data": {"input": {"stdin": b64("x")}}}
    for code, messages in (
            ("invalid_argument", []), ("invalid_argument", [data]), ("invalid_argument", [start, start]), ("invalid_argument", [start, {}]),
            ("invalid_argument", [b"{"]), ("not_found", [{"start": {"process": {"pid": 99999}}}]), ("internal", [start, {"data": {"input": {"pty": b64("x")}}}]),
            ("invalid_argument", [start, {"data": {"input": {"stdin": "***"}}}])):
        x = c.stream("StreamInput", None, body=b"".join(envelope(m) for m in messages))
        t.equal((x.message(), x.last["error"]["code"]), (None, code), messages)
    for body in (envelope(start) + b"\0\0", envelope(start, 1), envelope(start, 2), b"\0\xff\0\0\0"):
        x = c.stream("StreamInput", None, body=body)
        t.equal((x.message(), x.last["error"]["code"]), (None, "invalid_argument"), body)
    c.unary("CloseStdin", start["start"])
    x = c.stream("StreamInput", None, body=envelope(start) + envelope(data))
    r.rest_of()
    t.check(x.message() is None and x.last["error"]["code"] in ("internal", "not_found"), "a closed one")


def test_a_process_outlives_its_client_and_is_followed_again(t):
    c = one(t)
    r = c.start("/bin/bash", "-c", "echo before; read a; echo \"after $a\"", stdin=True)
    pid = c.pid(r)
    t.equal(joined([r.event()], "stdout"), "before\n", "it runs")
    r.close()
    again = [c.stream("Connect", {"process": {"pid": pid}}) for _ in range(2)]
    for x in again:
        t.equal(c.pid(x), pid, "start comes first")
    c.unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x\n")}})
    for x in again:
        events = x.rest_of()
        t.equal((joined(events, "stdout"), events[-1]["end"]["exitCode"]), ("after x\n", 0), "from now on, to each")
    late = c.stream("Connect", {"process": {"pid": pid}})
    t.equal([list(e) for e in late.rest_of()], [["start"], ["end"]], "one that has ended")
    nobody = c.stream("Connect", {"process": {"pid": 99999}})
    t.equal((nobody.message(), nobody.last["error"]["code"]), (None, "not_found"), "an unknown one")


def test_what_was_written_before_the_end_is_never_lost(t):
    """Though a client is behind, the pipe is larger than others, and what was left behind holds it and writes on."""
    c = one(t)
    code = ("import fcntl, os, subprocess, sys\n"
            "for fd in (1, 2): fcntl.fcntl(fd, 1031, 1 << 20)\n"
            "for fd in (1, 2): os.write(fd, b'x' * 999_990 + b'last bytes')\n"
            "subprocess.Popen(['/bin/bash', '-c', 'while :; do echo late; sleep 0.01; done'], stderr=1)")
    r = c.start("/usr/bin/python3", "-c", code)
    c.pid(r)
    t.check(wait_for(lambda: c.unary("List", {}) == {"processes": []}, PATIENCE), "it ends though nobody reads")
    events = r.rest_of()
    out, err = joined(events, "stdout"), joined(events, "stderr")
    t.equal((out[:1_000_000] == "x" * 999_990 + "last bytes", set(out[1_000_000:].split()) <= {"late"}), (True, True), "stdout")
    t.equal(err == "x" * 999_990 + "last bytes", True, "stderr")
    t.equal(events[-1]["end"]["exitCode"], 0, "the end")
    for _ in range(20):
        r = c.start("/bin/bash", "-c", "sleep 60 > /dev/null & for i in {1..300}; do echo $i; done", pty=(80, 24))
        c.pid(r)
        events = r.rest_of()
        t.equal(joined(events, "pty"), "".join(f"{i}\r\n" for i in range(1, 301)), "a terminal")
        t.equal(events[-1]["end"]["exitCode"], 0, "its end")


def test_messages_may_be_written_in_other_ways(t):
    """What JSON of these messages leaves to clients: null, snake_case, numbers as text, base64 of each kind."""
    c = one(t, envVars={"COLOUR": "green"})
    r = c.stream("Start", {"process": {"cmd": "/bin/cat", "args": None, "envs": {"A": "1"}, "cwd": None}, "stdin": None, "pty": None, "tag": None})
    pid = c.pid(r)
    t.equal(c.unary("List", {})["processes"][0]["config"], {"cmd": "/bin/cat", "args": [], "envs": {"A": "1"}, "cwd": "/home/user"}, "as given")
    for text in ("Pz8_", "Pz8/", "aGk"):
        c.unary("SendInput", {"process": {"pid": str(pid)}, "input": {"stdin": text}})
    c.unary("CloseStdin", {"process": {"pid": pid}})
    t.equal(joined(r.rest_of(), "stdout"), "??????hi", "all of them")
    c.s.shell("mkdir -p d/e; touch d/e/f")
    t.equal([e["name"] for e in c.files("ListDir", {"path": "d", "depth": "2"})["entries"]], ["e", "f"], "a number")
    w = Watcher(c, "d", include_entry=True)
    c.s.shell("touch d/g")
    t.equal(w.until("CREATE", "g")[0]["entry"]["name"], "g", "snake_case")
    c.files("RemoveWatcher", {"watcher_id": w.id})
    envs = c.s.envd("GET", "/envs", status=200).json
    t.equal((envs["COLOUR"], envs["E2B_SANDBOX_ID"]), ("green", c.s.id), "/envs")
    c.s.envd("GET", "/envs", status=401, token=False)


def test_the_deadline_of_start_is_that_of_the_process(t):
    c = one(t)
    r = c.start("/bin/sleep", "600", timeout=1000)
    c.pid(r)
    last = r.rest_of()
    t.check(r.last.get("error", {}).get("code") == "deadline_exceeded" or "end" in last[-1], (last, r.last))
    t.check(wait_for(lambda: c.unary("List", {}) == {"processes": []}, PATIENCE), "it ends")
    gone = c.start("/bin/sleep", "600", timeout=1000)
    c.pid(gone)
    gone.close()
    t.check(wait_for(lambda: c.unary("List", {}) == {"processes": []}, PATIENCE), "it ends though nobody listens")
    lasting = c.start("/bin/sleep", "600")
    pid = c.pid(lasting)
    short = c.stream("Connect", {"process": {"pid": pid}}, **{"Connect-Timeout-Ms": "300"})
    t.equal((c.pid(short), short.rest_of(), short.last["error"]["code"]), (pid, [], "deadline_exceeded"), "of Connect it is the stream's alone")
    t.equal([p["pid"] for p in c.unary("List", {})["processes"]], [pid], "it runs on")


def test_silence_is_filled(t):
    c = one(t)
    r = c.start("/bin/bash", "-c", "read a; echo \"$a\"", stdin=True, keepalive=1)
    pid = c.pid(r)
    t.equal([r.event(), r.event()], [{"keepalive": {}}] * 2, "keepalives")
    c.unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x\n")}})
    t.equal(joined(r.rest_of(), "stdout"), "x\n", "and what it writes")


def test_a_terminal(t):
    c = one(t)
    r = c.start("/bin/bash", "--norc", "-i", pty=(80, 24), envs={"TERM": "xterm-256color"})
    pid = c.pid(r)
    seen = ""

    def until(word):
        nonlocal seen
        while word not in seen:
            seen += joined([r.event()], "pty")

    def send(text):
        t.equal(c.unary("SendInput", {"process": {"pid": pid}, "input": {"pty": b64(text)}}), {}, text)

    send("stty size; echo t=$TERM\n")
    until("24 80\r\n")
    until("t=xterm-256color\r\n")
    t.equal(c.unary("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 100, "rows": 30}}}), {}, "a size")
    send("stty size\n")
    until("30 100\r\n")
    c.unary("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}}, "internal")
    c.unary("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 0, "rows": 0}}}, "invalid_argument")
    c.unary("CloseStdin", {"process": {"pid": pid}}, "failed_precondition")
    send("exit 7\n")
    t.equal(r.rest_of()[-1]["end"]["exitCode"], 7, "its end")


def test_killing_and_pausing_cut_the_streams_and_no_others(t):
    e = serve(t)
    a, b = Call(e.create()), Call(e.create())
    streams = [a.start("/bin/sleep", "600"), b.start("/bin/bash", "-c", "read a; echo $a", stdin=True)]
    pids = [c.pid(r) for c, r in zip((a, b), streams)]
    watch = a.stream("WatchDir", {"path": "/tmp"}, "filesystem.Filesystem")
    t.equal(list(watch.message()), ["start"], "it watches")
    cell = a.execute("import time\nprint(1)\ntime.sleep(600)")
    t.equal([json.loads(cell.line())["type"] for _ in range(2)], ["number_of_executions", "stdout"], "it executes")
    a.s.ask("DELETE", status=204)
    for r in (streams[0], watch, cell):
        t.check(r.is_cut(), "it is cut")
    t.equal(a.s.alive(), 502, "its health")
    t.equal(a.s.envd("POST", "/process.Process/List", b"{}", 502, **{"Content-Type": "application/json"}).json["message"], "The sandbox was not found", "it is gone")
    b.unary("SendInput", {"process": {"pid": pids[1]}, "input": {"stdin": b64("x\n")}})
    t.equal(joined(streams[1].rest_of(), "stdout"), "x\n", "the other one's goes on")
    r = b.start("/bin/sleep", "600")
    pid = b.pid(r)
    b.s.ask("POST", "/pause", {}, 204)
    t.check(r.is_cut(), "it is cut by a pause")
    b.s.e.ask("POST", f"/v2{b.s.path}/connect", {"timeout": 60}, 201)
    t.equal([p["pid"] for p in b.unary("List", {})["processes"]], [pid], "the process was only frozen")


def test_fifty_sandboxes_at_once(t):
    e = serve(t)

    def run(i):
        c = Call(e.create())
        return c.shell(f"echo {i}; echo $E2B_SANDBOX_ID")[0] == f"{i}\n{c.s.id}\n"

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        t.equal(sum(pool.map(run, range(50))), 50, "sandboxes that said what they should")


# ---- Files -----------------------------------------------------------------------------------------------------------------


def test_entries_of_files(t):
    c = one(t)
    c.shell("printf hello > a.txt; chmod 640 a.txt; ln -s a.txt link; ln -s nowhere broken; mkdir -m 1777 sticky; touch -d 2026-03-01T10:00:00.25Z a.txt")
    entry = c.files("Stat", {"path": "~/a.txt"})["entry"]
    t.equal(entry, {"name": "a.txt", "type": "FILE_TYPE_FILE", "path": "/home/user/a.txt", "size": "5", "mode": 0o640, "permissions": "-rw-r-----",
                    "owner": "user", "group": "user", "modifiedTime": "2026-03-01T10:00:00.250000000Z"}, "all of it")
    link = c.files("Stat", {"path": "link"})["entry"]
    t.equal((link["type"], link["symlinkTarget"], link["permissions"][0], link["mode"]), ("FILE_TYPE_FILE", "/home/user/a.txt", "L", 0o640), link)
    t.equal(c.files("Stat", {"path": "broken"})["entry"]["type"], "FILE_TYPE_UNSPECIFIED", "a broken link")
    sticky = c.files("Stat", {"path": "/home/user/../user/./sticky"})["entry"]
    t.equal((sticky["path"], sticky["type"], sticky["permissions"]), ("/home/user/sticky", "FILE_TYPE_DIRECTORY", "dtrwxrwxrwx"), sticky)
    c.files("Stat", {"path": "nothing"}, "not_found")
    c.files("Stat", {"path": "~other/x"}, "invalid_argument")


def test_metadata_stay_with_their_file(t):
    c = one(t)

    def put(path, status=200, body=b"x", kind="application/octet-stream", **metadata):
        return c.s.envd("POST", "/files" + path, body, status, **{"Content-Type": kind, **{"X-Metadata-" + k: v for k, v in metadata.items()}}).json

    def of(path):
        return c.files("Stat", {"path": path})["entry"].get("metadata")

    facts = {"name": "a.txt", "path": "/home/user/a.txt", "type": "file"}
    t.equal(put("?path=a.txt", Author="Me & you", empty=""), [{**facts, "metadata": {"author": "Me & you", "empty": ""}}], "an upload")
    t.equal(of("a.txt"), {"author": "Me & you", "empty": ""}, "Stat")
    t.equal({e["name"]: e.get("metadata") for e in c.files("ListDir", {"path": "."})["entries"] if e["name"] == "a.txt"},
            {"a.txt": {"author": "Me & you", "empty": ""}}, "ListDir")
    t.equal(c.s.shell("python3 -c 'import os; print(os.getxattr(\"/home/user/a.txt\", \"user.e2b.author\"))'"), "b'Me & you'\n", "inside")
    t.equal(put("?path=a.txt", other="1"), [{**facts, "metadata": {"other": "1"}}], "replaced as a whole")
    c.s.shell("ln -s a.txt link; ln -s nowhere broken")
    t.equal((of("link"), of("broken")), ({"other": "1"}, None), "links")
    moved = c.files("Move", {"source": "a.txt", "destination": "sub/b.txt"})["entry"]
    t.equal((moved["metadata"], of("sub/b.txt")), ({"other": "1"}, {"other": "1"}), "moved")
    watch = c.stream("WatchDir", {"path": "sub", "includeEntry": True}, "filesystem.Filesystem")
    t.equal(watch.message(), {"start": {}}, "watched")
    put("?path=sub/c.txt", seen="yes")
    t.equal(watch.message()["filesystem"]["entry"]["metadata"], {"seen": "yes"}, "a change comes with them")
    parts = b"".join(b'--b\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\nx\r\n' % n for n in (b"1", b"2")) + b"--b--\r\n"
    made = put("", body=parts, kind="multipart/form-data; boundary=b", k="v")
    t.equal([m["metadata"] for m in made], [{"k": "v"}] * 2, "each file of a form")
    t.equal(put("?path=sub/b.txt"), [{"name": "b.txt", "path": "/home/user/sub/b.txt", "type": "file"}], "none")
    t.equal(of("sub/b.txt"), None, "clears")
    t.equal(of("1"), {"k": "v"}, "others keep theirs")
    fork = Call(Sandbox(c.s.e, c.s.ask("POST", "/fork", {"count": 1}, 201).json[0]["sandbox"]))
    t.equal(fork.files("Stat", {"path": "1"})["entry"]["metadata"], {"k": "v"}, "and so do those of a fork")


def test_metadata_that_cannot_be_kept_are_refused(t):
    c = Call(serve(t, ceiling="isolation: process\n", template="isolation: process\n").create())
    h = {"Content-Type": "application/octet-stream"}
    r = c.s.envd("POST", "/files?path=a", b"x", 501, **h, **{"X-Metadata-a": "b"})
    t.check("keeps no metadata" in r.json["message"], r.json)
    c.files("Stat", {"path": "a"}, "not_found")
    t.equal([e["name"] for e in c.files("ListDir", {"path": "."})["entries"] if e["name"] != "policy.json"], [], "nothing is left of it")
    c.s.envd("POST", "/files?path=a", b"x", 200, **h)


def test_metadata_are_bounded(t):
    c = one(t)
    names = {f"X-Metadata-{i}": "v" for i in range(65)}
    for headers in ({"X-Metadata-": "v"}, {"X-Metadata-" + "n" * 247: "v"}, {"X-Metadata-n": "v" * 4096}, {"X-Metadata-a": "\xe9"}, {"X-Metadata-a": "1\t2"},
                    {"X-Metadata-a": "1", "X-Metadata-A": "2"}, names):
        r = c.s.envd("POST", "/files?path=x", b"x", 400, **{"Content-Type": "application/octet-stream", **headers})
        t.equal((r.json["code"], "X-Metadata" in r.json["message"]), (400, True), r.json)
    c.files("Stat", {"path": "x"}, "not_found")
    most = {"X-Metadata-" + "n" * 246: "v" * 1850, "X-Metadata-m": "v" * 1999}
    made = c.s.envd("POST", "/files?path=x", b"x", 200, **{"Content-Type": "application/octet-stream", **most}).json
    t.equal(made[0]["metadata"], {k[11:]: v for k, v in most.items()}, "the most")
    c.s.shell("python3 -c 'import os; [os.setxattr(\"x\", \"user.e2b.k%d\" % i, b\"\\xff\" * 1000) for i in range(60)]'; "
              "python3 -c 'import os; os.setxattr(\"x\", \"user.e2b.\\xff\".encode(\"latin1\"), b\"a\\0b\"); os.setxattr(\".\", \"user.e2b.big\", b\"v\" * 60000)'")
    entry = c.files("Stat", {"path": "x"})["entry"]
    t.check(len(json.dumps(entry["metadata"])) < 20000, "what code inside has set is cut")
    t.check("metadata" not in c.files("Stat", {"path": "."})["entry"], "and too large a value is left out")


def test_directories_are_made_listed_moved_and_removed(t):
    c = one(t)
    t.equal(c.files("MakeDir", {"path": "d/e/f"})["entry"]["path"], "/home/user/d/e/f", "with its parents")
    c.files("MakeDir", {"path": "d/e/f"}, "already_exists")
    c.shell("echo 1 > d/b; echo 2 > d/e/g")
    c.files("MakeDir", {"path": "d/b"}, "invalid_argument")
    paths = lambda m: [x["path"].removeprefix("/home/user/") for x in c.files("ListDir", m)["entries"]]  # noqa: E731
    t.equal(paths({"path": "d"}), ["d/b", "d/e"], "one level")
    t.equal(paths({"path": "d", "depth": 5}), ["d/b", "d/e", "d/e/f", "d/e/g"], "all")
    c.files("ListDir", {"path": "d/b"}, "invalid_argument")
    c.files("ListDir", {"path": "nothing"}, "not_found")
    t.equal(c.files("Move", {"source": "d/e", "destination": "new/place"})["entry"]["path"], "/home/user/new/place", "the new place")
    c.files("Move", {"source": "d/e", "destination": "x"}, "not_found")
    t.equal([c.files("Remove", {"path": "new"}) for _ in range(2)], [{}, {}], "what is not there is removed too")
    c.files("Stat", {"path": "new/place/g"}, "not_found")


def test_changes_are_told(t):
    c = one(t)
    c.files("MakeDir", {"path": "w"})
    r = c.stream("WatchDir", {"path": "w", "recursive": True, "includeEntry": True}, "filesystem.Filesystem", **{"Keepalive-Ping-Interval": "1"})
    t.equal(r.message(), {"start": {}}, "first")
    t.equal(r.message(), {"keepalive": {}}, "silence")
    seen = []

    def until(kind, name):
        while (kind, name) not in [(x["type"], x["name"]) for x in seen]:
            m = r.message()
            seen.extend([m["filesystem"]] if "filesystem" in m else [])

    c.shell("mkdir w/sub; echo 1 > w/sub/a; chmod 600 w/sub/a; mv w/sub/a w/b; rm w/b")
    until("EVENT_TYPE_REMOVE", "b")
    kinds = {(x["type"], x["name"]) for x in seen}
    t.check(kinds >= {("EVENT_TYPE_CREATE", "sub"), ("EVENT_TYPE_RENAME", "sub/a"), ("EVENT_TYPE_CREATE", "b")}, kinds)
    entries = [x for x in seen if x["name"] == "sub" and x["type"] == "EVENT_TYPE_CREATE"]
    t.equal(entries[0]["entry"]["path"], "/home/user/w/sub", "its entry")
    for path, code in (("nothing", "not_found"), ("/etc/passwd", "invalid_argument")):
        bad = c.stream("WatchDir", {"path": path}, "filesystem.Filesystem")
        t.equal((bad.message(), bad.last["error"]["code"]), (None, code), path)
    short = c.stream("WatchDir", {"path": "w"}, "filesystem.Filesystem", **{"Connect-Timeout-Ms": "300"})
    t.equal([short.message(), short.message(), short.last["error"]["code"]], [{"start": {}}, None, "deadline_exceeded"], "its time")


class Watcher:
    """One that is polled."""

    def __init__(self, c, path, code=None, **wish):
        self.c = c
        self.id = c.files("CreateWatcher", {"path": path, **wish}, code).get("watcherId")

    def poll(self, code=None):
        return self.c.files("GetWatcherEvents", {"watcherId": self.id}, code).get("events")

    def ask(self):
        h = {"Content-Type": "application/json"}
        return self.c.s.envd("POST", "/filesystem.Filesystem/GetWatcherEvents", json.dumps({"watcherId": self.id}).encode(), **h)

    def until(self, *last):
        """All events until this one."""
        found = []

        def came():
            if not any((e["type"], e["name"]) == ("EVENT_TYPE_" + last[0], last[1]) for e in found):
                found.extend(self.poll())
            return any((e["type"], e["name"]) == ("EVENT_TYPE_" + last[0], last[1]) for e in found)

        self.c.t.check(wait_for(came, PATIENCE), f"{last}: {found}")
        return found


def test_changes_are_kept_for_who_polls(t):
    c = one(t)
    c.files("MakeDir", {"path": "w"})
    w, deep = Watcher(c, "w", includeEntry=True), Watcher(c, "/home/user//w/.", recursive=True)
    t.equal(w.poll(), [], "nothing yet")
    c.s.shell("cd w; mkdir sub; echo x > sub/f; echo y > g; chmod 600 g; mv g h; rm h")
    t.check("sub/f" in [e["name"] for e in deep.until("REMOVE", "h")], "all below")
    found = w.until("REMOVE", "h")
    t.check(all("/" not in e["name"] for e in found), "not below what lies in it")
    t.equal([(e["entry"]["name"], e["entry"]["type"]) for e in found if e["name"] == "sub" and "entry" in e][:1], [("sub", "FILE_TYPE_DIRECTORY")], found)
    t.equal((w.poll(), deep.poll()), ([], []), "each is told once")
    c.files("RemoveWatcher", {"watcherId": w.id})
    for method in ("RemoveWatcher", "GetWatcherEvents"):
        for which in (w.id, "", None, "x"):
            c.files(method, {"watcherId": which}, "not_found")
    for path, code in (("nowhere", "not_found"), ("~other", "invalid_argument"), ("/etc/passwd", "invalid_argument")):
        Watcher(c, path, code)
    c.s.shell("rm -r w")
    deep.until("REMOVE", "sub")
    t.check(wait_for(lambda: deep.ask().status == 404, PATIENCE), "its end, once all is told")
    deep.poll("not_found")


def test_what_a_watcher_has_lost_is_told(t):
    c = one(t)
    w = Watcher(c, ".")
    c.s.shell("for i in $(seq 2000); do : > f$i; done")
    seen = []
    t.check(wait_for(lambda: 429 in seen or seen.append(w.ask().status) or 429 in seen, PATIENCE), "it says so")
    t.check(wait_for(lambda: w.ask().json == {"events": []}, PATIENCE), "once for each loss")
    c.s.shell(": > last")
    w.until("CREATE", "last")


def test_watchers_are_few_and_end_with_their_sandbox(t):
    c = one(t)
    before = Watcher(c, ".")
    c.s.ask("POST", "/pause", {}, 204)
    c.s.ask("POST", "/connect", {"timeout": 60}, 201)
    c.s.shell(": > f")
    before.until("CREATE", "f")  # it outlives a pause
    many = [Watcher(c, ".") for _ in range(7)]
    Watcher(c, ".", "resource_exhausted")
    c.files("RemoveWatcher", {"watcherId": many[0].id})
    Watcher(c, ".")
    streams = [c.stream("WatchDir", {"path": "."}, "filesystem.Filesystem") for _ in range(8)]
    t.equal([s.message() for s in streams], [{"start": {}}] * 8, "streams beside them")
    more = c.stream("WatchDir", {"path": "."}, "filesystem.Filesystem")
    t.equal((more.message(), more.last["error"]["code"]), (None, "resource_exhausted"), "but not without an end")
    c.s.ask("DELETE", status=204)
    t.check(streams[0].is_cut(), "cut")
    t.equal(c.s.envd("POST", "/filesystem.Filesystem/GetWatcherEvents", b"{}", **{"Content-Type": "application/json"}).status, 502, "gone")



# ---- The interpreter -------------------------------------------------------------------------------------------------------


def test_an_execution_is_lines_of_ascii(t):
    c = one(t, envVars={"COLOUR": "green"})
    r = c.execute('import os, sys\nprint("hello")\nprint("grüße \\U0001f600", file=sys.stderr)\n"é"')
    found = c.lines(r)
    t.equal(found[0], {"type": "number_of_executions", "execution_count": 1}, "the beginning")
    t.equal([x["text"] for x in found if x["type"] == "stdout"], ["hello\n"], "one event")
    t.equal("".join(x["text"] for x in found if x["type"] == "stderr"), "grüße \U0001f600\n", "characters")
    result = next(x for x in found if x["type"] == "result")
    t.equal((result["text"], result["is_main_result"], result["extra"], "main" in result), ("é", True, {}, False), result)
    t.equal(c.cell('os.environ["COLOUR"]', env_vars={"COLOUR": "red"})["results"][0]["text"], "red", "a variable of the call")
    again = c.cell('os.environ["COLOUR"]')
    t.equal((again["results"][0]["text"], again["count"]), ("green", 3), "is gone behind it")
    bad = c.cell('import os; _ = os.write(1, b"a\\xff\\xc3")')
    t.equal(bad["stdout"], "a\ufffd\ufffd", "bytes that are no text")
    error = c.cell("1 / 0")["error"]
    t.equal((error["name"], error["value"], "1 / 0" in error["traceback"]), ("ZeroDivisionError", "division by zero", True), error)


def test_contexts_keep_state_and_are_found(t):
    c = one(t)
    x = c.contexts("POST", body={"cwd": "/tmp"})
    t.equal((x["language"], x["cwd"], set(x)), ("python", "/tmp", {"id", "language", "cwd"}), x)
    c.cell("y = 1", context_id=x["id"])
    t.equal(c.cell("import os; (y, os.getcwd())", context_id=x["id"])["results"][0]["text"], "(1, '/tmp')", "state and folder")
    t.equal(c.cell("y")["error"]["name"], "NameError", "another one's")
    listed = c.contexts("GET")
    t.equal((listed[0]["language"], listed[-1]), ("python", x), "the default ones come first")
    c.contexts("POST", f"/contexts/{x['id']}/restart")
    t.equal(c.cell("y", context_id=x["id"])["error"]["name"], "NameError", "restarted")
    c.contexts("DELETE", f"/contexts/{x['id']}")
    for method, path in (("DELETE", f"/contexts/{x['id']}"), ("POST", f"/contexts/{x['id']}/restart"), ("DELETE", "/contexts/"), ("GET", "/nothing")):
        c.contexts(method, path, status=404)
    t.equal(c.contexts("GET", "/health"), "OK", "health")
    t.equal(c.contexts("POST", body={"language": " BASH "})["language"], "bash", "the name of a language")
    c.contexts("POST", body={"language": "cobol"}, status=500)


def test_the_default_contexts_are_there_without_an_interpreter(t):
    c = one(t)
    has_node = "node" in c.s.shell("command -v node; true")
    listed = c.contexts("GET")
    t.equal([x["language"] for x in listed], ["python", "javascript"] if has_node else ["python"], "on a fresh sandbox")
    t.check("python" not in (running := c.s.shell("cat /proc/[0-9]*/comm")) and "node" not in running, f"nothing was started: {running}")
    t.equal(c.contexts("GET"), listed, "the same again")
    c.cell("x = 1")
    t.check("python" in c.s.shell("cat /proc/[0-9]*/comm"), "until it was needed")
    t.equal(c.cell("x", context_id=listed[0]["id"])["results"][0]["text"], "1", "the first of them is the default one")
    c.contexts("DELETE", f"/contexts/{listed[0]['id']}")
    t.check(listed[0]["id"] not in [x["id"] for x in c.contexts("GET")], "removed; another one takes its place")


def test_executions_that_are_refused(t):
    c = one(t)
    x = c.contexts("POST", body={})
    for status, code, more in ((404, "1", {"context_id": "nothing"}), (400, "1", {"context_id": x["id"], "language": "python"}), (500, "1", {"language": "cobol"}),
                               (422, {"a": 1}, {}), (422, None, {}), (422, "1", {"env_vars": {"A": 1}}), (422, "1", {"env_vars": {"A=B": "1"}}),
                               (422, "1", {"env_vars": ["A"]}), (422, "a\0b", {"language": "bash"})):
        body = c.execute(code, status, **more).whole()
        t.check(body, f"{status}: words")
    c.execute("1", 401, token=False)
    r = c.s.e.send("POST", "/execute", b"{", c.headers(49999, **{"Content-Type": "application/json"}))
    t.equal(r.status, 422, "no JSON")
    t.equal(c.cell("1")["count"], 1, "none of them was executed")


def test_a_client_that_leaves_interrupts_its_cell(t):
    c = one(t)
    c.cell("x = 5")
    r = c.execute("import time\nprint('now', flush=True)\ntime.sleep(600)")
    while json.loads(r.line())["type"] != "stdout":
        pass
    r.close()
    after = c.cell("x")
    t.equal((after["results"][0]["text"], after["count"]), ("5", 3), "the state is kept")


def test_a_cell_is_ended_by_a_restart_and_told_so(t):
    c = one(t)
    x = c.contexts("POST", body={})
    r = c.execute("import time\nprint('now', flush=True)\ntime.sleep(600)", context_id=x["id"])
    while json.loads(r.line())["type"] != "stdout":
        pass
    c.contexts("POST", f"/contexts/{x['id']}/restart")
    found = c.lines(r)
    t.equal([y["name"] for y in found if y["type"] == "error"], ["ContextRestarting"], found)
    died = c.cell("import os; os._exit(9)", context_id=x["id"])
    t.equal((died["error"]["name"], "9" in died["error"]["value"]), ("UnexpectedEndOfExecution", True), died)
    t.equal(c.cell("1", context_id=x["id"])["count"], 1, "a fresh one")


def test_a_cell_whose_context_is_removed_is_told_so(t):
    c = one(t)
    x = c.contexts("POST", body={})
    r = c.execute("import time\nprint('now', flush=True)\ntime.sleep(600)", context_id=x["id"])
    while json.loads(r.line())["type"] != "stdout":
        pass
    waits = c.execute("1", context_id=x["id"])
    t.until(lambda: c.s.e.daemon.ask("GET", f"/v1/sandboxes/{c.s.id}/contexts/{x['id']}").json["executions"] == 1, 10, "it runs")
    t.equal(json.loads(waits.line())["type"], "keepalive", "the other one waits")
    c.contexts("DELETE", f"/contexts/{x['id']}")
    for one_of in (r, waits):
        found = [y for y in c.lines(one_of) if y["type"] == "error"]
        t.equal([(y["name"], y["value"]) for y in found], [("ContextRemoved", "the context was removed")], found)


def test_silence_of_a_cell_is_filled_also_while_it_waits(t):
    c = one(t)
    busy = c.execute("import time\nprint('now', flush=True)\ntime.sleep(600)")
    while json.loads(busy.line())["type"] != "stdout":
        pass
    waiting = c.execute("1")
    t.equal([json.loads(waiting.line())["type"] for _ in range(2)], ["keepalive"] * 2, "of one that waits")
    t.equal(json.loads(busy.line())["type"], "keepalive", "of one that runs")
    busy.close()
    t.equal([x["type"] for x in c.lines(waiting) if x["type"] != "keepalive"][:2], ["number_of_executions", "result"], "then it runs")


if __name__ == "__main__":
    tap.main(globals())
