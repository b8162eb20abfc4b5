#!/usr/bin/python3 -B
"""The RPCs of a sandbox in E2B's form: processes and files over Connect, and the code interpreter."""
import base64
import json
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
from daemon_e2b import serve  # noqa: E402

PATIENCE = 60  # seconds


class Envd:
    def __init__(self, t, **wish):
        self.t, self.e2b = t, serve(t)
        self.facts = self.e2b.ask("POST", "/v2/sandboxes", {"templateID": "base", **wish}, 201).json
        self.id = self.facts["sandboxID"]
        self.headers = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": self.facts["envdAccessToken"]}

    def post(self, path, body, kind, **headers):
        return self.e2b.send("POST", path, body, {**self.headers, "Content-Type": kind, "Connect-Protocol-Version": "1", **headers},
                             self.e2b.daemon.connection(timeout=PATIENCE))

    def call(self, path, message, status=200, **headers):
        r = self.post(path, json.dumps(message).encode(), "application/json", **headers)
        self.t.equal(r.status, status, f"{path}: {r.body[:300]}")
        return r.json

    def stream(self, path, message, **headers):
        """(messages, what the last envelope says)"""
        text = json.dumps(message).encode()
        r = self.post(path, b"\0" + struct.pack(">I", len(text)) + text, "application/connect+json", **headers)
        self.t.equal((r.status, r.headers["content-type"]), (200, "application/connect+json"), r.body[:300])
        found, at = [], 0
        while at < len(r.body):
            flags, size = r.body[at], struct.unpack(">I", r.body[at + 1:at + 5])[0]
            found.append((flags, json.loads(r.body[at + 5:at + 5 + size])))
            at += 5 + size
        self.t.equal([flags for flags, _ in found], [0] * (len(found) - 1) + [2], "flags")
        return [m for _, m in found[:-1]], found[-1][1]

    def start(self, *argv, headers=None, **members):
        return self.stream("/process.Process/Start", {"process": {"cmd": argv[0], "args": list(argv[1:])}, **members}, **(headers or {}))

    def interpret(self, method, path, message=None, **headers):
        h = {**self.headers, "E2b-Sandbox-Port": "49999", "Content-Type": "application/json", **headers}
        return self.e2b.send(method, path, json.dumps(message).encode() if message is not None else None, h, self.e2b.daemon.connection(timeout=PATIENCE))

    def execute(self, **message):
        r = self.interpret("POST", "/execute", message)
        self.t.equal(r.status, 200, r.body[:300])
        return [json.loads(line) for line in r.body.decode("ascii").splitlines()]


def data_of(messages, kind):
    return b"".join(base64.b64decode(m["event"]["data"][kind]) for m in messages if kind in m["event"].get("data", {}))


def error_code(end):
    return end.get("error", {}).get("code")


def test_a_process_from_start_to_end(t):
    e = Envd(t, envVars={"COLOUR": "green"})
    messages, end = e.start("/bin/sh", "-c", "echo $COLOUR $SHAPE; echo bad >&2; exit 3", stdin=False,
                            process={"cmd": "/bin/sh", "args": ["-c", "echo $COLOUR $SHAPE; pwd; echo bad >&2; exit 3"], "envs": {"SHAPE": "round"}, "cwd": "~"})
    t.check(messages[0]["event"]["start"]["pid"] > 1, messages[0])
    t.equal((data_of(messages, "stdout"), data_of(messages, "stderr")), (b"green round\n/home/user\n", b"bad\n"), messages)
    t.equal((messages[-1]["event"]["end"], end), ({"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}, {}), messages)


def test_what_cannot_be_started(t):
    e = Envd(t)
    for config in ({"cmd": "/nowhere"}, {"cmd": "/bin/true", "cwd": "/nowhere"}, {"args": ["x"]}, {"cmd": "/bin/true", "cwd": "~other"},
                   {"cmd": "/bin/true", "envs": {"A": 1}}, {"cmd": "/bin/true", "args": "x"}):
        t.equal(error_code(e.stream("/process.Process/Start", {"process": config})[1]), "invalid_argument", config)
    t.equal(error_code(e.start("/bin/true", headers={"Authorization": "Basic " + base64.b64encode(b"nobody-here:").decode()})[1]), "unauthenticated", "user")
    t.equal(error_code(e.start("/bin/true", pty={"size": {"cols": 0, "rows": 1}})[1]), "invalid_argument", "size")
    t.equal(error_code(e.stream("/process.Process/Connect", {"process": {"pid": 99999}})[1]), "not_found", "unknown")


def test_bodies_that_are_no_message(t):
    e = Envd(t)
    start = "/process.Process/Start"
    for body in (b"", b"\0", b"\0\0\0\0\5{}", b"\1\0\0\0\2{}", b"\0\xff\xff\xff\xff{}", b"\0\0\0\0\2[]", b"\0\0\0\0\2{}\0\0\0\0\2{}"):
        r = e.post(start, body, "application/connect+json")
        t.check(r.status == 200 and b'"invalid_argument"' in r.body, f"{body}: {r.status} {r.body}")
    t.equal(e.post("/process.Process/List", b"[", "application/json").json["code"], "invalid_argument", "unary")
    t.equal(e.post("/process.Process/List", b"{}", "text/plain").status, 415, "type")
    t.equal(e.post("/process.Process/Dance", b"{}", "application/json").json["code"], "unimplemented", "method")
    r = e.e2b.send("POST", "/process.Process/List", b"{}", {**e.headers, "X-Access-Token": "wrong", "Content-Type": "application/json"})
    t.equal(r.status, 401, "token")


def test_the_time_of_a_call_is_that_of_the_process(t):
    e = Envd(t)
    messages, end = e.start("/bin/sh", "-c", "echo up; sleep 600", headers={"Connect-Timeout-Ms": "700"})
    t.equal(data_of(messages, "stdout"), b"up\n", "output")
    t.check(error_code(end) == "deadline_exceeded" or messages[-1]["event"]["end"]["exitCode"] == -1, (messages[-1], end))
    t.until(lambda: e.call("/process.Process/List", {}) == {"processes": []}, 20, "it has ended")


def test_an_idle_stream_sends_keepalives(t):
    e = Envd(t)
    messages, _ = e.start("/bin/sleep", "2.5", headers={"Keepalive-Ping-Interval": "1"})
    t.check([list(m["event"]) for m in messages][:2] == [["start"], ["keepalive"]], messages)


def test_a_background_process_with_input(t):
    e = Envd(t)
    native = e.e2b.daemon.ask("POST", f"/v1/sandboxes/{e.id}/processes", {"command": ["cat"], "stdin": True, "tag": "one"}).json
    which = {"process": {"tag": "one"}}
    listed = e.call("/process.Process/List", {})["processes"]
    t.equal([(p["pid"], p["tag"], p["config"]["cmd"]) for p in listed], [(native["pid"], "one", "cat")], listed)
    t.equal(e.call("/process.Process/SendInput", {**which, "input": {"pty": "YQ=="}}, 500)["code"], "internal", "wrong kind")
    t.equal(e.call("/process.Process/SendInput", {**which, "input": {"stdin": "%"}}, 400)["code"], "invalid_argument", "no base64")
    e.call("/process.Process/SendInput", {**which, "input": {"stdin": base64.b64encode(b"hello").decode()}})
    e.call("/process.Process/CloseStdin", which)
    t.until(lambda: e.call("/process.Process/List", {}) == {"processes": []}, 20, "it has ended")
    messages, end = e.stream("/process.Process/Connect", {"process": {"pid": native["pid"]}})
    t.equal((messages[-1]["event"]["end"]["exitCode"], end), (0, {}), "a late look")
    t.equal(e.call("/process.Process/SendSignal", {**which, "signal": "SIGNAL_SIGKILL"}, 404)["code"], "not_found", "a signal too late")


def test_files_by_rpc(t):
    e = Envd(t)
    made = e.call("/filesystem.Filesystem/MakeDir", {"path": "d/e"})["entry"]
    t.equal((made["path"], made["type"], made["permissions"], made["mode"]), ("/home/user/d/e", "FILE_TYPE_DIRECTORY", "drwxr-xr-x", 0o755), made)
    t.equal(e.call("/filesystem.Filesystem/MakeDir", {"path": "d/e"}, 409)["code"], "already_exists", "again")
    e.start("/bin/sh", "-c", "echo hello > d/f; ln -s f d/link; ln -s nowhere d/broken; mkfifo d/pipe; cd d; seq 1 1500 | sed s/^/x/ | xargs touch")
    stat = e.call("/filesystem.Filesystem/Stat", {"path": "~/d/link"})["entry"]
    t.equal((stat["type"], stat["symlinkTarget"], stat["size"].isdigit()), ("FILE_TYPE_FILE", "/home/user/d/f", True), stat)
    entries = e.call("/filesystem.Filesystem/ListDir", {"path": "d", "depth": 1})["entries"]
    t.equal(len(entries), 1505, "entries")
    kinds = {x["name"]: x["type"] for x in entries}
    t.equal((kinds["broken"], kinds["pipe"], kinds["e"]), ("FILE_TYPE_UNSPECIFIED", "FILE_TYPE_UNSPECIFIED", "FILE_TYPE_DIRECTORY"), "kinds")
    t.equal(e.call("/filesystem.Filesystem/ListDir", {"path": "d/f"}, 400)["code"], "invalid_argument", "a file")
    t.equal(e.call("/filesystem.Filesystem/Move", {"source": "d/f", "destination": "g/h"})["entry"]["path"], "/home/user/g/h", "moved")
    t.equal(e.call("/filesystem.Filesystem/Move", {"source": "d/f", "destination": "x"}, 404)["code"], "not_found", "gone")
    t.equal(e.call("/filesystem.Filesystem/Remove", {"path": "d"}), {}, "removed")
    t.equal(e.call("/filesystem.Filesystem/Remove", {"path": "d"}), {}, "again")
    t.equal(e.call("/filesystem.Filesystem/Stat", {"path": "d"}, 404)["code"], "not_found", "gone")
    t.equal(error_code(e.stream("/filesystem.Filesystem/WatchDir", {"path": "d"})[1]), "not_found", "watch")
    messages, end = e.stream("/filesystem.Filesystem/WatchDir", {"path": "/home/user/../user/."}, **{"Connect-Timeout-Ms": "500"})
    t.equal((messages[0], error_code(end)), ({"start": {}}, "deadline_exceeded"), "a watch whose time is over")


def test_the_interpreter(t):
    e = Envd(t, envVars={"COLOUR": "green"})
    lines = e.execute(code="import os\nprint('grüße')\nos.environ['COLOUR'] + os.environ['SHAPE']", env_vars={"SHAPE": "round"})
    t.equal([x["type"] for x in lines], ["number_of_executions", "stdout", "result", "end_of_execution"], lines)
    t.equal((lines[1]["text"], lines[2]["text"], lines[2]["is_main_result"], lines[2]["extra"]), ("grüße\n", "greenround", True, {}), lines)
    error = e.execute(code="1 / 0")[-2]
    t.equal((error["type"], error["name"], error["value"]), ("error", "ZeroDivisionError", "division by zero"), error)
    died = e.execute(code="import os; os._exit(3)")[-2]
    t.equal((died["type"], died["name"]), ("error", "UnexpectedEndOfExecution"), died)
    made = e.interpret("POST", "/contexts", {"language": "Bash ", "cwd": "/tmp"}).json
    t.equal((made["language"], made["cwd"]), ("bash", "/tmp"), made)
    t.equal(e.execute(code="pwd", context_id=made["id"])[1]["text"], "/tmp\n", "its folder")
    listed = e.interpret("GET", "/contexts").json
    t.check([x["language"] for x in listed][0] == "python" and made in listed, listed)
    t.equal(e.interpret("POST", f"/contexts/{made['id']}/restart").json, None, "restart")
    t.equal(e.interpret("DELETE", f"/contexts/{made['id']}").json, None, "removed")
    for message, status in (({"code": "1", "context_id": made["id"]}, 404), ({"code": {}}, 422), ({"code": "1", "language": "cobol"}, 500),
                            ({"code": "1", "context_id": "x", "language": "python"}, 400)):
        t.equal(e.interpret("POST", "/execute", message).status, status, message)
    t.equal(e.interpret("POST", "/execute", {"code": "1"}, **{"X-Access-Token": "wrong"}).status, 401, "token")


if __name__ == "__main__":
    tap.main(globals())
