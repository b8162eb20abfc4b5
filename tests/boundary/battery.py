#!/usr/bin/python3 -B
# shards: 8
"""The battery of probes (README.md) against this build: every probe of the levels core and hard must hold, at the container level and at
the process level; what the process level does not hold is in process-level.expected, with the reason, and nowhere else."""
import fnmatch
import re
import shutil
import subprocess
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402


HERE = os.path.dirname(os.path.realpath(__file__))
BUILT = os.environ.get("ZWINGER_TEST_BOUNDARY") or os.path.join(zw.TOP, "build/tests/boundary")
PROGRAMS = ["p_dev", "p_env", "p_exec", "p_fd", "p_files", "p_ipc", "p_limits", "p_net", "p_ns", "p_out", "p_priv", "p_proc", "p_procs", "p_sys", "p_tty",
            "idprobe", "hosthelper"]

# Below the caps of the battery, so that reaching a cap means that the limit does not hold.
LIMITS = {"version": 1, "limits": {"memory": "256M", "processes": 128, "cpu_time": "3s", "time": "15s", "disk": "200M", "output": "16M", "open_files": 1024},
          "filesystem": {"scratch": {"size": "100M", "inodes": 8000}}}

# Probes of the level `policy` that the default policy decides otherwise: code that agents write is compiled and run, in scratch and in the
# output folder; pipes in an output folder are ordinary files of many programs; so are the files of tools that a project holds.
ALLOWED = {
    "exec_scratch": "compilers and test suites run what they build (scratch.exec: true)",
    "exec_out": "an output folder is also where programs are built",
    "exec_memfd": "executing from memory gives nothing that executing a file in scratch does not",
    "out_fifo": "a FIFO is no way out; it is listed among the created files",
    "py_agent_files": "a workspace holds such files of right; they are listed among the created files",
}


def stage(t):
    """A folder as the battery wants it: its scripts, and the programs below build/."""
    place = t.folder("battery")
    for name in ("battery.sh", "host.sh"):
        shutil.copy(os.path.join(HERE, name), place)
    os.chmod(os.path.join(place, "battery.sh"), 0o755)
    build = t.folder("battery", "build")
    for name in PROGRAMS:
        shutil.copy(os.path.join(BUILT, name), build)
    shutil.copy(os.path.join(HERE, "p_py.py"), build)
    with open(os.path.join(build, "marker"), "w") as f:
        f.write("a file of the read-only input directory\n")
    os.chmod(t._tmp, 0o755)
    return place


def probes():
    """{name: level} of all."""
    found = {}
    for name in PROGRAMS:
        if name.startswith("p_"):
            for line in subprocess.run([os.path.join(BUILT, name), "list"], capture_output=True, text=True).stdout.splitlines():
                found[line.split()[0]] = line.split()[1]
    for line in subprocess.run([zw.PYTHON, os.path.join(HERE, "p_py.py"), "list"], capture_output=True, text=True).stdout.splitlines():
        found[line.split()[0]] = line.split()[1]
    return found


def expected(of_everybody=False):
    """Of process-level.expected: {probe: why}. Some hold for root alone."""
    found = {}
    with open(os.path.join(HERE, "process-level.expected")) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, why = line.strip().split(None, 1)
                if of_everybody or not zw.AM_ROOT or not why.startswith("as an ordinary user:"):
                    found[name] = why
    return found


def battery(t, globs, template, options=()):
    """{probe: (verdict, detail)}"""
    place = stage(t)
    table = t.tmp("table")
    line = [os.path.join(place, "battery.sh"), "-B", "-j", table, *options]
    for g in globs:
        line += ["-k", g]
    p = subprocess.run([*line, "--", *template], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=zw.caller_environment(), timeout=500)
    t.note(f"{p.stdout}\n{p.stderr}")
    t.check(p.returncode in (0, 1), f"the battery could not run: {p.stderr}")
    found = {}
    with open(table, errors="replace") as f:
        for row in f:
            name, verdict, _, _, detail = (row.rstrip("\n").split("\t") + [""] * 5)[:5]
            found[name] = (verdict, detail)
    return found


def judge(t, found, levels, excused):
    """`excused`: probes that may fail, with the reason."""
    wrong = []
    for name, (verdict, detail) in found.items():
        if verdict == "FAIL" and name not in excused:
            wrong.append(f"{name} ({levels[name]}): {detail}")
    if wrong:
        t.fail("\n".join(wrong))


GROUPS = {
    "devices and descriptors": ["dev_*", "fd_*", "env_*"],
    "proc, sys and control groups": ["proc_*", "sys_write", "sys_trees", "cgroup_*"],
    "privileges": ["priv_*"],
    "namespaces and mounts": ["ns_*", "mnt_*"],
    "processes": ["ps_*"],
    "system calls": ["sys_*"],
    "network and sockets": ["net_*", "sock_*", "unix_*"],
    "terminal, IPC and output": ["tty_*", "ipc_*", "out_*"],
    "files, code and python": ["file_*", "exec_*", "py_*"],
    "limits": ["lim_*"],
}


def container(t, globs):
    policy = t.policy(LIMITS)
    levels = probes()
    found = battery(t, globs, [zw.ZWINGER, "run", "--quiet", "--policy", policy, "--ro", "{BIN}:/in", "--rw", "{OUT}:/out", "--"], ["-b", "/in", "-o", "/out"])
    judge(t, found, levels, ALLOWED)


def container_terminal(t, globs):
    """With --tty the sandbox has a terminal, and the probes of terminals have something to aim at."""
    policy = t.policy(LIMITS)
    found = battery(t, globs, [zw.ZWINGER, "run", "--quiet", "--tty", "--policy", policy, "--ro", "{BIN}:/in", "--rw", "{OUT}:/out", "--"],
                    ["-b", "/in", "-o", "/out"])
    judge(t, found, probes(), ALLOWED)


def process(t, globs):
    """The process level shows no folder elsewhere, so both keep their names. -BB: there are no namespaces that would show the battery that there
    is a sandbox around."""
    policy = t.policy(LIMITS)
    excused = expected()
    found = battery(t, globs, [zw.ZWINGER, "run", "--quiet", "--isolation", "process", "--best-effort", "--policy", policy, "--ro", "{BIN}", "--rw", "{OUT}", "--"],
                    ["-BB"])
    judge(t, found, probes(), {**ALLOWED, **excused})
    idle = [n for n in excused if n in found and found[n][0] == "PASS"]
    t.check(not idle, f"process-level.expected excuses what holds: {idle}")


def _make(level, title, globs):
    def test(t):
        level(t, globs)

    test.limit = 560
    return test


for _title, _globs in GROUPS.items():
    _word = re.sub(r"\W+", "_", _title)
    globals()[f"test_container_level_{_word}"] = _make(container, _title, _globs)
    globals()[f"test_process_level_{_word}"] = _make(process, _title, _globs)
test_container_level_with_a_terminal = _make(container_terminal, "terminal", ["tty_*", "fd_*", "ps_stop_init"])


def test_every_probe_is_in_one_of_the_groups(t):
    left = [n for n in probes() if not any(fnmatch.fnmatch(n, g) for globs in GROUPS.values() for g in globs)]
    t.equal(left, [], "probes that no group runs")
    t.between(len(probes()), 140, 1000, "probes")


def test_every_excuse_is_for_a_probe_that_exists(t):
    t.equal(sorted(set(expected(True)) - set(probes())), [], "names in process-level.expected that no probe has")


def test_the_documentation_lists_what_the_process_level_does_not_hold(t):
    path = os.path.join(zw.TOP, "docs/security.md")
    if not os.path.exists(path):
        t.skip("docs/security.md is not there")
    with open(path) as f:
        text = f.read()
    t.equal([name for name in expected(True) if name not in text], [], "probes that docs/security.md does not name")


def test_the_battery_sees_something_without_a_sandbox(t):
    """A wall of passes is worth nothing if the same probes pass without any wall."""
    place = stage(t)
    p = subprocess.run([os.path.join(place, "battery.sh"), "-n", "-k", "ns_*", "-k", "file_*", "-k", "env_*", "-k", "priv_*", "-k", "ps_visible"], capture_output=True,
                       text=True, stdin=subprocess.DEVNULL, env=zw.caller_environment(), timeout=300)
    t.equal(p.returncode, 1, "exit status without a sandbox")
    t.check(p.stdout.count("FAIL ") > 10, f"failures without a sandbox:\n{p.stdout}")


if __name__ == "__main__":
    zw.main(globals(), limit=560)
