"""Tests as functions, printed as TAP.

A suite is a program: it defines functions named test_WHAT_IT_DOES(t) and calls tap.main(). Each takes a Test, which owns a temporary
folder and what was started in it. A test ends by returning (passed), by Failure or any other exception (failed), or by Skip, whose
text names the thing that this machine lacks.

  suite.py [--list] [--only parallel|alone|asleep] [--shard I/N] [-k TEXT]...

Tests marked @asleep wait for minutes and do nothing meanwhile; the runner begins with them, beside all others. Tests marked @alone measure time or load the machine; the runner never runs anything beside them. Tests marked @as_root or @as_user
exist only for that caller and are not counted for the other one.
"""
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

AM_ROOT = os.geteuid() == 0


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def asleep(function):
    function.asleep = True
    return function


def alone(function):
    function.alone = True
    return function


def as_root(function):
    function.caller = "root"
    return function


def as_user(function):
    function.caller = "user"
    return function


def mounts_below(path):
    """Mount points at or below a folder."""
    path = os.path.realpath(path).encode()
    found = []
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            point = line.split(b" ")[4].decode("unicode_escape").encode("latin-1")
            if point == path or point.startswith(path + b"/"):
                found.append(os.fsdecode(point))
    return found


def remove_tree(path):
    """Removes a folder that a test made. Never crosses a mount: one that is left there is a failure, not something to empty."""
    left = mounts_below(path)
    if left:
        raise Failure(f"mounts are left below {path}: {left}")

    def make_removable(function, name, info):
        os.chmod(os.path.dirname(name), 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            os.chmod(name, 0o700)
        function(name)

    for folder, folders, _ in os.walk(path):
        for name in folders:
            full = os.path.join(folder, name)
            if not os.path.islink(full) and not os.access(full, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(full, 0o700)
    shutil.rmtree(path, onerror=make_removable)


class Test:
    """What one test may use. Higher layers add to it by subclassing."""

    def __init__(self, name):
        self.name = name
        self.notes = []
        self._undo = []
        self._tmp = None

    # ---- surroundings ------------------------------------------------------

    def tmp(self, *names):
        """A path in the test's own folder; the folders on the way are made."""
        if self._tmp is None:
            self._tmp = tempfile.mkdtemp(prefix="t-")
        path = os.path.join(self._tmp, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def folder(self, *names):
        path = self.tmp(*names) if names else self.tmp("dir")
        os.makedirs(path, exist_ok=True)
        return path

    def file(self, content, *names, mode=0o644):
        path = self.tmp(*names) if names else self.tmp("file")
        with open(path, "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(path, mode)
        return path

    def at_end(self, function, *args):
        self._undo.append((function, args))

    def note(self, text):
        """Shown only when the test fails."""
        self.notes.append(str(text))

    def undo(self):
        """Runs what was registered, last first."""
        errors = []
        while self._undo:
            function, args = self._undo.pop()
            try:
                function(*args)
            except Exception as e:  # every clean-up gets its turn
                errors.append(f"{function.__name__}: {e}")
        if errors:
            raise Failure("clean-up: " + "; ".join(errors))

    def finish(self):
        try:
            self.undo()
        finally:
            if self._tmp is not None:
                remove_tree(self._tmp)

    # ---- verdicts ----------------------------------------------------------

    def fail(self, text):
        raise Failure(text)

    def skip(self, text):
        raise Skip(text)

    def need(self, *programs):
        for p in programs:
            if not any(os.access(os.path.join(d, p), os.X_OK) for d in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")):
                raise Skip(f"{p} is not installed")

    def check(self, condition, text):
        if not condition:
            raise Failure(text)

    def equal(self, got, want, what="value"):
        if got != want:
            raise Failure(f"{what}: got {got!r}, expected {want!r}")

    def among(self, got, wanted, what="value"):
        if got not in wanted:
            raise Failure(f"{what}: got {got!r}, expected one of {wanted!r}")

    def between(self, got, low, high, what="value"):
        if not isinstance(got, (int, float)) or not low <= got <= high:
            raise Failure(f"{what}: got {got!r}, expected {low} to {high}")

    def contains(self, text, part, what="text"):
        if part not in text:
            raise Failure(f"{what}: {part!r} is not in {text!r}")

    def lacks(self, text, part, what="text"):
        if part in text:
            raise Failure(f"{what}: {part!r} is in {text!r}")

    def until(self, condition, seconds, text):
        """Waits for something that only the outside shows (a file of another process, a group that goes away)."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Failure(f"not within {seconds} s: {text() if callable(text) else text}")
            time.sleep(0.01)


class TooLong(BaseException):
    """Not an Exception: no test may swallow it."""


def _run_one(function, test, limit):
    def on_alarm(signum, frame):
        raise TooLong(f"the test took longer than {limit} s")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(limit)
    verdict, text = "ok", ""
    try:
        function(test)
    except Skip as e:
        verdict, text = "skip", str(e)
    except Failure as e:
        where = traceback.extract_tb(e.__traceback__)
        line = [f for f in where if f.name == function.__name__ or f.name.startswith("test_")]
        verdict, text = "failed", f"{e}" + (f"\nat {os.path.basename(line[-1].filename)}:{line[-1].lineno}" if line else "")
    except (Exception, TooLong):
        verdict, text = "failed", traceback.format_exc()
    signal.alarm(0)
    notes = list(test.notes)
    signal.alarm(60)
    try:
        test.finish()
    except (Exception, TooLong) as e:
        verdict, text = "failed", (text + "\n" if verdict == "failed" else "") + str(e)
    signal.alarm(0)
    return verdict, text, notes


def _options(argv):
    chosen = {"list": False, "only": None, "shard": (0, 1), "match": []}
    i = 0
    while i < len(argv):
        if argv[i] == "--list":
            chosen["list"] = True
        elif argv[i] == "--only":
            i += 1
            chosen["only"] = argv[i]
        elif argv[i] == "--shard":
            i += 1
            a, b = argv[i].split("/")
            chosen["shard"] = (int(a), int(b))
        elif argv[i] == "-k":
            i += 1
            chosen["match"].append(argv[i])
        else:
            sys.exit(f"{sys.argv[0]}: unknown option {argv[i]}")
        i += 1
    return chosen


def _chosen(tests, options):
    caller = "root" if AM_ROOT else "user"
    out = []
    for name, function in tests:
        if getattr(function, "caller", caller) != caller:
            continue
        kind = "alone" if getattr(function, "alone", False) else "asleep" if getattr(function, "asleep", False) else "parallel"
        if options["only"] and options["only"] != kind:
            continue
        if options["match"] and not any(m in name for m in options["match"]):
            continue
        out.append((name, function))
    i, n = options["shard"]
    return out[i::n]


def main(namespace, make_test=Test, limit=120):
    """Runs the suite's tests in the order of their definition. Ends the program."""
    tests = [(n, f) for n, f in namespace.items() if n.startswith("test_") and callable(f)]
    options = _options(sys.argv[1:])
    tests = _chosen(tests, options)
    if options["list"]:
        for name, _ in tests:
            print(name)
        sys.exit(0)
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, function) in enumerate(tests, 1):
        start = time.monotonic()
        verdict, text, notes = _run_one(function, make_test(name), getattr(function, "limit", limit))
        took = time.monotonic() - start
        title = name[5:].replace("_", " ")
        if verdict == "failed":
            failed += 1
            print(f"not ok {number} - {title}")
            for line in (text + "\n" + "\n".join(notes)).strip().splitlines():
                print(f"#   {line}")
        elif verdict == "skip":
            print(f"ok {number} - {title} # SKIP {text}")
        else:
            print(f"ok {number} - {title}")
        print(f"# took {took:.3f} s", flush=True)
    sys.exit(1 if failed else 0)
