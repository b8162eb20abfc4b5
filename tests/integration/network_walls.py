#!/usr/bin/python3 -B
"""The broker is walled in, its end closes the network, and the network that it serves is no way to anything else."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import leftovers  # noqa: E402
import network  # noqa: E402
import zw  # noqa: E402
from network import METADATA, PRIVATE, PUBLIC, World  # noqa: E402

RULE = {"host": "origin.test", "ports": [8080]}
HTTP = {"host": "api.test", "protocol": "http"}
HTTPS = {"host": "tls.test", "protocol": "https"}
WAIT = "say('up')\nfor line in sys.stdin: say(reach('origin.test', 8080))"


def going(t, w, code=WAIT, line=b"up\n", **more):
    run = w.start_python(code, stdin=subprocess.PIPE, **{"allow": [RULE], **more})
    t.equal(run.read_line(), line, "line")
    found = network.brokers(run)
    t.equal(len(found), 1, "brokers of the run")
    return run, found[0]


def step(run):
    run.process.stdin.write(b"\n")
    run.process.stdin.flush()
    return run.read_line().decode().strip()


# ---- The broker -----------------------------------------------------------------------------------------------------------


def test_the_broker_is_confined(t):
    w = World(t)
    w.origin(8080, "origin.test")
    for rules in ([RULE], [RULE, HTTPS], [RULE, HTTP]):
        run, pid = going(t, w, allow=rules)
        with open(f"/proc/{pid}/status") as f:
            status = {k: v.strip() for k, v in (line.split(":", 1) for line in f)}
        t.equal((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"), "filter and no_new_privs")
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if zw.AM_ROOT else [])):  # only root may empty the bounding set
            t.equal(int(status[name], 16), 0, name)
        if zw.AM_ROOT:
            t.check("0" not in status["Uid"].split() and "0" not in status["Gid"].split(), f"identity: {status['Uid']}, {status['Gid']}")
        t.equal(status["Groups"].strip() if zw.AM_ROOT else "", "", "groups")
        t.equal(step(run), "reached", "it works")
        for fd in os.listdir(f"/proc/{pid}/fd") if zw.AM_ROOT else ():  # it is not dumpable: nobody else may look
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            t.check(target.startswith(("socket:", "pipe:", "anon_inode:", "/memfd:", "/dev/null")) or fd == "2", f"descriptor {fd} of the broker: {target}")
        with open(f"/proc/{pid}/limits") as f:
            t.contains(next(line for line in f if line.startswith("Max core")).split(), "0", "core dumps")
        t.expect(run.finish(20, b""), code=0)


def test_no_rules_no_broker(t):
    w = World(t)
    for more in ({}, {"allow": []}):
        run = w.start_python("say('up'); sys.stdin.readline()", stdin=subprocess.PIPE, **more)
        run.read_line()
        t.equal(network.brokers(run), [], "brokers")
        t.expect(run.finish(20, b"\n"), code=0)


def test_a_broker_that_is_killed_closes_the_network_and_the_run_goes_on(t):
    w = World(t)
    o = w.origin(8080, "origin.test")
    w.echo(7)
    w.name("echo.test")
    code = ("s = socket.create_connection(('echo.test', 7), 8); s.send(b'x'); s.recv(1); say('up'); sys.stdin.readline()\n"
            "try: say('end' if s.recv(1) == b'' else 'data')\nexcept OSError as e: say('end')\n"
            f"for h in ('origin.test', 'evil.test', '{PUBLIC}', '8.8.8.8', '198.18.1.0'):\n"
            "    began = time.monotonic(); v = reach(h, 8080, 3); say(v == 'reached', time.monotonic() - began < 4)\n"
            "say('end'); sys.exit(7)")
    run, pid = going(t, w, code, allow=[RULE, {"host": "echo.test", "ports": [7]}])
    os.kill(pid, signal.SIGKILL)
    t.until(lambda: not network.brokers(run), 5, "the broker is gone")
    r = t.expect(run.finish(60, b"\n"), code=7, status="exited")
    t.equal(r.lines[0], "end", "the connection that was open")
    t.equal([x.split()[0] for x in r.lines[1:6]], ["False"] * 5, "connections afterwards")
    t.equal(r.lines[6], "end", "the program goes on")
    t.equal(o.accepted, 0, "connections at the origin")
    t.contains(zw.json.dumps(r.doc), "broker", "the result")


def test_a_broker_that_is_stopped_holds_up_nothing_but_the_network(t):
    w = World(t)
    run, pid = going(t, w, "say('up'); sys.stdin.readline(); print('x' * 100000); sys.exit(3)")
    os.kill(pid, signal.SIGSTOP)
    r = run.finish(20, b"\n")
    t.equal(r.code, 3, "exit status")
    t.equal(len(r.out), 100001, "bytes of stdout")


def test_the_broker_ends_with_the_run_whatever_the_ending(t):
    w = World(t)
    before = leftovers.Snapshot()
    w.name("origin.test")
    for code, flags in (("pass", []), ("os.kill(os.getpid(), 9)", []), ("time.sleep(30)", ["--time", "300ms"]), ("sys.exit(3)", [])):
        w.python(code, allow=[RULE, HTTPS], flags=flags)
        t.until(lambda: zw.reap_zombies() or not zw.descendants(), 5, lambda: f"processes are left: {zw.descendants()}")
    t.equal(before.news(), [], "left behind")


def test_the_broker_ends_with_a_supervisor_that_is_killed(t):
    w = World(t)
    before = leftovers.Snapshot()
    w.origin(8080, "origin.test")
    for _ in range(5):
        run, _ = going(t, w, allow=[RULE, HTTPS])
        t.equal(step(run), "reached", "it works")
        run.send(signal.SIGKILL)
        run.process.wait()
        t.until(lambda: zw.reap_zombies() or not zw.descendants(), 5, lambda: f"processes are left: {zw.descendants()}")
    t.expect(w.python("say(reach('origin.test', 8080))", allow=[RULE]), code=0, out="reached\n")
    t.equal(before.news(), [], "left behind")


def test_the_run_sees_nothing_of_the_broker(t):
    w = World(t)
    code = ("say([open('/proc/%s/comm' % p).read().strip() for p in os.listdir('/proc') if p.isdigit() and 'egress' in open('/proc/%s/comm' % p).read()])\n"
            "say(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:4])\n"
            "say([k for k in os.environ if 'ZWINGER' in k and k not in ('ZWINGER', 'ZWINGER_ID')])")
    r = t.expect(w.python(code, allow=[RULE]), code=0)
    t.equal(r.lines[0], "[]", "processes")
    t.equal(r.lines[1], "[0, 1, 2, 3]", "descriptors, with that of the listing")


# ---- What a program may try -----------------------------------------------------------------------------------------------


def test_nothing_but_the_stub_answers_between_the_two(t):
    w = World(t)
    o = w.origin(8080)
    w.echo(22)
    code = r'''
import fcntl
targets = {"127.0.0.1", "198.18.0.1", "198.18.0.2", "198.18.255.255", "198.19.0.1", "10.9.8.7", "169.254.169.254", "0.0.0.0", "::1"}
for line in open("/proc/net/route").read().splitlines()[1:]:
    f = line.split()
    for hexed in (f[1], f[2]):
        targets.add(socket.inet_ntoa(struct.pack("<I", int(hexed, 16))))
for line in open("/proc/net/fib_trie"):
    if "|--" in line or "+--" in line: targets.add(line.split()[-1].split("/")[0] if "+--" not in line else line.split()[1].split("/")[0])
for line in open("/proc/net/if_inet6"):
    h = line.split()[0]; targets.add(":".join(h[i:i+4] for i in range(0, 32, 4)))
ports = [1, 22, 25, 80, 111, 443, 3128, 5000, 5353, 6379, 8000, 8080, 9090]
from concurrent.futures import ThreadPoolExecutor
def one(x):
    try: socket.create_connection(x, 1.5).close(); return list(x)
    except OSError: return None
with ThreadPoolExecutor(50) as pool: found = [x for x in pool.map(one, [(h, p) for h in targets for p in ports]) if x]
say(json.dumps(found))
'''
    r = t.expect(w.python(code, allow=[{"host": "origin.test", "ports": [9999]}], flags=["--processes", "100"]), code=0)
    t.equal(zw.json.loads(r.text), [], "ports that answered")
    t.equal(o.accepted, 0, "connections at the host's server")


def test_the_run_cannot_change_its_network(t):
    t.need("ip")
    w = World(t)
    script = ("for c in 'link set lo down' 'link set eth0 down' 'addr add 10.1.1.1/8 dev lo' 'route add default via 198.18.0.1' 'route flush table all' 'netns add x' 'link add d type dummy' "
              "'link add v type veth' 'rule add from all table 7' 'tuntap add mode tun'; do ip $c > /dev/null 2>&1 && echo \"done: $c\"; done; echo end")
    t.expect(w.run("sh", "-c", script, allow=[RULE]), code=0, out="end\n")


def test_raw_sockets_and_odd_families_are_refused(t):
    w = World(t)
    wire = w.wire()
    code = ("for f, k, p in ((socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET, socket.SOCK_RAW, 255), (socket.AF_INET6, socket.SOCK_RAW, 58), (17, socket.SOCK_RAW, 3), (17, socket.SOCK_DGRAM, 768),\n"
            "                (40, socket.SOCK_STREAM, 0), (29, socket.SOCK_RAW, 1), (44, socket.SOCK_RAW, 0), (socket.AF_INET, socket.SOCK_SEQPACKET, 132), (38, socket.SOCK_SEQPACKET, 0)):\n"
            "    try: socket.socket(f, k, p); say('made', f, k, p)\n    except OSError: pass\n"
            "try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).sendto(b'\\x08' + b'\\0' * 7, ('8.8.8.8', 0)); say('sent')\nexcept OSError: say('end')")
    r = t.expect(w.python(code, allow=[RULE]), code=0)
    t.equal([x for x in r.lines if x.startswith("made")], [], "sockets")
    t.equal(wire.packets(), [], "packets outside")


def test_datagrams_to_anywhere_go_nowhere(t):
    w = World(t)
    wire = w.wire()
    code = (f"for h in ('8.8.8.8', '{PUBLIC}', '{PRIVATE}', '{METADATA}', '198.18.0.1', '198.18.1.0', '255.255.255.255', '2001:4860:4860::8888', 'ff02::1'):\n"
            "    for p in (1, 53, 123, 443, 8080, 5353):\n"
            "        try:\n            s = socket.socket(socket.AF_INET6 if ':' in h else socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b'x', (h, p))\n"
            "        except OSError: pass\nsay('end')")
    t.expect(w.python(code, allow=[RULE, HTTPS]), code=0, out="end\n")
    t.equal(wire.packets(), [], "packets outside")


def test_a_program_serves_on_its_own_addresses_at_any_port(t):
    w = World(t)
    w.origin(443, "origin.test")
    w.origin(8080, "origin.test")
    code = r'''
for port in (1, 53, 80, 443, 3128, 8080, 65535):
    for address, target in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("::", "::1"), ("0.0.0.0", "localhost")):
        s = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        threading.Thread(target=lambda: s.accept()[0].sendall(b"own"), daemon=True).start()
        c = socket.create_connection((target, port), 3)
        if c.recv(10) != b"own": say("wrong", address, port)
        s.close(); c.close()
        u = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM); u.bind((address, port)); u.close()
say(reach("origin.test", 8080), reach("origin.test", 443))
'''
    t.expect(w.python(code, allow=[{"host": "origin.test", "ports": [443, 8080, 53]}], proxy_env=True), code=0, out="reached reached\n")


def test_the_same_within_a_process_of_another_user_namespace_or_session(t):
    """A child is no way round: it is judged the same."""
    w = World(t)
    o = w.origin(8080, "origin.test")
    script = (f"setsid {zw.PYTHON} -c 'import socket; socket.create_connection((\"{PUBLIC}\", 8080))' 2>&1 | tail -1 | grep -c -i -e unreachable -e refused -e permitted\n"
              f"unshare -Urn true 2>/dev/null && echo new; (sh -c '{zw.PYTHON} -c \"import socket; socket.create_connection((\\\"evil.test\\\", 8080))\" 2>&1 | tail -1 | grep -c not.known'); echo end")
    t.expect(w.run("sh", "-c", script, allow=[RULE]), code=0, out="1\n1\nend\n")
    t.equal(o.accepted, 0, "connections at the origin")


# ---- Load -----------------------------------------------------------------------------------------------------------------


HALF_OPEN = r'''
ss = []
a = socket.getaddrinfo(sys.argv[1], int(sys.argv[2]))[0][4]
for i in range(int(sys.argv[3])):
    s = socket.socket(); s.setblocking(False); s.connect_ex(a); ss.append(s)
time.sleep(0.2)
for s in ss[:200]:
    try: s.send(sys.argv[4].encode())
    except OSError: pass
say("up")
for line in sys.stdin:
    began = time.monotonic(); say(reach("origin.test", 8080), time.monotonic() - began < 3)
'''


def test_thousands_of_half_open_requests_leave_room_for_others(t):
    w = World(t)
    w.origin(8080, "origin.test")
    w.origin(80, "api.test")
    w.origin(443, "tls.test", tls=True)
    for host, port, rule in (("api.test", 80, HTTP), ("tls.test", 443, HTTPS), ("tls.test", 443, {"host": "tls.test", "protocol": "tls"})):
        run = w.start_python(HALF_OPEN, host, port, 3000, "G", stdin=subprocess.PIPE, allow=[RULE, rule], policy_more={"limits": {"open_files": 8192}})
        t.equal(run.read_line(30), b"up\n", "line")
        t.equal(step(run), "reached True", f"another connection beside 3,000 half-open ones of {rule['protocol']}")
        size = network.private_bytes(network.brokers(run)[0])
        t.check(size < 200 << 20, f"{size} bytes of the broker")
        t.expect(run.finish(30, b""), code=0)


def test_more_connections_than_the_broker_takes_wait_and_then_are_served(t):
    w = World(t)
    echo = w.echo(7)
    w.origin(8080, "origin.test")
    w.name("echo.test")
    code = r'''
a = socket.getaddrinfo("echo.test", 7)[0][4]; ss = []
for i in range(5000):
    s = socket.socket(); s.setblocking(False); s.connect_ex(a); ss.append(s)
say("up"); sys.stdin.readline()
for s in ss: s.close()
say(reach("origin.test", 8080, 20))
'''
    run = w.start_python(code, stdin=subprocess.PIPE, allow=[RULE, {"host": "echo.test", "ports": [7]}], policy_more={"limits": {"open_files": 8192}})
    t.equal(run.read_line(30), b"up\n", "line")
    t.until(lambda: echo.open > 1000, 20, "connections at the server")
    t.check(echo.most <= 4200, f"{echo.most} connections at once")
    r = t.expect(run.finish(40, b"\n"), code=0)
    t.equal(r.out, b"reached\n", "afterwards")


def test_requests_that_come_drop_by_drop_hold_up_nobody(t):
    w = World(t)
    w.origin(8080, "origin.test")
    o = w.origin(80, "api.test")
    code = r'''
ss = [socket.create_connection(("api.test", 80)) for _ in range(100)]
data = b"GET /slow HTTP/1.1\r\nHost: api.test\r\nX: " + b"y" * 100
for i in range(60):
    for s in ss:
        try: s.send(data[i:i+1])
        except OSError: pass
    if i % 20 == 0:
        began = time.monotonic(); say(reach("origin.test", 8080), http("api.test", 80, get("/ok"))[0], time.monotonic() - began < 2)
'''
    t.expect(w.python(code, allow=[RULE, HTTP]), code=0, out="reached 200 True\n" * 3)
    t.lacks(o.paths(), "/slow", "requests at the origin")


@zw.alone
def test_an_idle_broker_uses_no_processor_time(t):
    w = World(t)
    w.echo(7)
    w.name("echo.test")
    code = "ss = [socket.create_connection(('echo.test', 7)) for _ in range(50)]\nfor s in ss: s.send(b'x'); s.recv(1)\nsay('up'); sys.stdin.readline()"
    run, pid = going(t, w, code, allow=[{"host": "echo.test", "ports": [7]}])

    def used():
        with open(f"/proc/{pid}/schedstat") as f:
            return int(f.read().split()[0])

    time.sleep(0.5)
    before = used()
    time.sleep(1)
    t.between((used() - before) / 1e6, 0, 5, "milliseconds of processor time in a second")
    t.expect(run.finish(20, b"\n"), code=0)


# ---- Levels ---------------------------------------------------------------------------------------------------------------


def test_the_process_level_refuses_names_with_a_sentence(t):
    w = World(t)
    w.origin(8080, "origin.test")
    for rule in (RULE, {"host": "*.origin.test"}, HTTPS):
        r = w.python("say(reach('origin.test', 8080))", allow=[rule], flags=["--isolation", "process"])
        t.refused(r, "container")
        t.equal(r.out, b"", "stdout")


if __name__ == "__main__":
    network.main(globals())
