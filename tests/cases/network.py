#!/usr/bin/python3 -B
# shards: 3
"""Things that went wrong for users of sandboxes with an allow list, each with the outcome a user would call right. The reproductions are
in files/ID; README.md says where each case comes from. files/common/origin.py serves outside."""
import json
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import leftovers  # noqa: E402
import network  # noqa: E402
import zw  # noqa: E402
from network import PUBLIC, World, denied  # noqa: E402

FILES = os.path.join(HERE, "files")
ORIGIN = {"host": "origin.test", "ports": [8080]}


def workspace(t, case, name=None):
    """The files of a case, and beside them those that several share."""
    path = t.folder(name or case)
    for source in (os.path.join(FILES, case), os.path.join(FILES, "common")):
        if os.path.isdir(source):
            shutil.copytree(source, path, dirs_exist_ok=True)
    return path


def conditions(folder, time="30s"):
    return ["--workspace", f"{folder}:/work:rw", "--memory", "512M", "--processes", "128", "--cpus", "1", "--time", time, "--output", "8M"]


class Outside:
    """origin.py on an address, and what it logged."""

    def __init__(self, t, address=PUBLIC, certificate=()):
        self.log = open(t.tmp("origin.log"), "w+b")
        self.process = subprocess.Popen([zw.PYTHON, os.path.join(FILES, "common/origin.py"), address, "8080", *certificate], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env=zw.caller_environment())
        t.at_end(self.stop)
        t.until(lambda: "origin ready" in self.text(), 20, self.text)

    def text(self):
        with open(self.log.name) as f:
            return f.read()

    def lines(self):
        return [x for x in self.text().splitlines() if x.startswith("origin:")]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def world(t, *names):
    w = World(t)
    for n in names or ("origin.test",):
        w.name(n)
    return w


# ---- B15 ------------------------------------------------------------------------------------------------------------------


B15 = ["origin.test", "ORIGIN.Test", "origin.test.", "api.origin.test", "a.b.origin.test", "notorigin.test", "origin.test.evil.test", "origin.testx", "other.test"]


def test_B15_which_hosts_an_entry_covers(t):
    w = world(t, *{n.lower().strip(".") for n in B15})
    Outside(t)
    folder = workspace(t, "B15")
    wild = {"host": "*.origin.test", "ports": [8080]}
    for rules, reached in (([ORIGIN], B15[:3]), ([wild], B15[3:5]), ([ORIGIN, wild], B15[:5])):
        audit = t.tmp("audit.jsonl")
        if os.path.exists(audit):
            os.unlink(audit)
        r = w.run(zw.PYTHON, "verdicts.py", *B15, allow=rules, flags=conditions(folder) + ["--audit", audit])
        t.expect(r, code=0, out="".join(f"{n} {'reached' if n in reached else 'refused'}\n" for n in B15))
        t.between(r.wall, 0, 5, "seconds for all")
        with open(audit) as f:
            events = f.read()
        for n in B15:
            if n not in reached:
                name = n.lower().strip(".")
                t.contains(events, f'"{name}"', "the audit")
                t.check(denied(r, "dns", name) or denied(r, "network", name, 8080), f"no denial of {n}: {r.doc['denials']}")


def test_B15_an_entry_that_can_match_nothing(t):
    w = World(t, resolving=False)
    for entry in ("*.", "a.*.test", "http://origin.test/", ""):
        r = w.run("true", allow=[{"host": entry, "ports": [8080]}])
        t.refused(r, "network.allow[0]", entry)


# ---- B16 ------------------------------------------------------------------------------------------------------------------


def test_B16_git_over_ssh_to_an_allowed_host(t):
    t.need("git", "ssh")
    w = world(t, "origin.test", "other.test")
    outside = Outside(t)
    folder = workspace(t, "B16")
    r = w.run("sh", "lsremote.sh", allow=[{"host": "origin.test", "ports": [8082]}], flags=conditions(folder))
    t.expect(r, out="git exit 128\n")
    for word in ("resolve", "unreachable", "refused"):
        t.lacks(r.errors.lower(), word, "stderr")
    t.check(any("ssh client says SSH-2.0-OpenSSH" in x for x in outside.lines()), f"the origin saw: {outside.lines()}")
    seen = len(outside.lines())
    with open(os.path.join(folder, "lsremote.sh")) as f:
        text = f.read()
    with open(os.path.join(folder, "lsremote.sh"), "w") as f:
        f.write(text.replace("origin.test", "other.test"))
    r = w.run("sh", "lsremote.sh", allow=[{"host": "origin.test", "ports": [8082]}], flags=conditions(folder))
    t.expect(r, out="git exit 128\n")
    t.between(r.wall, 0, 5, "seconds")
    t.equal(len(outside.lines()), seen, "lines of the origin")


# ---- B17 ------------------------------------------------------------------------------------------------------------------


def test_B17_bodies_that_end_with_the_connection(t):
    w = world(t)
    Outside(t)
    folder = workspace(t, "B17")
    for rule in (ORIGIN, {**ORIGIN, "protocol": "http"}):
        for script in ("fetchall.py", "tunnelled.py"):
            loop = f"for i in $(seq 5); do {zw.PYTHON} {script} || exit 1; done"
            t.expect(w.run("sh", "-c", loop, allow=[rule], flags=conditions(folder)), code=0, out="25 5 5\n" * 5)


def test_B17_the_same_over_tls(t):
    w = world(t)
    Outside(t, certificate=w.authority.issue("origin.test"))
    folder = workspace(t, "B17")
    with open(os.path.join(folder, "fetchall.py")) as f:
        text = f.read()
    with open(os.path.join(folder, "fetchall.py"), "w") as f:
        f.write(text.replace("http://", "https://"))
    loop = f"for i in $(seq 2); do {zw.PYTHON} fetchall.py || exit 1; done"
    ca = w.authority.path
    for protocol in ("tcp", "tls", "https"):
        flags = conditions(folder) + ([] if protocol == "https" else ["--ro", ca, "--env", f"SSL_CERT_FILE={ca}"])
        t.expect(w.run("sh", "-c", loop, allow=[{**ORIGIN, "protocol": protocol}], flags=flags), code=0, out="25 5 5\n" * 2)


# ---- B18 ------------------------------------------------------------------------------------------------------------------


def waits_for_ever(pid):
    """The process waits for events without any time at which it would go on by itself: no time-out of its wait, no timer that runs."""
    with open(f"/proc/{pid}/syscall") as f:
        fields = f.read().split()
    forever = {"232": lambda a: int(a[4], 16) & 0xFFFFFFFF == 0xFFFFFFFF, "281": lambda a: int(a[4], 16) & 0xFFFFFFFF == 0xFFFFFFFF, "441": lambda a: int(a[4], 16) == 0,
               "271": lambda a: int(a[3], 16) == 0, "7": lambda a: int(a[3], 16) & 0xFFFFFFFF == 0xFFFFFFFF}  # epoll_wait, epoll_pwait, epoll_pwait2, ppoll, poll
    if fields[0] not in forever or not forever[fields[0]](fields):
        return False
    for name in os.listdir(f"/proc/{pid}/fdinfo"):
        try:
            with open(f"/proc/{pid}/fdinfo/{name}") as f:
                values = [line for line in f if line.startswith("it_value:")]
        except OSError:
            continue
        if values and values[0].split(":")[1].strip() != "(0, 0)":
            return False
    return True


def test_B18_a_tunnel_that_is_silent_for_minutes(t):
    """That nothing is timed is seen at the broker, which waits for ever. Root alone may look; the broker is the same for others."""
    w = world(t)
    Outside(t)
    folder = workspace(t, "B18")
    rules = [{"host": "origin.test", "ports": [8081]}]
    run = w.start(zw.PYTHON, "-c", "import sys, time; time.sleep = lambda s: sys.stdin.readline()\nsys.argv = ['idle.py', '150']\nexec(open('idle.py').read())", allow=rules,
                  flags=conditions(folder, time="300s"), stdin=subprocess.PIPE)
    t.equal(run.read_line(), b"one\n", "line")
    broker = network.brokers(run)
    t.equal(len(broker), 1, "brokers")
    if zw.AM_ROOT and os.uname().machine == "x86_64":
        t.until(lambda: waits_for_ever(broker[0]), 3, "the broker waits for ever")
    t.expect(run.finish(20, b"\n"), code=0, out="two\n")


@zw.asleep
def test_B18_for_real(t):
    w = world(t)
    Outside(t)
    r = w.run(zw.PYTHON, "idle.py", "150", allow=[{"host": "origin.test", "ports": [8081]}], flags=conditions(workspace(t, "B18"), time="300s"), timeout=200)
    t.expect(r, code=0, out="one\ntwo\n")


test_B18_for_real.limit = 240


# ---- B19 ------------------------------------------------------------------------------------------------------------------


def test_B19_a_large_upload(t):
    w = world(t)
    Outside(t)
    for rule, proxy in ((ORIGIN, False), (ORIGIN, True), ({**ORIGIN, "protocol": "http"}, False)):
        folder = workspace(t, "B19", f"B19-{rule.get('protocol')}-{proxy}")
        run = w.start("sh", "-c", f"{zw.PYTHON} upload.py; read x", allow=[rule], proxy_env=proxy, flags=conditions(folder), stdin=subprocess.PIPE)
        t.equal(run.read_line(25), b"True True\n", "line")
        with open(f"/proc/{network.brokers(run)[0]}/status") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        t.check(peak < 32 << 10, f"the broker grew to {peak} KiB")
        r = run.finish(20, b"\n")
        t.equal(r.code, 0, "exit status")
        t.between(r.wall, 0, 20, "seconds")


# ---- B20 ------------------------------------------------------------------------------------------------------------------


def test_B20_ignoring_the_proxy_gets_you_nowhere(t):
    for proxy in (False, True):
        w = world(t, "origin.test", "unlisted.test", "leak.test")
        outside = Outside(t)
        wire = w.wire()
        before = len(wire.packets())
        folder = workspace(t, "B20", f"B20-{proxy}")
        audit = t.tmp(f"audit-{proxy}.jsonl")
        r = w.run(zw.PYTHON, "bypass.py", PUBLIC, allow=[ORIGIN], proxy_env=proxy, flags=conditions(folder) + ["--audit", audit])
        t.expect(r, code=0)
        t.equal(len(r.lines), 5, "lines")
        t.check(all(x.endswith(" blocked") for x in r.lines), f"lines: {r.lines}")
        t.between(r.wall, 0, 15, "seconds")
        t.equal(outside.lines(), [], "what the origin saw")
        t.equal(wire.packets()[before:], [], "packets outside")
        with open(audit) as f:
            events = f.read()
        t.contains(events, "unlisted.test", "the audit")
        t.contains(events.lower(), "c2vjcmv0lxbhewxvywq", "the audit")
        t.undo()


# ---- B21 ------------------------------------------------------------------------------------------------------------------


def test_B21_an_allowed_name_that_leads_inwards(t):
    w = World(t)
    w.name("rebind.test", "127.0.0.1")
    w.name("meta.test", "169.254.169.254")
    outside = Outside(t, "127.0.0.1")
    folder = workspace(t, "B21")
    rules = [{"host": h, "ports": [8080]} for h in ("rebind.test", "meta.test")]
    audit = t.tmp("audit.jsonl")
    r = w.run(zw.PYTHON, "verdicts.py", "rebind.test", "meta.test", allow=rules, flags=conditions(folder) + ["--audit", audit])
    t.expect(r, code=0, out="rebind.test refused\nmeta.test refused\n")
    t.equal(outside.lines(), [], "what the origin saw")
    with open(audit) as f:
        events = [e for e in map(json.loads, filter(str.strip, f)) if "deni" in e.get("event", "")]
    for host, address, reason in (("rebind.test", "127.0.0.1", "loopback"), ("meta.test", "169.254.169.254", "metadata")):
        text = [json.dumps(e) for e in events if host in json.dumps(e)]
        t.check(any(address in x and reason in x for x in text), f"the audit does not say {host}, {address} and {reason}: {text}")
    r = w.run(zw.PYTHON, "verdicts.py", "rebind.test", "meta.test", allow=rules, hosts={"rebind.test": "127.0.0.1"}, flags=conditions(folder))
    t.expect(r, code=0, out="rebind.test reached\nmeta.test refused\n")


# ---- Cases of other chapters, with an allow list ---------------------------------------------------------------------------


@zw.alone
def test_B38_the_runner_is_killed(t):
    w = world(t)
    Outside(t)
    before = leftovers.Snapshot()
    folder = workspace(t, "B38")
    run = w.start("sh", "-c", "echo up; sleep 300 & sleep 300", allow=[ORIGIN], flags=conditions(folder, time="400s"))
    run.read_line()
    run.send(signal.SIGKILL)
    run.process.wait()

    def gone():
        zw.reap_zombies()
        return [c for _, c, _ in zw.descendants().values() if c != "python3"] == []

    t.until(gone, 5, lambda: f"processes are left: {zw.descendants()}")
    t.expect(w.run("sh", "-c", "touch again; ls again", allow=[ORIGIN], flags=conditions(folder)), code=0, out="again\n")
    t.equal(before.news(), [], "left after the next start")


def test_B42_a_resolver_file_that_is_a_dangling_link(t):
    t.need("unshare")
    w = world(t)
    Outside(t)
    etc = t.folder("etc")
    subprocess.run(f"tar -C /etc -cf - --ignore-failed-read . 2>/dev/null | tar -C {etc} -xf - --no-same-owner", shell=True, check=False)
    name = os.path.join(etc, "resolv.conf")
    if os.path.lexists(name):
        os.unlink(name)
    os.symlink("/run/none/stub.conf", name)
    policy = w.policy(allow=[ORIGIN])
    line, _ = t.command(["sh", "-c", "cat /etc/resolv.conf | grep -c nameserver; echo ok"], conditions(workspace(t, "B42")), policy)
    p = subprocess.run(["unshare", *(["-m"] if zw.AM_ROOT else ["-r", "-m"]), "sh", "-ec",
                        'mount --bind "$0" /etc; test -L /etc/resolv.conf; "$@"; echo "status $?"; readlink /etc/resolv.conf', etc, *line],
                       capture_output=True, text=True, env=zw.caller_environment(), timeout=60)
    t.note(f"{p.stdout}\n{p.stderr}")
    t.equal(p.stdout.splitlines(), ["1", "ok", "status 0", "/run/none/stub.conf"], "stdout")


if __name__ == "__main__":
    network.main(globals())
