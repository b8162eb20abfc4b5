#!/usr/bin/python3 -B
"""Who acts inside: `user`, and where the service was started by root a `root` that is nobody outside and has no power."""
import json
import os
import sys
import urllib.parse

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]
import tap  # noqa: E402
from daemon import Daemon  # noqa: E402
from daemon_e2b_wire import b64, joined, one  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller
PATIENCE = 30


def serve(t, **policy):
    own = t.file(json.dumps({"version": 1, **LOOSE, **policy}), "policy.yaml")
    return Daemon(t, "--ceiling", own, "--policy", own)


class Sandbox:
    def __init__(self, t, d, facts=None):
        self.t, self.d = t, d
        if facts is None:
            r = d.ask("POST", "/v1/sandboxes", {})
            t.equal(r.status, 201, r.body)
            facts = r.json
        self.path = f"/v1/sandboxes/{facts['id']}"

    def ask(self, method, path="", body=None, status=None, **options):
        r = self.d.ask(method, self.path + path, body, **options)
        if status is not None:
            self.t.equal(r.status, status, f"{method} {path}: {r.body[:600]}")
        return r

    def run(self, line, user=None, status=200, **members):
        return self.ask("POST", "/run", {"shell": line, **({"user": user} if user is not None else {}), **members}, status).json

    def out(self, line, user=None, **members):
        r = self.run(line, user, **members)
        self.t.equal(r["exit_code"], 0, f"{line}: {r}")
        return r["stdout"]

    def file(self, method, path, body=None, user=None, status=None, at=""):
        query = f"path={urllib.parse.quote(path)}" + (f"&user={user}" if user else "")
        return self.ask(method, f"/files{at}?{query}", body, status)


def until(t, condition, what):
    t.until(condition, PATIENCE, what)


def with_root(t, **policy):
    """A sandbox with two users; skipped where this machine cannot give one."""
    s = Sandbox(t, serve(t, **policy))
    r = s.run("id -u", "root", status=None)
    if r.get("code") == "not_enforceable" and "pids" in r["message"]:
        raise tap.Skip(r["message"])
    t.equal((r.get("exit_code"), r.get("stdout")), (0, "0\n"), r)
    return s


# ---- Root, where it is there ------------------------------------------------------------------------------------------------


@tap.as_root
def test_root_is_somebody_else_without_a_capability(t):
    s = with_root(t)
    t.equal(s.out("id -u; id -g; id -G; whoami; echo $HOME $USER; pwd", "root"), "0\n0\n0\nroot\n/root root\n/root\n", "root")
    t.equal(s.out("id -u; id -g; id -G; whoami; echo $HOME $USER; pwd"), "1000\n1000\n1000\nuser\n/home/user user\n/home/user\n", "the default")
    for user in ("user", "1000", 1000):
        t.equal(s.out("id -u", user), "1000\n", f"{user!r}")
    for user in ("0", 0):
        t.equal(s.out("id -u", user), "0\n", f"{user!r}")
    for user in ("root", "user"):
        lines = dict(x.split(":\t", 1) for x in s.out("cat /proc/self/status", user).splitlines() if ":\t" in x)
        t.equal({k: v for k, v in lines.items() if k.startswith("Cap")}, dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16), user)
        t.equal((lines["NoNewPrivs"], lines["Seccomp"]), ("1", "2"), user)
        number = "0" if user == "root" else "1000"
        t.equal((lines["Uid"].split(), lines["Gid"].split()), ([number] * 4, [number] * 4), f"{user}: no other id is left")
    # pid 1 has both, and can be looked into by neither.
    lines = dict(x.split(":\t", 1) for x in s.out("cat /proc/1/status").splitlines() if ":\t" in x)
    t.equal({v for k, v in lines.items() if k.startswith("Cap")}, {"0" * 16}, "the agent")
    t.equal(lines["Uid"].split(), ["0", "1000", "1000", "1000"], "the agent's ids")


@tap.as_root
def test_outside_root_is_an_id_that_nobody_has(t):
    s = with_root(t)
    mark = f"{1000 + os.getpid()}"  # nobody else's
    r = s.ask("POST", "/processes", {"command": ["sleep", mark], "user": "root"}, 201).json
    t.check((r["pid"] > 1, r["cwd"]) == (True, "/root"), r)

    def hosts():
        found = []
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    if f.read() != f"sleep\0{mark}\0".encode():
                        continue
                with open(f"/proc/{name}/status") as f:
                    text = f.read()
            except OSError:
                continue
            found.append(text)
        return found
    until(t, hosts, "the process outside")
    uid = int(hosts()[0].split("Uid:\t")[1].split()[0])
    t.check(0x70000000 <= uid < 0x80000000 and uid % 64 == 3, f"{uid:#x} is the fourth of the sandbox's range")
    s.ask("POST", f"/processes/{r['pid']}/signal", {"signal": "TERM"}, 204)
    until(t, lambda: s.ask("GET", f"/processes/{r['pid']}").json["state"] == "ended", "its end")
    t.equal(s.ask("GET", f"/processes/{r['pid']}").json["signal"], 15, "and it was signalled by whoever is asked to")


# Each line that comes out is something that should not have been possible.
ATTACK = r"""
import ctypes, errno, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def bad(what):
    print(what, flush=True)

def refused(what, call, *args):
    try:
        r = call(*args)
    except (OSError, ValueError):
        return
    if isinstance(r, int) and r == -1:
        return
    bad(what)

def raw(number, *args):
    return libc.syscall(number, *args)

def write(path):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, b"1")
    finally:
        os.close(fd)

for path in ("/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/suid_dumpable", "/proc/sys/user/max_user_namespaces",
             "/proc/sysrq-trigger", "/proc/kcore", "/proc/irq/default_smp_affinity", "/proc/mtrr", "/proc/1/mem", "/proc/1/uid_map", "/proc/1/setgroups", "/proc/self/uid_map",
             "/proc/self/gid_map", "/etc/passwd", "/etc/hosts", "/usr/bin/env", "/bin/sh", "/run/zwinger/policy.json", "/dev/mem", "/dev/kmsg",
             "/sys/devices/system/cpu/cpu0/online", "/sys/devices/system/cpu/smt/control", *sys.argv[1:]):
    refused("write " + path, write, path)
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/fd/3", "/proc/1/auxv", "/proc/kcore", "/proc/kallsyms", "/proc/keys", "/etc/shadow", "/root/../proc/1/root/etc/shadow"):
    refused("open " + path, os.open, path, os.O_RDONLY)
for path in ("/proc/1/map_files", "/proc/1/root/", "/proc/1/cwd/"):
    refused("list " + path, os.listdir, path)
for folder in ("/", "/etc", "/usr", "/usr/bin", "/home", "/dev", "/run", "/var", "/proc", "/sys"):
    refused("make a file in " + folder, os.open, folder + "/x", os.O_WRONLY | os.O_CREAT, 0o600)
    refused("chmod " + folder, os.chmod, folder, 0o777)
    refused("chown " + folder, os.chown, folder, 0, 0)
other = 1000 if os.getuid() == 0 else 0
for uid in (1, other, 12345, 65534):
    refused("setuid %d" % uid, os.setuid, uid)
    refused("setgid %d" % uid, os.setgid, uid)
    refused("setresuid %d" % uid, os.setresuid, -1, uid, -1)
refused("setgroups", os.setgroups, [0])
refused("setgroups to none", os.setgroups, [])
own = os.path.expanduser("~/own")
with open(own, "w") as f:
    f.write("#!/bin/sh\nid -u\n")
refused("give a file away", os.chown, own, other, other)
refused("chroot", os.chroot, "/tmp")
refused("set-uid", os.chmod, own, 0o4755)
refused("set-gid", os.chmod, own, 0o2755)
refused("mknod", os.mknod, "/tmp/null", 0o20666, os.makedev(1, 3))
refused("capabilities", os.setxattr, own, "security.capability", b"\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0")
refused("trusted attributes", os.setxattr, own, "trusted.x", b"1")
refused("mount", libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
refused("umount", libc.umount2, b"/tmp", 2)
refused("unshare user", libc.unshare, 0x10000000)
refused("unshare mounts", libc.unshare, 0x00020000)
refused("sethostname", libc.sethostname, b"x", 1)
refused("raw socket", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
refused("packet socket", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 0)
refused("trace the agent", libc.ptrace, 16, 1, None, None)
refused("a better priority", os.nice, -1)
refused("raise a limit", lambda: __import__("resource").setrlimit(7, (1 << 20, 1 << 20)))
refused("an ambient capability", libc.prctl, 47, 2, 7, 0, 0)
refused("kill the other user's", os.kill, int(os.environ["OTHER"]), signal.SIGKILL)
refused("look at the other user's", os.open, "/proc/%s/environ" % os.environ["OTHER"], os.O_RDONLY)
try:
    os.kill(1, signal.SIGKILL)
except OSError:
    pass
print("done")
"""


@tap.as_root
def test_root_gains_nothing_by_being_root(t):
    read, write = t.tmp("read"), t.tmp("write")
    for folder in (read, write):
        os.mkdir(folder, 0o755)
        with open(f"{folder}/file", "w") as f:
            f.write("theirs")
        os.chmod(f"{folder}/file", 0o644)
        with open(f"{folder}/closed", "w") as f:
            f.write("closed")
        os.chmod(f"{folder}/closed", 0o600)
    os.chown(write, 54321, 54321)  # its files stay root's, as a cloned repository may have some
    s = with_root(t, filesystem={"read": [f"{read}:/read"], "write": [f"{write}:/write"]})
    s.file("PUT", "attack.py", ATTACK.encode(), status=201)
    other = {}
    for user in ("root", "user"):
        other[user] = s.ask("POST", "/processes", {"command": ["sleep", "1000"], "user": user}, 201).json["pid"]
    for user, victim in (("root", "user"), ("user", "root")):
        hit = ("/read/file", "/read/closed", "/write/file", "/write/closed") + (("/home/user/attack.py",) if user == "root" else ("/root/x",))
        r = s.run(f"/usr/bin/python3 /home/user/attack.py {' '.join(hit)}", user, env={"OTHER": str(other[victim])})
        t.equal((r["stdout"], r["exit_code"]), ("done\n", 0), f"{user}: {r}")
    t.equal(s.ask("GET", f"/processes/{other['user']}").json["state"], "running", "nobody was hurt")
    # In a folder of the policy root is a stranger: it has no id there to make anything with.
    for line in ("> /write/new", "mkdir /write/new", "ln -s x /write/new", "rm -f /write/file", "mv /write/file /write/new", "cat /write/closed", "cat /read/closed", "> /read/new",
                 "ln /write/file /write/new", "chmod 777 /write/file", "touch /write/file"):
        r = s.run(line, "root")
        t.check(r["exit_code"] != 0, f"{line}: {r}")
    t.equal(s.out("cat /read/file /write/file", "root"), "theirstheirs", "what everybody may read")
    s.out("echo mine > /write/user")
    t.equal(sorted(os.listdir(write)), ["closed", "file", "user"], "what is there outside")
    t.equal((os.stat(f"{write}/user").st_uid, os.stat(f"{write}/file").st_uid), (54321, 0), "and whose it is")
    # Also where everybody may write: then nobody's in particular, and not root's.
    os.chmod(write, 0o777)
    t.check(s.run("> /write/new", "root")["exit_code"] != 0, "no id, no file")
    with open(f"{write}/file") as f:
        t.equal(f.read(), "theirs", "what is in it")
    t.equal(s.run("id -u")["stdout"], "1000\n", "and all goes on")


@tap.as_root
def test_what_each_makes_is_its_own_and_the_other_sees_what_modes_say(t):
    s = with_root(t)
    s.out("echo r > /root/mine; echo r > /tmp/r; echo s > /tmp/secret; chmod 600 /tmp/secret; echo h > /home/user/from-root", "root")
    s.out("echo u > /home/user/mine; echo u > /tmp/u; mkdir /home/user/d; echo k > /home/user/key; chmod 600 /home/user/key")
    t.equal(s.out("stat -c '%U %G %a' /root /home/user /tmp/r /tmp/u"), "root root 700\nuser root 775\nroot root 644\nuser user 644\n", "owners")
    t.equal(s.out("cat /tmp/r /home/user/from-root"), "r\nh\n", "the user sees root's")
    t.equal(s.out("cat /tmp/u /home/user/mine", "root"), "u\nu\n", "root sees the user's")
    for user, lines in (("user", ("cat /tmp/secret", "ls /root", "cat /root/mine", "> /tmp/r", "rm -f /tmp/r", "> /home/user/from-root")),
                        ("root", ("cat /home/user/key", "> /tmp/u", "rm -f /tmp/u", "> /home/user/mine", "> /home/user/d/x", "chown root /tmp/u"))):
        for line in lines:
            t.check(s.run(line, user)["exit_code"] != 0, f"{user}: {line}")
    s.out("mv /home/user/from-root /home/user/taken && rm /home/user/taken")  # its own folder


@tap.as_root
def test_file_calls_act_as_whoever_is_named(t):
    s = with_root(t)
    entry = s.file("PUT", "note", b"root's", "root", 201).json
    t.equal((entry["path"], entry["user"], entry["group"]), ("/root/note", "root", "root"), "below a HOME of its own")
    t.equal(s.file("GET", "/root/note", user="root", status=200).body, b"root's", "read again")
    t.equal(s.file("GET", "/root/note").status, 403, "not by the user")
    t.equal(s.file("GET", "note").status, 404, "whose HOME is another")
    t.equal(s.file("PUT", "/home/user/a", b"x", "0", 201).json["user"], "root", "by number")
    t.equal(s.file("PUT", "/tmp/b", b"x", "1000", 201).json["user"], "user", "by number")
    t.equal(s.file("PUT", "/tmp/b", b"y", "root").status, 403, "another's, in a sticky folder")
    t.equal(s.file("PUT", "/etc/x", b"y", "root").status, 403, "not everywhere")
    t.equal([e["name"] for e in s.file("GET", ".", user="root", status=200, at="/list").json["entries"]], ["note"], "the list")
    s.ask("POST", "/files/directory?user=root", {"path": "d"}, 201)
    s.ask("POST", "/files/move?user=root", {"source": "note", "destination": "d/note"}, 200)
    t.equal(s.out("cat /root/d/note", "root"), "root's", "inside")
    t.equal(s.file("DELETE", "d", user="root").status, 409, "it is not empty")
    for user, code in (("nobody", "not_enforceable"), ("1001", "not_enforceable"), ("nosuch", "bad_request"), ("-1", "bad_request")):
        t.equal(s.file("GET", "/tmp/b", user=user).code, code, user)


@tap.as_root
def test_a_terminal_belongs_to_whoever_works_at_it(t):
    s = with_root(t)
    for user, name in (("root", "root"), (None, "user")):
        p = s.ask("POST", "/processes", {"shell": "stat -c %U $(tty); echo there > $(tty); id -un > /dev/tty; exit 3", "tty": {"columns": 80, "rows": 24},
                                         **({"user": user} if user else {})}, 201).json
        until(t, lambda p=p: s.ask("GET", f"/processes/{p['pid']}").json["state"] == "ended", "its end")
        text = s.ask("GET", f"/processes/{p['pid']}/output?from=start", None, 200).body.decode()
        t.check(f"{name}\\r\\nthere\\r\\n{name}" in text, f"{user}: {text}")
        t.equal(s.ask("GET", f"/processes/{p['pid']}").json["exit_code"], 3, text)


@tap.as_root
def test_limits_hold_for_both_together(t):
    s = with_root(t, limits={"processes": 40})
    crowd = "import os, time\nn = 0\ntry:\n    while n < 100:\n        if os.fork() == 0: time.sleep(1000)\n        n += 1\nexcept BlockingIOError: pass\nprint(n)"
    first = s.ask("POST", "/processes", {"shell": "for i in $(seq 20); do sleep 1000 & done; wait"}, 201).json
    until(t, lambda: s.ask("GET", "/stats").json["processes"] >= 21, "a crowd of the user's")
    r = s.ask("POST", "/run", {"command": ["/usr/bin/python3", "-c", crowd], "user": "root"}, 200).json
    t.check(5 <= int(r["stdout"]) <= 20, f"root had room for {r['stdout']}")
    s.ask("POST", f"/processes/{first['pid']}/signal", {"signal": "KILL", "tree": True}, 204)


@tap.as_root
def test_a_pause_and_an_end_hold_for_root_too(t):
    s = with_root(t)
    p = s.ask("POST", "/processes", {"shell": "trap '' TERM; while :; do sleep 0.1; done", "user": "root"}, 201).json
    s.ask("POST", "/pause", None, 200)
    t.equal(s.run("true", "root", status=None).get("code"), "conflict", "paused")
    s.ask("POST", "/resume", None, 200)
    s.ask("POST", f"/processes/{p['pid']}/signal", {"signal": "KILL"}, 204)
    until(t, lambda: s.ask("GET", f"/processes/{p['pid']}").json["state"] == "ended", "its end")
    s.ask("POST", "/processes", {"shell": "setsid sleep 1000 & setsid sleep 1000 & exec sleep 1000", "user": "root"}, 201)
    t.equal(s.ask("DELETE", "", None, 200).json["end"]["status"], "deleted", "the end; nothing is left, which the suite looks for")


@tap.as_root
def test_a_fork_carries_what_the_user_can_read_or_is_refused(t):
    s = with_root(t)
    s.out("mkdir -p d; echo u > d/user")
    s.out("echo r > /home/user/open; echo r > /root/own", "root")
    r = s.ask("POST", "/fork", {}, 201).json["sandboxes"]
    f = Sandbox(t, s.d, r[0])
    t.equal(f.out("cat d/user open; ls -A /home/user; whoami"), "u\nr\nd\nopen\nuser\n", "what came along")
    t.equal(f.out("id -un; ls -A /root", "root"), "root\n", "with a root of its own")
    s.out("echo r > /home/user/shut; chmod 600 /home/user/shut", "root")
    t.equal(s.ask("POST", "/fork", {}, 403).json["code"], "permission_denied", "nothing is left out in silence")


# ---- The same over E2B ------------------------------------------------------------------------------------------------------


@tap.as_root
def test_e2b_knows_root_in_commands_terminals_and_files(t):
    c = one(t)
    if c.shell("id -u", user="user")[0] != "1000\n" or c.start("/bin/true", user="root").message() is None:
        raise tap.Skip("this machine cannot give a second user")
    t.equal(c.shell("id -un; pwd; echo $HOME", user="root")[0], "root\n/root\n/root\n", "a command")
    t.equal(c.shell("pwd", user="root", cwd="~")[0], "/root\n", "~")
    r = c.start("/bin/sh", "-c", "id -un; stat -c %U $(tty)", pty=(80, 24), user="root")
    c.pid(r)
    t.equal(joined(r.rest_of(), "pty"), "root\r\nroot\r\n", "a terminal")

    def rpc(method, message, user, status=200):
        h = {"Content-Type": "application/json", **({"Authorization": "Basic " + b64(user + ":")} if user else {})}
        return c.s.envd("POST", f"/filesystem.Filesystem/{method}", json.dumps(message).encode(), status, **h).json
    t.equal(rpc("MakeDir", {"path": "d"}, "root")["entry"]["path"], "/root/d", "a directory")
    t.equal(c.s.envd("POST", "/files?username=root&path=d/f", b"root's", 200, **{"Content-Type": "application/octet-stream"}).json[0]["path"], "/root/d/f", "an upload")
    t.equal(c.s.envd("GET", "/files?username=root&path=d/f", None, 200).body, b"root's", "a download")
    t.equal((entry := rpc("Stat", {"path": "/root/d/f"}, "root")["entry"])["owner"], "root", entry)
    t.equal([e["path"] for e in rpc("ListDir", {"path": ".", "depth": 2}, "root")["entries"]], ["/root/d", "/root/d/f"], "a list")
    t.equal(rpc("Stat", {"path": "/root/d/f"}, None, 403)["code"], "permission_denied", "not by the user")
    t.equal(c.s.envd("GET", "/files?path=/root/d/f").status >= 400, True, "nor so")
    for user in ("nobody", "nosuch"):
        t.equal(c.s.envd("GET", f"/files?username={user}&path=/tmp").status, 401, user)
        t.equal(rpc("Stat", {"path": "/tmp"}, user, 401)["code"], "unauthenticated", user)
    r = c.stream("WatchDir", {"path": "d"}, "filesystem.Filesystem", Authorization="Basic " + b64("root:"))
    t.equal(list(r.message()), ["start"], "a watch")
    c.shell("echo > /root/d/new", user="root")
    t.equal(r.message()["filesystem"]["name"], "new", "what came")


@tap.as_user
def test_e2b_says_that_there_is_no_root(t):
    c = one(t)
    r = c.start("/bin/true", user="root")
    t.equal((r.message(), r.last["error"]["code"]), (None, "unauthenticated"), "a command")
    t.equal(c.s.envd("GET", "/files?username=root&path=/tmp").status, 401, "a file")


# ---- Nobody else -----------------------------------------------------------------------------------------------------------


def test_who_is_not_there_is_refused_by_name_and_with_the_remedy(t):
    s = Sandbox(t, serve(t))
    for user, status in (("nosuch", 400), ("nobody", 422), (12345, 422), ("65534", 422), (-1, 400), (1 << 40, 400)):
        r = s.run("true", user, status=status)
        t.check(r["message"], r)
    t.equal(s.run("id -u", "user")["stdout"], "1000\n", "and the one that is there works")
    t.equal(s.run("id -u", None)["exit_code"], 0, "also unnamed")


@tap.as_user
def test_without_root_outside_there_is_none_inside_and_the_message_says_what_to_do(t):
    s = Sandbox(t, serve(t))
    r = s.run("true", "root", status=422)
    t.equal(r["code"], "not_enforceable", r)
    t.check("root" in r["message"] and "started by root" in r["message"], r["message"])
    r = s.ask("POST", "/processes", {"command": ["true"], "user": 0}, 422).json
    t.check("started by root" in r["message"], r)
    r = s.file("GET", "/etc/passwd", user="root", status=422).json
    t.check("as root" in r["hint"], r)
    t.check("root:x:0:0:root:/nonexistent:" in s.out("cat /etc/passwd"), "nobody lives there")


tap.main(globals())
