"""index.py FOLDER CERTIFICATE KEY PORT-FILE: a package index with one package, over TLS on a free port of loopback."""
import base64
import hashlib
import http.server
import os
import ssl
import sys
import zipfile

folder, certificate, key, port_file = sys.argv[1:]
WHEEL = "greeting-1.0-py3-none-any.whl"
FILES = {
    "greeting.py": 'def hello():\n    return "installed from the index"\n',
    "greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
    "greeting-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: example\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def make_wheel(path):
    record = "greeting-1.0.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as z:
        lines = []
        for name, text in FILES.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(text)}\n")
            z.writestr(name, text)
        z.writestr(record, "".join(lines) + f"{record},,\n")


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/simple/greeting/":
            self.answer(200, "text/html", f'<!DOCTYPE html><a href="/files/{WHEEL}">{WHEEL}</a>'.encode())
        elif self.path == f"/files/{WHEEL}":
            with open(os.path.join(folder, WHEEL), "rb") as f:
                self.answer(200, "application/octet-stream", f.read())
        else:
            self.answer(404, "text/plain", b"not here\n")

    def do_POST(self):
        with open(os.path.join(folder, "uploads"), "ab") as f:
            f.write(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.answer(200, "text/plain", b"thank you\n")

    def log_message(self, *args):
        pass


make_wheel(os.path.join(folder, WHEEL))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(port_file + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(port_file + ".new", port_file)
server.serve_forever()
