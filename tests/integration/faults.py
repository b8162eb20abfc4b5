#!/usr/bin/python3 -B
# shards: 4
"""Each system call of the set-up made to fail in turn. The command leaves a mark that also says what it sees: either there is no mark, or
every wall was up. And nothing may be left behind."""
import json
import re
import subprocess
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402

import leftovers  # noqa: E402

# What a set-up can do to the kernel and not do without. Calls that only read or only free something are not here, nor is what the dynamic
# loader of a test would need; strace refuses names that it does not know, so each is tried by itself.
CALLS = ["clone3", "clone", "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "move_mount", "open_tree",
         "mount_setattr", "openat", "openat2", "mkdirat", "mkdir", "symlinkat", "mknodat", "write", "pwrite64", "fchmod", "fchown", "fchownat", "chdir",
         "fchdir", "sethostname", "setresuid", "setresgid", "setgroups", "setuid", "setgid", "capset", "prctl", "seccomp", "landlock_create_ruleset",
         "landlock_add_rule", "landlock_restrict_self", "close_range", "setrlimit", "prlimit64", "socket", "socketpair", "ioctl", "sendto", "sendmsg",
         "recvmsg", "recvfrom", "read", "pipe2", "memfd_create", "fcntl", "execveat", "execve", "setsid", "dup3", "dup2", "mmap", "fstat", "newfstatat",
         "statx", "fstatfs", "statfs", "getrandom", "epoll_create1", "epoll_ctl", "signalfd4", "timerfd_create", "timerfd_settime", "pidfd_open",
         "eventfd2", "rt_sigprocmask", "rt_sigaction", "waitid", "pidfd_getfd", "pidfd_send_signal", "poll", "ppoll", "readlinkat", "unlinkat", "getdents64",
         "sched_setaffinity", "umask", "ftruncate", "linkat", "renameat2", "fallocate", "kcmp", "mprotect", "utimensat", "setpriority", "keyctl"]
ERRORS = ("EPERM", "ENOSYS")
MOST = 80  # of one call by one process; more than any set-up makes
AT_MOST = {"ioctl": 8}  # the others are for refused calls of the command itself, when it runs already


FLAGS = ["--memory", "64M", "--processes", "40", "--scratch", "10M", "--files", "100", "--time", "5s", "--ro", zw.TOOLS]


# With network rules there is a second process and a second namespace; what they do beyond the rest.
NETWORK = ["--allow", "origin.test", "--allow", "*.two.test:8000"]
NETWORK_CALLS = ["unshare", "setns", "socket", "socketpair", "bind", "listen", "setsockopt", "sendto", "recvfrom", "sendmsg", "recvmsg", "fcntl", "memfd_create",
                 "pidfd_open", "prctl", "seccomp", "landlock_restrict_self", "landlock_create_ruleset", "close_range", "epoll_create1", "epoll_create",
                 "setresuid", "setresgid", "setgroups", "prlimit64", "capset", "execve", "clone", "vfork"]


def command(t, w, more=()):
    return t.command([zw.INSIDE, "look", "/work/mark"], [*FLAGS, *more, "--workspace", f"{w}:/work:rw"])


def count_calls(t, w, more):
    """How often each call is made by the process that makes it most: {name: times}. Faults are counted per process too."""
    log = t.tmp("trace")
    line, _ = command(t, w, more)
    p = subprocess.run(["strace", "-f", "-qq", "-o", log, *line], capture_output=True, env=zw.caller_environment(), timeout=60)
    t.check(p.returncode == 0, f"zwinger does not run under strace: {p.stderr!r}")
    counts = {}
    with open(log, errors="replace") as f:
        for text in f:
            m = re.match(r"(\d+) +([a-z0-9_]+)\(", text)
            if m:
                of_one = counts.setdefault(m.group(2), {})
                of_one[m.group(1)] = of_one.get(m.group(1), 0) + 1
    return {call: max(of_one.values()) for call, of_one in counts.items()}


def take_mark(w):
    """What the command wrote, or None when it did not run."""
    path = os.path.join(w, "mark")
    if not os.path.exists(path):
        return None
    with open(path) as f:
        text = f.read()
    os.unlink(path)
    return text


def expected_mark(t, w, more):
    line, _ = command(t, w, more)
    p = subprocess.run(line, capture_output=True, env=zw.caller_environment(), timeout=60)
    t.check(p.returncode == 0, f"zwinger does not run: {p.stderr!r}")
    return take_mark(w)


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, 9)
        except OSError:
            pass


def inject(t, call, number, error, w, more):
    """Runs with the fault: the exit status ("hung" when there was none in time), and the document."""
    line, result = command(t, w, more)
    p = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                          f"inject={call}:error={error}:when={number}", *line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=zw.caller_environment(), start_new_session=True)
    doc = None
    try:
        p.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        kill_all([p.pid, *zw.descendants()])
        p.communicate()
        return "hung", None
    if os.path.exists(result):
        with open(result) as f:
            try:
                doc = json.load(f)
            except ValueError:
                doc = None
        os.unlink(result)
    return p.returncode, doc


def processes_left(seconds=3):
    end = time.monotonic() + seconds
    while True:
        zw.reap_zombies()
        left = zw.descendants()
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.003)


def faults_of(code, doc, got, want):
    """What is wrong with this ending; nothing, mostly."""
    if code == "hung":
        yield "zwinger hangs"
        return
    if got is not None and got != want:
        a, b = got.split(), want.split()
        differ = [f"{a[i - 1]} {x}, not {y}" for i, (x, y) in enumerate(zip(a, b)) if x != y]
        yield f"the command ran with other walls: {differ or [got]}"
    if got is None and code == 0:
        yield "exit status 0 although the command did not run"
    if code in (-11, 139, -6, 134, -7, -4):
        yield f"zwinger crashed ({code})"
    for control, by in ((doc or {}).get("enforcement") or {}).items():
        if by == "none" and got is not None:
            yield f"the command ran although {control} was not held"


def fail_each(t, names, more):
    t.need("strace")
    w = t.folder("w")
    want = expected_mark(t, w, more)
    counts = count_calls(t, w, more)
    t.check(take_mark(w) == want, "under strace the walls look different")
    before = leftovers.Snapshot()
    tried, wrong = 0, []
    for call in names:
        for number in range(1, min(counts.get(call, 0), AT_MOST.get(call, MOST)) + 1):
            for error in ERRORS if number <= 3 else ERRORS[:1]:
                code, doc = inject(t, call, number, error, w, more)
                tried += 1
                where = f"{call} number {number} of {counts[call]} failing with {error}"
                wrong += [f"{where}: {x}" for x in faults_of(code, doc, take_mark(w), want)]
                left = processes_left()
                if left:
                    wrong.append(f"{where}: processes are left: {left}")
                    kill_all(left)
    t.run("true")
    left = before.news()
    if left:
        wrong.append(f"left behind: {left}")
    if wrong:
        t.fail(f"{len(wrong)} faults of {tried} that were tried:\n" + "\n".join(wrong[:60]))
    t.check(tried or not set(names) & set(counts), "nothing was tried")


def make(name, calls, more=()):
    def test(t):
        fail_each(t, calls, more)

    test.__name__ = name
    test.limit = 600
    return test


PARTS = 8
for _i in range(PARTS):
    _name = f"test_the_command_does_not_start_with_a_wall_missing_when_a_call_fails_part_{_i + 1}_of_{PARTS}"
    globals()[_name] = make(_name, CALLS[_i::PARTS])
NETWORK_PARTS = 4
for _i in range(NETWORK_PARTS):
    _name = f"test_the_command_does_not_start_when_a_call_for_its_network_fails_part_{_i + 1}_of_{NETWORK_PARTS}"
    globals()[_name] = make(_name, NETWORK_CALLS[_i::NETWORK_PARTS], NETWORK)


if __name__ == "__main__":
    zw.main(globals(), limit=600)
