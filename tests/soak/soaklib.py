"""What the programs of this folder share: a daemon, clients at work at once, and how large processes are.

Each program is a suite of tests/lib/tap.py. Two variables choose its size: ZWINGER_SOAK_SHORT=1 a form of seconds, ZWINGER_SOAK_MINUTES how long what
goes by time goes on.
"""
import collections
import json
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import leftovers  # noqa: E402,F401
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon  # noqa: E402

LOOSE = {"version": 1, "enforcement": "best-effort"}  # this machine may not hold every limit for the caller
SHORT = os.environ.get("ZWINGER_SOAK_SHORT") == "1"
MINUTES = float(os.environ.get("ZWINGER_SOAK_MINUTES", "20"))
MIB = 1 << 20


def size(whole, short):
    return short if SHORT else whole


def say(text):
    """A line for whoever reads the log: figures are worth more than a bare `ok`."""
    print(f"#   {text}", flush=True)


def serve(t, *flags, policy=None, ceiling=None, **options):
    limits = t.file(json.dumps({**LOOSE, **(ceiling or {})}), "ceiling.yaml")
    given = t.file(json.dumps({**LOOSE, **(policy or {})}), "policy.yaml")
    return Daemon(t, "--ceiling", limits, "--policy", given, *flags, **options)


class Unexpected(Exception):
    pass


class Client:
    """One connection that is kept, and a status that is expected of every answer."""

    def __init__(self, d, timeout=120):
        self.d, self.timeout, self.connection = d, timeout, None

    def ask(self, method, path, body=None, status=200, headers=None, **options):
        if self.connection is None:
            self.connection = self.d.connection(timeout=self.timeout)
        try:
            r = self.d.ask(method, path, body, headers=headers, connection=self.connection, **options)
        except BaseException:
            self.close()
            raise
        if r.status not in (status if isinstance(status, tuple) else (status,)):
            raise Unexpected(f"{method} {path}: {r.status} {r.body[:300]!r}")
        return r

    def create(self, **wish):
        return self.ask("POST", "/v1/sandboxes", {"timeout": "3600s", **wish}, 201).json["id"]

    def run(self, sandbox, line, **members):
        return self.ask("POST", f"/v1/sandboxes/{sandbox}/run", {"shell": line, **members}).json

    def e2b(self, method, path, body=None, status=200, **fields):
        """The control plane of E2B."""
        key = "e2b_" + self.d.key.removeprefix("zwk_")
        return self.ask(method, path, body, status, key=None, headers={"X-API-KEY": key, **fields})

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def traffic(facts, port=49983):
    """The head fields that lead into a sandbox made over E2B; `facts` as its creation answered."""
    return {"E2b-Sandbox-Id": facts["sandboxID"], "E2b-Sandbox-Port": str(port), "X-Access-Token": facts["envdAccessToken"]}


def at_once(d, count, work, items):
    """`count` clients, each calling work(client, item) with the next one until none is left. The errors, by text."""
    todo, lock, errors = iter(items), threading.Lock(), collections.Counter()

    def go():
        client = Client(d)
        while True:
            with lock:
                item = next(todo, done)
            if item is done:
                client.close()
                return
            try:
                work(client, item)
            except Exception as e:  # all that went wrong is counted
                with lock:
                    errors[f"{type(e).__name__}: {e}"[:400]] += 1

    done = object()
    threads = [threading.Thread(target=go) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def no_errors(t, errors, what):
    if errors:
        t.fail(f"{what}: {sum(errors.values())} failed: {errors.most_common(5)}")


# ---- Sizes of processes ----------------------------------------------------------------------------------------------------


def _field(path, name):
    with open(path) as f:
        for line in f:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    raise Unexpected(f"{path} has no {name}")


def resident(pid):
    return _field(f"/proc/{pid}/status", "VmRSS:")


def peak(pid):
    return _field(f"/proc/{pid}/status", "VmHWM:")


def forget_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as f:
        f.write("5")


def private(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_")) * 1024


def ticks(pids):
    """Processor time of them all, in clock ticks."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total


def called(*names):
    """The processes below this one with such a name."""
    return [p for p, (_, comm, _) in zw.descendants().items() if comm in names]


def launcher(d):
    return next(p for p, (parent, comm, _) in zw.descendants().items() if parent == d.process.pid and comm == "zwinger")


def nobody_left():
    zw.reap_zombies()
    return not zw.descendants()


def end(t, d):
    t.equal(d.end(timeout=120), 0, "exit status")
    t.until(nobody_left, 60, lambda: f"all processes are gone: {zw.descendants()}")
    t.equal(sorted(n for n in os.listdir(d.state) if not n.startswith("zwinger.db") and n not in ("lock", "tokens.key", "snapshots", "sessions")), [], "left in the state directory")


def metric(text, name):
    """The sum over the labels of a family."""
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def counts_add_up(t, d, runs=0):
    """Started is what has ended and what is there; no request is lost from the count."""
    text = d.ask("GET", "/metrics").body.decode()
    started, ended = metric(text, "zwinger_sandboxes_started_total"), metric(text, "zwinger_sandboxes_ended_total")
    there = metric(text, "zwinger_sandboxes_running") + metric(text, "zwinger_sandboxes_paused")
    t.equal(started, ended + there, "sandboxes started, and ended or there")
    if runs:
        t.equal(metric(text, "zwinger_runs_total"), runs, "runs")
    return text


def main(namespace, limit=900):
    zw.become_subreaper()
    tap.main(namespace, limit=limit)
