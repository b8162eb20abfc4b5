#!/usr/bin/python3 -B
"""Attempts of somebody who has read the source: on what is left between the walls, on the first process, on the record, and on what an
earlier run or a neighbour has prepared."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402

LEVELS = ("container", "process")


def python(t, code, **more):
    return t.run(zw.PYTHON, "-c", code, **more)


# ---- mounts -----------------------------------------------------------------------------------------------------------------

SHARED = r"""
set -e
base=$1; shift
mount --make-rshared /
mount -t tmpfs ours "$base/ws"
mount --make-shared "$base/ws"
mkdir "$base/ws/data" "$base/ws/late"
chmod 777 "$base/ws"
( read go < "$base/fifo"; mount -t tmpfs -o mode=777 late "$base/ws/late"; echo > "$base/fifo2" ) &
"$@"
wait
echo "--- host"
grep -o "$base/ws/data" /proc/self/mountinfo || true
"""


@zw.as_root
def test_mounts_spread_neither_to_the_host_nor_from_it(t):
    """Where the host's mounts are shared, a copy of one is its peer."""
    base = t.tmp()
    t.folder("ws")
    t.file("x\n", "data", "f")
    for name in ("fifo", "fifo2"):
        os.mkfifo(t.tmp(name))
    t.file("", "fifos", "place")
    script = ("cat /work/data/f; echo go > /f/fifo; read x < /f/fifo2; grep -c 'late' /proc/self/mountinfo; "
              "echo y > /work/late/y && echo wrote; true")
    line, _ = t.command(["sh", "-c", script], ["--rw", f"{base}/ws:/work", "--ro", f"{base}/data:/work/data", "--rw", f"{base}:/f"], result=False)
    p = subprocess.run(["unshare", "-m", "sh", "-c", SHARED, "sh", base, *line], capture_output=True, timeout=60,
                       env=zw.caller_environment())
    text = p.stdout.decode()
    t.note(text + p.stderr.decode())
    inside, _, host = text.partition("--- host\n")
    t.equal(inside.splitlines()[0], "x", "the inner folder, inside")
    t.lacks(inside, "wrote", "what was mounted by the host meanwhile")
    t.equal(host, "", "mounts on the host that the run has left")


def test_kernel_interfaces_are_no_sources_by_any_name(t):
    d = t.folder("d")
    for name, to in (("proc", "/proc"), ("dev", "/dev"), ("sys", "/sys/kernel"), ("root", "/"), ("task", "/proc/self")):
        os.symlink(to, os.path.join(d, name))
        t.refused(t.run("ls", "/x", flags=["--ro", f"{d}/{name}:/x"]), "cannot be shown inside")
    for name in ("/usr/..", "/usr/../proc", "/tmp/../dev/shm"):
        t.refused(t.run("ls", "/x", flags=["--ro", f"{name}:/x"]), "cannot be shown inside")


def test_a_link_in_the_workspace_is_no_place_for_a_mount(t):
    ws, data, victim = t.folder("ws"), t.folder("data"), t.folder("victim")
    os.symlink("../victim", os.path.join(ws, "relative"))
    os.symlink(victim, os.path.join(ws, "absolute"))
    for place in ("relative", "absolute", "relative/x", "absolute/x", "missing"):
        r = t.run("true", flags=["--rw", f"{ws}:/w", "--ro", f"{data}:/w/{place}"])
        t.expect(r, code=125, status="error")
    t.equal(os.listdir(victim), [], "what a run has made behind the link")
    t.equal(sorted(os.listdir(ws)), ["absolute", "relative"], "what a run has made in the workspace")


def test_a_link_in_the_workspace_chooses_no_file_of_the_host(t):
    """Left there by an earlier run that nobody could sweep after, or by a neighbour: neither shown, nor written, nor appended to."""
    ws, secret = t.folder("ws"), t.file("secret", "out", "secret")
    t.folder("real")
    os.symlink(secret, os.path.join(ws, "file"))
    os.symlink(t.tmp("out"), os.path.join(ws, "folder"))
    os.symlink("../ws/file", t.tmp("real", "to-the-file"))
    rw = ["--rw", f"{ws}:/w"]
    for name in (f"{ws}/file", f"{ws}/folder/secret", f"{t.tmp('real')}/to-the-file"):
        for flag in ("--audit", "--result"):
            t.equal(t.run("true", flags=[*rw, flag, name], result=False).code, 125, f"exit status with {flag} {name}")
        r = t.run("cat", "/x", flags=[*rw, "--ro", f"{name}:/x"])
        t.refused(r, "leads through a link")
    t.refused(t.run("ls", "/x", flags=[*rw, "--ro", f"{ws}/folder:/x"]), "leads through a link")
    with open(secret, encoding="utf-8") as f:
        t.equal(f.read(), "secret", "the file behind the link")
    outside = t.file("", "own", "log")
    os.symlink(outside, t.tmp("own-link"))
    t.expect(t.run("true", flags=[*rw, "--audit", t.tmp("own-link"), "--result", f"{ws}/result"], result=False), code=0)
    t.check(os.path.getsize(outside) > 0 and os.path.getsize(f"{ws}/result") > 0, "ordinary places are written to")


# ---- the first process ------------------------------------------------------------------------------------------------------


def test_the_first_process_keeps_its_limits(t):
    """It has the program's uid, and without CPU time or descriptors it would end without a word."""
    code = ("import os, resource, signal\nagent = 1 if os.getppid() in (0, 1) else os.getppid()\n"
            "for what in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):\n"
            "    try:\n        resource.prlimit(agent, what, (0, 0)); print('set', what)\n    except OSError:\n        pass\n"
            "for n in range(20000):\n    try:\n        os.kill(agent, signal.SIGCHLD)\n    except OSError:\n        break\n"
            "print('end')\n")
    for level in LEVELS:
        r = python(t, code, flags=["--isolation", level, "--best-effort"])
        t.expect(r, code=0, status="exited", out="end\n")


def test_the_first_process_takes_no_signal_that_ends_or_stops_it(t):
    code = ("import os, signal\nagent = 1 if os.getppid() in (0, 1) else os.getppid()\n"
            "for n in range(1, 65):\n    try:\n        os.kill(agent, n)\n    except OSError:\n        pass\nprint('end')\n")
    for level in LEVELS:
        r = python(t, code, flags=["--isolation", level, "--best-effort"])
        t.expect(r, code=0, status="exited", out="end\n")


def test_calls_that_the_first_process_needs_cannot_be_denied(t):
    for name in ("sendmsg", "recvmsg", "ppoll", "wait4", "exit_group"):
        t.refused(t.run("true", policy={"syscalls": {"deny": ["mkdir", name]}}), "syscalls.deny[1]", name)


# ---- limits at their edges ---------------------------------------------------------------------------------------------------


def test_sizes_around_powers_of_two_are_what_is_in_force(t):
    for size in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 3 * 2**30, 5 * 2**30):
        r = python(t, "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[1])", flags=["--file-size", str(size)])
        t.expect(r, code=0, out=f"{size}\n")


HIDE = r"""
import mmap, os, sys, time
way = sys.argv[1]
os.chdir(sys.argv[2])
if way == 'deep':
    for _ in range(140):
        os.mkdir('d')
        os.chdir('d')
if way == 'closed':
    os.mkdir('c')
    os.chdir('c')
    os.chmod('.', 0o300)
held = []
for i in range(20):
    fd = os.open(f'f{i}', os.O_RDWR | os.O_CREAT, 0o600)
    if way in ('unlinked', 'mapped'):
        os.unlink(f'f{i}')
    held.append(fd)
    for _ in range(15):
        os.write(fd, bytes(1 << 20))
    if way == 'mapped':
        held[-1] = mmap.mmap(fd, 15 << 20)
        os.close(fd)
    time.sleep(0.1)
print('wrote it all')
"""


def test_no_place_for_files_is_hidden_from_the_disk_limit(t):
    for way in ("plain", "deep", "closed", "unlinked", "mapped"):
        w = t.folder(f"w-{way}")
        if zw.AM_ROOT:
            os.chown(w, 54321, 54321)
        r = t.run(zw.PYTHON, "-c", HIDE, way, "/w", flags=["--rw", f"{w}:/w", "--disk", "30M"])
        t.expect(r, code=122, out=b"")
        t.contains(r.reason, "disk", "reason")
        zw.remove_tree(w)


# ---- what comes out ----------------------------------------------------------------------------------------------------------


@zw.as_root
def test_an_attribute_of_the_program_empties_no_folder(t):
    """As root the overlay marks a replaced folder with a trusted attribute; the user's one is just data."""
    t.file("keep", "w", "sub", "deep", "of-root")
    w = t.tmp("w")
    for path in (w, os.path.join(w, "sub")):
        os.chown(path, 54321, 54321)
    code = ("import os\nos.utime('/w/sub')\ntry:\n    os.setxattr('/w/sub', 'user.overlay.opaque', b'y')\nexcept OSError as e:\n    print(e.strerror)\n"
            "open('/w/sub/new', 'w').write('new')\n")
    r = python(t, code, policy={"filesystem": {"write": [{"source": w, "target": "/w", "size": "8M"}]}})
    t.expect(r, code=0)
    t.equal(sorted(os.listdir(os.path.join(w, "sub"))), ["deep", "new"], "the folder on the host")
    t.equal(os.listdir(os.path.join(w, "sub", "deep")), ["of-root"], "root's folder in it")


def test_hostile_bytes_leave_every_document_whole(t):
    code = (r"""
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
libc.prctl(15, b'a) Z 1 (\n"\xff', 0, 0, 0)
sys.stdout.buffer.write(b'\xff\xfe"}\n\0\x1b[2J')
os.chdir(sys.argv[1])
for name in (b'new\nline', b'\xff\xfe', b'"quote', b'\x1b[31m', b'back\\slash', b'\xed\xa0\x80', '\u202e'.encode()):
    open(name, 'w').write('x')
os.symlink(b'/etc/\xff\n"', b'li\nnk\xfe')
os.mkfifo(b'fi\nfo')
libc.mount(b'\xff\n"', b'/t', b'x', 0, 0)
try:
    os.execv(b'/no\xff"\n', [b'x\xff'])
except OSError:
    pass
""")
    for level in LEVELS:
        w, log = t.folder(f"w-{level}"), t.tmp(f"log-{level}")
        if zw.AM_ROOT:
            os.chown(w, 54321, 54321)
            os.chmod(t.tmp(), 0o755)
        r = t.json(zw.PYTHON, "-c", code, w, flags=["--isolation", level, "--best-effort", "--rw", f"{w}:{w}", "--audit", log])
        t.expect(r, code=0, status="exited")
        t.equal(len(r.doc["files"]["created"]), 7, f"files made, level {level}")
        t.equal(len(r.doc["files"]["removed"]), 2, f"files removed, level {level}")
        with open(log, encoding="utf-8") as f:
            events = [json.loads(line)["event"] for line in f]
        t.equal(events[0], "start", "first event")
        t.equal(events[-1], "end", "last event")


def test_executions_cannot_fill_the_disk_of_the_log(t):
    log = t.tmp("log")
    code = ("import os, time\nname = '/' + '\\\\' * 4000\nend = time.monotonic() + 2\nwhile time.monotonic() < end:\n"
            "    try:\n        os.execv(name, ['x'])\n    except OSError:\n        pass\n")
    t.expect(python(t, code, flags=["--audit", log]), code=0)
    t.between(os.path.getsize(log), 1 << 20, 10 << 20, "bytes of the log")
    with open(log, encoding="utf-8") as f:
        last = json.loads(f.readlines()[-1])
    t.equal(last["event"], "end", "last event")
    t.check(last["execs_left_out"] > 0, "the log does not say how many executions it leaves out")


if __name__ == "__main__":
    zw.main(globals())
