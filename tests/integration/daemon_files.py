#!/usr/bin/python3 -B
"""Files of a sandbox over the native interface: watching, forks, names and kinds of every sort, races, sizes."""
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
from daemon import Daemon, descriptors, wait_for  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller


class Sandbox:
    def __init__(self, t, d, facts=None, **wish):
        self.t, self.d = t, d
        if facts is None:
            r = d.ask("POST", "/v1/sandboxes", wish)
            t.equal(r.status, 201, r.body)
            facts = r.json
        self.facts, self.id = facts, facts["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def ask(self, method, path="", body=None, status=None, **options):
        r = self.d.ask(method, self.path + path, body, **options)
        if status is not None:
            self.t.equal(r.status, status, f"{method} {path}: {r.body[:500]}")
        return r

    def shell(self, line, **members):
        r = self.ask("POST", "/run", {"shell": line, **members}, 200).json
        self.t.equal(r["exit_code"], 0, f"{line}: {r}")
        return r["stdout"]

    def file(self, method, path, body=None, status=None, more="", **options):
        return self.ask(method, f"/files?path={urllib.parse.quote(path)}{more}", body, status, **options)


def serve(t, **limits):
    own = {"version": 1, **LOOSE}
    ceiling = t.file(json.dumps({**own, **({"limits": limits} if limits else {})}), "ceiling.yaml")
    policy = t.file(json.dumps({**own, **({"limits": limits} if limits else {})}), "policy.yaml")
    return Daemon(t, "--ceiling", ceiling, "--policy", policy)


# ---- Watching --------------------------------------------------------------------------------------------------------------


class Watch:
    """Events as they come: [(event, path below HOME or "", entry)]."""

    def __init__(self, t, s, query):
        self.t, self.connection = t, s.d.connection(timeout=30)
        t.at_end(self.connection.close)
        self.connection.request("GET", f"{s.path}/files/watch?{query}", headers={"Authorization": f"Bearer {s.d.key}"})
        self.answer = self.connection.getresponse()
        self.home = "/home/user/"
        t.equal(self.answer.status, 200, "watch")
        t.equal(self.next()[0], "ready", "the first event")

    def next(self):
        """None at the end of the stream."""
        event = None
        for line in iter(self.answer.readline, b""):
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                path = data.get("path", "")
                return event, path.removeprefix(self.home), data.get("entry")
        return None

    def until(self, event, path):
        """Everything up to this one."""
        seen = []
        while True:
            e = self.next()
            self.t.check(e is not None, f"the stream ended before {event} {path}: {seen}")
            seen.append(e[:2])
            if e[:2] == (event, path):
                return seen


def test_changes_are_told(t):
    s = Sandbox(t, serve(t))
    w = Watch(t, s, "path=.")
    s.file("PUT", "a", b"one", 201)
    t.equal(w.until("write", "a"), [("create", "a"), ("write", "a")], "an upload is whole, its own name is not told")
    s.shell("mv a b; chmod 600 b; rm b; mkdir sub; touch sub/unseen; echo > last")
    seen = w.until("create", "last")
    t.equal([e for e in seen if e[1] in ("a", "b")], [("rename", "a"), ("create", "b"), ("attributes", "b"), ("remove", "b")], seen)
    t.check(("create", "sub") in seen and not any("unseen" in p for _, p in seen), seen)


def test_an_event_has_the_entry(t):
    s = Sandbox(t, serve(t))
    w = Watch(t, s, "path=.")
    s.file("PUT", "a", b"four", 201)
    e = w.next()
    t.equal((e[0], e[2]["name"], e[2]["size"], e[2]["type"]), ("create", "a", 4, "file"), e)


def test_new_folders_are_watched_with_what_was_put_in_before(t):
    s = Sandbox(t, serve(t))
    w = Watch(t, s, "path=.&recursive=true")
    s.shell("for i in 1 2 3 4 5; do mkdir -p d$i/x/y && echo > d$i/x/y/f; done; echo > last")
    seen = {p for e, p in w.until("create", "last") if e == "create"}
    while not all(f"d{i}/x/y/f" in seen for i in range(1, 6)):
        e = w.next()
        seen.add(e[1])
    s.shell("mv d1 moved; echo more >> moved/x/y/f")
    w.until("write", "moved/x/y/f")


def test_a_watch_ends_with_its_folder_and_with_its_sandbox(t):
    d = serve(t)
    s = Sandbox(t, d)
    s.shell("mkdir sub")
    w, v = Watch(t, s, "path=sub"), Watch(t, s, "path=.")
    s.shell("rmdir sub")
    t.equal((w.next()[:2], w.next()), (("remove", "sub"), None), "the folder is gone")
    s.ask("DELETE", status=200)
    while v.next() is not None:
        pass
    t.equal(s.ask("GET", "/files/watch?path=.").status, 410, "of one that has ended")


def test_what_cannot_be_watched_is_refused(t):
    s = Sandbox(t, serve(t))
    s.file("PUT", "f", b"", 201)
    t.equal(s.ask("GET", "/files/watch?path=none").status, 404, "missing")
    t.equal(s.ask("GET", "/files/watch?path=f").code, "not_a_directory", "a file")
    t.equal(s.ask("GET", "/files/watch").status, 400, "no path")
    t.equal(s.ask("GET", "/files/watch?path=.&user=nobody").code, "not_enforceable", "another user")


def test_a_client_that_does_not_read_loses_events_and_is_told(t):
    d = serve(t)
    s = Sandbox(t, d)
    w = Watch(t, s, "path=.")
    before = resident(d)
    # Far more than the sockets and the stream hold.
    code = "import os\nfor i in range(10000): os.close(os.open(f'{i:0200}', os.O_CREAT)); os.unlink(f'{i:0200}')"
    s.shell(f'exec python3 -c "{code}"')
    s.file("PUT", "last", b"", 201)
    seen, end = set(), time.monotonic() + 30
    while "overflow" not in seen and time.monotonic() < end:
        e = w.next()
        seen.add(e[0])
    t.check("overflow" in seen, seen)
    t.check(resident(d) - before < 24 << 20, f"memory grew from {before} to {resident(d)}")
    s.file("PUT", "again", b"", 201)
    w.until("create", "again")


# ---- Forks -----------------------------------------------------------------------------------------------------------------

TREE = r"""
import os, sys, hashlib
def digest(path):
    with open(path, "rb") as f: return hashlib.file_digest(f, "sha256").hexdigest()
def tell(root):
    inodes = {}
    for folder, folders, files in os.walk(root.encode()):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            st = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else digest(path) if os.path.isfile(path) else ""
            first = inodes.setdefault(st.st_ino, path)
            print(path, oct(st.st_mode), st.st_mtime_ns, content, first if st.st_nlink > 1 and os.path.isfile(path) else "", st.st_size if os.path.isfile(path) else "")
for root in ("/home/user", "/tmp", "/var/tmp", "/dev/shm"): tell(root)
"""


def tree(s):
    s.t.equal(s.ask("POST", "/run", {"command": ["true"]}, 200).json["exit_code"], 0, "it runs")
    return s.ask("POST", "/run", {"command": ["python3", "-B", "-c", TREE]}, 200).json["stdout"]


def fork(s, status=201, **wish):
    r = s.ask("POST", "/fork", wish, status)
    return [Sandbox(s.t, s.d, facts) for facts in r.json["sandboxes"]] if status == 201 else r.json


def test_a_fork_has_files_environment_and_metadata_and_no_processes(t):
    d = serve(t)
    s = Sandbox(t, d, env={"COLOUR": "green"}, metadata={"user": "u1"}, timeout="200s")
    s.shell(r"""set -e
mkdir -p deep/er 'odd
name' empty; echo one > deep/er/one; echo two > 'odd
name/two'; chmod 600 deep/er/one; chmod 755 /home/user
printf x > "$(printf 'bytes\377')"; ln deep/er/one same; ln -s deep/er/one link; ln -s /nowhere dangling; mkfifo fifo
n=$(printf %0255d 1); echo long > $n
truncate -s 1G sparse; echo end >> sparse; echo start | dd of=sparse conv=notrunc 2>/dev/null
head -c 3000000 /dev/urandom > /tmp/big; echo v > /var/tmp/v; echo shm > /dev/shm/s
echo hidden > secret; chmod 000 secret; mkdir closed; echo in > closed/in; chmod 555 closed
touch -d 2001-02-03T04:05:06 deep/er deep
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'""".replace("\\\\", "\\"))
    sleeper = s.ask("POST", "/processes", {"command": ["sleep", "1000"]}, 201).json["pid"]
    secret = s.shell("chmod 400 secret; cat secret; rm sock")
    t.equal(secret, "hidden\n", "the original is as it was")
    s.shell("chmod 000 secret; chmod 000 closed")
    (f,) = fork(s)
    t.check(f.id != s.id and f.facts["state"] == "running", f.facts)
    t.equal((f.facts["metadata"], f.facts["timeout_seconds"], f.facts["template"]), ({"user": "u1"}, 200, None), f.facts)
    t.equal(f.shell("echo $COLOUR"), "green\n", "environment")
    t.equal(f.ask("GET", "/processes", status=200).json["processes"], [], "no processes")
    t.equal(f.shell("stat -c %a secret closed; chmod 755 closed; chmod 400 secret; cat secret closed/in"), "0\n0\nhidden\nin\n", "what its owner may not read")
    s.shell("chmod 755 closed; chmod 400 secret")
    want, got = tree(s).splitlines(), tree(f).splitlines()
    t.equal([x for x in got if x not in want], [], "only in the fork")
    t.equal([x for x in want if x not in got], [], "only in the original")
    t.check(int(f.shell("du -k sparse").split()[0]) < 1000, "holes are carried as holes")
    f.shell("echo changed > deep/er/one")
    t.equal(s.shell("cat same"), "one\n", "they share nothing")
    p = s.ask("GET", f"/processes/{sleeper}", status=200).json
    t.equal(p["state"], "running", f"the original goes on: {p}")


def test_several_forks_come_all_or_none(t):
    d = serve(t)
    s = Sandbox(t, d)
    s.shell("for i in $(seq 300); do echo $i > $i; done")
    made = fork(s, count=3, timeout="100s")
    t.equal([f.shell("cat 1 300; ls | wc -l").split() for f in made], [["1", "300", "300"]] * 3, "each has the files")
    t.equal({f.facts["timeout_seconds"] for f in made}, {100}, "timeout")
    listed = {x["id"] for x in d.ask("GET", "/v1/sandboxes").json["sandboxes"]}
    t.equal(listed, {s.id, *(f.id for f in made)}, "all are listed")
    (again,) = fork(made[0])
    t.equal(again.shell("ls | wc -l"), "300\n", "a fork of a fork")


def test_what_cannot_be_forked_is_refused(t):
    d = serve(t)
    s = Sandbox(t, d)
    for count in (0, 11, 1.5, "2"):
        t.equal(s.ask("POST", "/fork", {"count": count}).status, 400, count)
    t.equal(s.ask("POST", "/fork", {"timeout": "1000h"}).status, 400, "timeout")
    s.ask("POST", "/pause", status=200)
    t.equal(fork(s, status=409)["code"], "conflict", "paused")
    s.ask("DELETE", status=200)
    t.equal(fork(s, status=410)["code"], "sandbox_ended", "ended")


def test_more_forks_than_sandboxes_may_be_leave_none(t):
    own = t.file(json.dumps({"version": 1, **LOOSE}), "own.yaml")
    d = Daemon(t, "--ceiling", own, "--policy", own, "--max-sandboxes", "3")
    s = Sandbox(t, d)
    t.equal(fork(s, status=429, count=3)["code"], "busy", "two would be possible")
    t.equal([x["id"] for x in d.ask("GET", "/v1/sandboxes").json["sandboxes"]], [s.id], "only the original is left")
    t.check(wait_for(lambda: d.ask("GET", "/v1/info").json["running"] == 1, 20), "also none that is hidden")
    t.equal(len(fork(s, count=2)), 2, "and then two are made")


def test_a_fork_whose_original_ends_leaves_nothing(t):
    d = serve(t)
    s = Sandbox(t, d)
    before = descriptors(d.process.pid)
    s.shell("for i in 1 2 3 4; do head -c 25000000 /dev/zero | tr '\\0' x > f$i; done")
    results = []
    asking = threading.Thread(target=lambda: results.append(s.ask("POST", "/fork", {"count": 3})))
    asking.start()
    s.ask("DELETE", status=200)
    asking.join(30)
    t.check(results and results[0].status in (201, 404, 410, 503), results and results[0].body)
    for x in d.ask("GET", "/v1/sandboxes").json["sandboxes"]:
        t.equal(results[0].status, 201, "only a whole fork leaves sandboxes")
        d.ask("DELETE", f"/v1/sandboxes/{x['id']}")
    t.check(wait_for(lambda: d.ask("GET", "/v1/info").json["running"] == 0, 20), "nothing runs")
    t.check(wait_for(lambda: descriptors(d.process.pid) <= before, 10), "descriptors are closed")


def test_files_may_change_during_a_fork(t):
    s = Sandbox(t, serve(t))
    s.ask("POST", "/processes", {"shell": "i=0; while :; do i=$((i+1)); mkdir -p d$((i%9)); echo $i > d$((i%9))/f; mv d$((i%9)) e; rm -r e; done"}, 201)
    s.shell("mkdir keep; for i in $(seq 500); do echo $i > keep/$i; done")
    for _ in range(5):
        (f,) = fork(s)
        t.equal(f.shell("cat keep/* | wc -l"), "500\n", "what does not change is whole")
        f.ask("DELETE", status=200)


def resident(d):
    with open(f"/proc/{d.process.pid}/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))


tap.main(globals())
