#!/usr/bin/python3 -B
"""The process level, where it differs from the others: what an owner may do to files, signals and /proc, the private folder, the uid, and what is
left after sudden deaths."""
import ctypes
import glob
import os
import random
import signal
import stat
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402
from terminal import Terminal  # noqa: E402

LEVEL = ["--isolation", "process"]
LANDLOCK_ABI = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)  # landlock_create_ruleset, VERSION


def scoped(function):
    """Before Linux 6.12 signals are not held, an ordinary user's run is refused, and the agent is not kept apart from what it starts."""

    def call(t):
        if LANDLOCK_ABI < 6:
            raise zw.Skip(f"Landlock ABI 6 (here: {LANDLOCK_ABI})")
        function(t)

    call.__dict__.update(function.__dict__)
    return call


def python(t, script, *, flags=(), **more):
    return t.run(zw.PYTHON, "-c", script, flags=[*LEVEL, *flags], **more)


def reachable(t, name):
    """A folder that another uid can get at, which is what root's programs have here."""
    folder = t.folder(name)
    os.chmod(os.path.dirname(folder), 0o711)
    return folder


def writable(t, name="out"):
    """A folder that may be written to without the program staying root."""
    folder = reachable(t, name)
    if zw.AM_ROOT:
        os.chown(folder, 12345, 12345)
    return folder


def private_folders():
    return glob.glob("/tmp/zwinger-zw-*")


def test_the_default_policy_is_held_completely(t):
    r = t.run("true", flags=LEVEL)
    t.expect(r, code=0, status="exited", out="", err="")
    t.check("none" not in r.doc["enforcement"].values(), f"enforcement: {r.doc['enforcement']}")
    t.check(not r.doc.get("not_enforced"), "not_enforced is not empty")


@scoped
def test_modes_times_and_owners_of_own_files_can_be_changed(t):
    out = writable(t)
    script = f"""
import os, shutil, sys
for folder in (os.environ["TMPDIR"], {out!r}):
    os.chdir(folder)
    open("a", "w").write("x")
    os.chmod("a", 0o600)
    os.utime("a", (1, 2))
    os.utime(folder + "/a", None)
    os.utime("a", ns=(3, 4))
    shutil.copy2("a", "b")
    os.mkdir("d"); os.chmod("d", 0o700)
    d = os.open("d", os.O_RDONLY)
    open("d/c", "w").close()
    os.chmod("c", 0o640, dir_fd=d)
    os.utime("c", ns=(5, 6), dir_fd=d)
    f = os.open("a", os.O_RDONLY)
    os.fchmod(f, 0o644)
    os.chown("a", os.getuid(), os.getgid())
    os.symlink("a", "l")
    os.utime("l", ns=(7, 8), follow_symlinks=False)
    os.chmod("l", 0o611)
    s = os.stat("d/c")
    print(oct(os.stat("a").st_mode), os.stat("b").st_mtime_ns, oct(s.st_mode), s.st_mtime_ns, os.lstat("l").st_mtime_ns)
"""
    r = python(t, script, flags=["--rw", out])
    t.expect(r, code=0, out="0o100611 4 0o100640 6 8\n" * 2, err="")
    t.equal(r.denials(), [], "denials")


@scoped
def test_modes_and_times_of_other_files_stay(t):
    data, out = reachable(t, "in"), writable(t)
    f = t.file("data", "in", "f", mode=0o644)
    os.utime(f, (1000, 1000))
    script = f"""
import os
os.chdir({out!r})
os.symlink({f!r}, "link")
os.symlink({data!r}, "folder")
fd = os.open({f!r}, os.O_RDONLY)
def no(what, *args, **more):
    try:
        what(*args, **more)
        print("done", what, args)
    except OSError:
        pass
for name in ({f!r}, "link", "folder/f", {out!r} + "/../in/f", f"/proc/self/fd/{{fd}}", {data!r}, "/usr", "/", "/proc/self"):
    no(os.chmod, name, 0o777)
    no(os.utime, name, (1, 1))
    no(os.utime, name, None)
    no(os.chown, name, os.getuid(), os.getgid())
    no(os.setxattr, name, "user.x", b"1")
    no(os.truncate, name, 0)
no(os.fchmod, fd, 0o777)
no(os.utime, fd, (1, 1))
no(os.link, {f!r}, "hard")
print("end")
"""
    r = python(t, script, flags=["--ro", data, "--rw", out])
    t.expect(r, code=0, out="end\n")
    st = os.stat(f)
    t.equal((oct(st.st_mode), st.st_mtime, st.st_size), ("0o100644", 1000, 4), "mode, time and size of the input")


@scoped
def test_files_with_set_id_bits_cannot_be_made(t):
    out = writable(t)
    script = f"""
import os
os.chdir({out!r})
open("a", "w").close()
for mode in (0o4755, 0o2755, 0o6755):
    for what in (lambda: os.chmod("a", mode), lambda: os.fchmod(os.open("a", os.O_RDONLY), mode)):
        try:
            what(); print("done", oct(mode))
        except PermissionError:
            pass
"""
    r = python(t, script, flags=["--rw", out])
    t.expect(r, code=0, out="")
    t.equal(stat.S_IMODE(os.stat(os.path.join(out, "a")).st_mode) & 0o6000, 0, "set-id bits")
    t.check(any(d["name"] in ("chmod", "fchmod") for d in r.denials("syscall")), f"denials: {r.denials()}")


@scoped
def test_a_mode_cannot_be_raced_onto_another_file(t):
    """One thread swaps the path's last part between a file of ours and a link to the input while others change its mode."""
    data, out = reachable(t, "in"), writable(t)
    f = t.file("data", "in", "f", mode=0o644)
    script = f"""
import os, threading, time
os.chdir({out!r})
open("own", "w").close()
os.symlink({f!r}, "bad")
os.link("own", "x")
stop = time.monotonic() + 1.5
def swap():
    while time.monotonic() < stop:
        os.symlink({f!r}, "t1"); os.rename("t1", "x")
        os.link("own", "t2"); os.rename("t2", "x")
        try: os.unlink("t2")
        except OSError: pass
def change():
    n = 0
    while time.monotonic() < stop:
        try: os.chmod("x", 0o777); n += 1
        except OSError: pass
    print("changed" if n else "never")
threads = [threading.Thread(target=swap)] + [threading.Thread(target=change) for _ in range(2)]
for x in threads: x.start()
for x in threads: x.join()
"""
    r = python(t, script, flags=["--ro", data, "--rw", out])
    t.equal(r.code, 0, "exit status")
    t.equal(oct(os.stat(f).st_mode), "0o100644", "mode of the input")


@scoped
def test_no_process_outside_can_be_signalled_traced_or_tuned(t):
    script = f"""
import os, signal, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def refused(what, *args):
    try:
        what(*args)
        return False
    except OSError:
        return True
pid, agent = {os.getpid()}, os.getppid()
for p in (pid, agent, 1):
    # The agent has the program's uid, and may be slowed down: it is of the same sandbox.
    print(refused(os.kill, p, 0), refused(os.kill, p, signal.SIGTERM), p == agent or refused(os.sched_setaffinity, p, {{0}}),
          refused(os.setpriority, os.PRIO_PROCESS, p, 19), libc.ptrace(0x4206, p, 0, 0) < 0,
          refused(open, f"/proc/{{p}}/environ"), refused(open, f"/proc/{{p}}/cmdline"), refused(os.listdir, f"/proc/{{p}}/fd"))
print(refused(os.setpriority, os.PRIO_USER, 0, 19), refused(os.listdir, "/proc"))
os.sched_setaffinity(0, os.sched_getaffinity(0))
"""
    r = python(t, script)
    t.equal(set(r.text.split()), {"True"}, "everything refused")
    t.equal(r.code, 0, "exit status")


@scoped
def test_kill_all_ends_the_sandbox_alone(t):
    r = t.run("sh", "-c", "sleep 100 & setsid sleep 100 & kill -KILL -1; wait; echo here", flags=LEVEL)
    t.check(r.wall < 20, "it hangs")
    t.equal(r.status in ("exited", "signaled"), True, "status")


@scoped
def test_a_process_reads_its_own_proc_and_no_other(t):
    script = """
import os
print(len(open("/proc/self/status").read()) > 100, len(open("/proc/self/maps").read()) > 100, "0" in os.listdir("/proc/self/fd"))
for f in ("/proc/self/net/tcp", "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/self/root/etc/shadow", "/proc/net/unix",
          f"/proc/self/task/{os.getpid()}/net/tcp", "/proc/self/mem"):
    try: open(f); print("opened", f)
    except OSError: pass
"""
    t.expect(python(t, script), code=0, out="True True True\n")


def test_no_socket_but_pairs(t):
    script = """
import socket
for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_STREAM),
                     (socket.AF_UNIX, socket.SOCK_DGRAM), (socket.AF_NETLINK, socket.SOCK_RAW)):
    try: socket.socket(family, kind); print("made", family, kind)
    except OSError: pass
try: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); print("datagram pair")
except OSError: pass
a, b = socket.socketpair()
a.send(b"ping"); print(b.recv(9))
"""
    r = t.expect(python(t, script), code=0, out="b'ping'\n")
    t.check(any(d["name"] == "socket" for d in r.denials("syscall")), f"denials: {r.denials()}")


@scoped
def test_watches_work_in_the_policys_folders_alone(t):
    out = writable(t)
    script = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
i = libc.inotify_init()
print([libc.inotify_add_watch(i, p.encode(), 0x100) for p in ({out!r}, os.environ["TMPDIR"], "/tmp", "/", "/root", os.path.dirname({out!r}))])
open({out!r} + "/new", "w").close()
print(b"new" in os.read(i, 4096))
"""
    t.expect(python(t, script, flags=["--rw", out]), code=0, out="[1, 2, -1, -1, -1, -1]\nTrue\n")


def test_home_and_temporary_files_are_one_private_folder_that_goes(t):
    r = t.run("sh", "-c", 'echo "$HOME $TMPDIR $PWD"; stat -c %a .; touch f && mkdir -p a/b && chmod 000 a/b a; echo x > /tmp/f', flags=LEVEL)
    home, tmp, cwd = r.lines[0].split()
    t.check(home == tmp == cwd and home.startswith("/"), f"HOME, TMPDIR, cwd: {r.lines[0]}")
    t.equal(r.lines[1], "700", "mode")
    t.check(not os.path.exists(home), f"{home} is still there")
    t.check(r.code != 0 and not os.path.exists("/tmp/f"), "/tmp is writable")


def test_the_limits_of_the_private_folder_hold(t):
    r = t.run("sh", "-c", "head -c 50M /dev/zero > f; sleep 5; echo survived", flags=[*LEVEL, "--scratch", "10M"])
    t.expect(r, code=122, status="output_limit", out="", own=1)
    r = python(t, "for i in range(20000): open(f'f{i}', 'w').close()\nimport time; time.sleep(5); print('survived')",
               policy={"filesystem": {"scratch": {"inodes": 500}}})
    t.expect(r, code=122, status="output_limit", out="")


def test_programs_in_the_private_folder_run_unless_the_policy_says_no(t):
    script = "printf '#!/bin/sh\\necho ran\\n' > p; chmod +x p; ./p"
    t.expect(t.run("sh", "-c", script, flags=LEVEL), code=0, out="ran\n")
    r = t.run("sh", "-c", script, flags=[*LEVEL, "--scratch-noexec"])
    t.expect(r, code=126, out="")


def test_what_needs_mounts_is_refused_with_the_way_out(t):
    data, out = reachable(t, "in"), writable(t)
    os.mkdir(os.path.join(out, "inner"))
    t.refused(t.run("true", flags=[*LEVEL, "--ro", f"{data}:/data"]), f"{data}:{data}", "container")
    t.refused(t.run("true", flags=[*LEVEL, "--root", data]), "root", "container")
    t.refused(t.run("true", flags=[*LEVEL, "--rw", out, "--ro", os.path.join(out, "inner")]), "read-only", "container")
    t.refused(t.run("true", policy={"limits": {"kernel": True}}, flags=LEVEL), "scratch", "container")


@zw.as_root
def test_root_gives_the_program_a_uid_of_nobody(t):
    r = t.run("id", "-u", flags=LEVEL)
    t.check(int(r.text) > 60000, f"uid {r.text}")
    second = t.start("sh", "-c", "id -u; sleep 100", flags=LEVEL)
    uid = int(second.read_line())
    r = t.run("id", "-u", flags=LEVEL)
    t.check(int(r.text) != uid, "two sandboxes have one uid")
    second.send(signal.SIGTERM)
    second.finish()


@scoped
@zw.as_root
def test_the_program_is_who_owns_the_writable_folder(t):
    out = writable(t)
    r = t.run("sh", "-c", f"id -u; id -G; echo x > {out}/f", flags=[*LEVEL, "--rw", out])
    t.expect(r, code=0, out="12345\n12345\n")
    t.equal(os.stat(os.path.join(out, "f")).st_uid, 12345, "owner")


@zw.as_root
def test_a_folder_of_root_needs_consent(t):
    out = t.folder("out")
    r = t.refused(t.run("id", "-u", flags=[*LEVEL, "--rw", out]), "identity", "root", "chown")
    t.equal(r.out, b"", "stdout")
    r = t.run("sh", "-c", f"id -u; echo x > {out}/f; chmod 777 /etc",
              flags=[*LEVEL, "--best-effort", "--rw", out])
    t.equal((r.lines[0], os.stat(os.path.join(out, "f")).st_uid), ("0", 0), "uid and owner")
    t.check("identity" in {x["control"] for x in r.doc["not_enforced"]}, "identity is not listed")
    t.equal(stat.S_IMODE(os.stat("/etc").st_mode), 0o755, "mode of /etc")


@zw.as_user
def test_the_program_has_the_callers_uid_and_no_more(t):
    t.equal(t.run("id", "-u", flags=LEVEL).text, f"{os.getuid()}\n", "uid")
    r = t.run("grep", "-hE", "^Cap(Inh|Prm|Eff|Amb)", "/proc/self/status", flags=LEVEL)
    t.equal({x.split()[1] for x in r.lines}, {"0" * 16}, "capabilities")


def test_a_terminal_works(t):
    term = Terminal(t, ["sh", "-c", "trap 'stty size; exit 7' WINCH; stty size; tty; : >/dev/tty && echo mine; while :; do sleep 0.01; done"],
                    flags=[*LEVEL, "--tty"], rows=30, columns=90)
    term.wait_for(b"mine")
    term.resize(40, 100)
    term.wait_for(b"40 100")
    t.contains(term.output, b"30 90", "terminal output")


@zw.alone
def test_nothing_is_left_when_the_supervisor_is_killed_at_any_moment(t):
    before = set(private_folders())
    chance = random.Random(1)
    for _ in range(60):
        r = t.start("sh", "-c", "touch f; (setsid sleep 4242 &); setsid sleep 4242 & sleep 4242", flags=LEVEL)
        time.sleep(chance.random() * 0.05)
        r.process.kill()
        r.process.wait()
    t.until(lambda: zw.reap_zombies() or (not zw.descendants() and not set(private_folders()) - before), 10, "everything is gone")


def test_when_the_agent_is_killed_everything_else_ends_too(t):
    r = t.start("sh", "-c", "(setsid sleep 4242 &); setsid sh -c 'while :; do sleep 4242; done' & echo ready; sleep 4242", flags=LEVEL)
    r.read_line()
    with open(f"/proc/{r.pid}/task/{r.pid}/children") as f:
        for child in f.read().split():
            with open(f"/proc/{child}/cmdline") as g:
                if "agent" in g.read():
                    os.kill(int(child), signal.SIGKILL)
    done = r.finish(20)
    t.equal(done.code, 125, "exit status")
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), 5, "everything is gone")


if __name__ == "__main__":
    zw.main(globals())
