#!/usr/bin/python3 -B
"""The interpreters of contexts, run directly: plain processes with a socket as descriptor 3 and pipes as standard streams."""
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import tap  # noqa: E402

TOOLS = os.environ.get("ZWINGER_TEST_TOOLS", "")
SOURCES = os.path.join(HERE, "../../src/daemon/drivers")
GONE = {"t": "gone"}


def source(name):
    path = os.path.join(TOOLS, "driver-" + name)
    with open(path if os.path.exists(path) else os.path.join(SOURCES, name)) as f:
        return f.read()


class Answer:
    def __init__(self, messages, out, err, took):
        self.messages, self.out, self.err, self.took = messages, out, err, took
        self.end = messages[-1]
        self.status, self.interrupted = self.end.get("status"), self.end.get("interrupted")
        self.results = [m["result"] for m in messages if m["t"] == "result"]
        self.error = next((m["error"] for m in messages if m["t"] == "error"), None)
        self.main = next((r for r in self.results if r["main"]), None)
        self.text = self.main and self.main.get("text")


class Interpreter:
    def __init__(self, t, command, first=(), env=None):
        ours, theirs = socket.socketpair()
        self.channel, self.t, self.id = ours, t, 0
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.began = time.monotonic()
        # The shell puts the socket where the launcher would put it, and nothing else stays open.
        self.process = subprocess.Popen(["/bin/bash", "-c", f'fd=$1; shift; eval "exec 3<&$fd $fd<&-"; exec "$@"', "start", str(theirs.fileno()),
                                         *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[theirs.fileno()], env=env,
                                        cwd=t.folder("home"), start_new_session=True,
                                        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # ignored in whoever runs in the background
        for fd in (out, err):
            os.close(fd)
        theirs.close()
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
        t.at_end(self.finish)
        for frame in first:
            self.send(frame)
        self.ready = self.receive(60)
        self.started = time.monotonic() - self.began

    def finish(self):
        self.process.kill()
        self.process.wait()
        self.channel.close()
        os.close(self.out)
        os.close(self.err)

    def send(self, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        self.channel.sendall(b"%d\n" % len(data) + data)

    def receive(self, timeout):
        self.channel.settimeout(timeout)
        head = b""
        while head[-1:] != b"\n":
            part = self.channel.recv(1)
            if not part:
                return GONE
            head += part
        data = b""
        while len(data) < int(head):
            data += self.channel.recv(int(head) - len(data))
        return json.loads(data)

    def drain(self, fd):
        data = b""
        while True:
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                return data
            if not part:
                return data
            data += part

    def begin(self, code, **env):
        self.id += 1
        self.send({"t": "execute", "id": self.id, "env": env, "code": code})

    def answer(self, timeout=30):
        began, messages, out, err = time.monotonic(), [], b"", b""
        while not messages or messages[-1]["t"] not in ("done", "gone"):
            messages.append(self.receive(timeout))
            out += self.drain(self.out)
            err += self.drain(self.err)
        return Answer(messages, out, err, time.monotonic() - began)

    def run(self, code, timeout=30, **env):
        self.begin(code, **env)
        return self.answer(timeout)

    def ok(self, code, **env):
        a = self.run(code, **env)
        self.t.equal(a.status, "ok", f"{code!r}: {a.messages} {a.out} {a.err}")
        return a

    def interrupt(self):
        self.send({"t": "interrupt", "id": self.id})

    def interrupted(self, code):
        """Prints "go" first; is interrupted then; what comes later never does."""
        self.begin(code)
        data = b""
        while b"go\n" not in data:
            data += self.drain(self.out)
            time.sleep(0.01)
        self.interrupt()
        a = self.answer(10)
        self.t.check(a.took < 1.5, f"{code!r} took {a.took} s to stop")
        self.t.lacks(a.out, b"NO", code)
        return a


class Shell(Interpreter):
    def interrupt(self):
        for pid in [*self.children(self.process.pid), self.process.pid]:
            os.kill(pid, 2)

    def children(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return list(map(int, f.read().split()))


def find_python(t, *modules):
    for path in ("/usr/bin/python3", shutil.which("python3") or "", *os.environ.get("ZWINGER_TEST_PYTHONS", "").split(":")):
        if path and subprocess.run([path, "-c", "import " + ", ".join(("sys",) + modules)], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    raise tap.Skip(f"no python3 here has {', '.join(modules)}")


def python(t, *modules, native=True):
    parts = [{"t": "part", "name": n, "source": source(f"python-{n}.py")} for n in ("shown", "charts", "ipython")]
    p = Interpreter(t, [find_python(t, *modules), "-c", source("boot.py")],
                    [source("python.py"), *parts, {"t": "begin", "language": "python", "driver": "native" if native else "any"}])
    t.equal(p.ready["t"], "ready", p.ready)
    t.equal(p.ready["driver"], "native" if native else "ipython", "driver")
    return p


def both(test):
    """Once by our own driver, once by IPython's shell: what they share."""
    def native(t):
        test(t, python(t))

    def ipython(t):
        test(t, python(t, "IPython", native=False))
    name = test.__name__.replace("python_", "", 1)
    native.__name__, ipython.__name__ = f"test_python_{name}", f"test_ipython_{name}"
    globals()[native.__name__], globals()[ipython.__name__] = native, ipython
    return test


def node(t, language="javascript"):
    program = shutil.which("node", path="/usr/bin:/usr/local/bin:/bin")
    if not program:
        raise tap.Skip("node is not installed")
    return Interpreter(t, [program, "-e", source("boot.js")], [source("node.js"), {"t": "begin", "language": language, "driver": "any"}])


def bash(t):
    return Shell(t, ["/bin/bash", "-c", 'eval "$1"; shift; eval "$_zw_loop"', "bash", source("bash.sh")])


# ---- Python ----------------------------------------------------------------------------------------------------------------


@both
def python_keeps_state_and_tells_the_last_value(t, p):
    p.ok("x = 5\ndef f():\n    return x")
    t.equal(p.ok("f() + 1").text, "6", "value")
    t.equal(p.ok("None").results, [], "None")
    t.equal(p.ok("x;").results, [], "a value nobody wants")
    t.equal(p.ok("  if x:\n      y = 3\n  y").text, "3", "an indented cell")
    t.equal(p.ok("_ + 1").text, "4", "the value before")


@both
def python_streams_text_and_what_programs_write(t, p):
    a = p.ok("import sys, subprocess, os\nprint('hello')\nprint('é', file=sys.stderr)\nos.system('echo sub; echo suberr >&2')\nprint('end');")
    t.equal(a.out, b"hello\nsub\nend\n", "out")
    t.equal(a.err, "é\nsuberr\n".encode(), "err")
    t.equal(p.ok("sys.stdout.buffer.write(b'\\xff\\x00\\n');").out, b"\xff\x00\n", "bytes")
    t.equal(p.ok("print('\\ud800')").out, b"\\ud800\n", "half a pair")
    t.equal(p.ok("import threading\nw = threading.Thread(target=print, args=('thread',)); w.start(); w.join()").out, b"thread\n", "thread")
    p.ok("sys.stdout.close()")
    t.equal(p.ok("print('still')").out, b"still\n", "after close()")


@both
def python_tells_errors_as_users_know_them(t, p):
    p.ok("def f():\n    return 1/0")
    a = p.run("f()")
    t.equal((a.status, a.error["name"], a.error["value"]), ("error", "ZeroDivisionError", "division by zero"), a.error)
    for part in ("Traceback (most recent call last)", "return 1/0", "in f", "ZeroDivisionError: division by zero"):
        t.contains(a.error["traceback"], part, "traceback")
    t.lacks(a.error["traceback"], "zwinger", "traceback")
    t.equal(p.run("for").error["name"], "SyntaxError", "syntax")
    t.equal(p.run("input()").error["name"], "EOFError", "input")
    a = p.run("import sys; sys.exit(3)")
    t.equal((a.error["name"], a.error["value"]), ("SystemExit", "3"), "exit")
    t.equal(p.run("exit()").error["name"], "SystemExit", "exit()")
    t.equal(p.run("class E(Exception):\n  def __str__(self): 1/0\nraise E").error["name"], "E", "a hostile error")
    a = p.run("class V:\n  def __repr__(self): 1/0\nV()")
    t.equal(a.status, "ok", "a value that cannot be shown")
    t.equal(p.ok("1").text, "1", "afterwards")


@both
def python_awaits_at_the_top_level(t, p):
    p.ok("import asyncio\nq = asyncio.Queue()\nasync def put(): await q.put(7)\ntask = asyncio.ensure_future(put()) if False else None")
    t.equal(p.ok("await put()\nawait q.get()").text, "7", "value")
    t.equal(p.ok("[await asyncio.sleep(0, i) for i in range(3)]").text, "[0, 1, 2]", "comprehension")


@both
def python_shows_rich_values(t, p):
    a = p.ok("class R:\n  def _repr_html_(self): return '<b>r</b>'\n  def _repr_png_(self): return b'\\x89PNG'\n"
             "  def _repr_json_(self): return {'a': 1}\n  def __repr__(self): return 'R!'\ndisplay(R(), 2)\nR()")
    t.equal([r["main"] for r in a.results], [False, False, True], "order")
    r = a.main
    t.equal((r["text"], r["html"], base64.b64decode(r["png"]), r["json"]), ("R!", "<b>r</b>", b"\x89PNG", {"a": 1}), "forms")
    a = p.ok("class B:\n  def _repr_mimebundle_(self, include=None, exclude=None): return {'text/markdown': '*m*', 'application/x-own': {'k': 1}}\nB()")
    t.equal((a.main["markdown"], a.main["extra"]), ("*m*", {"application/x-own": {"k": 1}}), "bundle")
    a = p.ok("from IPython.display import HTML, Markdown, display\ndisplay(HTML('<i>'))\nMarkdown('# h')")
    t.equal((a.results[0]["html"], a.main["markdown"]), ("<i>", "# h"), "display classes")
    t.equal(p.ok("from unittest.mock import MagicMock\nm = MagicMock()\nm.x;").status, "ok", "an object that has everything")


@both
def python_knows_lines_that_are_not_python(t, p):
    a = p.ok("x = 5\n!echo got $x {x + 1}\ny = !echo a b\nprint(y[0])")
    t.equal(a.out, b"got 5 6\na b\n", "shell lines")
    t.equal(p.ok("%%bash\necho cell").out, b"cell\n", "shell cell")
    t.equal(p.ok("%cd /\n%pwd").text, "'/'", "magics")


@both
def python_sets_the_environment_for_one_execution(t, p):
    t.equal(p.ok("import os; os.environ['Q'], os.system('echo $Q')", Q="ü").text, "('ü', 0)", "set")
    t.equal(p.ok("os.environ.get('Q')").results, [], "gone")
    p.ok("os.environ['KEPT'] = '1'", Q="1")
    t.equal(p.ok("os.environ['KEPT']").text, "'1'", "own changes stay")


@both
def python_yields_to_an_interrupt(t, p):
    p.ok("import time, os, asyncio, subprocess\nx = 1\nserver = subprocess.Popen(['sleep', '60'])")
    for code in ("while True: pass", "time.sleep(30)", "await asyncio.sleep(30)", "subprocess.run(['sh', '-c', 'sleep 30; echo NO'])"):
        a = p.interrupted(f"print('go')\n{code}\nprint('NO')")
        t.equal((a.status, a.interrupted, a.error["name"]), ("interrupted", True, "KeyboardInterrupt"), code)
        t.lacks(a.error["traceback"], "zwinger", "traceback")
    t.check(p.interrupted("print('go')\nos.system('sleep 30')\n").interrupted, "a program that is waited for")
    t.equal(p.ok("x, server.poll()").text, "(1, None)", "state and what ran in the background")
    p.interrupt()
    p.send({"t": "interrupt", "id": p.id + 1})
    t.equal(p.ok("sum(range(100000))\nx").text, "1", "what comes after a late interrupt")
    p.ok("server.kill(); server.wait();")


@both
def python_survives_forks_and_dies_when_told(t, p):
    p.ok("import os\nif os.fork() == 0:\n    raise ValueError\nos.wait();")
    t.equal(p.ok("import multiprocessing as m\nwith m.Pool(2) as w: r = w.map(abs, [-1, -2])\nr").text, "[1, 2]", "a pool")
    t.equal(p.run("print('last', flush=True)\nos._exit(4)").end, GONE, "the channel ends")
    t.equal(p.process.wait(10), 4, "exit code")


@both
def python_bounds_what_it_sends(t, p):
    t.check(len(p.ok("'x' * 50000000").text) < 1 << 21, "a long text")
    a = p.run("class P:\n  def _repr_png_(self): return b'x' * 30000000\n  def __repr__(self): return 'P'\nP()")
    t.equal((a.status, a.text, "png" in a.main), ("ok", "P", False), "a large picture")
    t.contains(a.err, b"left out", "said so")
    p.ok("d = 1\nfor _ in range(500): d = [d]\nclass J:\n  def _repr_json_(self): return {'deep': d, 'big': 1 << 70, 'nan': float('nan'), 'half': '\\ud800'}\nJ()")


def test_python_closes_its_channel_for_programs(t):
    p = python(t)
    t.equal(p.ok("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import os; os.fstat(3)'], close_fds=False, "
                 "stderr=subprocess.DEVNULL).returncode").text, "1", "descriptor 3 in a program")


def test_figures_are_shown_without_show(t):
    p = python(t, "matplotlib")
    a = p.ok("import matplotlib.pyplot as plt\nplt.plot([1, 2], label='q'); plt.title('T'); plt.xlabel('Time (s)')\nplt.figure(); plt.bar(['a', 'b'], [1, 2])\n5")
    t.equal(a.text, "5", "value")
    figures = [r for r in a.results if "png" in r]
    t.equal([(r["main"], base64.b64decode(r["png"])[:4], r["text"]) for r in figures], [(False, b"\x89PNG", "<Figure size 640x480 with 1 Axes>")] * 2, "figures")
    line, bar = figures[0]["chart"], figures[1]["chart"]
    t.equal((line["type"], line["title"], line["x_label"], line["x_unit"], line["elements"]),
            ("line", "T", "Time (s)", "s", [{"label": "q", "points": [[0.0, 1], [1.0, 2]]}]), "line")
    t.equal((bar["type"], bar["elements"][1]), ("bar", {"label": "b", "group": "Group 0", "value": 2}), "bars")
    t.equal([sorted(r) for r in p.ok("1").results], [["main", "text"]], "each is shown once")
    a = p.ok("plt.scatter([1], [2]); plt.show(); 6")
    t.equal([(r["main"], r.get("chart", {}).get("type")) for r in a.results], [(False, "scatter"), (True, None)], "show()")
    a = p.ok("fig, axes = plt.subplots(1, 2); axes[0].pie([1, 2], labels=['p', 'q']); axes[1].boxplot([[1, 2, 3]]); fig")
    t.equal([(r["main"], [c["type"] for c in r["chart"]["elements"]]) for r in a.results], [(True, ["pie", "box_and_whisker"])], "a figure as the value")


def test_frames_have_html_and_data(t):
    p = python(t, "pandas")
    a = p.ok("import pandas as pd\npd.DataFrame({'n': [1, 2.5], 't': [pd.Timestamp('2020-01-01'), None], 's': ['x', None]})")
    t.equal(a.main["data"], {"n": [1.0, 2.5], "t": ["2020-01-01T00:00:00", None], "s": ["x", None]}, "data")
    t.contains(a.main["html"], "<table", "html")


def test_ipython_is_whole_for_whoever_asks(t):
    p = python(t, "IPython", native=False)
    t.equal(p.ok("import sys\n[n for n in ('prompt_toolkit', 'jedi', 'urllib.request', 'logging.config') if n in sys.modules]").text, "[]", "loaded")
    t.equal(p.ok("import urllib.request, logging.config\nurllib.request.urlopen('data:,x').read(), callable(logging.config.fileConfig)").text, "(b'x', True)", "late")
    t.equal(p.ok("import IPython\nfrom IPython import embed, version_info\nget_ipython() is IPython.get_ipython(), callable(embed), "
                 "IPython.__version__ == '.'.join(map(str, version_info[:3]))").text, "(True, True, True)", "the package")
    t.contains(p.ok("%lsmagic").text, "%%timeit", "magics")
    t.equal(p.ok("import gc\ngc.isenabled()").text, "True", "collection")


def test_a_broken_ipython_is_none(t):
    home = t.folder("broken")
    os.mkdir(os.path.join(home, "IPython"))
    with open(os.path.join(home, "IPython/__init__.py"), "w") as f:
        f.write("raise ValueError('broken')\n")
    parts = [{"t": "part", "name": n, "source": source(f"python-{n}.py")} for n in ("shown", "charts", "ipython")]
    p = Interpreter(t, [find_python(t), "-c", source("boot.py")], [source("python.py"), *parts, {"t": "begin", "language": "python", "driver": "any"}],
                    env={**os.environ, "PYTHONPATH": home})
    t.equal(p.ready["driver"], "native", "driver")
    t.equal(p.ok("import sys, gc\n[n for n in sys.modules if n.startswith('IPython') or sys.modules[n] is None], gc.isenabled()").text, "([], True)", "left")


@tap.alone
def test_the_first_answer_comes_fast(t):
    def over(make, bare):
        best, own = [], []
        for _ in range(5):
            began = time.monotonic()
            subprocess.run(bare, stdin=subprocess.DEVNULL)
            own.append(time.monotonic() - began)
            p = make(t)
            p.ok("1")
            best.append(time.monotonic() - p.began)
        return min(best) - min(own)
    t.check(over(python, ["/usr/bin/python3", "-c", ""]) < 1, "python")
    if shutil.which("node"):
        t.check(over(node, ["node", "-e", ""]) < 1.5, "node")
    p = python(t)
    took = []
    for _ in range(50):
        began = time.monotonic()
        p.ok("1")
        took.append(time.monotonic() - began)
    t.check(min(took) < 0.02, f"a warm one took {min(took)} s")


# ---- JavaScript ------------------------------------------------------------------------------------------------------------


def test_javascript_keeps_state_and_tells_the_last_value(t):
    p = node(t)
    p.ok("let x = 5; const y = 1; class A {}\nfunction f() { return x }")
    t.equal(p.ok("let x = 7; const y = 2; class A {}\nx + y").text, "9", "declared again")
    for code, text in (("f()", "7"), ("'a'", "'a'"), ("null", "null"), ("5n", "5n"), ("-0", "-0"), ("[1, NaN]", "[ 1, NaN ]"), ("({a: 1})", "{ a: 1 }"),
                       ("{a: 1}", "{ a: 1 }"), ("if (true) { 42 }", "42"), ("Promise.resolve(9)", "9"), ("await new Promise((r) => setTimeout(r, 5, 3))", "3"),
                       ("require('path').sep", "'/'"), ("import fs from 'fs'\nimport {join as j, sep} from 'node:path';\nj('a', 'b') + typeof fs.statSync", "'a/bfunction'"),
                       ("const {readFileSync} = await import('fs'); typeof readFileSync", "'function'"), ("process.env.Q", "'ü'")):
        t.equal(p.ok(code, Q="ü").text, text, code)
    t.equal(p.ok("undefined").results + p.ok("var z = 3").results + p.ok("process.env.Q").results, [], "no value")


def test_javascript_streams_and_shows(t):
    p = node(t)
    a = p.ok("console.log('hello'); console.error('err'); require('child_process').execSync('echo sub', {stdio: 'inherit'}); process.stdout.write(Buffer.from([255]))")
    t.equal((a.out, a.err), (b"hello\nsub\n\xff", b"err\n"), "streams")
    a = p.ok("display({'text/html': '<b>'}, {raw: true}); ({[Symbol.for('Jupyter.display')]() { return {'text/markdown': '*', 'image/png': Buffer.from('x')} }})")
    t.equal((a.results[0], a.main["markdown"], a.main["png"]), ({"main": False, "html": "<b>"}, "*", "eA=="), "forms")
    p.ok("let d = 1; for (let i = 0; i < 500; i++) d = [d]; display({'application/json': {d, big: 1e20, half: '\\ud800'}}, {raw: true})")
    t.equal(p.ok("require('fs').readFileSync(0).length").text, "0", "standard input")


def test_javascript_tells_errors(t):
    p = node(t)
    a = p.run("function g() { throw new TypeError('bad') }\ng()")
    t.equal((a.status, a.error["name"], a.error["value"]), ("error", "TypeError", "bad"), a.error)
    t.contains(a.error["traceback"], "at g (cell-1.js:1:", "stack")
    t.lacks(a.error["traceback"], "zwinger", "stack")
    t.equal(p.run("}").error["name"], "SyntaxError", "syntax")
    t.equal(p.run("nosuch").error["name"], "ReferenceError", "name")
    t.equal(p.run("await Promise.reject(new RangeError('r'))").error["name"], "RangeError", "await")
    t.equal(p.run("throw 5").error["value"], "5", "no error object")
    a = p.ok("setTimeout(() => { throw new Error('late') }, 1); await new Promise((r) => setTimeout(r, 30)); 2")
    t.equal(a.text, "2", "an error in a timer")
    t.contains(a.err, b"late", "is said")
    t.equal(p.run("process.exit(4)").end, GONE, "exit")
    t.equal(p.process.wait(10), 4, "exit code")
    t.equal(p.drain(p.err), b"", "nothing of ours on standard error")


def test_javascript_yields_to_an_interrupt(t):
    p = node(t)
    p.ok("let x = 1")
    for code in ("for (;;);", "await new Promise(() => {})", "await new Promise((r) => setTimeout(r, 5)); for (;;);"):
        a = p.interrupted(f"console.log('go'); {code} ; console.log('NO')")
        t.equal((a.status, a.interrupted), ("interrupted", True), code)
    t.check(p.interrupted("console.log('go'); require('child_process').execSync('sleep 30')").interrupted, "a program")
    p.interrupt()
    t.equal([p.ok("x").text for _ in range(20)], ["1"] * 20, "afterwards")


def test_typescript_is_stripped_or_said_not_to_be(t):
    p = node(t, "typescript")
    if p.ready["t"] == "unsupported":
        t.contains(p.ready["reason"], "strip types", "reason")
        return
    t.equal(p.ok("let n: number = 3\nn").text, "3", "value")
    t.equal(p.ok("interface A { b: string }\nconst a: A = {b: 'c'}\na.b").text, "'c'", "interface")


# ---- Bash ------------------------------------------------------------------------------------------------------------------


def test_bash_keeps_state_and_splits_streams(t):
    p = bash(t)
    a = p.ok("x='a b'; echo hi; echo err >&2; declare -a q=(1 2); f() { echo \"$x ${q[1]}\"; }; cd /; alias hh='echo al'; shopt -s expand_aliases")
    t.equal((a.out, a.err), (b"hi\n", b"err\n"), "streams")
    t.equal(p.ok("f; pwd; hh").out, b"a b 2\n/\nal\n", "state")
    t.equal(p.ok("echo \"ü\t\\n 'q' \\\\\" $'a\\nb' \"\\\"\"").out, "ü\t\\n 'q' \\ a\nb \"\n".encode(), "quoting")
    t.equal(p.ok("cat; read a; echo $?").out, b"1\n", "standard input")
    t.equal(p.ok("echo $A-$B", A='1"}\n2', B='},"code":"x').out, b'1"} 2-},"code":"x\n', "environment")
    t.equal(p.ok("echo ${A-unset}").out, b"unset\n", "environment afterwards")
    t.equal(p.ok("ls -l /proc/self/fd").out.count(b"socket:"), 0, "the channel is closed for programs")
    t.equal(p.ok("big=$(head -c 300000 /dev/zero | tr '\\0' y); echo ${#big}").out, b"300000\n", "much")
    t.equal(p.ok("echo '" + 'ab"c' * 5000 + "' | wc -c").out, b"20001\n", "long code")


def test_bash_tells_its_status(t):
    p = bash(t)
    for code, status in (("false", 1), ("(exit 4)", 4), ("nosuch-command", 127), ("if", 2), ("f() { return 3; }; f", 3)):
        a = p.run(code)
        t.equal((a.status, a.end["exit_status"]), ("error", status), code)
    t.contains(p.run("true\nnosuch").err, b"line 2: nosuch: command not found", "the line")
    p.ok("set -e; false || true")
    t.equal(p.ok("echo on; set +e").out, b"on\n", "set -e lasts and does not cost the shell by itself")
    t.equal(p.run("echo last; exit 3").end, GONE, "exit")
    t.equal(p.process.wait(10), 3, "exit code")
    p = bash(t)
    a = p.run("exec echo replaced")
    t.equal(a.end, GONE, "exec")
    p.process.wait(10)
    t.equal(a.out + p.drain(p.out), b"replaced\n", "output of what took its place")


def test_bash_yields_to_an_interrupt(t):
    p = bash(t)
    p.ok("x=1")
    for code in ("sleep 30", "while :; do :; done", "for i in 1 2; do sleep 30; echo NO; done",
                 "g() { while :; do :; done; echo NO; }; h() { g; echo NO; }; for i in 1 2; do h; echo NO; done", "sleep 30 & wait"):
        a = p.interrupted(f"echo go; {code}; echo NO")
        t.equal(a.status, "error", code)
        t.equal(p.ok("echo $x").out, b"1\n", f"after {code}")
    p.interrupt()
    for _ in range(50):
        p.ok("true")


if __name__ == "__main__":
    tap.main(globals())
