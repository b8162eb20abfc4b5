#!/usr/bin/python3 -B
"""Nothing is left behind, whatever the ending, and runs do not disturb each other."""
import json
import random
import signal
import subprocess
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402

import leftovers  # noqa: E402


def nothing_runs(t, seconds=5):
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), seconds, lambda: f"no process is left: {zw.descendants()}")


def nothing_is_left(t, before, seconds=3):
    nothing_runs(t)
    end = time.monotonic() + seconds
    while before.news() and time.monotonic() < end:
        time.sleep(0.05)
    t.equal(before.news(), [], "left behind")


@zw.alone
def test_nothing_is_left_after_every_kind_of_ending(t):
    before = leftovers.Snapshot()
    w = t.folder("w")
    t.run("true")
    t.run("sh", "-c", "kill -9 $$")
    t.run("sh", "-c", "sleep 60 & setsid sleep 60 & exit 1")
    t.run("sleep", "30", flags=["--time", "200ms"])
    t.run("sh", "-c", "while :; do :; done", flags=["--cpu-time", "200ms"])
    t.inside("hog", 300, flags=["--memory", "64M"])
    t.inside("flood", 1, 10 << 20, policy={"version": 1, "limits": {"output": "1K", "on_output_limit": "kill"}})
    t.run("no-such-program")
    t.run("/etc/passwd")
    t.run("true", flags=["--ro", "/no/such/folder"])
    t.run("true", policy="version: 1\nwrong: 1\n")
    t.run("touch", "x", flags=["--workspace", f"{w}:/work:rw"])
    t.run("sh", "-c", "echo x > /out/x", policy={"version": 1, "filesystem": {"write": [{"source": w, "target": "/out", "size": "1M"}]}})
    t.run("true", flags=["--tty"])
    t.run("true", flags=["--isolation", "process", "--best-effort"])
    r = t.start("sleep", "30")
    time.sleep(0.3)
    r.send(signal.SIGTERM)
    r.finish()
    nothing_is_left(t, before)
    t.equal(sorted(os.listdir(w)), ["x"], "the workspace")


def kill_at_random(t, rounds, flags, script, longest):
    for i in range(rounds):
        r = t.start("sh", "-c", script, flags=flags)
        time.sleep(random.random() * longest)
        r.send(signal.SIGKILL)
        r.process.wait()
        for f in (r.process.stdout, r.process.stderr):
            f.close()
        t._live.clear()


@zw.alone
def test_two_hundred_kills_of_the_supervisor_at_random_moments_leave_nothing(t):
    before = leftovers.Snapshot()
    seed = random.randrange(1 << 30)
    random.seed(seed)
    t.note(f"seed {seed}")
    w = t.folder("w")
    flags = ["--workspace", f"{w}:/work:rw", "--memory", "64M", "--processes", "50", "--scratch", "10M"]
    script = "sleep 300 & setsid sleep 300 & (setsid sh -c 'while :; do date > /work/beat; done' &) ; sleep 300"
    kill_at_random(t, 140, flags, script, 0.012)
    kill_at_random(t, 60, [*flags, "--tty"], script, 0.1)
    nothing_runs(t)
    t.expect(t.run("true"), code=0)
    nothing_is_left(t, before)


test_two_hundred_kills_of_the_supervisor_at_random_moments_leave_nothing.limit = 240


@zw.alone
def test_kills_at_the_process_level_leave_nothing_after_the_next_start(t):
    before = leftovers.Snapshot()
    flags = ["--isolation", "process", "--best-effort"]
    kill_at_random(t, 40, flags, "echo x > $HOME/x; sleep 300 & setsid sleep 300 & sleep 300", 0.03)
    nothing_runs(t)
    t.expect(t.run("true", flags=flags), code=0)
    nothing_is_left(t, before)


@zw.alone
def test_a_kill_of_the_supervisor_while_it_commits_leaves_nothing_but_the_files(t):
    before = leftovers.Snapshot()
    w = t.folder("w")
    p = t.policy({"version": 1, "filesystem": {"write": [{"source": w, "target": "/out", "size": "50M"}]}})
    for _ in range(20):
        r = t.start("sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do head -c 1000000 /dev/zero > /out/f$i; done", flags=["--policy", p])
        time.sleep(0.005 + random.random() * 0.05)
        r.send(signal.SIGKILL)
        r.process.wait()
    nothing_runs(t)
    t.expect(t.run("sh", "-c", "ls /out > /dev/null", flags=["--policy", p]), code=0)
    nothing_is_left(t, before)
    # Between the link and the rename that replaces a file there is a moment in which it has both names: then it is whole at least.
    odd = [f for f in os.listdir(w) if not f.startswith("f")]
    t.check(all(f.startswith(".zwinger-") and os.path.getsize(os.path.join(w, f)) == 1000000 for f in odd), f"half-written names are left: {odd}")


@zw.alone
def test_a_kill_of_the_agent_ends_the_run_cleanly(t):
    before = leftovers.Snapshot()
    for _ in range(10):
        r = t.start("sh", "-c", "echo up; sleep 30 & sleep 30")
        r.read_line()
        agents = [p for p, (parent, _, _) in zw.descendants().items() if parent == r.pid]
        t.check(agents, "no child of the supervisor")
        for p in agents:
            os.kill(p, signal.SIGKILL)
        r = r.finish(10)
        t.check(r.code != 0 and r.doc is not None, "the end was taken for a success, or there is no document")
        t.check(r.status in ("error", "signaled", "canceled"), f"status: {r.status}")
    nothing_is_left(t, before)


@zw.alone
def test_a_hundred_runs_at_once_do_not_disturb_each_other(t):
    before = leftovers.Snapshot()
    runs = []
    for i in range(100):
        w = t.folder(f"w{i}")
        runs.append((i, w, t.start("sh", "-c", f"echo {i} > /tmp/me; echo {i} > /work/me; sleep 0.3; cat /tmp/me; ls /tmp; exit {i % 7}",
                                   flags=["--workspace", f"{w}:/work:rw", "--memory", "64M", "--processes", "20"])))
    for i, w, r in runs:
        r = r.finish(60)
        t.expect(r, code=i % 7, out=f"{i}\nme\n", err="")
        with open(os.path.join(w, "me")) as f:
            t.equal(f.read(), f"{i}\n", "the file")
    nothing_is_left(t, before)


@zw.alone
def test_a_limit_of_one_run_does_not_hit_another(t):
    quiet = [t.start(zw.INSIDE, "sleep", "2500", flags=["--ro", zw.TOOLS, "--memory", "64M"]) for _ in range(5)]
    noisy = [t.start(zw.INSIDE, verb, *args, flags=["--ro", zw.TOOLS, "--memory", "64M", "--time", "2s", "--processes", "64"])
             for verb, *args in (("hog", "300"), ("forkbomb",), ("processes", "100"), ("fill", "/tmp/x", "60"), ("flood", "1", "100000000"))]
    for r in noisy:
        r.finish(30)
    for r in quiet:
        t.expect(r.finish(30), code=0, out="slept\n")


@zw.alone
def test_a_group_left_by_a_killed_run_is_removed_by_the_next_and_a_live_one_is_not(t):
    before = leftovers.Snapshot()
    alive = t.start("sh", "-c", "echo up; read x; echo still", stdin=subprocess.PIPE)
    alive.read_line()
    for _ in range(5):
        r = t.start("sh", "-c", "echo up; sleep 60")
        r.read_line()
        r.send(signal.SIGKILL)
        r.process.wait()
    t.until(lambda: zw.reap_zombies() or len(zw.descendants()) <= 3, 5, "the killed runs are over")
    for _ in range(3):
        t.run("true")
    t.equal(before.news(), [], "left behind")
    alive.process.stdin.write(b"\n")
    alive.process.stdin.close()
    alive.process.stdin = None
    t.expect(alive.finish(), code=0, out="still\n")


def test_no_file_of_ours_is_made_on_the_host_during_a_run(t):
    """Neither in TMPDIR nor in the working folder nor at home."""
    home, tmp, cwd = t.folder("home"), t.folder("tmpdir"), t.folder("work")
    t.expect(t.run("sh", "-c", "touch /tmp/x ~/y", env={"HOME": home, "TMPDIR": tmp}, cwd=cwd, flags=["--tty"]), code=0)
    for d in (home, tmp, cwd):
        t.equal(os.listdir(d), [], f"what is in {os.path.basename(d)}")


def test_a_full_or_missing_temporary_folder_of_the_host_does_not_matter(t):
    t.expect(t.run("echo", "hi", env={"TMPDIR": "/no/such/folder", "HOME": None}), code=0, out="hi\n")


def test_runs_within_runs_are_refused_or_work_but_do_not_leak(t):
    before = leftovers.Snapshot()
    r = t.run(zw.ZWINGER, "run", "--", "true", flags=["--ro", os.path.dirname(zw.ZWINGER)])
    t.among(r.code, (0, 125, 126, 127), "exit status")
    nothing_runs(t)
    t.equal([x for x in before.news() if x.startswith("mount")], [], "mounts left")


def test_the_document_of_many_runs_has_different_ids(t):
    ids = set()
    for r in [t.start("true") for _ in range(20)]:
        ids.add(r.finish().doc["id"])
    t.equal(len(ids), 20, f"ids: {json.dumps(sorted(ids))}")


if __name__ == "__main__":
    zw.main(globals())
