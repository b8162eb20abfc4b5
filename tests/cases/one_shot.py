#!/usr/bin/python3 -B
# shards: 4
"""Things that went wrong for users of existing sandboxes, each with the outcome a user would call right. The reproductions are in
files/ID; README.md says where each case comes from and which are not here yet."""
import glob
import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import zw  # noqa: E402
from terminal import Terminal  # noqa: E402

PYTHON = zw.PYTHON
FILES = os.path.join(HERE, "files")
CPUS = "1"


def workspace(t, case, name=None):
    """A fresh copy of the case's files: the writable working folder of the run."""
    path = t.tmp(name or case)
    if os.path.isdir(os.path.join(FILES, case)):
        shutil.copytree(os.path.join(FILES, case), path)
    else:
        os.makedirs(path)
    return path


def conditions(folder, **changed):
    """The conditions of every case that does not say otherwise, as flags."""
    flags = {"memory": "512M", "processes": "128", "cpus": CPUS, "time": "30s", "output": "8M", **changed}
    out = ["--workspace", f"{folder}:/work:rw"]
    for name, value in flags.items():
        if value is not None:
            out += ["--" + name.replace("_", "-"), value]
    return out


def run(t, folder, *argv, more=(), **changed):
    kept = {k: changed.pop(k) for k in ("stdin", "env", "timeout") if k in changed}
    return t.run(*argv, flags=conditions(folder, **changed) + list(more), **kept)


def python(t, folder, *argv, **changed):
    return run(t, folder, PYTHON, *argv, **changed)


# ---- Python and data ------------------------------------------------------------------------------------------------------


def test_B01_a_process_pool_a_lock_and_a_semaphore(t):
    r = python(t, workspace(t, "B01"), "pool.py")
    t.expect(r, code=0, out="[0, 3, 6, 9, 12]\n", err="")


def test_B02_multiprocessing_by_forkserver(t):
    r = python(t, workspace(t, "B02"), "forkserver.py")
    t.expect(r, code=0, out="[9, 16, 25]\n")


def test_B03_numpy_under_a_process_limit(t):
    r = python(t, workspace(t, "B03"), "solve.py")
    t.expect(r, code=0, out="(400, 400) 5188 50\n", err="")


@zw.alone
def test_B03_threads_while_ten_other_sandboxes_run_the_same(t):
    runs = [t.start(PYTHON, "threads.py", flags=conditions(workspace(t, "B03", f"b03-{i}"))) for i in range(11)]
    for r in runs:
        t.expect(r.finish(), code=0, out="48 threads\n")


def test_B03_threads_over_the_limit(t):
    r = python(t, workspace(t, "B03"), "threads.py", processes="20")
    t.expect(r, code=1)
    t.equal(r.errors.splitlines()[-1], "RuntimeError: can't start new thread", "last line of stderr")
    t.check(any(d.get("name") == "processes" for d in r.denials("process")), "the result does not name the process limit")


def test_B04_a_chart_from_a_data_frame(t):
    w = workspace(t, "B04")
    r = python(t, w, "chart.py")
    t.expect(r, code=0, out="{'a': 3, 'b': 12} True\n")
    t.lacks(r.errors, "Traceback", "stderr")
    with open(os.path.join(w, "chart.png"), "rb") as f:
        t.equal(f.read(8), b"\x89PNG\r\n\x1a\n", "signature of chart.png")


def test_B05_the_wake_up_of_an_event_loop(t):
    r = python(t, workspace(t, "B05"), "wake.py")
    t.expect(r, code=0, out="42\nping\n")
    t.between(r.wall, 0, 5, "seconds")


# ---- Node -----------------------------------------------------------------------------------------------------------------


def test_B06_nodes_fetch_under_a_memory_limit(t):
    t.need("node")
    for memory in ("512M", "256M"):
        r = run(t, workspace(t, "B06", memory), "node", "boot.js", memory=memory)
        t.expect(r, code=0, out="1048576 fetch initialised\n")


def test_B07_refused_system_calls_look_refused_and_not_fatal(t):
    r = python(t, workspace(t, "B07"), "probe.py")
    t.expect(r, code=0)
    one, two, three = r.lines
    t.among(one, [f"io_uring_setup {e}" for e in ("EFAULT", "EINVAL", "EPERM", "ENOSYS")], "line 1")
    t.among(two, ["clone3 EINVAL", "clone3 ENOSYS"], "line 2")
    t.equal(three, "thread ran", "line 3")
    t.equal(r.denials(), [], "denials: these probes are answered in the kernel")


# ---- Toolchains -----------------------------------------------------------------------------------------------------------


def test_B08_go_build_with_nothing_set_up(t):
    t.need("go")
    w = workspace(t, "B08")
    before = set(os.listdir(w))
    r = run(t, w, "sh", "build.sh", time="120s", cpu_time="120s", memory="1G", scratch="900M", timeout=150)
    t.expect(r, code=0, out="built and ran\n")
    t.equal(set(os.listdir(w)) - before, {"hello"}, "what is new in the workspace")


def test_B09_hard_links_and_renames_across_folders(t):
    r = run(t, workspace(t, "B09"), "sh", "links.sh")
    t.expect(r, code=0, out="data\ndata\n2\n", err="")


def test_B09_cargo_build(t):
    w = workspace(t, "B09")
    more = []
    if not os.access("/usr/bin/cargo", os.X_OK):
        found = glob.glob(pwd.getpwuid(os.getuid()).pw_dir + "/.rustup/toolchains/*/bin/cargo") if zw.AM_ROOT else []
        if not found:
            t.skip("a Rust toolchain is not installed")
        more = ["--ro", os.path.dirname(os.path.dirname(found[0])) + ":/opt/rust", "--env", "PATH=/opt/rust/bin:/usr/bin:/bin"]
    r = run(t, w, "sh", "-c", "cargo build --offline -q && target/debug/app", more=more, memory="1G", time="60s")
    t.expect(r, code=0, out="42\n")


# ---- Git ------------------------------------------------------------------------------------------------------------------


def repositories(t, case):
    t.need("git")
    base = t.folder("repositories")
    subprocess.run(["sh", os.path.join(FILES, case, "setup.sh")], cwd=base, check=True, capture_output=True,
                   env=zw.caller_environment({"GIT_CONFIG_GLOBAL": "/dev/null"}))
    return base


def tree(path):
    """Type and content of all below."""
    found = {}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            full = os.path.join(folder, name)
            if os.path.islink(full):
                found[full] = ("link", os.readlink(full))
            elif os.path.isdir(full):
                found[full] = ("folder", None)
            else:
                with open(full, "rb") as f:
                    found[full] = ("file", f.read())
    return found


def test_B10_a_linked_worktree_whose_git_is_a_file(t):
    wt = os.path.join(repositories(t, "B10"), "wt")
    with open(os.path.join(wt, ".git")) as f:
        before = f.read()
    r = run(t, wt, "sh", "-c", "ls -A; git status; echo rc $?")
    t.expect(r, code=0, out=".git\na.txt\nrc 128\n")
    with open(os.path.join(wt, ".git")) as f:
        t.equal(f.read(), before, ".git")


def test_B10_hooks_that_are_a_symlink(t):
    main = os.path.join(repositories(t, "B10"), "main")
    before = tree(os.path.join(main, ".git"))
    r = run(t, main, "sh", "-c", "git status --short; git log --oneline | wc -l; ls .git/hooks")
    t.check(r.code == 0, "exit status")
    t.equal(r.out, b"1\n", "stdout")
    after = tree(os.path.join(main, ".git"))
    index = os.path.join(main, ".git/index")  # its cached times may be refreshed
    before.pop(index), after.pop(index)
    t.equal(after, before, "the caller's .git")


def test_B11_git_in_a_workspace_that_the_caller_owns(t):
    main = os.path.join(repositories(t, "B11"), "main")
    with open(os.path.join(FILES, "B11/commit.sh"), "rb") as f:
        r = run(t, main, "sh", "-s", stdin=f)
    t.expect(r, code=0, out="second\nfirst\n 1 file changed, 1 insertion(+)\n")
    for folder, folders, files in os.walk(main):
        for name in folders + files:
            st = os.lstat(os.path.join(folder, name))
            t.equal((st.st_uid, st.st_gid), (os.getuid(), os.getgid()), f"owner of {name}")
    log = subprocess.run(["git", "log", "--format=%s"], cwd=main, capture_output=True, text=True, env=zw.caller_environment())
    t.equal(log.stdout, "second\nfirst\n", "the caller's git log")


# ---- Devices and processes ------------------------------------------------------------------------------------------------


def test_B12_opening_a_pseudo_terminal_inside(t):
    t.need("script")
    r = python(t, workspace(t, "B12"), "ptys.py")
    t.expect(r, code=0, out="True True\n0 /dev/pts/N\n")


@zw.alone
def test_B13_the_terminals_size_at_start_and_after_a_resize(t):
    x = Terminal(t, [PYTHON, "winch.py"], ["--tty"] + conditions(workspace(t, "B13")), rows=24, columns=80)
    x.wait_for(b"start 80 24")
    x.resize(50, 132)
    at = time.monotonic()
    t.between(x.wait_for(b"now 132 50") - at, 0, 1, "seconds until the new size was seen")
    t.expect(x.finish(), code=0)
    x.resize(30, 90)
    t.check(x.restored(), "the terminal's modes are not those of before")


def test_B14_proc_shows_the_sandbox_and_not_the_host(t):
    r = python(t, workspace(t, "B14"), "procview.py")
    t.expect(r, code=0)
    t.equal(r.lines[0], "self True few True me listed True", "line 1")
    t.check(r.lines[1].startswith("python"), f"line 2: {r.lines[1]!r}")


# ---- Output and input -----------------------------------------------------------------------------------------------------


def test_B22_bytes_that_are_not_utf8(t):
    r = python(t, workspace(t, "B22"), "bytes.py")
    t.expect(r, code=0, out=bytes.fromhex("41fffe420043c3280ac3a9e282acf09f98800a"), err=bytes.fromhex("f09f"))


def test_B23_a_last_line_without_a_newline(t):
    w = workspace(t, "B23")
    t.expect(run(t, w, "printf", "hello"), code=0, out="hello", err="")
    t.expect(run(t, w, "sh", "-c", "printf A; printf B >&2; exit 3"), code=3, out="A", err="B")
    x = Terminal(t, ["printf", "hello"], ["--tty"] + conditions(w))
    t.expect(x.finish(), code=0, out="hello")


def test_B24_more_output_than_the_limit(t):
    w = workspace(t, "B24")
    r = python(t, w, "flood.py", output="100001")
    t.expect(r, code=0, status="exited", own=1)
    t.check(r.out.startswith(b"BEGIN\n"), "stdout does not begin with BEGIN")
    t.between(len(r.out), 90000, 100001, "bytes of stdout")
    r.out.decode()  # cut between characters: raises otherwise
    t.equal(r.doc["stdout_bytes"], 19980010, "stdout_bytes")
    t.equal(r.doc["stdout_truncated"], True, "stdout_truncated")
    left = [int(x) for x in r.own_lines[0].replace(",", "").split() if x.isdigit()]
    t.check(any(n in left for n in (19980010, 19980010 - len(r.out))), f"the line does not say how much: {r.own_lines[0]}")


def test_B24_more_output_than_the_limit_in_a_document(t):
    r = t.json(PYTHON, "flood.py", flags=conditions(workspace(t, "B24"), output="100001"))
    t.expect(r, code=0)
    t.equal(r.doc["stdout_encoding"], "utf-8", "stdout_encoding")
    t.check(r.doc["stdout"].startswith("BEGIN\n"), "stdout does not begin with BEGIN")
    t.check(r.doc["stdout"].endswith("END\n"), "head and tail are kept: stdout should end with END")
    t.between(len(r.doc["stdout"].encode()), 90000, 100001 + 200, "bytes of stdout")
    t.equal(r.doc["stdout_truncated"], True, "stdout_truncated")


def test_B25_standard_input_that_is_not_given_ends_at_once(t):
    w = workspace(t, "B25")
    r = run(t, w, "cat")
    t.expect(r, code=0, out="", err="")
    t.between(r.wall, 0, 5, "seconds")
    t.expect(run(t, w, "wc", "-c", stdin=b"a\nb"), code=0, out="3\n")


@zw.alone
def test_B25_standard_input_that_stays_open_does_not_hold_the_end(t):
    sleeper = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
    t.at_end(sleeper.wait)
    t.at_end(sleeper.kill)
    r = run(t, workspace(t, "B25"), "echo", "hi", stdin=sleeper.stdout)
    sleeper.stdout.close()
    t.expect(r, code=0, out="hi\n", err="")
    t.between(r.wall, 0, 2, "seconds")


def test_B25_standard_input_that_is_not_read_to_its_end(t):
    r = run(t, workspace(t, "B25"), "head", "-c", "1", stdin=b"x" * 5_000_000)
    t.expect(r, code=0, out="x", err="")


def test_B26_the_order_of_two_streams_joined_by_the_program(t):
    w = workspace(t, "B26")
    want = "".join(f"out {i}\nerr {i}\n" for i in range(1, 7))
    for _ in range(50):
        t.expect(run(t, w, "bash", "order.sh"), code=0, out=want, err="")
    x = Terminal(t, ["sh", "-c", "for i in 1 2 3; do echo o$i; echo e$i >&2; done"], ["--tty"] + conditions(w))
    t.expect(x.finish(), code=0, out=b"o1\r\ne1\r\no2\r\ne2\r\no3\r\ne3\r\n")


@zw.alone
def test_B27_what_was_printed_before_the_time_limit(t):
    r = python(t, workspace(t, "B27"), "partial.py", time="3s")
    t.between(r.wall, 2.5, 5, "seconds")
    t.expect(r, code=124, status="timeout", own=1)
    t.check(r.out.startswith(b"flushed line\n"), "stdout does not start with the flushed line")
    t.check(r.err.startswith(b"diag\n"), "stderr does not start with diag")


# ---- Exit status ----------------------------------------------------------------------------------------------------------


def hog(t, mode, time="30s"):
    return python(t, workspace(t, "B28", mode), "hog.py", mode, memory="128M", time=time)


def test_B28_the_memory_limit_ends_the_main_process(t):
    r = hog(t, "main")
    t.expect(r, code=137, status="out_of_memory", own=1)
    t.contains(r.reason, "memory", "reason")


def test_B28_the_memory_limit_ends_a_child(t):
    r = hog(t, "child")
    t.expect(r, code=0, status="exited", out="child ended with -9\n")
    t.check((r.doc["usage"]["oom_kills"] or 0) >= 1, "usage.oom_kills does not count it")
    t.contains(r.reason, "memory", "reason")


def test_B28_a_program_that_kills_itself(t):
    r = hog(t, "selfkill")
    t.expect(r, code=137, status="signaled", out="", err="")
    t.equal(r.doc["signal"], "SIGKILL", "signal")
    t.lacks(r.reason, "memory", "reason")


@zw.alone
def test_B28_a_program_that_ignores_the_polite_signal_at_the_time_limit(t):
    r = hog(t, "stubborn", time="3s")
    t.between(r.wall, 2.5, 5, "seconds")
    t.expect(r, code=124, status="timeout", out="waiting\n")
    t.lacks(r.reason + r.errors, "memory", "reason")


def test_B29_a_file_that_cannot_be_executed(t):
    w = workspace(t, "B29")
    r = run(t, w, "bash", "-c", "./dos.sh")
    t.expect(r, code=127)
    t.check("interpreter" in r.errors or "required file not found" in r.errors, "the message does not speak of a missing interpreter")
    r = run(t, w, "bash", "-c", "./junk")
    t.expect(r, code=126)
    t.contains(r.errors, "Exec format error", "message")
    r = run(t, w, "./junk")
    t.expect(r, code=126, own=1)
    t.equal(r.doc["exit_code"], 126, "exit_code")
    with open(os.path.join(w, "junk"), "ab") as f:
        f.write(b"changed")
    t.expect(run(t, w, "true"), code=0)
    shutil.rmtree(w)


@zw.alone
def test_B30_signals_that_a_front_end_without_a_terminal_survives(t):
    import signal
    r = t.start("sh", "-c", "sleep 3; echo done", flags=conditions(workspace(t, "B30")))
    for s in (signal.SIGWINCH, signal.SIGCONT, signal.SIGWINCH, signal.SIGSTOP, signal.SIGCONT, signal.SIGWINCH):
        time.sleep(0.2)
        r.send(s)
    r = r.finish()
    t.expect(r, code=0, out="done\n")
    t.between(r.wall, 2.9, 5, "seconds")


def test_B30_signals_that_end_the_command(t):
    import signal
    for s, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        r = t.start("sh", "-c", "echo up; exec sleep 30", flags=conditions(workspace(t, "B30", s.name)))
        r.read_line()
        r.send(s)
        r = r.finish()
        t.expect(r, code=code, status="canceled")
        t.between(r.wall, 0, 5, "seconds")


# ---- Time and process limits ----------------------------------------------------------------------------------------------


def nobody_left(t):
    def gone():
        zw.reap_zombies()
        return not zw.descendants()

    t.until(gone, 2, lambda: f"processes of the sandbox are gone; left: {zw.descendants()}")


@zw.alone
def test_B31_a_pipeline_at_the_time_limit(t):
    w = workspace(t, "B31")
    r = run(t, w, "bash", "pipeline.sh", time="3s")
    t.between(r.wall, 2.5, 5, "seconds")
    t.expect(r, code=124, status="timeout")
    t.equal(set(r.lines), {"tick"}, "lines of stdout")
    nobody_left(t)
    t.check(any("loop.fifo" in p for p in r.doc["files"]["created"]), "the FIFO is not among the created files")


@zw.alone
def test_B32_a_daemon_that_left_its_session(t):
    import signal
    for ending in ("time limit", "cancel"):
        w = workspace(t, "B32", ending)
        r = t.start(PYTHON, "escapee.py", flags=conditions(w, time="3s" if ending == "time limit" else "30s"))
        r.read_line()
        if ending == "cancel":
            time.sleep(1)
            r.send(signal.SIGTERM)
        r = r.finish(10)
        t.between(r.wall, 0, 5, "seconds")
        t.equal(r.status, "timeout" if ending == "time limit" else "canceled", "status")
        with open(os.path.join(w, "heartbeat")) as f:
            first = f.read()
        time.sleep(2)
        with open(os.path.join(w, "heartbeat")) as f:
            t.equal(f.read(), first, "heartbeat, two seconds after the end")
        nobody_left(t)


@zw.alone
def test_B33_the_processor_limit_and_the_wall_limit_are_two_things(t):
    w = workspace(t, "B33")

    def sleepy(mode, cpu, wall):
        return python(t, w, "sleepy.py", mode, cpu_time=cpu, time=wall, cpus=None)

    r = sleepy("sleep", "1s", "20s")
    t.expect(r, code=0, out="slept\n")
    t.between(r.doc["usage"]["cpu_seconds"], 0, 0.5, "reported processor time")
    r = sleepy("spin", "1s", "20s")
    t.expect(r, code=124, status="cpu_timeout")
    t.between(r.doc["usage"]["cpu_seconds"], 0.95, 1.5, "processor time used")
    r = sleepy("threads", "1s", "20s")
    t.expect(r, code=124, status="cpu_timeout")
    t.between(r.doc["usage"]["cpu_seconds"], 0.95, 1.5, "processor time used by two children")
    r = sleepy("sleep", "10s", "2s")
    t.expect(r, code=124, status="timeout")


# ---- Files and disk -------------------------------------------------------------------------------------------------------


def test_B34_planted_symlinks(t):
    """The part that concerns a writable workspace: a link that leads out is taken away, and said; the host's file is untouched."""
    w = workspace(t, "B34")
    r = run(t, w, "sh", "plant.sh")
    t.expect(r, code=0)
    for name in ("out.txt", "climb.txt", "rootdir"):
        t.check(not os.path.lexists(os.path.join(w, name)), f"{name}, a link that leads out, is left in the workspace")
    with open(os.path.join(w, "inside.txt")) as f:
        t.equal(f.read(), "harmless\n", "inside.txt")
    t.check(os.path.islink(os.path.join(w, "inside.txt")), "inside.txt is not a link any more")
    t.contains(json.dumps(r.doc["files"]), "out.txt", "files of the result")


@zw.alone
def test_B35_a_fifo_a_socket_dangling_and_looping_links(t):
    w = workspace(t, "B35")
    r = python(t, w, "plant.py")
    t.expect(r, code=0, out="planted\n")
    t.between(r.wall, 0, 5, "seconds")
    with open(os.path.join(w, "keep.txt")) as f:
        t.equal(f.read(), "keep\n", "keep.txt")
    t.equal(os.readlink(os.path.join(w, "dangling")), "nowhere", "dangling")
    t.equal(os.readlink(os.path.join(w, "self")), "self", "self")
    t.equal(os.readlink(os.path.join(w, "sub/up")), "..", "sub/up")
    t.contains(r.doc["files"]["created"], "/work/keep.txt", "created files")


def test_B36_awkward_file_names(t):
    """The part that concerns a writable workspace: the names outside and in the document."""
    w = workspace(t, "B36")
    r = python(t, w, "names.py")
    t.expect(r, code=0, out="8 True\n")
    names = [n for n in os.listdir(os.fsencode(w)) if n != b"names.py"]
    t.equal(len(names), 8, "files outside")
    for n in names:
        with open(os.path.join(os.fsencode(w), n), "rb") as f:
            t.equal(f.read(), b"<" + n + b">", f"content of {n!r}")
    created = r.doc["files"]["created"]
    t.equal(len(created), 8, f"created files in the document: {created}")
    for n in names:
        if n != b"bad\xff.bin":
            t.contains(created, "/work/" + n.decode(), "created files")
    t.check(any("bad" in c for c in created), "the name that is not UTF-8 is not in the document")


def test_B37_large_code_on_a_command_line(t):
    """Part (3). One argument of a Linux program has at most 128 KiB: the message must say so."""
    script = ": " + "a" * 200_000 + "; echo long"
    r = run(t, workspace(t, "B37"), "sh", "-s", stdin=script.encode())
    t.expect(r, code=0, out="long\n")


# ---- Concurrency, leaks, restarts -----------------------------------------------------------------------------------------


@zw.alone
def test_B38_the_runner_is_killed(t):
    """Without an allow list until there is one."""
    import leftovers
    import signal
    before = leftovers.Snapshot()
    w = workspace(t, "B38")
    r = t.start("sh", "-c", "echo up; sleep 300 & sleep 300", flags=conditions(w, time="400s", disk="100M"))
    r.read_line()
    time.sleep(1)
    r.send(signal.SIGKILL)
    r.process.wait()

    def gone():
        zw.reap_zombies()
        return not zw.descendants()

    t.until(gone, 5, "no process of the sandbox is left")
    t.expect(run(t, w, "sh", "-c", "touch again; ls"), code=0, out="again\n")
    t.equal(before.news(), [], "left after the next start")


@zw.alone
def test_B40_input_for_a_program_that_is_already_dead(t):
    w = workspace(t, "B40")
    got = [None] * 20

    def one(i):
        p = subprocess.run([zw.ZWINGER, "run", *conditions(w), "--result", t.tmp(f"r{i}.json"), "--", PYTHON, "broken.py"],
                           input=b"x" * (1 << 20), capture_output=True, env=zw.caller_environment(), timeout=60)
        with open(t.tmp(f"r{i}.json")) as f:
            got[i] = (p, json.load(f))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(20)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    for g in got:
        t.check(g is not None, "one of the runs gave no result")
        p, doc = g
        t.equal((p.returncode, p.stdout, doc["status"]), (1, b"", "exited"), "exit status, stdout, status")
        t.check(p.stderr.endswith(b"SyntaxError: invalid syntax\n"), f"stderr: {p.stderr!r}")


# ---- Environment and hosts ------------------------------------------------------------------------------------------------


def test_B41_time_zones(t):
    w = workspace(t, "B41")
    r = python(t, w, "when.py", more=["--pass", "TZ"], env={"TZ": "Asia/Shanghai"})
    t.expect(r, code=0, out="08:00 +0800\n1969-12-31T19:00:00-05:00\n08:00 +0800\n")
    r = python(t, w, "when.py")
    t.expect(r, code=0)
    t.equal(r.lines[0], r.lines[2], "the zone that two programs see without TZ")
    host = subprocess.run(["date", "-d", "@0", "+%H:%M %z"], capture_output=True, text=True, env=zw.caller_environment()).stdout.strip()
    t.equal(r.lines[0], host, "the host's zone")


def test_B42_a_resolver_file_that_is_a_dangling_link(t):
    t.need("unshare")
    etc = t.folder("etc")
    subprocess.run(f"tar -C /etc -cf - --ignore-failed-read . 2>/dev/null | tar -C {etc} -xf - --no-same-owner", shell=True, check=False)
    name = os.path.join(etc, "resolv.conf")
    if os.path.lexists(name):
        os.unlink(name)
    os.symlink("/run/none/stub.conf", name)
    line, result = t.command(["sh", "-c", "cat /etc/resolv.conf | grep -c nameserver; echo ok"], conditions(workspace(t, "B42")))
    p = subprocess.run(["unshare", *(["-m"] if zw.AM_ROOT else ["-r", "-m"]), "sh", "-ec",
                        'mount --bind "$0" /etc; test -L /etc/resolv.conf; "$@"; echo "status $?"; readlink /etc/resolv.conf', etc, *line],
                       capture_output=True, text=True, env=zw.caller_environment(), timeout=60)
    t.note(f"{p.stdout}\n{p.stderr}")
    lines = p.stdout.splitlines()
    t.equal(len(lines), 4, "lines of stdout")
    t.among(lines[0], ["0", "1"], "name servers")
    t.equal(lines[1:], ["ok", "status 0", "/run/none/stub.conf"], "the rest")


def check_held(t, r):
    """Either the limit held by another means, or the run was refused and the reason names the controller."""
    if r.code == 125:
        t.contains(r.errors, "memory", "message")
        return
    t.check(r.status == "out_of_memory" or "MemoryError" in r.errors, f"neither the memory limit nor MemoryError: {r.status}")
    t.between(r.doc["usage"]["memory_peak_bytes"], 64 << 20, 200 << 20, "peak of resident memory")
    for name in ("memory", "processes", "wall_time", "filesystem", "syscalls"):
        t.check(isinstance(r.doc["enforcement"].get(name), str), f"the result does not say by what {name} is held")


@zw.alone
def test_B43_a_limit_that_cannot_be_set_is_not_silently_dropped(t):
    w = workspace(t, "B43")
    if not zw.AM_ROOT:
        check_held(t, python(t, w, "hog.py", "main", memory="128M", cpus=None))
        return
    line, result = t.command([PYTHON, "hog.py", "main"], conditions(w, memory="128M", cpus=None))
    script = "for m in $(awk '$9 ~ /^cgroup/ || $8 ~ /^cgroup/ || / - cgroup/ {print $5}' /proc/self/mountinfo); do " \
             "mount -o remount,bind,ro $m; done; exec \"$@\""
    p = subprocess.run(["unshare", "-m", "sh", "-ec", script, "sh", *line], capture_output=True, env=zw.caller_environment(), timeout=60)
    doc = None
    if os.path.exists(result):
        with open(result) as f:
            doc = json.load(f)
    r = zw.Run(line, p.returncode, p.stdout, p.stderr, doc, 0)
    t.last(r)
    check_held(t, r)
    t.check(r.code == 125 or not r.doc["enforcement"]["memory"].startswith("cgroup"), "the control groups were read-only")


if __name__ == "__main__":
    zw.main(globals())
