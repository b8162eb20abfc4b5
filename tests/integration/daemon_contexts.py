#!/usr/bin/python3 -B
"""Contexts over the native interface: interpreters that keep their state, what they show, and how executions end."""
import base64
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller
PATIENCE = 60  # seconds that a client waits


class Contexts:
    """A daemon with one sandbox."""

    def __init__(self, t, **policy):
        self.t = t
        path = t.file(json.dumps({"version": 1, **LOOSE}), "policy.yaml")
        self.d = Daemon(t, "--ceiling", path, "--policy", path)
        wish = {"env": {"COLOUR": "green"}, "policy": {**LOOSE, **policy}}
        r = self.d.ask("POST", "/v1/sandboxes", wish)
        t.equal(r.status, 201, r.body)
        self.path = f"/v1/sandboxes/{r.json['id']}"

    def ask(self, method, path="", body=None, status=None, **options):
        r = self.d.ask(method, self.path + path, body, connection=self.d.connection(timeout=PATIENCE), **options)
        if status is not None:
            self.t.equal(r.status, status, f"{method} {path}: {r.body[:500]}")
        return r

    def make(self, language="python", **members):
        return self.ask("POST", "/contexts", {"language": language, **members}, 201).json

    def execute(self, code, context="python", **members):
        return self.ask("POST", f"/contexts/{context}/execute", {"code": code, **members}, 200).json

    def stream(self, code, context="python", **members):
        """[(event, data)]"""
        r = self.ask("POST", f"/contexts/{context}/execute", {"code": code, **members}, 200, headers={"Accept": "text/event-stream"})
        self.t.equal(r.headers["content-type"], "text/event-stream", "content type")
        blocks = [b.split("\n") for b in r.body.decode().split("\n\n") if b.startswith("event: ")]
        return [(lines[0][7:], json.loads(lines[1][6:])) for lines in blocks]

    def beside(self, code, context="python", **members):
        """An execution that goes on beside the test: a function that waits for its document."""
        found = []
        thread = threading.Thread(target=lambda: found.append(self.execute(code, context, **members)))
        thread.start()

        def wait():
            thread.join(PATIENCE)
            self.t.check(found, "the execution has no end")
            return found[0]

        return wait

    def wait_for_file(self, name):
        self.t.until(lambda: self.ask("GET", f"/files/stat?path={name}").status == 200, 20, lambda: f"{name} does not appear")


def state(c, context="python"):
    return c.ask("GET", f"/contexts/{context}", status=200).json["state"]


# ---- Life ------------------------------------------------------------------------------------------------------------------


def test_state_is_kept_between_executions(t):
    c = Contexts(t)
    first = c.execute("import os\nx = 20\nprint(os.environ['COLOUR'], os.getcwd())\nx + 1")
    t.equal((first["schema"], first["status"], first["text"], first["fresh"], first["execution_count"], first["context_state"]),
            ("zwinger.execution/1", "ok", "21", True, 1, "kept"), first)
    t.equal((first["stdout"], first["stdout_bytes"], first["stdout_truncated"], first["stderr"]), ("green /home/user\n", 17, False, ""), first)
    t.equal((first["reason"], first["error"]), (None, None), first)
    second = c.execute("x * 2.1")
    t.equal((second["text"], second["fresh"], second["execution_count"], second["context_id"]), ("42.0", False, 2, first["context_id"]), second)
    t.equal(c.ask("GET", "/stats", status=200).json["contexts"], 1, "contexts of the sandbox")


def test_a_context_is_made_listed_and_removed(t):
    c = Contexts(t)
    one = c.make(name="one", cwd="/tmp", env={"COLOUR": "red", "SHAPE": "round"})
    t.equal((one["language"], one["name"], one["cwd"], one["state"], one["executions"]), ("python", "one", "/tmp", "idle", 0), one)
    t.check(one["driver"] in ("ipython", "native"), one)
    t.equal(c.execute("import os; os.getcwd(), os.environ['COLOUR'], os.environ['SHAPE']", one["id"])["text"], "('/tmp', 'red', 'round')", "place")
    two = c.make("bash")
    listed = c.ask("GET", "/contexts", status=200).json
    t.equal(([x["id"] for x in listed["contexts"]], listed["next_cursor"]), ([one["id"], two["id"]], None), listed)
    page = c.ask("GET", "/contexts?limit=1", status=200).json
    t.equal([x["id"] for x in page["contexts"]], [one["id"]], page)
    t.equal([x["id"] for x in c.ask("GET", f"/contexts?cursor={page['next_cursor']}", status=200).json["contexts"]], [two["id"]], "second page")
    c.ask("DELETE", f"/contexts/{one['id']}", status=204)
    t.equal(c.ask("GET", f"/contexts/{one['id']}", status=404).code, "not_found", "afterwards")
    t.equal(c.ask("DELETE", f"/contexts/{one['id']}", status=404).code, "not_found", "again")
    t.until(lambda: c.ask("GET", "/stats", status=200).json["processes"] == 1, 20, lambda: c.ask("GET", "/stats").body)  # bash


def test_contexts_share_the_files_and_nothing_else(t):
    c = Contexts(t)
    one, two = c.make()["id"], c.make()["id"]
    t.equal(c.execute("x = 1; open('note', 'w').write('hello')", one)["status"], "ok", "the first")
    end = c.execute("print(open('note').read()); x", two)
    t.equal((end["status"], end["stdout"], end["error"]["name"]), ("error", "hello\n", "NameError"), end)


def test_the_environment_of_a_call_is_of_that_call(t):
    c = Contexts(t)
    code = "import os; os.environ.get('COLOUR'), os.environ.get('SHAPE')"
    t.equal(c.execute(code, env={"COLOUR": "blue", "SHAPE": "round"})["text"], "('blue', 'round')", "with it")
    t.equal(c.execute(code)["text"], "('green', None)", "without")
    c.execute("x = 1")
    for name in ("", "A=B"):
        r = c.ask("POST", "/contexts/python/execute", {"code": "1", "env": {name: "x"}})
        t.equal((r.status, r.code), (400, "bad_request"), r.body)
    t.equal(c.execute("x")["text"], "1", "what no environment can have costs nothing")


def test_what_cannot_be_asked(t):
    c = Contexts(t)
    for path, body, status, code in (
            ("/contexts", {"language": "cobol"}, 501, "not_supported"), ("/contexts", {"language": 1}, 400, "bad_request"),
            ("/contexts", {"cwd": "/nonexistent"}, 400, "bad_request"), ("/contexts", {"cwd": "/etc/hostname"}, 400, "bad_request"),
            ("/contexts", {"env": {"A=B": "x"}}, 400, "bad_request"), ("/contexts", {"colour": "x"}, 400, "bad_request"), ("/contexts/none/execute", {"code": "1"}, 404, "not_found"),
            ("/contexts/python/execute", {}, 400, "bad_request"), ("/contexts/python/execute", {"code": "1", "timeout": "soon"}, 400, "bad_request"),
            ("/contexts/python/execute", {"code": "1", "timeout": 0}, 400, "bad_request"), ("/contexts/bash/execute", {"code": "a\0b"}, 400, "bad_request")):
        r = c.ask("POST", path, body)
        t.equal((r.status, r.code), (status, code), f"{path} {body}: {r.body}")
    t.equal([x["language"] for x in c.ask("GET", "/contexts", status=200).json["contexts"]], ["python", "bash"], "left of them: the defaults")
    made = [c.make("bash")["id"] for _ in range(3)]
    t.equal(len(set(made)), 3, "ids")


def test_languages_are_those_that_are_there(t):
    c = Contexts(t)
    languages = c.d.ask("GET", "/v1/info").json["languages"]
    t.check({"python", "bash"} <= set(languages), languages)
    for language in set(languages) - {"java"}:  # it takes seconds, and has a test of its own
        t.equal(c.make(language)["state"], "idle", language)


def test_an_interpreter_that_is_not_there(t):
    c = Contexts(t, env={"set": {"PATH": "/nowhere"}})
    r = c.ask("POST", "/contexts", {"language": "python"})
    t.equal((r.status, r.code), (501, "not_supported"), r.body)
    t.check("python3" in r.json["message"], r.json)
    t.equal(c.ask("POST", "/contexts/python/execute", {"code": "1"}).code, "not_supported", "by language")
    t.equal(c.ask("GET", "/contexts", status=200).json["contexts"][1:], [], "left")


# ---- What is shown ---------------------------------------------------------------------------------------------------------


def test_several_results_of_one_execution(t):
    c = Contexts(t)
    end = c.execute("display('one'); display({'two': 2})\nimport pandas\npandas.DataFrame({'a': [1, 2]})")
    t.equal(end["status"], "ok", end)
    t.equal([r.get("main", False) for r in end["results"]], [False, False, True], end["results"])
    t.check("<table" in end["results"][2]["html"] and end["results"][2]["data"] is not None, end["results"][2])
    t.equal(end["text"], end["results"][2]["text"], "text")


def test_a_figure_comes_without_being_shown(t):
    c = Contexts(t)
    end = c.execute("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='l')\nplt.title('T')\nprint('plotted')", timeout=50)
    t.equal((end["status"], end["stdout"]), ("ok", "plotted\n"), end)
    figures = [r for r in end["results"] if r.get("png")]
    t.check(len(figures) == 1 and figures[0]["png"].startswith("iVBOR"), [list(r) for r in end["results"]])
    t.equal((figures[0]["chart"]["type"], figures[0]["chart"]["title"]), ("line", "T"), figures[0]["chart"])


def test_an_error_has_its_traceback(t):
    c = Contexts(t)
    end = c.execute("def f():\n    return 1 / 0\nprint('before')\nf()")
    t.equal((end["status"], end["error"]["name"], end["error"]["value"], end["stdout"]), ("error", "ZeroDivisionError", "division by zero", "before\n"), end)
    t.check("return 1 / 0" in end["error"]["traceback"], end["error"])
    t.equal(c.execute("1")["status"], "ok", "it goes on")


def test_a_stream_tells_things_in_their_order(t):
    c = Contexts(t)
    found = c.stream("import sys, time\nprint('one', flush=True)\ntime.sleep(0.2)\nprint('two', file=sys.stderr, flush=True)\ntime.sleep(0.2)\ndisplay('three')\nraise ValueError('four')")
    t.equal([event for event, _ in found], ["start", "stdout", "stderr", "result", "error", "end"], found)
    t.equal((found[0][1], found[1][1], found[2][1], found[4][1]["value"]), ({"execution_count": 1, "fresh": True}, {"text": "one\n"}, {"text": "two\n"}, "four"), found)
    end = found[-1][1]
    t.equal((end["status"], end["stdout_bytes"], "stdout" in end), ("error", 4, False), end)


def test_output_of_any_bytes(t):
    c = Contexts(t)
    end = c.execute("import sys; sys.stdout.buffer.write(bytes(range(256))); print('\\u00e9\\U0001f600', file=sys.stderr)")
    t.equal((end["stdout_encoding"], end["stderr_encoding"], end["stderr"]), ("base64", "utf-8", "\u00e9\U0001f600\n"), end)
    found = c.stream("import os, time\nfor b in '\\u00e9\\U0001f600'.encode() + b'\\xff':\n    os.write(1, bytes([b])); time.sleep(0.01)")
    t.equal("".join(data["text"] for event, data in found if event == "stdout" and "text" in data), "\u00e9\U0001f600", found)
    t.check(("stdout", {"base64": "/w=="}) in found, found)


def test_a_hundred_megabytes_of_output_are_bounded(t):
    c = Contexts(t, limits={"output": "1M"})
    end = c.execute("line = 'x' * 999\nfor _ in range(100000): print(line)", timeout=50)
    t.equal((end["status"], end["stdout_bytes"], end["stdout_truncated"]), ("ok", 100 * 10**6, True), {**end, "stdout": "..."})
    t.check(2**20 - 4 <= len(end["stdout"]) <= 2**20, len(end["stdout"]))
    with open(f"/proc/{c.d.process.pid}/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    t.check(peak < 128 * 1024, f"the daemon took {peak} KiB")


def test_output_limit_that_ends_it(t):
    c = Contexts(t, limits={"output": "64K", "on_output_limit": "kill"})
    end = c.execute("while True: print('x' * 99)")
    t.equal((end["status"], end["stdout_truncated"]), ("output_limit", True), {**end, "stdout": "..."})


def test_input_is_at_its_end(t):
    c = Contexts(t)
    end = c.execute("input('? ')")
    t.equal((end["status"], end["error"]["name"]), ("error", "EOFError"), end)
    t.equal(c.execute("read line; echo $?", "bash")["stdout"], "1\n", "bash")


def test_top_level_await(t):
    c = Contexts(t)
    t.equal(c.execute("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nawait f()")["text"], "7", "python")
    if "javascript" in c.d.ask("GET", "/v1/info").json["languages"]:
        t.equal(c.execute("const v = await Promise.resolve(41); v + 1", "javascript")["text"], "42", "javascript")


def test_javascript_and_bash(t):
    c = Contexts(t)
    t.equal(c.execute("cd /tmp; export A=b; f() { echo \"f:$1\"; }", "bash")["status"], "ok", "bash")
    t.equal(c.execute("f \"$A\"; pwd; ls /nowhere", "bash")["stdout"], "f:b\n/tmp\n", "its state")
    end = c.execute("false", "bash")
    t.equal((end["status"], end["reason"]), ("error", "the last command's exit status was 1"), end)
    end = c.execute("echo bye; exit 3", "bash")
    t.equal((end["stdout"], end["status"], end["context_state"]), ("bye\n", "error", "restarted"), end)
    t.equal(c.execute("echo $A", "bash")["fresh"], True, "after exit")
    if "javascript" in c.d.ask("GET", "/v1/info").json["languages"]:
        t.equal(c.execute("import path from 'path'; let n = 1; path.basename('/a/b')", "js")["text"], "b", "an import")
        t.equal(c.execute("console.log('out'); n + 1", "javascript")["text"], "2", "its state")


# ---- Ends ------------------------------------------------------------------------------------------------------------------


def test_a_timeout_keeps_an_interpreter_that_yields(t):
    c = Contexts(t)
    c.execute("x = 5")
    end = c.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)", timeout="500ms")
    t.equal((end["status"], end["context_state"], end["stdout"]), ("timeout", "kept", "begun\n"), end)
    t.check("500" in end["reason"], end["reason"])
    t.equal(c.execute("x")["text"], "5", "state afterwards")


def test_a_timeout_costs_an_interpreter_that_does_not(t):
    c = Contexts(t)
    c.execute("x = 5\nimport signal, time")
    end = c.execute("while True:\n    try:\n        time.sleep(600)\n    except BaseException: pass", timeout="500ms")
    t.equal((end["status"], end["context_state"]), ("timeout", "restarted"), end)
    after = c.execute("x")
    t.equal((after["fresh"], after["error"]["name"]), (True, "NameError"), after)


def test_the_policys_time_holds_for_each_execution(t):
    c = Contexts(t, limits={"time": "1s"})
    c.make()
    for _ in range(2):
        end = c.execute("import time; time.sleep(0.6); 1", timeout=30)
        t.equal((end["status"], end["text"]), ("ok", "1"), end)
    t.equal(c.execute("import time; time.sleep(60)", timeout=30)["status"], "timeout", "longer")


def test_the_policys_processor_time_holds_for_each_execution(t):
    c = Contexts(t, limits={"cpu_time": "2s"})
    c.make()
    for _ in range(2):
        end = c.execute("import time\nend = time.process_time() + 1.2\nwhile time.process_time() < end: pass\n1")
        t.equal((end["status"], end["text"]), ("ok", "1"), end)
    end = c.execute("while True: pass", timeout=60)
    t.equal(end["status"], "died", end)
    t.check("processor" in end["reason"] or "CPU" in end["reason"], end["reason"])


def test_an_interrupt_stops_what_runs_and_nothing_later(t):
    c = Contexts(t)
    context = c.make()["id"]
    c.ask("POST", f"/contexts/{context}/interrupt", status=204)
    wait = c.beside("x = 1\nopen('begun', 'w')\nimport time\ntime.sleep(600)", context)
    c.wait_for_file("begun")
    t.equal(state(c, context), "busy", "state")
    c.ask("POST", f"/contexts/{context}/interrupt", status=204)
    end = wait()
    t.equal((end["status"], end["context_state"]), ("interrupted", "kept"), end)
    c.ask("POST", f"/contexts/{context}/interrupt", status=204)
    t.equal(c.execute("x", context)["text"], "1", "the next one")


def test_an_interrupt_of_a_shell_stops_what_it_started(t):
    c = Contexts(t)
    wait = c.beside("x=1; touch begun; sleep 600; sleep 601", "bash")
    c.wait_for_file("begun")
    c.ask("POST", "/contexts/bash/interrupt", status=204)
    t.equal(wait()["status"], "interrupted", "end")
    t.equal(c.execute("echo $x", "bash")["stdout"], "1\n", "state afterwards")


def test_a_restart_forgets(t):
    c = Contexts(t)
    context = c.make(cwd="/tmp")["id"]
    c.execute("x = 1", context)
    wait = c.beside("open('begun', 'w')\nimport time\ntime.sleep(600)", context)
    c.wait_for_file("/tmp/begun")
    t.equal(c.ask("POST", f"/contexts/{context}/restart", status=200).json["id"], context, "id")
    end = wait()
    t.equal((end["status"], end["context_state"]), ("canceled", "restarted"), end)
    after = c.execute("import os; os.getcwd(), 'x' in globals()", context)
    t.equal((after["fresh"], after["text"]), (True, "('/tmp', False)"), after)


def test_a_dead_interpreter_is_told(t):
    c = Contexts(t)
    for code, word in (("import os; os._exit(3)", "exit code 3"), ("import os; os.kill(os.getpid(), 9)", "signal 9")):
        c.execute("x = 1")
        end = c.execute("print('last words', flush=True); " + code)
        t.equal((end["status"], end["stdout"], end["context_state"]), ("died", "last words\n", "restarted"), end)
        t.check(word in end["reason"], end["reason"])
        t.equal(state(c), "dead", "until it is used again")
        after = c.execute("'x' in globals()")
        t.equal((after["text"], after["fresh"], after["execution_count"]), ("False", True, 1), after)


def test_memory_that_runs_out_is_told(t):
    c = Contexts(t, limits={"memory": "128M"})
    c.execute("x = 1")
    end = c.execute("y = bytearray(10**9); y[::4096] = b'x' * len(y[::4096])", timeout=50)
    if end["status"] == "error":
        t.equal(end["error"]["name"], "MemoryError", end)
        return
    t.equal(end["status"], "died", end)
    t.check("memory" in end["reason"], end["reason"])


def test_executions_wait_for_each_other(t):
    c = Contexts(t)
    context = c.make()["id"]
    first = c.beside("import time\nopen('begun', 'w')\nwhile not __import__('os').path.exists('go'): time.sleep(0.01)\nx = 1", context)
    c.wait_for_file("begun")
    second = c.beside("x + 1", context)
    c.d.ask("PUT", f"{c.path}/files?path=go", b"")
    t.equal((first()["status"], second()["text"]), ("ok", "2"), "in their order")


def test_code_that_waits_is_bounded(t):
    c = Contexts(t)
    first = c.beside("import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)")
    c.wait_for_file("begun")
    found = []
    threads = [threading.Thread(target=lambda: found.append(c.ask("POST", "/contexts/python/execute", {"code": "#" * 15_000_000}).status)) for _ in range(6)]
    for x in threads:
        x.start()
    t.until(lambda: 429 in found, PATIENCE, "nothing is refused")
    c.d.ask("PUT", f"{c.path}/files?path=go", b"")
    for x in threads:
        x.join(PATIENCE)
    t.equal((first()["status"], set(found)), ("ok", {200, 429}), "ends")


def test_a_client_that_leaves_interrupts_its_execution(t):
    c = Contexts(t)
    context = c.make()["id"]
    c.execute("x = 1", context)
    connection = c.d.connection()
    connection.request("POST", f"{c.path}/contexts/{context}/execute", json.dumps({"code": "open('begun', 'w')\nimport time\ntime.sleep(600)"}),
                       {"Authorization": f"Bearer {c.d.key}", "Content-Type": "application/json"})
    c.wait_for_file("begun")
    connection.close()
    began = time.monotonic()
    end = c.execute("x", context)
    t.equal((end["text"], end["fresh"]), ("1", False), end)
    t.check(time.monotonic() - began < 30, "it waited for what nobody wanted any more")


def test_a_slow_reader_holds_back_the_interpreter(t):
    c = Contexts(t)
    s = c.d.socket(PATIENCE)
    body = json.dumps({"code": "import os\nopen('pid', 'w').write(str(os.getpid()))\nfor i in range(5000):\n    os.write(1, b'x' * 10000)\n    if i == 4000: open('far', 'w')"})
    s.sendall((f"POST {c.path}/contexts/python/execute HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {c.d.key}\r\nAccept: text/event-stream\r\n"
               f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode())
    t.check(s.recv(15) == b"HTTP/1.1 200 OK", "it has begun")
    looks = 0

    def stands():  # in one and the same write, for as long as it takes to look that often
        nonlocal looks
        where = c.ask("POST", "/run", {"shell": "cat /proc/$(cat pid)/wchan; cut -d' ' -f3 /proc/$(cat pid)/stat"}, 200).json["stdout"]
        looks = looks + 1 if "pipe_write" in where or where == "0S\n" else 0  # 0: a kernel that does not name the place
        return looks == 20
    c.wait_for_file("pid")
    t.until(stands, 20, lambda: "the interpreter goes on writing")
    t.equal(c.ask("GET", "/files/stat?path=far").status, 404, "far ahead of its reader")
    seen = 0
    while data := s.recv(2**20):
        seen += data.count(b"x")
    t.check(seen >= 5000 * 10000 * 0.99 or c.ask("GET", "/files/stat?path=far").status == 200, f"{seen} bytes")


def test_removing_a_context_ends_what_runs_in_it(t):
    c = Contexts(t)
    context = c.make()["id"]
    wait = c.beside("open('begun', 'w')\nimport time\ntime.sleep(600)", context)
    c.wait_for_file("begun")
    c.ask("DELETE", f"/contexts/{context}", status=204)
    t.equal(wait()["status"], "canceled", "end")


def test_a_sandbox_that_ends_takes_its_contexts_along(t):
    c = Contexts(t)
    context = c.make()["id"]
    wait = c.beside("open('begun', 'w')\nimport time\ntime.sleep(600)", context)
    c.wait_for_file("begun")
    c.ask("DELETE", status=200)
    t.check(wait()["status"] in ("died", "canceled"), "end")
    t.equal(c.ask("POST", f"/contexts/{context}/execute", {"code": "1"}).code, "sandbox_ended", "afterwards")


def test_a_paused_sandbox_stops_the_clock_of_an_execution(t):
    c = Contexts(t)
    context = c.make()["id"]
    began = time.monotonic()
    wait = c.beside("import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\n'done'", context, timeout="6s")
    c.wait_for_file("begun")
    c.ask("POST", "/pause", {}, 200)
    t.equal(c.ask("POST", f"/contexts/{context}/execute", {"code": "1"}).code, "conflict", "work in a paused one")
    t.until(lambda: time.monotonic() > began + 6.5, 20, lambda: "its time is over")
    c.ask("POST", "/resume", {}, 200)
    c.ask("PUT", "/files?path=go", b"", 201)
    end = wait()
    t.equal((end["status"], end["text"]), ("ok", "done"), end)


# ---- Languages that a system need not have -------------------------------------------------------------------------------------


def with_language(t, language, package):
    c = Contexts(t)
    r = c.ask("POST", "/contexts", {"language": language, "name": "first"})
    if r.status == 501:
        t.check(package in r.json["message"], f"what to install is named: {r.json}")
        t.check(language not in c.d.ask("GET", "/v1/info").json["languages"], "nor is it told to be there")
        raise tap.Skip(f"{package} is not installed")
    t.equal(r.status, 201, r.body)
    c.ask("DELETE", f"/contexts/{r.json['id']}", status=204)
    return c


def test_typescript(t):
    c = with_language(t, "typescript", "esbuild")
    r = c.execute("interface P { a: number }\nconst p: P = { a: 20 };\nfunction f<T extends P>(x: T): number { return x.a + 1 }\nf(p)", "typescript")
    t.equal((r["status"], r["text"]), ("ok", "21"), r)
    r = c.execute("import * as path from 'node:path';\nlet later: string | undefined", "typescript")
    t.equal(r["status"], "ok", r)
    t.equal(c.execute("(path.basename('/a/b') as string) + p.a", "typescript")["text"], "b20", "what was imported before")
    t.equal(c.execute("const q: number = await Promise.resolve(7)\nq!", "typescript")["text"], "7", "await")
    t.equal(c.execute("let x: = 1", "typescript")["status"], "error", "no TypeScript")
    r = c.execute("throw new TypeError('b' as any)", "typescript")
    t.equal((r["error"]["name"], r["error"]["value"]), ("TypeError", "b"), r)


def test_r(t):
    c = with_language(t, "r", "r-base-core")
    r = c.execute("x <- 20\ncat('grün\\n')\nx + 1", "r")
    t.equal((r["status"], r["stdout"], r["text"], r["fresh"]), ("ok", "grün\n", "[1] 21", True), r)
    r = c.execute("1:3\ngetwd()", "r")
    t.equal((r["text"], r["stdout"], r["fresh"]), ('[1] "/home/user"', "[1] 1 2 3\n", False), r)
    r = c.execute("d <- data.frame(a = c(1, NA), b = c('x', '\"'))\nwarning('careful')\nd", "r")
    t.equal(r["results"][0]["data"], {"a": [1, None], "b": ["x", '"']}, r)
    t.equal((r["text"].splitlines()[0], r["stderr"]), ("   a b", "Warning message:\ncareful\n"), r)
    t.equal(c.execute("Sys.getenv('E')", "r", env={"E": 'q"ü'})["text"], '[1] "q\\"ü"', "an environment of its own")
    t.equal(c.execute("paste0(Sys.getenv('E'), Sys.getenv('COLOUR'))", "r")["text"], '[1] "green"', "that of the sandbox is left")
    r = c.execute("f <- function(a) stop('boom')\nf(1)", "r")
    t.equal((r["status"], r["error"]["name"], r["error"]["value"], r["error"]["traceback"]), ("error", "Error", "boom", "Error in f(1) : boom"), r)
    t.equal(c.execute("f(", "r")["status"], "error", "no R")
    r = c.execute("plot(1:3)\ninvisible(1)", "r")
    t.equal([(x["main"], base64.b64decode(x["png"])[:4]) for x in r["results"]], [(False, b"\x89PNG")], "a figure")
    t.equal((c.execute("invisible(3)", "r")["text"], c.execute("x", "r")["text"]), (None, "[1] 20"), "nothing to show; the state")
    t.equal(c.execute("readline('? ')", "r")["text"], '[1] ""', "no input")
    context = "r"
    for line in ("Sys.sleep(600)", "repeat {}", "system('sleep 600'); Sys.sleep(600)"):
        wait = c.beside(f"x <- 1; file.create('begun')\n{line}", context)
        c.wait_for_file("begun")
        c.ask("POST", f"/contexts/{context}/interrupt", {}, 204)
        end = wait()
        if line.startswith("system") and end["status"] == "interrupted" and end["context_state"] == "restarted":
            c.execute("x <- 1", context)  # R did not hear of it while it waited
        else:
            t.equal((end["status"], end["context_state"]), ("interrupted", "kept"), end)
        c.ask("DELETE", "/files?path=begun", None, 204)
        for _ in range(3):
            c.ask("POST", f"/contexts/{context}/interrupt", {}, 204)
            t.equal(c.execute("x", context)["text"], "[1] 1", "what came when nothing ran")
    t.equal(c.execute("Sys.sleep(600)", context, timeout="300ms")["status"], "timeout", "by its time")
    end = c.execute("quit(status = 3)", context)
    t.equal((end["status"], "3" in end["reason"]), ("died", True), end)
    t.equal(c.execute("exists('x')", context)["text"], "[1] FALSE", "a fresh one")


def test_java(t):
    c = with_language(t, "java", "openjdk-17-jdk-headless")
    r = c.execute('int x = 20;\nSystem.out.println("grün");\nx + 1', "java")
    t.equal((r["status"], r["stdout"], r["text"], r["fresh"]), ("ok", "grün\n", "21", True), r)
    r = c.execute('System.getProperty("user.dir")', "java")
    t.equal((r["text"], r["fresh"]), ("/home/user", False), r)
    t.equal(c.execute('"a \\"b\\" " + List.of(1, x)', "java")["text"], 'a "b" [1, 20]', "a bare text")
    t.equal(c.execute('System.getProperty("E")', "java", env={"E": 'q"ü'})["text"], 'q"ü', "a property of its own")
    t.equal(c.execute('System.getProperty("E") + System.getProperty("COLOUR")', "java")["text"], "nullgreen", "that of the sandbox is left")
    r = c.execute("int f(int a) {\n  return a / 0;\n}\nf(1)", "java")
    t.equal((r["status"], r["error"]["name"], r["error"]["value"]), ("error", "java.lang.ArithmeticException", "/ by zero"), r)
    for code in ('int y = "a";', "f(", "nothing(1)"):
        t.equal(c.execute(code, "java")["error"]["name"], "CompilationError", code)
    t.equal(c.execute("x = 5", "java")["text"], None, "an assignment shows nothing")
    memory = c.ask("GET", status=200).json["limits"]["memory_bytes"]
    t.equal(c.execute(f"Runtime.getRuntime().maxMemory() < {memory}L", "java")["text"], "true", "the heap fits into what there is")
    t.equal(c.execute("System.in.read()", "java")["text"], "-1", "no input")
    # One machine for all of this: each start of one costs seconds.
    for line in ("Thread.sleep(600000);", 'new ProcessBuilder("sleep", "600").start().waitFor()', "while (true) {}"):
        wait = c.beside(f'Files.createFile(Path.of("begun"));\n{line}', "java")
        c.wait_for_file("begun")
        c.ask("POST", "/contexts/java/interrupt", {}, 204)
        end = wait()
        t.equal(end["status"], "interrupted", end)
        if end["context_state"] == "restarted":  # a JDK that cannot stop a thread
            c.execute("int x = 5;", "java")
        c.ask("DELETE", "/files?path=begun", None, 204)
        c.ask("POST", "/contexts/java/interrupt", {}, 204)
        t.equal(c.execute("x", "java")["text"], "5", "what came when nothing ran hits nothing")
    end = c.execute("System.exit(3);", "java")
    t.equal((end["status"], "3" in end["reason"]), ("died", True), end)


def test_executions_are_counted(t):
    c = Contexts(t)
    c.execute("1")
    c.execute("1 / 0")
    metrics = c.d.ask("GET", "/metrics").body.decode()
    for status in ("ok", "error"):
        t.check(f'zwinger_executions_total{{language="python",status="{status}"}} 1' in metrics, metrics)


if __name__ == "__main__":
    tap.main(globals())
