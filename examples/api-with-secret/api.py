"""api.py CERTIFICATE KEY PORT-FILE: an API over TLS on a free port of loopback, for whoever has the token in EXAMPLE_TOKEN."""
import http.server
import json
import os
import ssl
import sys

certificate, key, port_file = sys.argv[1:]
TOKEN = os.environ["EXAMPLE_TOKEN"]


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get_all("Authorization") != [f"Bearer {TOKEN}"]:
            self.answer(401, {"error": "who are you?"})
        elif self.path == "/v1/me":
            self.answer(200, {"name": "example user"})
        elif self.path == "/v1/echo":
            self.answer(200, {"you sent": dict(self.headers)})
        else:
            self.answer(200, {"keys": "everything"})

    do_POST = do_GET

    def log_message(self, *args):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(port_file + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(port_file + ".new", port_file)
server.serve_forever()
