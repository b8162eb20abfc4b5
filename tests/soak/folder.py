#!/usr/bin/python3 -B
"""A folder of a hundred thousand entries: listed in pages and in depth, watched, and removed, in order and in little memory."""
import collections
import threading
import time

import soaklib
from soaklib import MIB, Client, say, serve, size

COUNT = size(100000, 5000)
OVER_IDLE = 48 * MIB
WIDE = {"limits": {"memory": "1G"}, "filesystem": {"scratch": {"size": "512M", "inodes": 4 * COUNT}}}
# Names that sort bytewise as they count, some of them no text.
FILL = """
import os, sys
os.makedirs(sys.argv[1])
os.chdir(sys.argv[1])
for i in range(int(sys.argv[2])):
    os.close(os.open(b"%07d\\xff" % i if i % 1000 == 0 else b"%07d" % i, os.O_CREAT | os.O_WRONLY))
"""


def start(t):
    d = serve(t, policy=WIDE, ceiling=WIDE)
    client = Client(d)
    sandbox = client.create()
    client.ask("GET", f"/v1/sandboxes/{sandbox}/files/list?path=.")
    return d, client, sandbox


def fill(client, sandbox, path, count):
    done = client.ask("POST", f"/v1/sandboxes/{sandbox}/run", {"command": ["/usr/bin/python3", "-c", FILL, path, str(count)]}).json
    if done["exit_code"] != 0:
        raise soaklib.Unexpected(done)


def pages(client, sandbox, path, depth=1, limit=1000):
    """Every entry, in the order in which they come; and the time of the slowest page."""
    cursor, found, slowest = "", [], 0
    while cursor is not None:
        begun = time.monotonic()
        r = client.ask("GET", f"/v1/sandboxes/{sandbox}/files/list?path={path}&depth={depth}&limit={limit}" + (f"&cursor={cursor}" if cursor else "")).json
        slowest = max(slowest, time.monotonic() - begun)
        if len(r["entries"]) > limit:
            raise soaklib.Unexpected(f"{len(r['entries'])} entries")
        found += r["entries"]
        cursor = r["next_cursor"]
    return found, slowest


class Growth:
    def __init__(self, t, d):
        self.t, self.d, self.before = t, d, soaklib.resident(d.process.pid)
        soaklib.forget_peak(d.process.pid)

    def check(self, what):
        grown = soaklib.peak(self.d.process.pid) - self.before
        helper = max(soaklib.peak(p) for p in soaklib.called("zwinger-files"))
        say(f"{what}: zwingerd grew by {grown >> 10} KiB; the program inside has had {helper >> 10} KiB at most")
        self.t.check(grown < OVER_IDLE, f"{what}: zwingerd grew by {grown}")
        self.t.check(helper < OVER_IDLE, f"{what}: the program inside has {helper}")


def test_it_is_listed_in_pages(t):
    d, client, sandbox = start(t)
    fill(client, sandbox, "many", COUNT)
    g = Growth(t, d)
    begun = time.monotonic()
    found, slowest = pages(client, sandbox, "many")
    say(f"{len(found)} entries in {time.monotonic() - begun:.1f} s, the slowest page in {slowest:.2f} s")
    g.check("the list")
    t.equal(len(found), COUNT, "entries")
    names = [e["name"] for e in found]
    t.equal(len(set(e.get("path_encoded", e["path"]) for e in found)), COUNT, "different ones")
    t.equal([n[:7] for n in names], [f"{i:07}" for i in range(COUNT)], "order")
    t.check("path_encoded" in found[0] and "path_encoded" not in found[1], "a name that is no text says so")
    soaklib.end(t, d)


def test_depth_and_others_meanwhile(t):
    d, client, sandbox = start(t)
    for i in range(10):
        fill(client, sandbox, f"tree/d{i}", COUNT // 10)
    slowest, over = [0.0], threading.Event()

    def others():
        other = Client(d)
        while not over.is_set():
            begun = time.monotonic()
            other.ask("GET", "/v1/info")
            slowest[0] = max(slowest[0], time.monotonic() - begun)
        other.close()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        g = Growth(t, d)
        found, _ = pages(client, sandbox, "tree", depth=3)
        g.check("the list in depth")
    finally:
        over.set()
        thread.join()
    t.equal(len(found), COUNT // 10 * 10 + 10, "entries")
    t.equal([e["path"] for e in found if e["type"] == "directory"], [f"/home/user/tree/d{i}" for i in range(10)], "folders")
    at = next(i for i, e in enumerate(found) if e["name"] == "d1")
    t.equal(at, COUNT // 10 + 1, "depth first")
    say(f"the slowest answer of another request meanwhile took {slowest[0]:.2f} s")
    t.check(slowest[0] < 2, f"another request waited {slowest[0]} s")
    soaklib.end(t, d)


def test_it_is_watched_and_removed(t):
    d, client, sandbox = start(t)
    client.ask("POST", f"/v1/sandboxes/{sandbox}/files/directory", {"path": "seen"}, 201)
    connection = d.connection(timeout=60)
    connection.request("GET", f"/v1/sandboxes/{sandbox}/files/watch?path=seen&recursive=true", None, {"Authorization": f"Bearer {d.key}"})
    stream = connection.getresponse()
    counts, seen = collections.Counter(), threading.Event()

    def read():
        for line in stream:
            if line.startswith(b"event: "):
                counts[line[7:].strip().decode()] += 1
            if line.startswith(b"data: ") and b"/seen/last" in line:
                seen.set()

    reader = threading.Thread(target=read)
    reader.start()
    g = Growth(t, d)
    fill(client, sandbox, "seen/many", COUNT)

    def told():  # one that was written while the reader was behind is part of what it was told that it missed
        client.ask("PUT", f"/v1/sandboxes/{sandbox}/files?path=seen/last", b"x", (200, 201))
        return seen.wait(0.2)

    t.until(told, 30, lambda: f"the watch goes on: {counts}")
    say(f"events: {counts}")
    g.check("the watch")
    t.check(counts.get("create", 0) >= COUNT or counts.get("overflow", 0) > 0, f"each entry is told, or that some are missing: {counts}")
    begun = time.monotonic()
    client.ask("DELETE", f"/v1/sandboxes/{sandbox}/files?path=seen/many", status=409)
    client.ask("DELETE", f"/v1/sandboxes/{sandbox}/files?path=seen/many&recursive=true", status=204)
    say(f"removed in {time.monotonic() - begun:.1f} s")
    t.equal(client.run(sandbox, "ls seen")["stdout"], "last\n", "what is left")
    g.check("the removal")
    client.ask("DELETE", f"/v1/sandboxes/{sandbox}")
    reader.join(30)
    t.check(not reader.is_alive(), "the stream ends with the sandbox")
    connection.close()
    soaklib.end(t, d)


def test_a_deep_tree_is_removed(t):
    d, client, sandbox = start(t)
    deep = size(5000, 2000)  # to make them takes the square of it
    code = "import os\nos.mkdir('deep')\nos.chdir('deep')\nfor i in range(%d):\n    os.mkdir('d')\n    os.chdir('d')\n" % deep
    done = client.ask("POST", f"/v1/sandboxes/{sandbox}/run", {"command": ["/usr/bin/python3", "-c", code]}).json
    t.equal(done["exit_code"], 0, done["stderr"])
    g = Growth(t, d)
    found, _ = pages(client, sandbox, "deep", depth=20)
    t.equal(len(found), 20, "a part of it")
    r = client.ask("GET", f"/v1/sandboxes/{sandbox}/files/list?path=deep&depth=1000000", status=(200, 400))
    say(f"as deep as it goes: {r.status}")
    r = client.ask("DELETE", f"/v1/sandboxes/{sandbox}/files?path=deep&recursive=true", status=(204, 400, 413, 503))
    say(f"removal of {deep} levels: {r.status} {r.body[:200]}")
    t.equal(r.status, 204, "removal")
    t.equal(client.run(sandbox, "ls")["stdout"], "", "what is left")
    g.check("deep")
    soaklib.end(t, d)


soaklib.main(globals())
