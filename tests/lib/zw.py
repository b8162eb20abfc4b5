"""Runs zwinger from a test and says what came of it.

The program is $ZWINGER (else build/bin/zwinger of this checkout). Every run gets --result, unless the test says otherwise, so that
the document can be looked at beside the exit status and the streams.
"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import tap  # noqa: E402
from tap import AM_ROOT, Failure, Skip, alone, as_root, as_user, asleep, remove_tree  # noqa: E402,F401

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PYTHON = "/usr/bin/python3"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _first(*candidates):
    for c in candidates:
        if c and os.path.exists(c):
            return os.path.realpath(c)
    return candidates[0] or candidates[1]


ZWINGER = _first(os.environ.get("ZWINGER"), os.path.join(TOP, "build/bin/zwinger"), os.path.join(TOP, "build/src/cli/zwinger"))
TOOLS = _first(os.environ.get("ZWINGER_TEST_TOOLS"), os.path.join(TOP, "build/tests/tools"))
INSIDE = os.path.join(TOOLS, "inside")


def caller_environment(extra=None):
    env = {"PATH": PATH, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    env.update(extra or {})
    return {k: v for k, v in env.items() if v is not None}


def become_subreaper():
    """Orphans of what we start become our children: what is left behind is then ours to see, and nobody else's."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def descendants():
    """Live processes below this one: {pid: (parent, command, state)}."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                text = f.read().decode(errors="replace")
        except OSError:
            continue
        comm = text[text.index("(") + 1:text.rindex(")")]
        rest = text[text.rindex(")") + 2:].split()
        table[int(name)] = (int(rest[1]), comm, rest[0])
    mine, grew = {os.getpid()}, True
    while grew:
        grew = False
        for pid, (parent, _, _) in table.items():
            if parent in mine and pid not in mine:
                mine.add(pid)
                grew = True
    mine.discard(os.getpid())
    return {p: table[p] for p in mine}


def reap_zombies():
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


class Run:
    """What one run came to."""

    def __init__(self, argv, code, out, err, doc, wall):
        self.argv, self.code, self.out, self.err, self.doc, self.wall = argv, code, out, err, doc, wall

    @property
    def text(self):
        return self.out.decode(errors="replace")

    @property
    def errors(self):
        return self.err.decode(errors="replace")

    @property
    def lines(self):
        return self.text.splitlines()

    @property
    def own_lines(self):
        """Lines on stderr that are zwinger's."""
        return [x for x in self.errors.splitlines() if x.startswith("zwinger: ")]

    @property
    def status(self):
        return (self.doc or {}).get("status")

    @property
    def reason(self):
        return (self.doc or {}).get("reason") or ""

    def denials(self, kind=None):
        return [d for d in (self.doc or {}).get("denials") or [] if kind in (None, d.get("kind"))]

    def show(self):
        def cut(data):
            text = data.decode(errors="backslashreplace")
            return text if len(text) < 3000 else text[:1500] + f"\n... {len(text)} characters ...\n" + text[-1000:]

        return (f"ran: {' '.join(map(repr, self.argv))}\nexit status {self.code} after {self.wall:.3f} s\n"
                f"--- stdout\n{cut(self.out)}\n--- stderr\n{cut(self.err)}\n--- result\n{json.dumps(self.doc, indent=1)[:4000]}")


class Running:
    """A run that was started and not yet waited for."""

    def __init__(self, test, argv, process, result_path, started):
        self.test, self.argv, self.process, self.result_path, self.started = test, argv, process, result_path, started
        self.pid = process.pid

    def send(self, signum):
        os.kill(self.process.pid, signum)

    def read_line(self, seconds=20):
        """One line of its stdout."""
        import select
        line = b""
        end = time.monotonic() + seconds
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Failure(f"no line within {seconds} s, only {line!r}")
            c = os.read(self.process.stdout.fileno(), 1)
            if not c:
                break
            line += c
        return line

    def finish(self, seconds=60, stdin=None):
        try:
            out, err = self.process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = b"", b""
            try:
                out, err = self.process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                pass
            self.test.note(f"ran: {self.argv}\n--- stdout\n{(out or b'')[-2000:]!r}\n--- stderr\n{(err or b'')[-2000:]!r}")
            raise Failure(f"zwinger did not end within {seconds} s")
        wall = time.monotonic() - self.started
        doc = None
        if self.result_path and os.path.exists(self.result_path):
            with open(self.result_path, "rb") as f:
                text = f.read()
            try:
                doc = json.loads(text)
            except ValueError as e:
                raise Failure(f"the result document is not JSON ({e}): {text[:500]!r}")
        run = Run(self.argv, self.process.returncode, out or b"", err or b"", doc, wall)
        self.test.last(run)
        return run


class SandboxTest(tap.Test):
    def __init__(self, name):
        super().__init__(name)
        self._runs = []
        self._live = []
        self._count = 0

    def last(self, run):
        self._runs.append(run)

    # ---- starting ----------------------------------------------------------

    def command(self, argv, flags=(), policy=None, result=True):
        """The command line, and where its result document will be."""
        line = [ZWINGER, "run"]
        self._count += 1
        if policy is not None:
            line += ["--policy", self.policy(policy)]
        path = None
        if result:
            path = self.tmp(f"result-{self._count}.json")
            line += ["--result", path]
        return line + list(flags) + ["--"] + list(argv), path

    def policy(self, policy):
        self._count += 1
        if isinstance(policy, dict):
            return self.file(json.dumps(policy), f"policy-{self._count}.json")
        return self.file(policy, f"policy-{self._count}.yaml")

    def start(self, *argv, flags=(), policy=None, result=True, stdin=subprocess.DEVNULL, env=None, cwd=None, stdout=subprocess.PIPE,
              stderr=subprocess.PIPE, **more):
        line, path = self.command(argv, flags, policy, result)
        started = time.monotonic()
        process = subprocess.Popen(line, stdin=stdin, stdout=stdout, stderr=stderr, env=caller_environment(env), cwd=cwd or self.folder("cwd"),
                                   start_new_session=True, **more)
        running = Running(self, line, process, path, started)
        self._live.append(running)
        return running

    def run(self, *argv, stdin=None, timeout=60, **more):
        """Runs to the end. stdin: bytes, a file, or None for /dev/null."""
        data = stdin if isinstance(stdin, bytes) else None
        if data is not None:
            more["stdin"] = subprocess.PIPE
        elif stdin is not None:
            more["stdin"] = stdin
        return self.start(*argv, **more).finish(timeout, data)

    def inside(self, *verb, flags=(), **more):
        """Runs the helper program inside."""
        return self.run(INSIDE, *map(str, verb), flags=["--ro", TOOLS, *flags], **more)

    def json(self, *argv, flags=(), **more):
        """Runs with --json: the document is all there is on stdout."""
        run = self.run(*argv, flags=["--json", *flags], result=False, **more)
        try:
            run.doc = json.loads(run.out)
        except ValueError as e:
            raise Failure(f"--json printed something that is not one document: {e}")
        return run

    def plain(self, *args, stdin=b"", timeout=30, env=None, cwd=None):
        """zwinger with these arguments, whatever they are."""
        start = time.monotonic()
        p = subprocess.run([ZWINGER, *args], input=stdin, capture_output=True, timeout=timeout, env=caller_environment(env), cwd=cwd or self.folder("cwd"))
        run = Run([ZWINGER, *args], p.returncode, p.stdout, p.stderr, None, time.monotonic() - start)
        self.last(run)
        return run

    # ---- verdicts ----------------------------------------------------------

    def expect(self, run, code=None, status=None, out=None, err=None, own=None):
        """Compares what is given; shows the whole run when it differs."""
        if code is not None:
            self.equal(run.code, code, "exit status")
        if status is not None:
            self.equal(run.status, status, "status")
        if out is not None:
            self.equal(run.out, out if isinstance(out, bytes) else out.encode(), "stdout")
        if err is not None:
            self.equal(run.err, err if isinstance(err, bytes) else err.encode(), "stderr")
        if own is not None:
            self.equal(len(run.own_lines), own, "number of lines of zwinger's on stderr")
        return run

    def refused(self, run, *words):
        """Nothing ran, and the message names what is wrong."""
        self.equal(run.code, 125, "exit status")
        self.check(run.own_lines, "no line of zwinger's on stderr")
        for w in words:
            self.contains(run.errors.lower(), w.lower(), "message")
        if run.doc is not None:
            self.equal(run.status, "refused", "status")
        return run

    def finish(self):
        for r in self._live:
            if r.process.poll() is None:
                r.process.kill()
            try:
                r.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            for f in (r.process.stdin, r.process.stdout, r.process.stderr):
                if f is not None:
                    try:
                        f.close()
                    except OSError:
                        pass
        self.undo()
        left = self.processes_left()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        super().finish()
        if left:
            raise Failure(f"processes are left after the test: {left}")

    @staticmethod
    def processes_left(seconds=3):
        """Every process that the test started is ours, or became ours when its parent ended."""
        end = time.monotonic() + seconds
        while True:
            reap_zombies()
            left = descendants()
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.002)


def _with_last_run(function, *args):
    """The last run is shown when a verdict on it is wrong."""
    try:
        return function(*args)
    except Failure:
        test = args[0]
        if test._runs:
            test.note(test._runs[-1].show())
        raise


def main(namespace, limit=120):
    become_subreaper()
    if not os.access(ZWINGER, os.X_OK):
        print(f"1..1\nnot ok 1 - {os.path.basename(sys.argv[0])}\n#   {ZWINGER} is not there; build first, or set ZWINGER")
        sys.exit(1)
    wrapped = {}
    for name, function in namespace.items():
        if name.startswith("test_") and callable(function):
            def call(t, function=function):
                return _with_last_run(function, t)
            call.__name__ = name
            call.__dict__.update(function.__dict__)
            wrapped[name] = call
    tap.main(wrapped, SandboxTest, limit)
