"""Servers of the test: threads of the suite itself, that record what reached them."""
import base64
import gzip
import hashlib
import http.server
import json
import re
import selectors
import socket
import socketserver
import ssl
import threading
import time
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Request:
    method: str
    target: str
    headers: list  # (name, value) in order
    size: int = 0
    digest: str = ""
    connection: int = 0
    address: str = ""  # the local one, to which was connected
    server_name: str = None  # SNI

    @property
    def path(self):
        return self.target.partition("?")[0]

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def header(self, name):
        return ", ".join(self.all(name)) or None


def listener(address, port, backlog=1024):
    """On "::" of both families."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
    s.bind((address, port))
    s.listen(backlog)
    return s


def plain_address(text):
    return text[7:] if text.startswith("::ffff:") else text


class Threads(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """One thread a connection; close() ends them all."""
    daemon_threads = True
    block_on_close = False

    def __init__(self, sock, handler, owner):
        super().__init__(sock.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.owner, self.open, self.guard = sock, owner, set(), threading.Lock()
        self.accepted = 0
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def process_request_thread(self, request, client_address):
        with self.guard:
            self.open.add(request)
            self.accepted += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.guard:
                self.open.discard(request)

    def handle_error(self, request, client_address):
        pass  # a client that went away

    def close(self):
        self.shutdown()
        self._thread.join()
        self.server_close()
        with self.guard:
            for s in self.open:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def server_context(certificate, alpn=None, names=None):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(*certificate)
    if alpn:
        c.set_alpn_protocols(alpn)
    if names is not None:
        def seen(sock, name, context):
            names.append(name)
            sock.seen_name = name
        c.sni_callback = seen
    return c


# ---- HTTP -----------------------------------------------------------------------------------------------------------------


class Origin:
    """An HTTP/1.1 server. `routes` maps a path to (status, headers, body) or to a function (handler) that answers by itself.

    Beside these: /ok; /sized?n; /chunked?n; /until-close?n; /echo (what was asked, as JSON); /upload; /slow?seconds; /status?code; /redirect?to;
    /ws (WebSocket echo); /header?name, /value?name&how (give a header of the request back: plain, chunks, base64, percent, gzip, late)."""

    def __init__(self, port=80, address="::", certificate=None, alpn=None):
        self.requests, self.routes, self.lock = [], {}, threading.Lock()
        self.server_names, self.tls_errors = [], []
        self.context = server_context(certificate, alpn, self.server_names) if certificate else None
        self.server = Threads(listener(address, port), Handler, self)

    @property
    def accepted(self):
        return self.server.accepted

    def close(self):
        self.server.close()

    def paths(self):
        with self.lock:
            return [r.target for r in self.requests]

    def last(self, path=None):
        with self.lock:
            return next((r for r in reversed(self.requests) if path in (None, r.path)), None)

    def seen(self):
        """Everything that it was told, as one text, to look for what must not be there."""
        with self.lock:
            return "\n".join(f"{r.method} {r.target} {r.headers}" for r in self.requests)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "origin", ""
    wbufsize = 0

    def setup(self):
        self.origin = self.server.owner
        if self.origin.context:
            try:
                self.request = self.origin.context.wrap_socket(self.request, server_side=True)
            except (OSError, ValueError) as e:
                self.origin.tls_errors.append(str(e))
                raise ConnectionError(str(e)) from None
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def finish(self):
        super().finish()
        if self.origin.context:
            try:
                self.request.unwrap()
            except (OSError, ValueError):
                pass
            self.request.close()

    def log_message(self, *args):
        pass

    def reply(self, code, body=b"", headers=(), **more):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(code)
        for name, value in [*headers, *((k.replace("_", "-"), v) for k, v in more.items())]:
            self.send_header(name, value)
        if not any(n.lower() == "content-length" for n, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")

    def start(self, code=200, **headers):
        self.send_response(code)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()

    def body(self):
        digest, size = hashlib.sha256(), 0
        for piece in self._pieces():
            digest.update(piece)
            size += len(piece)
            if size <= 65536:
                self.text += piece
        return size, digest.hexdigest()

    def _pieces(self):
        self.text = b""
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            while True:
                n = int(self.rfile.readline().split(b";")[0] or b"0", 16)
                if n:
                    yield self.rfile.read(n)
                if not self.rfile.readline().strip() and n == 0:
                    return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                return
            left -= len(piece)
            yield piece

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def answer(self):
        request = Request(self.command, self.path, list(self.headers.items()), connection=id(self.connection),
                          address=plain_address(self.connection.getsockname()[0]), server_name=getattr(self.connection, "seen_name", None))
        with self.origin.lock:
            self.origin.requests.append(request)
        request.size, request.digest = self.body()
        self.recorded, parts = request, urlsplit(self.path)
        self.query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        self.number = int(self.query.get("n", 0))
        route = self.origin.routes.get(parts.path)
        if route is None and parts.path.startswith("/git/"):
            route = self.origin.routes.get("/git/")
        if callable(route):
            return route(self)
        if route is not None:
            return self.reply(route[0], route[2], list(route[1].items()))
        getattr(self, "at_" + parts.path[1:].replace("-", "_"), self.at_nothing)()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer

    def at_nothing(self):
        self.reply(200 if self.path.startswith("/v1/") else 404, f"{self.command} {self.path}\n")

    def at_ok(self):
        self.reply(200, b"ok\n")

    def at_sized(self):
        self.close_connection = True
        self.reply(200, b"s" * self.number, Connection="close")

    def at_chunked(self):
        self.close_connection = True
        self.start(Transfer_Encoding="chunked", Connection="close")
        left = self.number
        while left:
            n = min(left, 60000)
            self.chunk(b"c" * n)
            left -= n
        self.wfile.write(b"0\r\n\r\n")

    def at_until_close(self):
        self.close_connection = True
        self.start(Connection="close")
        if self.command != "HEAD":
            self.wfile.write(b"u" * self.number)

    def at_echo(self):
        self.reply(200, json.dumps({"method": self.command, "target": self.path, "headers": list(self.headers.items()), "size": self.recorded.size,
                                    "digest": self.recorded.digest}), Content_Type="application/json")

    def at_upload(self):
        self.reply(200, f"{self.recorded.size} {self.recorded.digest}\n")

    def at_slow(self):
        time.sleep(float(self.query.get("seconds", 0.2)))
        self.reply(200, b"slow\n")

    def at_status(self):
        code = int(self.query["code"])
        self.send_response(code)
        if code not in (204, 304):
            self.send_header("Content-Length", "0")
        self.end_headers()

    def at_redirect(self):
        self.reply(302, b"elsewhere\n", Location=self.query["to"])

    def at_header(self):
        self.reply(200, b"ok\n", X_Echo=self.headers.get(self.query["name"]) or "(none)")

    def at_value(self):
        value, how = (self.headers.get(self.query["name"]) or "(none)").encode(), self.query.get("how", "plain")
        text = b"before " + value + b" after\n"
        if how == "chunks":  # a border at every place
            self.start(Transfer_Encoding="chunked", Content_Type="text/plain")
            for i in range(len(text)):
                self.chunk(text[i:i + 1])
                time.sleep(0.001)
            self.wfile.write(b"0\r\n\r\n")
        elif how == "base64":
            self.reply(200, b"before " + base64.b64encode(value) + b" after\n", Content_Type="text/plain")
        elif how == "percent":
            self.reply(200, b"".join(b"%%%02X" % c for c in value), Content_Type="text/plain")
        elif how == "gzip":
            self.reply(200, gzip.compress(text), Content_Type="text/plain", Content_Encoding="gzip")
        elif how == "late":  # near the end of what is promised
            self.reply(200, b"x" * self.number + text, Content_Type="text/plain")
        elif how == "json":
            self.reply(200, json.dumps({"you said": value.decode()}), Content_Type="application/json")
        elif how == "bytes":
            self.reply(200, text, Content_Type="application/octet-stream")
        else:
            self.reply(200, text, Content_Type="text/plain")

    def at_ws(self):
        key = (self.headers.get("Sec-WebSocket-Key") or "").encode()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        self.start(101, Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Accept=accept)
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            mask = self.rfile.read(4)
            data = bytes(c ^ mask[i % 4] for i, c in enumerate(self.rfile.read(size)))
            length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
            self.wfile.write(b"\x81" + length + data)


# ---- Bytes as they came ---------------------------------------------------------------------------------------------------


def readings(raw, prefer):
    """The requests in these bytes as a lax server understands them. `prefer` is "te" (a chunked encoding wins over a length), "cl" (the
    first length wins) or "last" (the last one). Two servers that differ here are what request smuggling lives on."""
    found = []
    while raw:
        head, blank, rest = re.split(rb"(\r?\n\r?\n)", raw, maxsplit=1) if re.search(rb"\r?\n\r?\n", raw) else (raw, b"", b"")
        if not blank:
            return found, raw
        lines = re.split(rb"\r?\n", head)
        lengths = [int(m.group(1)) for x in lines if (m := re.match(rb"(?i)content-length[ \t]*:[ \t]*\+?(\d+)", x))]
        chunked = any(re.match(rb"(?i)[ \t]*transfer-encoding[ \t]*:.*chunked", x) for x in lines)
        if chunked and (prefer == "te" or not lengths):
            body, rest = unchunk(rest)
            if body is None:
                return found, raw
        else:
            n = (lengths[-1] if prefer == "last" else lengths[0]) if lengths else 0
            if len(rest) < n:
                return found, raw
            body, rest = rest[:n], rest[n:]
        found.append((lines[0], lines[1:], body))
        raw = rest
    return found, b""


def unchunk(data):
    body = b""
    while True:
        line, end, data = data.partition(b"\n")
        m = re.match(rb"[ \t]*(?:0x)?([0-9a-fA-F]+)", line)
        if not end or not m:
            return None, b""
        n = int(m.group(1), 16)
        if n == 0:
            while True:  # trailers
                line, end, data = data.partition(b"\n")
                if not end:
                    return None, b""
                if not line.strip():
                    return body, data
        if len(data) < n + 1:
            return None, b""
        body, data = body + data[:n], re.sub(rb"^\r?\n", b"", data[n:], count=1)


class Recorder:
    """Keeps the bytes of every connection, and answers what it takes for a request with `response`, bytes or a function of (lines) -> bytes.
    With `hang_up` it closes after that."""
    OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"

    def __init__(self, port=80, response=OK, address="::", certificate=None, hang_up=False):
        self.response, self.hang_up, self.connections = response, hang_up, []
        self.context = server_context(certificate) if certificate else None
        self.server = Threads(listener(address, port), RecorderHandler, self)

    def close(self):
        self.server.close()

    def raw(self):
        return b"".join(bytes(c) for c in self.connections)

    def understood(self):
        """Request lines and Host fields by every reading."""
        out = set()
        for c in self.connections:
            for prefer in ("te", "cl", "last"):
                for line, fields, _ in readings(bytes(c), prefer)[0]:
                    hosts = tuple(f.split(b":", 1)[1].strip() for f in fields if f.lower().startswith(b"host") and b":" in f)
                    out.add((line, hosts))
        return out


class RecorderHandler(socketserver.BaseRequestHandler):
    def handle(self):
        owner, kept = self.server.owner, bytearray()
        if owner.context:
            self.request = owner.context.wrap_socket(self.request, server_side=True)
        owner.connections.append(kept)
        answered = 0
        try:
            while data := self.request.recv(65536):
                kept += data
                found, _ = readings(bytes(kept), "te")
                for line, fields, _ in found[answered:]:
                    r = owner.response
                    self.request.sendall(r([line, *fields]) if callable(r) else r)
                answered = max(answered, len(found))
                if answered and owner.hang_up:
                    return
        except OSError:
            pass
        finally:
            if owner.context:
                self.request.close()


# ---- TCP and UDP ----------------------------------------------------------------------------------------------------------


class Echo:
    """Gives every byte back; passes on the end of input only after the last byte. One thread, any number of connections."""

    def __init__(self, port=7, address="::"):
        self._listener = listener(address, port, 4096)
        self._listener.setblocking(False)
        self.accepted, self.open, self.most, self.received = 0, 0, 0, 0
        self.addresses = []
        self._wake, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._stop.close()
        self._thread.join()
        self._listener.close()
        self._wake.close()

    def _serve(self):
        chooser = selectors.DefaultSelector()
        chooser.register(self._listener, selectors.EVENT_READ)
        chooser.register(self._wake, selectors.EVENT_READ)
        while True:
            for key, mask in chooser.select():
                if key.fileobj is self._wake:
                    for k in list(chooser.get_map().values()):
                        if k.data is not None:
                            k.fileobj.close()
                    return chooser.close()
                if key.fileobj is self._listener:
                    self._accept(chooser)
                else:
                    self._move(chooser, key.fileobj, key.data, mask)

    def _accept(self, chooser):
        for _ in range(256):
            try:
                c, _ = self._listener.accept()
            except OSError:
                return
            c.setblocking(False)
            self.accepted += 1
            self.open += 1
            self.most = max(self.most, self.open)
            self.addresses.append(plain_address(c.getsockname()[0]))
            chooser.register(c, selectors.EVENT_READ, bytearray())

    def _move(self, chooser, c, waiting, mask):
        try:
            if mask & selectors.EVENT_READ:
                data = c.recv(262144)
                self.received += len(data)
                waiting += data
                if not data:
                    c.setblocking(True)
                    c.settimeout(20)
                    c.sendall(waiting)
                    c.shutdown(socket.SHUT_WR)
                    return self._drop(chooser, c)
            if waiting:
                del waiting[:c.send(waiting)]
        except BlockingIOError:
            pass
        except OSError:
            return self._drop(chooser, c)
        room = selectors.EVENT_READ if len(waiting) < 1 << 20 else 0
        chooser.modify(c, room | (selectors.EVENT_WRITE if waiting else 0), waiting)

    def _drop(self, chooser, c):
        chooser.unregister(c)
        c.close()
        self.open -= 1


class Talker:
    """A TCP server whose conversation is a function (socket, server); what it returns or raises is kept in `results`."""

    def __init__(self, port, conversation, address="::", certificate=None):
        self.results, self.conversation = [], conversation
        self.context = server_context(certificate) if certificate else None
        self.changed = threading.Condition()
        self.server = Threads(listener(address, port), TalkerHandler, self)

    @property
    def accepted(self):
        return self.server.accepted

    def close(self):
        self.server.close()

    def result(self, seconds=10, number=0):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.results) > number, seconds):
                raise RuntimeError("the conversation did not end")
            return self.results[number]


class TalkerHandler(socketserver.BaseRequestHandler):
    def handle(self):
        owner = self.server.owner
        try:
            if owner.context:
                self.request = owner.context.wrap_socket(self.request, server_side=True)
            result = owner.conversation(self.request)
        except Exception as e:  # the test looks at it
            result = e
        finally:
            if owner.context:
                self.request.close()
        with owner.changed:
            owner.results.append(result)
            owner.changed.notify_all()


def read_all(sock):
    data = b""
    while piece := sock.recv(65536):
        data += piece
    return data


class UdpEcho:
    """Gives every datagram back with "echo:" before it."""

    def __init__(self, port, address="0.0.0.0"):
        self.received = []
        self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, port))
        self._stop = threading.Event()
        self._socket.settimeout(0.02)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while not self._stop.is_set():
            try:
                data, peer = self._socket.recvfrom(65535)
            except OSError:
                continue
            self.received.append(data)
            self._socket.sendto(b"echo:" + data, peer)

    def close(self):
        self._stop.set()
        self._thread.join()
        self._socket.close()


def git_backend(folder):
    """A route for /git/: smart HTTP by git-http-backend(1) over the repositories below a folder."""
    import subprocess

    def route(handler):
        parts = urlsplit(handler.path)
        env = {"GIT_PROJECT_ROOT": folder, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": unquote(parts.path)[4:], "QUERY_STRING": parts.query,
               "REQUEST_METHOD": handler.command, "CONTENT_TYPE": handler.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1",
               "GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""), "PATH": "/usr/bin:/bin", "GIT_CONFIG_COUNT": "1",
               "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*", "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", "")}
        out = subprocess.run(["git", "http-backend"], input=handler.text, env=env, capture_output=True).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        fields = [tuple(x.split(": ", 1)) for x in head.decode().split("\r\n") if ": " in x]
        code = next((int(v.split()[0]) for n, v in fields if n == "Status"), 200)
        handler.reply(code, body, [(n, v) for n, v in fields if n != "Status"])
    return route
