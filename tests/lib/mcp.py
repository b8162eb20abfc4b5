"""A client of MCP for tests: `zwinger mcp` on stdio, and /mcp of a daemon."""
import json
import os
import queue
import subprocess
import threading

import zw
from zw import ZWINGER, Failure

INFO = {"name": "test", "version": "1"}
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientInfo": INFO,
        "io.modelcontextprotocol/clientCapabilities": {}}


def message(number, method, params=None):
    return {"jsonrpc": "2.0", "id": number, "method": method, **({} if params is None else {"params": params})}


class Stdio:
    """One `zwinger mcp`: by itself, or with `daemon` (flags that name one) through that. Lines are read by a thread, so that none is waited for
    without a bound."""

    def __init__(self, t, *flags, policy=None, environment=None, daemon=None):
        self.t, self.number, self.notes = t, 0, []
        self.folder = t.folder("tmp")
        if daemon is None:
            daemon = ("--policy", t.file(json.dumps({"version": 1, "enforcement": "best-effort", **(policy or {})}), "policy.yaml"))
        self.err_path = t.tmp("err")
        self.err = open(self.err_path, "ab")
        self.process = subprocess.Popen([ZWINGER, "mcp", *daemon, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err,
                                        env=zw.caller_environment({"TMPDIR": self.folder, **(environment or {})}))
        self.lines = queue.Queue()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        t.at_end(self.close)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def errors(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def write(self, data):
        self.process.stdin.write(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")
        self.process.stdin.flush()

    def read(self, seconds=30):
        """The next message; None: there is no more. Everything on standard output has to be one."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise Failure(f"no message within {seconds} s: {self.errors()}") from None
        return None if line is None else json.loads(line)

    def send(self, method, **params):
        self.number += 1
        self.write(message(self.number, method, params))
        return self.number

    def answer(self, number, seconds=30):
        """Answers may come in another order than the questions: those to others wait in `notes`."""
        for i, m in enumerate(self.notes):
            if m.get("id") == number and "method" not in m:
                return self.notes.pop(i)
        while True:
            m = self.read(seconds)
            if m is None:
                raise Failure(f"it has ended without an answer: {self.errors()}")
            if m.get("id") == number:
                return m
            self.notes.append(m)

    def ask(self, method, **params):
        return self.answer(self.send(method, **params))

    def start(self, version="2025-11-25"):
        result = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=INFO)["result"]
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def call(self, name, **arguments):
        return self.result(self.ask("tools/call", name=name, arguments=arguments))

    def result(self, m):
        if "result" not in m:
            raise Failure(f"an error: {m}")
        return Result(m["result"])

    def end(self, seconds=30):
        """The exit status after the end of the input."""
        self.process.stdin.close()
        return self.process.wait(seconds)

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failure(f"it did not end with its input: {self.errors()}") from None
        self.thread.join(10)
        self.process.stdout.close()
        self.err.close()
        if "ERROR: AddressSanitizer" in self.errors() or "runtime error" in self.errors():
            raise Failure(self.errors())
        left = os.listdir(self.folder)
        if left:
            raise Failure(f"left in the temporary folder: {left}")


class Result:
    def __init__(self, result):
        self.all = result
        self.error, self.data = result.get("isError", False), result.get("structuredContent")
        self.text = result["content"][0]["text"]
        self.images = [c for c in result["content"] if c["type"] == "image"]


class Http:
    """A client of /mcp: with a session after start(), else stateless."""

    def __init__(self, daemon):
        self.d, self.session, self.number = daemon, None, 0

    def headers(self, method, params, modern):
        h = {"Accept": "application/json, text/event-stream"}
        if modern:
            h.update({"MCP-Protocol-Version": MODERN, "Mcp-Method": method})
            if "name" in params:
                h["Mcp-Name"] = params["name"]
        elif self.session:
            h.update({"Mcp-Session-Id": self.session, "MCP-Protocol-Version": "2025-11-25"})
        return h

    def post(self, method, params=None, modern=False, headers=None, **options):
        """(answer of HTTP, messages in it)"""
        self.number += 1
        params = dict(params or {})
        if modern:
            params["_meta"] = {**META, **params.get("_meta", {})}
        h = {k: v for k, v in {**self.headers(method, params, modern), **(headers or {})}.items() if v is not None}
        r = self.d.ask("POST", "/mcp", message(self.number, method, params), headers=h, **options)
        return r, messages(r)

    def ask(self, method, params=None, **options):
        r, found = self.post(method, params, **options)
        for m in found:
            if m.get("id") == self.number:
                return m
        raise Failure(f"no answer: {r.status} {r.body[:500]}")

    def start(self, version="2025-11-25"):
        r, found = self.post("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": INFO})
        self.session = r.headers["mcp-session-id"]
        self.d.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers={"Mcp-Session-Id": self.session})
        return found[0]["result"]

    def call(self, name, modern=False, **arguments):
        m = self.ask("tools/call", {"name": name, "arguments": arguments}, modern=modern)
        if "result" not in m:
            raise Failure(f"an error: {m}")
        return Result(m["result"])


def messages(r):
    kind = r.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return [json.loads(line[6:]) for line in r.body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(r.body)] if kind.startswith("application/json") and r.body else []
