"""Holds answers of a daemon against its own description (/v1/openapi.json).

    api = openapi.watch(d)          # from now on every d.ask() is checked
    ...
    api.uncovered()                 # operations that nobody has called with success

An answer that is not described as it is fails the test: its status, its type, its body, the data of server-sent events."""
import json
import re
import urllib.parse

import jsonschema

from zw import Failure


class Api:
    def __init__(self, document):
        self.document = document
        self.seen = set()  # (path, method, status)
        self.operations = []
        for path, methods in document["paths"].items():
            pattern = re.compile("^" + re.sub(r"\\\{[^/]*\\\}", "[^/]+", re.escape(path)) + "$")
            for method, operation in methods.items():
                self.operations.append((path.count("{"), pattern, path, method, operation))
        self.operations.sort(key=lambda o: o[0])  # texts before parameters

    def find(self, method, path):
        path = urllib.parse.urlsplit(path).path
        for _, pattern, name, m, operation in self.operations:
            if m == method.lower() and pattern.match(path):
                return name, operation
        return None, None

    def resolve(self, value):
        while "$ref" in value:
            target = self.document
            for word in value["$ref"][2:].split("/"):
                target = target[word]
            value = target
        return value

    def validate(self, schema, value, what):
        # References lead into the document, which stands beside the schema.
        whole = {**schema, "components": self.document["components"]}
        errors = sorted(jsonschema.Draft202012Validator(whole).iter_errors(value), key=lambda e: list(map(str, e.path)))
        if errors:
            lines = "\n".join(f"{'.'.join(map(str, e.path)) or 'the body'}: {e.message[:300]}" for e in errors[:5])
            raise Failure(f"{what} is not as described:\n{lines}\n{json.dumps(value)[:600]}")

    def check(self, method, path, answer, sent=None):
        """`sent`: the request's JSON, checked when the answer is a success."""
        name, operation = self.find(method, path)
        what = f"{method} {path}: {answer.status}"
        if operation is None:
            if answer.status < 400:
                raise Failure(f"{what}, of a route that is not described")
            return
        self.seen.add((name, method.lower(), answer.status))
        responses = operation["responses"]
        if str(answer.status) not in responses and answer.status < 400:
            raise Failure(f"{what} is not described")
        response = self.resolve(responses.get(str(answer.status), responses.get("default")))
        self.check_body(response, answer, what)
        if answer.status < 400 and sent is not None and "requestBody" in operation:
            self.validate(operation["requestBody"]["content"]["application/json"]["schema"], sent, f"{what}: the request")
        for header in response.get("headers", {}):
            if header.lower() not in answer.headers:
                raise Failure(f"{what} lacks {header}: {answer.headers}")

    def check_body(self, response, answer, what):
        content = response.get("content")
        if not content:
            if answer.body:
                raise Failure(f"{what} has a body: {answer.body[:200]!r}")
            return
        kind = answer.headers.get("content-type", "").split(";")[0]
        if kind not in content:
            raise Failure(f"{what} has the type {kind!r}, described are {list(content)}")
        if kind == "text/event-stream":
            self.check_events(content[kind]["x-events"], answer.body, what)
        elif kind.endswith("json"):
            self.validate(content[kind]["schema"], json.loads(answer.body), what)

    def check_events(self, known, body, what):
        for block in body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and ": " in line)
            if not fields:
                continue
            if fields.get("event") not in known:
                raise Failure(f"{what}: the event {fields.get('event')} is not described")
            self.validate(known[fields["event"]], json.loads(fields["data"]), f"{what}: the event {fields['event']}")

    def uncovered(self):
        done = {(path, method) for path, method, status in self.seen if status < 400}
        return sorted(f"{method.upper()} {path}" for _, _, path, method, _ in self.operations if (path, method) not in done)


def watch(d):
    """Checks every answer of Daemon.ask() from now on. The Api."""
    ask = d.ask
    api = Api(ask("GET", "/v1/openapi.json").json)

    def checked(method, path, body=None, **options):
        answer = ask(method, path, body, **options)
        if method != "HEAD":
            api.check(method, path, answer, body if isinstance(body, (dict, list)) else None)
        return answer

    d.ask = checked
    return api
