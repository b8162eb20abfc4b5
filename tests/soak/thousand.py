#!/usr/bin/python3 -B
"""A thousand sandboxes at once: made, used, measured, at rest, and gone."""
import resource
import time

import soaklib
from soaklib import at_once, called, leftovers, no_errors, say, serve, size

COUNT = size(1000, 100)
PRIVATE_MAX = 2 * soaklib.MIB  # of the processes of one sandbox
IDLE_SECONDS = 10
IDLE_TICKS = 10  # 0.1 s of processor time in ten seconds, all of them together


def how_many(t):
    """As many as the kernel lets this caller have."""
    processes, files = resource.getrlimit(resource.RLIMIT_NPROC)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with open("/proc/sys/user/max_user_namespaces") as f:
        namespaces = int(f.read())
    most = min(COUNT, namespaces // 2)
    if processes != resource.RLIM_INFINITY:
        most = min(most, (processes - 200) // 6)
    most = min(most, files - 200)
    say(f"limits of the caller: {processes} processes, {files} descriptors, {namespaces} user namespaces: {most} sandboxes")
    return most


def test_a_thousand_at_once(t):
    before = leftovers.Snapshot()
    count = how_many(t)
    d = serve(t, "--max-sandboxes", str(count))
    ids = []
    start = time.monotonic()
    no_errors(t, at_once(d, count, lambda client, _: ids.append(client.create()), range(count)), "create")
    say(f"{count} made by as many clients at once in {time.monotonic() - start:.1f} s")
    t.equal(len(set(ids)), count, "different ids")
    r = d.ask("POST", "/v1/sandboxes", {})
    t.equal((r.status, r.code), (429, "busy"), "one more")

    def use(client, sandbox):
        done = client.run(sandbox, "echo $((6 * 7)) > f; cat f")
        if done["stdout"] != "42\n":
            raise soaklib.Unexpected(done)
        stats = client.ask("GET", f"/v1/sandboxes/{sandbox}/stats").json
        if stats["processes"] < 0 or not isinstance(stats["usage"], dict):
            raise soaklib.Unexpected(stats)

    start = time.monotonic()
    no_errors(t, at_once(d, 16, use, ids), "run and stats")
    say(f"a command and the figures of each in {time.monotonic() - start:.1f} s")
    t.equal(d.ask("GET", "/v1/info").json["running"], count, "running")
    soaklib.counts_add_up(t, d)

    supervisors, agents = called("zwinger-session"), called("memfd:zwinger-a", "zwinger-agent")
    t.equal((len(supervisors), len(agents)), (count, count), "supervisors and agents")
    mine = sorted(soaklib.private(p) for p in supervisors), sorted(soaklib.private(p) for p in agents)
    most = mine[0][-1] + mine[1][-1]
    say(f"private memory: supervisors {mine[0][count // 2] >> 10} KiB (at most {mine[0][-1] >> 10}), agents {mine[1][count // 2] >> 10} KiB"
        f" (at most {mine[1][-1] >> 10}), zwingerd {soaklib.private(d.process.pid) >> 10} KiB")
    t.check(most <= PRIVATE_MAX, f"the processes of a sandbox have up to {most} bytes of their own")

    idle = supervisors + agents + [d.process.pid, soaklib.launcher(d)]
    used = soaklib.ticks(idle)
    time.sleep(IDLE_SECONDS)
    used = soaklib.ticks(idle) - used
    say(f"{used} clock ticks of processor time in {IDLE_SECONDS} s without work")
    t.check(used <= IDLE_TICKS, f"at rest they used {used} clock ticks")

    start = time.monotonic()
    no_errors(t, at_once(d, 16, lambda client, sandbox: client.ask("DELETE", f"/v1/sandboxes/{sandbox}"), ids), "delete")
    say(f"deleted in {time.monotonic() - start:.1f} s")
    t.equal(d.ask("GET", "/v1/sandboxes").json["sandboxes"], [], "what is there")
    t.until(lambda: soaklib.zw.reap_zombies() or not called("zwinger-session", "memfd:zwinger-a", "zwinger-agent"), 60, "supervisors and agents are gone")
    soaklib.counts_add_up(t, d)
    soaklib.end(t, d)
    t.equal(before.news(), [], "left behind")


soaklib.main(globals())
