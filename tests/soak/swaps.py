#!/usr/bin/python3 -B
"""Files over HTTP while code inside swaps a folder on the path for a link, as fast as it can. A canary of the host is never read, never changed.

Folders and links are exchanged by one system call, so that each request finds either. Beside the links that lead out there is one to another folder inside:
its content in some answers, and that of the folder in others, shows that requests and swaps do meet."""
import collections
import http.client
import os
import random
import threading
import urllib.parse

import soaklib
from soaklib import Client, leftovers, say, serve, size

REQUESTS = size(10000, 600)
FORKS = size(100, 6)
ENDINGS = size(50, 5)
SECRET = b"canary-of-the-host-3f7a"

SWAPPER = r"""
import ctypes, os, shutil, sys
place, targets = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs(place + "/control", exist_ok=True)
open(place + "/control/f", "w").write("control")
pairs = []
for i, target in enumerate(targets):
    name, other = f"{place}/s{i}".encode(), f"{place}/other{i}".encode()
    os.makedirs(name, exist_ok=True)
    open(name + b"/f", "w").write("inside")
    os.symlink(target, other)
    pairs.append((name, other))
print("ready", flush=True)
rename, exchange, round = libc.renameat2, 2, 0
while True:
    for name, other in pairs:
        if rename(-100, name, -100, other, exchange) != 0 and round % 64 == 0:
            # A request has removed one of the two.
            try:
                if not os.path.islink(other) and not os.path.islink(name):
                    shutil.rmtree(other, ignore_errors=True)
                    os.symlink(targets[pairs.index((name, other))], other)
                if not os.path.lexists(name):
                    os.mkdir(name)
                    open(name + b"/f", "w").write("inside")
            except OSError:
                pass
    round += 1
    if round % 200 == 0:
        try:
            os.makedirs(place + "/control", exist_ok=True)
            open(place + "/control/f", "w").write("control")
        except OSError:
            pass
        for name, other in pairs:
            for folder in (name, other):
                if not os.path.islink(folder):
                    try:
                        if not os.path.exists(folder + b"/f"):
                            open(folder + b"/f", "w").write("inside")
                    except OSError:
                        pass
"""


class Canary:
    """A folder of the host in which everybody could write, beside the one that the sandbox has."""

    def __init__(self, t):
        self.t = t
        self.work, self.folder = t.folder("host", "work"), t.folder("host", "canary")
        for d in (os.path.dirname(self.work), self.work, self.folder):
            os.chmod(d, 0o777)
        self.file = os.path.join(self.folder, "f")
        with open(self.file, "wb") as f:
            f.write(SECRET)
        os.chmod(self.file, 0o666)
        top = os.path.dirname(os.path.dirname(self.folder))
        os.chmod(top, 0o755)
        self.before = self.look()

    def look(self):
        s, d = os.stat(self.file), os.stat(self.folder)
        with open(self.file, "rb") as f:
            return f.read(), s.st_mode, s.st_uid, s.st_mtime_ns, s.st_ino, s.st_nlink, sorted(os.listdir(self.folder)), d.st_mode, d.st_mtime_ns

    def targets(self):
        """Where links lead; each would be the canary's folder, or have it below, for whoever resolves it outside. The last one stays inside."""
        up = "../" * 40
        return [self.folder, "../canary", up + self.folder[1:], "/proc/self/root" + self.folder, "/proc/1/root" + self.folder, "/", "..", "/proc/self/cwd/../canary", "control"]

    def check(self):
        self.t.equal(self.look(), self.before, "the canary")

    def serve(self, *flags, size=None):
        write = {"source": self.work, "target": "/work"}
        wide = {"filesystem": {"write": [write]}}
        given = {"filesystem": {"write": [{**write, "size": size} if size else write]}}
        return serve(self.t, *flags, ceiling=wide, policy=given)


def swap(client, sandbox, place, targets):
    """Begins to swap; `place` must be there."""
    r = client.ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"command": ["/usr/bin/python3", "-c", SWAPPER, place, *targets], "cwd": place}, 201).json
    connection = client.d.connection(timeout=30)
    connection.request("GET", f"/v1/sandboxes/{sandbox}/processes/{r['pid']}/output", None, {"Authorization": f"Bearer {client.d.key}"})
    answer = connection.getresponse()
    text = b""
    while b"ready" not in text:
        line = answer.readline()
        if not line or b"event: exit" in line:
            raise soaklib.Unexpected(f"the program that swaps did not start: {text!r}")
        text += line
    answer.close()
    connection.close()
    return r["pid"]


class Requests:
    """Clients that ask for what lies behind the swapped names. Any answer in good order is fine; none may have the secret."""

    def __init__(self, t, d, sandbox, places, count, facts=None):
        self.t, self.d, self.sandbox, self.places, self.facts = t, d, sandbox, places, facts
        self.left, self.lock = count, threading.Lock()
        self.wrong, self.answers, self.contents = [], collections.Counter(), collections.Counter()

    def run(self):
        threads = [threading.Thread(target=self.work, args=(random.Random(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(f"answers: {dict(sorted(self.answers.items()))}")
        say(f"contents: {dict(self.contents)}")
        self.t.equal(self.wrong, [], "answers that may not be")
        self.t.check(self.answers["read cut off"] < sum(self.answers.values()) / 50, "few are cut off")
        self.t.check(self.contents["control"] > 0 and self.contents["inside"] > 0, f"requests and swaps met: {self.contents}")

    def work(self, dice):
        client = Client(self.d, timeout=60)
        while True:
            with self.lock:
                if self.left == 0 or self.wrong:
                    return
                self.left -= 1
            place, count = dice.choice(self.places)
            try:
                self.one(client, dice, place, dice.randrange(count))
            except Exception as e:
                self.wrong.append(f"{type(e).__name__}: {e}"[:300])

    def one(self, client, dice, place, n):
        base = f"/v1/sandboxes/{self.sandbox}/files"
        path = f"{place}/s{n}"
        if dice.random() < 0.2 and n == 5:
            path += self.t.tmp("host", "canary")  # behind the link to /
        file = urllib.parse.quote(path + "/f")
        kind = dice.randrange(12)
        anything = tuple(range(200, 600))
        if kind <= 2:
            name, r = "read", self.read(client, f"{base}?path={file}")
            if r is None:
                return
            if r.status == 200:
                self.contents[r.body.decode(errors="replace")[:20]] += 1
        elif kind == 3:
            name, r = "write", client.ask("PUT", f"{base}?path={file}", b"inside", status=anything)
        elif kind == 4:
            name, r = "write new", client.ask("PUT", f"{base}?path={urllib.parse.quote(path)}/n{dice.randrange(3)}&mode=0666", b"inside", status=anything)
        elif kind == 5:
            name, r = "stat", client.ask("GET", f"{base}/stat?path={file}", status=anything)
            if r.status == 200 and r.json["size"] == len(SECRET):
                self.wrong.append(r.body)
        elif kind == 6:
            name, r = "list", client.ask("GET", f"{base}/list?path={urllib.parse.quote(path)}&depth=2&limit=200", status=anything)
        elif kind == 7:
            name, r = "remove", client.ask("DELETE", f"{base}?path={file}", status=anything)
        elif kind == 8:
            name, r = "remove all", client.ask("DELETE", f"{base}?path={urllib.parse.quote(path)}/d&recursive=true", status=anything)
        elif kind == 9:
            name, r = "directory", client.ask("POST", f"{base}/directory", {"path": f"{path}/d/e"}, status=anything)
        elif kind == 10:
            name, r = "move", client.ask("POST", f"{base}/move", {"source": f"{path}/f", "destination": f"{path}/n0"}, status=anything)
        else:
            name, r = self.over_e2b(client, dice, path)
            if r is None:
                return
        self.answers[f"{name} {r.status}"] += 1
        if SECRET in r.body or (SECRET.decode() in r.body.decode(errors="replace")):
            self.wrong.append(f"{name} {path}: {r.body[:200]!r}")
        if r.status >= 500 and r.status != 507:
            self.wrong.append(f"{name} {path}: {r.status} {r.body[:200]!r}")

    def read(self, client, path, **options):
        """A file that becomes shorter while it is read is cut off; None then."""
        try:
            return client.ask("GET", path, status=tuple(range(200, 600)), **options)
        except (ConnectionResetError, http.client.IncompleteRead):
            self.answers["read cut off"] += 1
            return None

    def over_e2b(self, client, dice, path):
        head = soaklib.traffic(self.facts)
        anything = tuple(range(200, 600))
        file = urllib.parse.quote(path + "/f")
        if dice.random() < 0.5:
            return "E2B read", self.read(client, f"/files?path={file}", key=None, headers=head)
        r = client.ask("POST", f"/files?path={file}", b"inside", status=anything, key=None, headers={**head, "Content-Type": "application/octet-stream"})
        return "E2B write", r


def make(client):
    """One that both interfaces know."""
    facts = client.e2b("POST", "/sandboxes", {"templateID": "base", "timeout": 3600}, 201).json
    return facts["sandboxID"], facts


def test_requests_meet_swaps(t):
    before = leftovers.Snapshot()
    canary = Canary(t)
    d = canary.serve("--templates", template(t, canary))
    client = Client(d)
    sandbox, facts = make(client)
    targets = canary.targets()
    for place in ("/home/user/swap", "/work"):
        client.ask("POST", f"/v1/sandboxes/{sandbox}/files/directory", {"path": place}, (200, 201))
        swap(client, sandbox, place, targets)
    Requests(t, d, sandbox, [(p, len(targets)) for p in ("/home/user/swap", "/work")], REQUESTS, facts).run()
    canary.check()
    client.ask("DELETE", f"/v1/sandboxes/{sandbox}")
    canary.check()
    soaklib.end(t, d)
    t.equal(before.news(), [], "left behind")


def template(t, canary):
    path = t.file(soaklib.json.dumps({**soaklib.LOOSE, "filesystem": {"write": [{"source": canary.work, "target": "/work"}]}}), "templates", "base.yaml")
    return os.path.dirname(path)


def test_forks_meet_swaps(t):
    canary = Canary(t)
    d = canary.serve()
    client = Client(d)
    sandbox = client.create()
    client.ask("POST", f"/v1/sandboxes/{sandbox}/files/directory", {"path": "swap"}, 201)
    swap(client, sandbox, "/home/user/swap", canary.targets())
    statuses = collections.Counter()
    for _ in range(FORKS):
        r = client.ask("POST", f"/v1/sandboxes/{sandbox}/fork", {"count": 1}, tuple(range(200, 600)))
        statuses[r.status] += 1
        if r.status != 201:
            say(r.body[:200])
            continue
        new = r.json["sandboxes"][0]["id"]
        found = client.run(new, f"grep -rl {SECRET.decode()} /home/user /tmp /var/tmp /dev/shm; find /home/user/swap -maxdepth 1 | wc -l")
        lines = found["stdout"].split()
        t.equal(len(lines), 1, f"files with the secret: {found}")
        t.check(int(lines[0]) > 1, f"files came: {found}")
        client.ask("DELETE", f"/v1/sandboxes/{new}")
        canary.check()
    say(f"forks of files that move: {dict(statuses)}")
    t.check(statuses[201] > FORKS // 2 and sum(statuses.values()) == FORKS, f"answers: {statuses}")
    soaklib.end(t, d)
    canary.check()


def test_what_is_brought_out_meets_swaps(t):
    """A writable folder with a size is filled aside, and copied to the host at the end."""
    canary = Canary(t)
    d = canary.serve(size="8M")
    client = Client(d)
    r = d.ask("POST", "/v1/sandboxes", {})
    if r.status != 201:
        t.skip(r.json["message"])
    client.ask("DELETE", f"/v1/sandboxes/{r.json['id']}")
    for n in range(ENDINGS):
        sandbox = client.create()
        place = f"/work/{n}"
        client.ask("POST", f"/v1/sandboxes/{sandbox}/files/directory", {"path": place}, 201)
        swap(client, sandbox, place, canary.targets() + [f"{canary.folder}/f"])
        client.ask("DELETE", f"/v1/sandboxes/{sandbox}")
        canary.check()
    t.equal(len(os.listdir(canary.work)), ENDINGS, "folders that were brought out")
    soaklib.end(t, d)
    canary.check()


soaklib.main(globals())
