#!/usr/bin/python3 -B
"""Ten thousand starts without one that fails."""
import threading
import time

import soaklib
from soaklib import at_once, leftovers, no_errors, say, serve, size

STARTS = size(10000, 500)
CLIENTS = 16


def test_runs_do_not_fail(t):
    before = leftovers.Snapshot()
    d = serve(t)
    done, lock = [0], threading.Lock()

    def start(client, number):
        r = client.ask("POST", "/v1/run", {"command": ["printf", "%s", f"n{number}"]}).json
        if (r["status"], r["exit_code"], r["stdout"]) != ("exited", 0, f"n{number}"):
            raise soaklib.Unexpected(str(r)[:300])
        with lock:
            done[0] += 1

    warm = min(STARTS // 5, 1000)
    no_errors(t, at_once(d, CLIENTS, start, range(warm)), "the first runs")
    sizes = [soaklib.private(p) for p in (d.process.pid, soaklib.launcher(d))]
    begun = time.monotonic()
    no_errors(t, at_once(d, CLIENTS, start, range(warm, STARTS)), "runs")
    say(f"{STARTS - warm} starts by {CLIENTS} clients in {time.monotonic() - begun:.1f} s")
    t.equal(done[0], STARTS, "runs with their own output")
    soaklib.counts_add_up(t, d, runs=STARTS)
    grown = [soaklib.private(p) - s for p, s in zip((d.process.pid, soaklib.launcher(d)), sizes)]
    say(f"private memory of zwingerd and the launcher has grown by {grown[0] >> 10} and {grown[1] >> 10} KiB, from {sizes[0] >> 10} and {sizes[1] >> 10}")
    t.check(grown[0] < 8 * soaklib.MIB and grown[1] < soaklib.MIB, f"memory has grown by {grown}")
    soaklib.end(t, d)
    t.equal(before.news(), [], "left behind")


soaklib.main(globals())
