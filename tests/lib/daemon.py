"""Runs `zwinger serve` for a test, and speaks HTTP with it, by way of http.client where requests are good and by raw bytes where they are not."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time

import zw
from zw import ZWINGER, Failure

HOST = "Host: localhost\r\n"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json["code"]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """One daemon with a state directory of the test's own. `flags` come after --listen, --state and --print-key-file."""

    def __init__(self, t, *flags, state=None, listen=("127.0.0.1:0",), wait=True, preexec=None, environment=None):
        self.t, self.flags = t, flags
        self.state = state or t.tmp("state")
        self.key_file = t.tmp("key.json")
        self.command = [ZWINGER, "serve"] + [x for a in listen for x in ("--listen", a)] + ["--state", self.state, "--print-key-file", self.key_file, *flags]
        self.log_path = t.tmp("daemon.log")
        self.log = open(self.log_path, "ab")
        if os.path.exists(self.key_file):
            os.unlink(self.key_file)
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, preexec_fn=preexec,
                                        env=zw.caller_environment(environment))
        t.at_end(self.close)
        self.key = self.url = None
        if wait:
            t.until(lambda: os.path.exists(self.key_file) or self.process.poll() is not None, 10, "the daemon listens")
            if self.process.poll() is not None:
                raise Failure(f"the daemon ended with {self.process.returncode}: {self.errors()}")
            with open(self.key_file) as f:
                self.announced = json.load(f)
            self.url, self.key = self.announced["url"], self.announced["key"]
            m = re.match(r"https?://(.*):(\d+)$", self.url)
            if m:
                self.host, self.port = m.group(1).strip("[]"), int(m.group(2))

    def errors(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def out(self):
        return self.process.stdout.read().decode()

    def end(self, number=signal.SIGTERM, timeout=15):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        if "ERROR: AddressSanitizer" in self.errors() or "runtime error" in self.errors():
            raise Failure(self.errors())

    # ---- good requests ----------------------------------------------------

    def connection(self, unix=False, timeout=10):
        if unix:
            folder = os.open(self.state, os.O_PATH)  # the path may be longer than an address may be
            self.t.at_end(os.close, folder)
            return _UnixConnection(f"/proc/self/fd/{folder}/zwinger.sock", timeout)
        if self.url.startswith("https"):
            context = ssl.create_default_context(cafile=os.path.join(self.state, "tls/cert.pem"))
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(self, method, path, body=None, key=True, headers=None, unix=False, connection=None):
        """`body`: bytes as they are, anything else as JSON. `key`: True for the first key, a text, or None."""
        c = connection or self.connection(unix)
        h = dict(headers or {})
        if key:
            h["Authorization"] = f"Bearer {self.key if key is True else key}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            h.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body, h)
            r = c.getresponse()
            return Answer(r.status, r.getheaders(), r.read())
        finally:
            if connection is None:
                c.close()

    def is_ready(self):
        try:
            return self.ask("GET", "/ready", key=None).status == 200
        except OSError:
            return False

    # ---- any bytes --------------------------------------------------------

    def socket(self, timeout=10):
        s = socket.create_connection((self.host, self.port), timeout)
        self.t.at_end(s.close)
        return s

    def raw(self, data, timeout=5, end=False):
        """Sends the bytes, and returns what comes until the server closes, or nothing has come for `timeout`."""
        s = self.socket(timeout)
        return exchange(s, data, end)


def events(body):
    """Server-sent events: [(id, event, data)]"""
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            found.append((fields.get("id"), fields["event"], json.loads(fields["data"])))
    return found


def exchange(s, data, end=False):
    try:
        s.sendall(data.encode("latin-1") if isinstance(data, str) else data)
        if end:
            s.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it has closed already: what it said is still there
    return read_until_closed(s)


def read_until_closed(s):
    """(bytes, "closed" | "reset" | "open")"""
    out = b""
    while True:
        try:
            part = s.recv(65536)
        except (socket.timeout, TimeoutError):
            return out, "open"
        except ConnectionError:
            return out, "reset"
        if not part:
            return out, "closed"
        out += part


def split_answers(data):
    """Every answer of a connection's bytes, strictly: [(status, headers, body)]. HEAD answers are not understood."""
    answers = []
    while data:
        head, mark, data = data.partition(b"\r\n\r\n")
        if not mark:
            raise Failure(f"half a head: {head!r}")
        lines = head.decode("latin-1").split("\r\n")
        m = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", lines[0])
        if not m:
            raise Failure(f"no status line: {lines[0]!r}")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        size = int(headers.get("content-length", "0"))
        answers.append((int(m.group(1)), headers, data[:size]))
        data = data[size:]
    return answers


def keys(t, daemon, *words, code=0):
    r = subprocess.run([ZWINGER, "keys", *words, "--state", daemon if isinstance(daemon, str) else daemon.state], capture_output=True, text=True,
                       timeout=20, env=zw.caller_environment())
    if code is not None and r.returncode != code:
        raise Failure(f"zwinger keys {' '.join(words)}: {r.returncode}: {r.stderr}")
    return r


def memory(pid):
    """Resident bytes."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
