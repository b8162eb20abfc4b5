#!/usr/bin/python3 -B
"""MCP on standard input and output: handshake, revisions, every tool, progress, cancellation, the end of the input."""
import base64
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402
from daemon import Daemon, keys, wait_for  # noqa: E402
from mcp import META, MODERN, Stdio, message  # noqa: E402

NAMES = ["run_code", "run_command", "read_file", "write_file", "list_files", "sandbox_info"]


def check_schema(t, schema, value, where):
    """As much of JSON Schema as the tools use."""
    kinds = {"string": str, "object": dict, "array": list, "boolean": bool, "integer": int, "null": type(None)}
    wanted = schema.get("type", [])
    wanted = wanted if isinstance(wanted, list) else [wanted]
    t.check(not wanted or any(isinstance(value, kinds[k]) for k in wanted), f"{where} is of {wanted}: {value!r}")
    if isinstance(value, dict):
        for name in schema.get("required", []):
            t.check(name in value, f"{where}.{name} is there")
        for name, below in schema.get("properties", {}).items():
            if name in value:
                check_schema(t, below, value[name], f"{where}.{name}")
    if isinstance(value, list):
        for item in value:
            check_schema(t, schema.get("items", {}), item, where + "[]")


# ---- The protocol ----------------------------------------------------------------------------------------------------------


def test_the_handshake_agrees_on_a_revision(t):
    for asked, got in (("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"),
                       ("1999-01-01", "2025-11-25"), (MODERN, "2025-11-25")):
        c = Stdio(t)
        r = c.start(asked)
        t.equal(r["protocolVersion"], got, asked)
        t.equal(r["capabilities"], {"tools": {}}, "capabilities")
        t.equal(c.ask("ping")["result"], {}, "ping")
        t.equal(c.end(), 0, "exit status")


def test_the_stateless_revision_needs_no_handshake(t):
    c = Stdio(t)
    r = c.ask("server/discover", _meta=META)["result"]
    t.equal(r["supportedVersions"][0], MODERN, r)
    t.equal((r["resultType"], r["capabilities"]), ("complete", {"tools": {}}), r)
    r = c.ask("tools/call", name="run_command", arguments={"command": "echo hi"}, _meta=META)["result"]
    t.equal((r["resultType"], r["structuredContent"]["stdout"]), ("complete", "hi\n"), r)
    e = c.ask("tools/list", _meta={"io.modelcontextprotocol/protocolVersion": "2031-01-01"})["error"]
    t.equal((e["code"], e["data"]["requested"]), (-32022, "2031-01-01"), e)
    t.check(MODERN in e["data"]["supported"], e)
    t.equal(c.ask("initialize", _meta=META)["error"]["code"], -32601, "there is no handshake")


def test_tools_are_described(t):
    c = Stdio(t)
    c.start()
    tools = c.ask("tools/list")["result"]["tools"]
    t.equal([x["name"] for x in tools], NAMES, "names")
    for x in tools:
        t.equal((x["inputSchema"]["type"], x["outputSchema"]["type"]), ("object", "object"), x["name"])
        t.check("sandbox" in x["inputSchema"]["properties"] and not x["inputSchema"]["additionalProperties"], x["name"])
        t.equal(x["annotations"]["readOnlyHint"], x["name"] in ("read_file", "list_files", "sandbox_info"), x["name"])
    c.call("write_file", path="f", content="x")
    calls = {"run_code": {"code": "1"}, "run_command": {"command": "true"}, "read_file": {"path": "f"},
             "write_file": {"path": "f", "content": "y"}, "list_files": {}, "sandbox_info": {}}
    for x in tools:
        r = c.call(x["name"], **calls[x["name"]])
        t.check(not r.error, r.all)
        check_schema(t, x["outputSchema"], r.data, x["name"])


def test_what_is_no_request_is_told(t):
    c = Stdio(t)
    c.start()
    c.write(b"{nonsense\n")
    t.equal(c.read()["error"]["code"], -32700, "no JSON")
    c.write(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n')
    t.equal(c.read()["error"]["code"], -32600, "a batch")
    c.write(b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n')
    t.equal(c.read()["error"]["code"], -32600, "an id")
    c.write(b'\n  \n{"jsonrpc":"2.0","id":"a","method":"ping"}\r\n')
    t.equal(c.read()["id"], "a", "blank lines are nothing, an id may be a text")
    t.equal(c.ask("resources/list")["error"]["code"], -32601, "a method")
    for name, arguments in (("nothing", {}), ("run_command", {}), ("run_command", {"command": 7}), ("run_command", {"command": "x", "more": 1}),
                            ("run_code", {"code": "1", "timeout_seconds": 0}), ("read_file", {"path": ""}), ("list_files", {"depth": 65}),
                            ("run_command", {"command": "x", "policy": {}}), ("write_file", {"path": "a", "content": "b", "encoding": "rot13"})):
        t.equal(c.ask("tools/call", name=name, arguments=arguments)["error"]["code"], -32602, f"{name} {arguments}")


def test_a_message_that_is_too_long_is_not_kept(t):
    c = Stdio(t)
    c.start()
    c.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"y" * (17 << 20) + b'"}}\n')
    t.equal(c.read(60)["error"]["code"], -32600, "too long")
    t.equal(c.ask("ping")["result"], {}, "and goes on")


# ---- Tools -----------------------------------------------------------------------------------------------------------------


def test_commands_tell_output_and_end(t):
    c = Stdio(t)
    c.start()
    r = c.call("run_command", command="echo out; echo err >&2; exit 3")
    t.equal((r.data["stdout"], r.data["stderr"], r.data["exit_code"], r.data["status"]), ("out\n", "err\n", 3, "exited"), r.all)
    t.check(r.error and "exit code 3" in r.text and "out" in r.text and "err" in r.text, r.text)
    r = c.call("run_command", command="kill -9 $$")
    t.equal((r.data["status"], r.data["signal"], r.data["exit_code"]), ("signaled", "SIGKILL", None), r.all)
    r = c.call("run_command", command="pwd", cwd="/tmp")
    t.equal((r.data["stdout"], r.error), ("/tmp\n", False), r.all)
    r = c.call("run_command", command="echo before; sleep 600", timeout_seconds=0.5)
    t.equal((r.data["status"], r.data["stdout"], r.error), ("timeout", "before\n", True), r.all)
    r = c.call("run_command", command=r"printf 'a\377b\0c'")
    t.equal(r.data["stdout"], "a�b�c", "bytes that are no text")
    r = c.call("run_command", command="head -c 5000000 /dev/zero | tr '\\0' x")
    t.check(r.data["truncated"] and len(r.data["stdout"]) < 1100000 and len(r.text) < 70000, "bounded")


def test_code_keeps_its_state(t):
    c = Stdio(t)
    c.start()
    r = c.call("run_code", code="x = 20\nprint('printed')\nx + 1")
    t.equal((r.data["status"], r.data["stdout"], r.data["text"], r.data["fresh"], r.data["context"]), ("ok", "printed\n", "21", True, "python"), r.all)
    t.check("printed" in r.text and "21" in r.text, r.text)
    r = c.call("run_code", code="x * 2", context="python")
    t.equal((r.data["text"], r.data["fresh"], r.data["execution_count"]), ("40", False, 2), "the name that was told is the same context")
    t.equal(c.call("run_code", code="'x' in globals()", context="other").data["text"], "False", "another context")
    r = c.call("run_code", code="1/0")
    t.check(r.error and r.data["error"]["name"] == "ZeroDivisionError" and "ZeroDivisionError" in r.text, r.all)
    r = c.call("run_code", code="import os; os._exit(3)")
    t.equal((r.data["status"], r.error), ("died", True), r.all)
    t.equal(c.call("run_code", code="'x' in globals()").data["fresh"], True, "a fresh one")
    r = c.call("run_code", code="a=7; echo $a", language="bash")
    t.equal(r.data["stdout"], "7\n", r.all)
    r = c.call("run_code", code="1", language="cobol")
    t.check(r.error and "cobol" in r.text, r.text)
    r = c.call("run_code", code="1", language="bash", context="other")
    t.check(r.error and "language" in r.text, "a name has one language")


def test_figures_are_images(t):
    c = Stdio(t)
    c.start()
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n....").decode()
    code = f"import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode('{png}')\nP()"
    r = c.call("run_code", code=code)
    t.equal([(i["data"].replace("\n", ""), i["mimeType"]) for i in r.images], [(png, "image/png")], r.all)


def test_a_timeout_keeps_the_context(t):
    c = Stdio(t)
    c.start()
    c.call("run_code", code="x = 1")
    r = c.call("run_code", code="while True: pass", timeout_seconds=1)
    t.equal((r.data["status"], r.data["context_state"], r.error), ("timeout", "kept", True), r.all)
    t.equal(c.call("run_code", code="x").data["text"], "1", "its state")


def test_files_are_read_and_written(t):
    c = Stdio(t)
    c.start()
    r = c.call("write_file", path="a/b.txt", content="héllo\n")
    t.equal((r.data, r.error), ({"path": "/home/user/a/b.txt", "size": 7}, False), r.all)
    r = c.call("read_file", path="a/b.txt")
    t.equal((r.data["content"], r.data["encoding"], r.data["size"], r.data["truncated"]), ("héllo\n", "utf-8", 7, False), r.all)
    r = c.call("read_file", path="a/b.txt", limit=2)
    t.equal((r.data["content"], r.data["truncated"]), ("h", True), "no half of a character")
    t.equal(c.call("read_file", path="a/b.txt", offset=3).data["content"], "llo\n", "offset")
    t.equal(c.call("read_file", path="a/b.txt", offset=100).data["content"], "", "behind the end")
    raw = bytes(range(256)) * 1000
    c.call("write_file", path="raw", content=base64.b64encode(raw).decode(), encoding="base64")
    r = c.call("read_file", path="raw")
    t.equal((base64.b64decode(r.data["content"]), r.data["encoding"]), (raw, "base64"), "bytes")
    t.equal(c.call("run_command", command="wc -c < raw").data["stdout"].strip(), str(len(raw)), "as programs see it")
    big = "x" * 3000000
    c.call("write_file", path="big", content=big)
    r = c.call("read_file", path="big", limit=8388608)
    t.equal(r.data["content"] == big, True, "a big one")
    t.check(c.call("read_file", path="big").data["truncated"], "the default has an end")
    r = c.call("list_files", depth=2)
    t.equal({e["path"]: (e["type"], e["size"]) for e in r.data["entries"]}["/home/user/a/b.txt"], ("file", 7), r.all)
    for name, arguments, word in (("read_file", {"path": "nothing"}, "no such file"), ("read_file", {"path": "a"}, "directory"),
                                  ("write_file", {"path": "/usr/x", "content": ""}, "read"), ("list_files", {"path": "/nothing"}, "no such file"),
                                  ("write_file", {"path": "x", "content": "!", "encoding": "base64"}, "base64")):
        r = c.call(name, **arguments)
        t.check(r.error and word in r.text, f"{name} {arguments}: {r.all}")
    c.call("run_command", command="mkfifo pipe")
    t.check(c.call("read_file", path="pipe").error, "a FIFO is refused at once")


def test_the_sandbox_tells_what_it_is(t):
    c = Stdio(t, policy={"network": {"allow": [{"host": "pypi.org", "ports": [443]}]}, "limits": {"memory": "300M"}})
    c.start()
    r = c.call("sandbox_info")
    t.equal(r.data["network"], {"access": "rules", "allow": [{"host": "pypi.org", "ports": [443]}]}, r.data["network"])
    t.equal(r.data["limits"]["memory_bytes"], 300 << 20, r.data["limits"])
    t.check("python" in r.data["languages"] and "bash" in r.data["languages"], r.data["languages"])
    t.equal(len(set(r.data["languages"])), len(r.data["languages"]), "each once")
    t.check("pypi.org" in r.text and "/home/user" in r.text, r.text)


def test_what_is_denied_is_told_with_its_remedy(t):
    c = Stdio(t)
    c.start()
    r = c.call("run_command", command="python3 -c 'import ctypes; print(ctypes.CDLL(None).mount(b\"a\", b\"/mnt\", b\"tmpfs\", 0, None))'")
    found = [d for d in r.data["denials"] if d["kind"] == "syscall"]
    t.equal([(d["name"], d["count"]) for d in found], [("mount", 1)], r.all)
    t.check("mount" in r.text and "syscalls.allow" in r.text and found[0]["rule"] and found[0]["allow"], r.text)
    t.equal(c.call("run_command", command="true").data["denials"], [], "those of the call alone")
    r = c.call("run_code", code="import socket\nsocket.create_connection(('192.0.2.1', 443), 5)")
    t.check(r.error and any(d["kind"] == "network" and "network.allow" in d["allow"] for d in r.data["denials"]), r.all)


def test_denials_are_those_of_the_call(t):
    c = Stdio(t)
    c.start()
    code = "import ctypes\nfor i in range({}): ctypes.CDLL(None).mount(b'a', b'/mnt', b'tmpfs', 0, None)"
    told = lambda r: [(d["name"], d["count"]) for d in r.data["denials"]]
    for i in range(12):  # the record of a sandbox sums up what repeats
        t.equal(told(c.call("run_command", command=f"python3 -c \"{code.format(1)}\"")), [("mount", 1)], f"call {i}")
    t.equal(told(c.call("run_code", code=code.format(30))), [("mount", 30)], "of an interpreter")
    t.equal(told(c.call("run_code", code=code.format(2))), [("mount", 2)], "only the newest")
    t.equal(told(c.call("run_code", code=code.format(3) + "\nimport os; os._exit(1)")), [("mount", 3)], "of one that dies")
    t.equal(told(c.call("run_code", code="1")), [], "of the next one")
    n = c.send("tools/call", name="run_command", arguments={"command": "while [ ! -e go ]; do sleep 0.05; done"})
    t.equal(told(c.call("run_code", code=code.format(1) + "\nopen('go', 'w')")), [("mount", 1)], "beside another call")
    t.equal(told(c.result(c.answer(n))), [], "which is denied nothing")


def test_sandboxes_have_names(t):
    c = Stdio(t)
    c.start()
    c.call("write_file", path="f", content="1", sandbox="one")
    t.check(c.call("read_file", path="f", sandbox="two").error, "another sandbox")
    t.check(c.call("read_file", path="f").error, "nor the usual one")
    t.equal(c.call("read_file", path="f", sandbox="one").data["content"], "1", "the same")


def test_calls_run_side_by_side(t):
    c = Stdio(t)
    c.start()
    waits = c.send("tools/call", name="run_command", arguments={"command": "while [ ! -e go ]; do sleep 0.05; done; echo went"})
    t.check(not c.call("write_file", path="go", content="").error, "while the other one waits")
    t.equal(c.result(c.answer(waits)).data["stdout"], "went\n", "both")


# ---- Progress and cancellation ---------------------------------------------------------------------------------------------


def test_output_is_told_while_it_runs(t):
    c = Stdio(t)
    c.start()
    n = c.send("tools/call", name="run_command", arguments={"command": "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"},
               _meta={"progressToken": "p1"})
    m = c.read()
    t.equal((m["method"], m["params"]["progressToken"], m["params"]["message"]), ("notifications/progress", "p1", "first\n"), m)
    c.call("write_file", path="go", content="")
    t.check(c.result(c.answer(n)).data["stdout"] == "first\nlast\n", "the result has all")
    before = m["params"]["progress"]
    for note in c.notes:
        t.check(note["params"]["progress"] > before, "it grows")
        before = note["params"]["progress"]


def test_a_canceled_call_stops(t):
    c = Stdio(t)
    c.start()
    c.call("run_code", code="x = 1")
    for name, arguments in (("run_code", {"code": "import time\nprint('up', flush=True)\ntime.sleep(600)"}), ("run_command", {"command": "echo up; sleep 600"})):
        n = c.send("tools/call", name=name, arguments=arguments, _meta={"progressToken": 1})
        t.equal(c.read()["params"]["message"], "up\n", "it runs")
        c.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n, "reason": "test"}})
        t.equal(c.call("run_code", code="x").data["text"], "1", "the context stays, and is free")
        t.check(not any(m.get("id") == n for m in c.notes), "no answer")
    t.until(lambda: "sleep 600" not in c.call("run_command", command="cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep [6]00'").data["stdout"],
            20, "the program has ended")


# ---- The end ---------------------------------------------------------------------------------------------------------------


def test_the_end_of_the_input_ends_everything(t):
    c = Stdio(t)
    c.start()
    c.call("run_command", command="(setsid sleep 601 &) ; true")
    c.send("tools/call", name="run_command", arguments={"command": "sleep 602"})
    c.send("tools/call", name="run_code", arguments={"code": "import time; time.sleep(603)"}, _meta={"progressToken": 1})
    c.ask("ping")
    began = time.monotonic()
    t.equal(c.end(), 0, "exit status")
    t.check(time.monotonic() - began < 15, "soon")


def test_a_signal_ends_it_in_order(t):
    c = Stdio(t)
    c.start()
    c.call("run_command", command="true")
    c.process.send_signal(signal.SIGTERM)
    t.equal(c.process.wait(30), 0, "exit status")


def test_input_may_be_a_file(t):
    lines = [message(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
             message(2, "tools/list", {})]
    path = t.file("\n".join(json.dumps(x) for x in lines) + "\n", "in")
    with open(path, "rb") as f:
        r = subprocess.run([zw.ZWINGER, "mcp"], stdin=f, capture_output=True, timeout=60, env=zw.caller_environment({"TMPDIR": t.folder("tmp")}))
    t.equal((r.returncode, [json.loads(x)["id"] for x in r.stdout.splitlines()]), (0, [1, 2]), r.stderr)


def test_a_wrong_policy_is_refused_at_the_start(t):
    bad = t.file("version: 1\nlimits: {memory: lots}\n", "bad.yaml")
    for flags, word in ((["--policy", bad], "limits.memory"), (["--policy", "/nothing"], "/nothing"), (["--policy"], "value"), (["--more"], "--more")):
        r = subprocess.run([zw.ZWINGER, "mcp", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=zw.caller_environment())
        t.equal((r.returncode, r.stdout), (125, ""), flags)
        t.contains(r.stderr, word, "the fault")


# ---- Through a daemon ------------------------------------------------------------------------------------------------------


def serve(t, *flags, **options):
    loose = json.dumps({"version": 1, "enforcement": "best-effort"})
    return Daemon(t, "--ceiling", t.file(loose, "ceiling.yaml"), "--policy", t.file(loose, "policy.yaml"), *flags, **options)


def live(d):
    return len(d.ask("GET", "/v1/sandboxes").json["sandboxes"])


def through(t, d, *flags):
    return Stdio(t, daemon=flags or ("--url", d.url, "--key-file", d.key_file))


def test_a_daemon_serves_both_revisions_and_keeps_no_sandbox_of_a_client_that_has_ended(t):
    d = serve(t)
    for version in ("2025-11-25", "2025-06-18", None):
        c = through(t, d)
        meta = {} if version else {"_meta": META}
        if version:
            t.equal(c.start(version)["protocolVersion"], version, "revision")
        else:
            t.equal(c.ask("server/discover", **meta)["result"]["resultType"], "complete", "discover")
        t.equal(len(c.ask("tools/list", **meta)["result"]["tools"]), 6, "tools")
        r = c.result(c.ask("tools/call", name="run_command", arguments={"command": "echo hi; echo é > f"}, **meta))
        t.equal(r.data["stdout"], "hi\n", r.all)
        t.equal(c.result(c.ask("tools/call", name="run_code", arguments={"code": "open('f').read()"}, **meta)).data["text"], "é\\n", "the same sandbox")
        t.equal(c.ask("tools/call", name="nö such\n", arguments={}, **meta)["error"]["code"], -32602, "a name that fits no header")
        t.equal(live(d), 1, "its sandbox is the daemon's")
        t.equal(c.end(), 0, "exit status")
        t.check(wait_for(lambda: live(d) == 0, 20), "it has ended with the client")


def test_clients_of_one_key_have_sandboxes_of_their_own(t):
    d = serve(t)
    a, b = through(t, d), through(t, d)
    for c in (a, b):
        t.check(not c.result(c.ask("tools/call", name="write_file", arguments={"path": "f", "content": "x"}, _meta=META)).error, "a file")
    t.equal(live(d), 2, "two")
    a.end()
    t.check(wait_for(lambda: live(d) == 1, 20), "one has ended")
    t.equal(b.result(b.ask("tools/call", name="read_file", arguments={"path": "f"}, _meta=META)).data["content"], "x", "the other goes on")


def test_progress_and_cancellation_go_through(t):
    d = serve(t)
    c = through(t, d)
    c.start()
    c.call("run_code", code="x = 1")
    for meta in ({}, META):
        n = c.send("tools/call", name="run_command", arguments={"command": "echo first; while [ ! -e go ]; do sleep 0.05; done; rm go; echo last"},
                   _meta={"progressToken": "p1", **meta})
        m = c.read()
        t.equal((m["method"], m["params"]["progressToken"], m["params"]["message"]), ("notifications/progress", "p1", "first\n"), m)
        c.call("write_file", path="go", content="")
        t.equal(c.result(c.answer(n)).data["stdout"], "first\nlast\n", "the result")
        n = c.send("tools/call", name="run_code", arguments={"code": "import time\nprint('up', flush=True)\ntime.sleep(600)"}, _meta={"progressToken": 1, **meta})
        t.equal(c.read()["params"]["message"], "up\n", "it runs")
        c.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n, "reason": "test"}})
        t.equal(c.call("run_code", code="x").data["text"], "1", "the context stays, and is free")
        t.check(not any(m.get("id") == n for m in c.notes), "no answer")


def test_the_end_of_the_input_ends_calls_at_the_daemon(t):
    d = serve(t)
    c = through(t, d)
    c.start()
    c.send("tools/call", name="run_command", arguments={"command": "echo up; sleep 602"}, _meta={"progressToken": 1})
    t.equal(c.read()["params"]["message"], "up\n", "it runs")
    t.equal(c.end(), 0, "exit status")
    t.check(wait_for(lambda: live(d) == 0, 20), "nothing is left")
    c = through(t, d)
    c.start()
    c.call("run_command", command="true")
    c.process.send_signal(signal.SIGTERM)
    t.equal(c.process.wait(30), 0, "a signal")
    t.check(wait_for(lambda: live(d) == 0, 20), "nothing is left")


def test_a_daemon_that_is_gone_or_new_is_told(t):
    d = serve(t)
    address = d.url.split("//")[1]
    c = through(t, d)
    c.start()
    c.call("write_file", path="f", content="1")
    n = c.send("tools/call", name="run_command", arguments={"command": "echo up; sleep 604"}, _meta={"progressToken": 1})
    t.equal(c.read()["params"]["message"], "up\n", "it runs")
    d.process.kill()
    d.process.wait()
    e = c.answer(n)["error"]
    t.equal((e["code"], e["data"]["reason"]), (-32603, "daemon_lost"), e)
    e = c.ask("tools/list")["error"]
    t.check(e["data"]["reason"] == "daemon_unreachable" and "zwinger serve" in e["message"], e)
    again = serve(t, state=d.state, listen=(address,))
    t.equal(len(c.ask("tools/list")["result"]["tools"]), 6, "what needs no sandbox goes on")
    r = c.ask("tools/call", name="read_file", arguments={"path": "f"})
    t.check(c.result(r).error, "the file is gone with the sandbox")
    again.process.kill()
    again.process.wait()
    third = serve(t, state=d.state, listen=(address,))
    e = c.ask("tools/call", name="run_command", arguments={"command": "true"})["error"]
    t.check(e["data"]["reason"] in ("session_lost", "daemon_unreachable"), e)
    t.check(not c.call("run_command", command="true").error, "the next one works")
    t.equal(c.end(), 0, "exit status")
    third.key = d.key
    t.check(wait_for(lambda: live(third) == 0, 20), "nothing is left")


def test_a_daemon_is_found_as_by_the_other_verbs(t):
    d = serve(t, "--tls", "self-signed")
    socket = os.path.join(d.state, "zwinger.sock")
    for flags in (("--key-file", d.key_file, "--state", d.state), ("--url", "unix:" + socket), ("--state", d.state),
                  ("--url=" + d.url, "--key-file=" + d.key_file, "--cacert", os.path.join(d.state, "tls/cert.pem"))):
        c = through(t, d, *flags)
        c.start()
        t.equal(c.call("run_command", command="echo hi").data["stdout"], "hi\n", flags)
        t.equal(c.end(), 0, flags)
    c = through(t, d, "--url", d.url, "--key-file", d.key_file, "--cacert", "/etc/ssl/certs/ca-certificates.crt")
    e = c.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "x", "version": "1"})["error"]
    t.equal(e["data"]["reason"], "certificate", e)
    small = t.file(json.loads(keys(t, d, "add", "--scope", "use", "--json").stdout)["key"], "small")
    c = through(t, d, "--url", "unix:" + socket, "--key-file", small)
    e = c.ask("tools/call", name="run_command", arguments={"command": "true"}, _meta=META)["error"]
    t.equal((e["data"]["reason"], e["data"]["status"]), ("refused", 403), e)


class Liar(http.server.BaseHTTPRequestHandler):
    """Opens sessions as a daemon does, and answers calls of a tool with the next of `answers`: (status, type, body)."""
    answers = []

    def do_POST(self):
        m = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, kind, body = 200, "application/json", json.dumps({"jsonrpc": "2.0", "id": m.get("id"), "result": {"protocolVersion": "2025-11-25"}}).encode()
        if m["method"] == "tools/call":
            status, kind, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Mcp-Session-Id", "s1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def do_DELETE(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_what_is_no_answer_is_told_and_never_passed_on(t):
    cases = [
        ((200, "application/json", b"no JSON"), "daemon_lost"),
        ((200, "application/json", b'{"id": 2, "result": {}}'), "daemon_lost"),
        ((200, "text/event-stream", b"event: message\ndata: half"), "daemon_lost"),
        ((200, "text/event-stream", b"data: " + b"x" * 70000000), "too_large"),
        ((204, "text/plain", b""), "daemon_lost"),
        ((502, "text/html", b"<h1>a proxy</h1>\n"), "refused"),
        ((401, "application/problem+json", b'{"message":"wrong key\\u001b[2J","hint":"zwinger keys add"}'), "refused"),
    ]
    Liar.answers = [answer for answer, _ in cases] + [(200, "text/event-stream", b': x\n\nevent: message\ndata: {"jsonrpc":"2.0",\ndata: "id":9,"result":{}}\n\n')]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    t.at_end(server.server_close)
    t.at_end(server.shutdown)
    c = Stdio(t, daemon=("--url", f"http://127.0.0.1:{server.server_address[1]}"))
    c.start()
    for answer, reason in cases:
        e = c.ask("tools/call", name="x", arguments={})["error"]
        t.equal(e["data"]["reason"], reason, f"{answer[2][:40]}: {e}")
        t.check("\x1b" not in e["message"], "nothing that steers a terminal")
    c.number = 8
    t.equal(c.ask("tools/call", name="x", arguments={}), {"jsonrpc": "2.0", "id": 9, "result": {}}, "one line, however it came")
    t.equal(c.end(), 0, "exit status")


def test_a_policy_is_not_chosen_at_a_daemon(t):
    for flags, word in ((["--url", "http://127.0.0.1:1", "--policy", "@python"], "operator"), (["--policy=@python", "--state=/nothing"], "operator"),
                        (["--url", "ftp://x"], "http://"), (["--url", "http://127.0.0.1:1", "--key-file", "/nothing"], "/nothing"),
                        (["--state", "/", "--json"], "--json")):
        r = subprocess.run([zw.ZWINGER, "mcp", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=zw.caller_environment())
        t.equal((r.returncode, r.stdout), (125, ""), flags)
        t.contains(r.stderr, word, "the fault")


if __name__ == "__main__":
    zw.main(globals())
