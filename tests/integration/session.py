#!/usr/bin/python3 -B
"""A sandbox that lives: many processes at once in one, each with its own limits and its own end, and nothing left when it ends."""
import errno
import os
import select
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import session  # noqa: E402
import zw  # noqa: E402
from zw import PYTHON  # noqa: E402

PATIENCE = 20


def one(t, policy=None):
    return session.Launcher(t).launch(policy).ready()


def expect(t, p, status="exited", **members):
    t.note(p.show())
    if p.ended is None:
        t.fail("it has not ended")
    t.equal(p.ended["status"], status, "status")
    for key, want in members.items():
        t.equal(p.ended[key], want, key)
    return p


def held_by_group(s):
    return s.facts["tree"].startswith("cgroup")


# ---- Processes ------------------------------------------------------------------------------------------------------------


def test_a_process_gets_its_streams_environment_and_user(t):
    s = one(t, {"env": {"set": {"A": "policy", "B": "policy"}}})
    p = s.run("sh", "-c", "cat; echo $A $B $HOME $USER; pwd; id -u; echo oops >&2; exit 7", input=b"in\n", env={"B": "request"})
    expect(t, p, exit_code=7, signal=None, reason="exited with 7")
    t.equal(p.out, b"in\npolicy request /home/user user\n/home/user\n1000\n", "stdout")
    t.equal(p.err, b"oops\n", "stderr")
    expect(t, s.run("sh", "-c", "test $PWD = /tmp", cwd="/tmp"), exit_code=0)
    expect(t, s.run("sh", "-c", "mkdir x; kill -9 $$"), status="signaled", signal=9, exit_code=None)
    expect(t, s.run("sh", "-c", "test $PWD = /home/user/x", cwd="x"), exit_code=0)


def test_what_cannot_be_started_says_why_and_the_session_goes_on(t):
    s = one(t)
    for argv, options, stage, number in ((("nosuch",), {}, "exec", errno.ENOENT), (("/etc/passwd",), {}, "exec", errno.EACCES),
                                         (("true",), {"cwd": "/nowhere"}, "cwd", errno.ENOENT), (("true",), {"user": 12345}, "fork", errno.EPERM),
                                         ((), {}, "fork", errno.EINVAL), (("true",), {"env": {"A=B": "c"}}, "fork", errno.EINVAL)):
        p = s.start(*argv, **options)
        t.check(p.failed is not None, f"{argv} {options} was started")
        t.equal((p.failed["stage"], p.failed["errno"]), (stage, number), f"{argv} {options}: {p.failed}")
        t.check(p.failed["message"], "no message")
    r, w = os.pipe()
    number = s.send("start", [r, w], argv=["true"], tree=True)  # one stream is missing
    t.equal(s.line.wait("failed", id=number)["errno"], errno.EINVAL, "errno without a third stream")
    os.close(r)
    os.close(w)
    expect(t, s.run("true"), exit_code=0)


def test_fifty_processes_at_once_are_told_apart(t):
    s = one(t)
    many = [s.start("sh", "-c", f"read x; echo {i}-$x; exit {i}", wait=False) for i in range(50)]
    for p in many:
        p.wait_started()
    t.equal(len({p.pid for p in many}), 50, "different pids")
    for i, p in reversed(list(enumerate(many))):
        p.write(b"%d\n" % (i * i))
    for i, p in enumerate(many):
        expect(t, p.communicate(), exit_code=i)
        t.equal(p.out, b"%d-%d\n" % (i, i * i), "stdout")


def test_output_is_complete_whatever_its_size(t):
    s = one(t)
    p = s.run(PYTHON, "-c", "import sys\nfor i in range(300): sys.stdout.buffer.write(b'%d' % (i % 10) * 65536)\nsys.stdout.buffer.write(b'end')")
    expect(t, p, exit_code=0)
    t.equal((len(p.out), p.out[-3:]), (300 * 65536 + 3, b"end"), "bytes and the last ones")


def test_a_channel_and_a_program_reach_the_process(t):
    s = one(t)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with open("/bin/sh", "rb") as f:
        data = f.read()
    program = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(program, data)
    p = s.start("given", "-c", "echo from $0 $1 >&3", "name", "one", channel=theirs.fileno(), program=program)
    theirs.close()
    t.note(p.show())
    expect(t, p.communicate(), exit_code=0)
    t.equal(ours.recv(100), b"from name one\n", "on the channel")
    ours.close()
    os.close(program)


def test_a_terminal_its_size_and_its_keys(t):
    s = one(t)
    p = s.start("sh", "-c", "stty size; read x; stty size; trap 'echo got-int; exit 4' INT; echo up; while :; do sleep 1; done", tty=(33, 101))
    t.equal(p.read_line(), b"33 101\r\n", "size")
    s.done("resize", process=p.id, rows=44, columns=55)
    p.write(b"go\n")
    t.equal([p.read_line() for _ in range(3)], [b"go\r\n", b"44 55\r\n", b"up\r\n"], "lines")
    p.write(b"\x03")
    p.wait()
    expect(t, p, exit_code=4)
    p.close()


def test_signals_reach_the_process_or_its_tree(t):
    s = one(t)
    p = s.start("sh", "-c", "trap 'echo usr1' USR1; echo up; while :; do read x; done")
    t.equal(p.read_line(), b"up\n", "line")
    p.signal(signal.SIGUSR1)
    t.equal(p.read_line(), b"usr1\n", "line")
    p.signal(signal.SIGTERM)
    expect(t, p.communicate(), status="signaled", signal=15)
    p = s.start("sh", "-c", "trap 'echo outer' TERM; sh -c 'trap \"echo inner; exit\" TERM; echo up; while :; do sleep 0.05; done' & wait; wait; exit 3")
    t.equal(p.read_line(), b"up\n", "line")
    p.signal(signal.SIGTERM, tree=True)
    expect(t, p.communicate(), exit_code=3)
    t.equal(sorted(p.out.split()), [b"inner", b"outer"], "who got it")
    p.signal(signal.SIGTERM, error=errno.ESRCH)
    q = s.start("sleep", "60")
    q.signal(99, error=errno.EINVAL)
    q.signal(signal.SIGKILL)
    expect(t, q.communicate(), status="signaled", signal=9)


# ---- Trees ----------------------------------------------------------------------------------------------------------------

LEAVE = "(sleep 61 &) ; sh -c 'sleep 62 & sleep 62' & sleep 0.1; echo started; "


class Place:
    """A session in which what is started next has the sandbox's own control group, or one of its own since somebody is there already."""

    def __init__(self, t, beside, policy=None):
        self.session = one(t, policy)
        self.other = self.session.start("sleep", "1000") if beside else None

    def inside(self):
        """What is there, but for the agent and the other."""
        agent = self.session.facts["pid"]
        found = [c for p, c in session.inside_of(agent).items() if p != agent]
        if self.other:
            found.remove("sleep")
        return found

    def done(self):
        """The other has not noticed anything."""
        if self.other:
            self.other.signal(signal.SIGTERM)
            if self.other.wait()["signal"] != signal.SIGTERM:
                raise zw.Failure(f"the process beside ended otherwise: {self.other.show()}")
        self.session.end()


def places(t, policy=None):
    for beside in (False, True):
        t.note("beside another process" if beside else "alone")
        place = Place(t, beside, policy)
        yield place, place.session
        place.done()


def inside(s):
    return [c for p, c in session.inside_of(s.facts["pid"]).items() if p != s.facts["pid"]]


def test_what_a_process_started_ends_with_it(t):
    for place, s in places(t):
        p = s.run("sh", "-c", LEAVE + "exit 5", seconds=10)
        expect(t, p, exit_code=5)
        t.equal(place.inside(), [], "processes")


def test_daemons_end_with_the_tree_where_control_groups_hold_it(t):
    for place, s in places(t):
        if not held_by_group(s):
            t.skip("no control group can be made here for a process")
        p = s.run("sh", "-c", "setsid sh -c 'sleep 63 & sleep 63' & (setsid setsid sleep 64 >/dev/null 2>&1 &); sleep 0.2; exit 6", seconds=10)
        expect(t, p, exit_code=6)
        t.equal(place.inside(), [], "processes")


def test_the_end_of_one_tree_spares_whoever_starts_meanwhile(t):
    s = one(t)
    if not held_by_group(s):
        t.skip("no control group can be made here for a process")
    for _ in range(40):
        first = s.start("sh", "-c", "setsid sleep 67 & sleep 68 & read x")
        others = [s.start("sh", "-c", "sleep 0.02; exit 3", wait=False) for _ in range(4)]
        first.write(b"\n")
        for p in [s.start("sh", "-c", "exit 3", wait=False) for _ in range(4)] + others:
            expect(t, p.wait_started().communicate(), exit_code=3)
        expect(t, first.communicate(), exit_code=0)
        expect(t, s.run("true", timeout_usec=10_000_000), exit_code=0)
        t.equal(inside(s), [], "processes")


def test_without_tree_the_background_lives_on_until_the_session_ends(t):
    s = one(t)
    p = s.start("sh", "-c", "sleep 65 >/dev/null 2>&1 & setsid sleep 66 >/dev/null 2>&1 & exit 1", tree=False)
    expect(t, p.communicate(), exit_code=1)
    t.until(lambda: inside(s) == ["sleep", "sleep"], 5, lambda: f"there are {inside(s)}")
    expect(t, s.run("true"), exit_code=0)
    t.equal(sorted(inside(s)), ["sleep", "sleep"], "processes")
    s.end()


def test_a_fork_bomb_ends_with_its_tree(t):
    for place, s in places(t, {"limits": {"processes": 100}}):
        p = s.start("sh", "-c", "f() { f & f & wait; }; f", timeout_usec=500000)
        p.communicate(seconds=30)
        t.note(p.show())
        t.among(p.ended["status"], ("timeout", "exited"), "status")
        if held_by_group(s):
            t.equal(place.inside(), [], "processes")


# ---- Limits ---------------------------------------------------------------------------------------------------------------


def test_wall_time_ends_the_whole_tree(t):
    s = one(t)
    p = s.start("sh", "-c", "sleep 60 & wait", tree=False, timeout_usec=300000)
    q = s.start("sleep", "1")
    expect(t, p.communicate(), status="timeout", signal=9)
    t.between(p.ended["wall_usec"], 300000, 2000000, "wall time")
    t.contains(p.ended["reason"], "300 ms", "reason")
    expect(t, q.communicate(), exit_code=0)


def test_limits_of_the_policy_hold_for_each_process(t):
    s = one(t, {"limits": {"time": "1s"}})
    t.equal(s.facts["limits"]["time_seconds"], 1.0, "limit")
    time.sleep(1.2)
    for _ in range(2):
        expect(t, s.run("sleep", "60", timeout_usec=60_000_000), status="timeout")


def test_cpu_time_of_the_whole_tree_counts(t):
    spin = "while :; do :; done"
    for _, s in places(t):
        p = s.start("sh", "-c", f"sh -c '{spin}' & sh -c '{spin}' & wait", cpu_usec=600000)
        q = s.start("sleep", "0.1", cpu_usec=600000)
        expect(t, q.communicate(), exit_code=0)
        expect(t, p.communicate(seconds=60), status="cpu_timeout")
        t.contains(p.ended["reason"], "600 ms", "reason")


def test_processor_time_is_told_apart(t):
    s = one(t)
    work = "import os, time\nwhile time.process_time() < %s: pass\nif os.fork() == 0: os.setsid(); time.sleep(0.2)"
    idle = s.start("sh", "-c", "read x")
    busy = s.run(PYTHON, "-c", work % 0.4)
    idle.write(b"\n")
    t.between(expect(t, busy, exit_code=0).ended["cpu_usec"], 390_000, 900_000, "of the one that worked")
    t.between(expect(t, idle.communicate(), exit_code=0).ended["cpu_usec"], 1, 100_000, "of the one that waited")
    t.between(expect(t, s.run("true"), exit_code=0).ended["cpu_usec"], 1, 100_000, "of one that came later")


EAT = "b = []\nwhile True: b.append(bytearray(b'x' * (4 << 20)))"


def test_one_that_runs_out_of_memory_does_not_end_the_session(t):
    s = one(t, {"limits": {"memory": "80M"}})
    by = s.start("sh", "-c", "read x; exit 9")
    p = s.run(PYTHON, "-c", EAT, seconds=60)
    expect(t, p, status="out_of_memory", signal=9)
    t.contains(p.ended["reason"], "80 MiB", "reason")
    by.write(b"\n")
    expect(t, by.communicate(), exit_code=9)
    # And a child of a shell: the shell tells, and a later kill by hand is no lack of memory.
    p = s.run("sh", "-c", f"{PYTHON} -c \"{EAT}\"; echo $?; sleep 0.3; kill -9 $$", seconds=60)
    expect(t, p, status="signaled", signal=9)
    t.equal(p.out, b"137\n", "stdout")
    t.contains(p.ended["reason"], "memory limit", "reason")
    expect(t, s.run("sh", "-c", "kill -9 $$"), status="signaled", reason="killed by SIGKILL")
    e = s.line.wait("event", kind="limit")
    t.equal((e["record"]["event"], e["record"]["limit"]), ("limit", "memory"), "event")
    t.between(s.ask("stats", want="stats")["usage"]["oom_kills"], 2, 20, "oom_kills")


# ---- Pausing --------------------------------------------------------------------------------------------------------------

COUNT = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.01; done"


def test_a_pause_stops_everything_and_the_clocks(t):
    s = one(t)
    p = s.start("sh", "-c", COUNT, timeout_usec=2_500_000)
    setsid = s.start("sh", "-c", f"setsid sh -c '{COUNT.replace('count', 'other')}' & wait")
    time.sleep(0.4)
    s.done("pause")
    s.done("pause", errno.EALREADY)
    time.sleep(0.2)

    def seen():
        return [open(f"/proc/{s.facts['pid']}/root/tmp/{name}").read() for name in ("count", "other")]

    if zw.AM_ROOT:
        before = seen()
        time.sleep(0.5)
        t.equal(seen(), before, "counters while it is paused")
    cpu = s.ask("stats", want="stats")["usage"]["cpu_seconds"]
    time.sleep(2.5)
    now = s.ask("stats", want="stats")["usage"]["cpu_seconds"]
    t.between(now - cpu, 0, 0.02, "seconds of CPU time while it is paused")
    refused = s.start("true")
    t.equal((refused.failed or {}).get("errno"), errno.EBUSY, "a start while it is paused")
    p.signal(signal.SIGTERM, error=errno.EBUSY)
    t.check(p.ended is None and not any(m["t"] == "exited" for m in s.line.messages), "the time limit went on")
    s.done("resume")
    s.done("resume", errno.EALREADY)
    expect(t, s.run("sh", "-c", "a=$(cat /tmp/count); sleep 0.3; test $(cat /tmp/count) != $a"), exit_code=0)
    expect(t, p.communicate(), status="timeout")
    t.between(p.ended["wall_usec"], 2_500_000, 4_500_000, "wall time without the pause")
    setsid.signal(signal.SIGKILL, tree=True)
    setsid.communicate()


def test_a_paused_session_ends_as_well(t):
    s = one(t)
    s.start("sleep", "60")
    s.done("pause")
    t.equal(s.end()["status"], "deleted", "status")
    s = s.launcher.launch().ready()
    s.start("sleep", "60")
    s.done("pause")
    agent = s.facts["pid"]
    s.line.sock.close()
    t.until(lambda: not session.alive(agent), PATIENCE, "the agent lives")


# ---- Network --------------------------------------------------------------------------------------------------------------

SERVE = "import socket\ns = socket.create_server(('127.0.0.1', 8123))\nprint('up', flush=True)\nwhile True:\n c, _ = s.accept(); c.sendall(b'got ' + c.recv(100)); c.close()"


def test_a_port_inside_can_be_reached(t):
    s = one(t)
    p = s.start(PYTHON, "-c", SERVE)
    t.equal(p.read_line(), b"up\n", "line")
    for i in range(5):
        m = s.done("connect", port=8123)
        with socket.socket(fileno=m["fds"][0]) as c:
            c.setblocking(True)
            c.sendall(b"%d" % i)
            t.equal(c.recv(100), b"got %d" % i, "answer")
    s.done("connect", errno.ECONNREFUSED, port=8124)
    s.done("connect", errno.EINVAL, port=70000)


def test_rules_of_the_policy_lead_out_and_connections_are_told(t):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve():
            try:
                c, _ = server.accept()
                c.sendall(b"from outside")
                c.close()
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        s = one(t, {"network": {"allow": [{"host": "out.test", "ports": [port]}], "hosts": {"out.test": f"127.0.0.1:{port}"}}})
        p = s.run(PYTHON, "-c", f"import socket; print(socket.create_connection(('out.test', {port}), 10).recv(100))")
        t.note(p.show())
        expect(t, p, exit_code=0)
        t.equal(p.out, b"b'from outside'\n", "what came")
        m = s.line.wait("event", kind="connection")["record"]["connection"]
        t.equal((m["host"], m["port"]), ("out.test", port), "the connection")
        s.done("secret", errno.ENOENT, name="token", value="x")
        ended = s.end()
        t.equal([c["host"] for c in ended["connections"]], ["out.test"], "connections of the whole")


def test_denials_of_a_process_are_told_while_it_lives(t):
    # With a rule there is a broker, which is asked for what it knows first.
    s = one(t, {"network": {"allow": [{"host": "nothing.test", "ports": [1]}]}})
    p = s.start(PYTHON, "-c", "import socket, sys\nfor i in range(12):\n try: socket.getaddrinfo('refused.test', 80)\n except OSError: pass\n"
                "print('done', flush=True)\nsys.stdin.read()", lasting=True)
    other = s.start("sleep", "1000", tree=False)
    t.equal(p.read_line(), b"done\n", "line")
    for settle in (True, False):
        found = s.ask("denials", process=p.id, settle=settle, want="denials")["denials"]
        t.check([d for d in found if d["kind"] == "dns" and d["name" if "name" in d else "host"] == "refused.test" and d["count"] >= 12], f"{settle}: {found}")
    t.equal(s.ask("denials", process=other.id, settle=False, want="denials")["denials"], [], "of one that is not waited for")
    s.done("denials", errno.ESRCH, process=99999, settle=True)
    # One that ends while its request waits has answered it.
    n = s.send("denials", process=p.id, settle=True)
    p.signal(9)
    t.check(isinstance(s.line.wait("denials", id=n)["denials"], list), "answered")


def test_attempts_on_a_wall_are_told_as_they_happen(t):
    s = one(t)
    s.run(PYTHON, "-c", "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print(e)")
    e = s.line.wait("event", kind="denial")["record"]
    t.equal((e["event"], e["kind"], e["host"], e["port"]), ("denial", "network", "192.0.2.1", 80), "event")
    s.run("unshare", "-U", "true")
    s.run("mount", "-t", "tmpfs", "x", "/mnt")
    s.line.wait("event", kind="denial")
    ended = s.end()
    t.check(any(d["kind"] == "network" and d["host"] == "192.0.2.1" for d in ended["denials"]), f"denials: {ended['denials']}")


# ---- The end --------------------------------------------------------------------------------------------------------------


def test_the_end_is_told_last_with_the_reason_given(t):
    s = one(t)
    p = s.start("sh", "-c", "setsid sleep 60 & sleep 60")
    ended = s.end("timeout", "its time is over \u2014 ja")
    t.equal((ended["status"], ended["reason"]), ("timeout", "its time is over \u2014 ja"), "status and reason")
    t.equal(p.wait()["status"], "canceled", "status of a process that was there")
    t.between(ended["usage"]["wall_seconds"], 0, 10, "seconds")
    while s.line.read(5):
        pass
    t.check(s.line.over, "the line is open")
    t.equal([m["t"] for m in s.line.messages if m["t"] != "event"], [], "messages after it")
    t.equal(s.launcher.gone(s), 0, "status of the supervisor")
    t.check(not session.alive(s.facts["pid"]), "the agent lives")


def test_the_end_of_the_line_ends_everything(t):
    s = one(t)
    s.start("sh", "-c", "setsid sleep 60 & echo; sleep 60").read_line()
    pids = t.until(lambda: len(session.inside_of(s.facts["pid"])) == 4 and session.inside_of(s.facts["pid"]), PATIENCE, "the processes are not there")
    s.line.sock.close()
    t.until(lambda: not any(session.alive(p) for p in pids), PATIENCE, "something lives")
    t.equal(s.launcher.gone(s), 0, "status of the supervisor")


def test_a_daemon_that_does_not_listen_ends_everything(t):
    """The supervisor learns of it by a message that cannot be sent, which is not the way it learns of a line that has ended."""
    s = one(t)
    p = s.start("sh", "-c", "setsid sleep 60 & echo; read line")
    p.read_line()
    pids = t.until(lambda: len(session.inside_of(s.facts["pid"])) == 3 and session.inside_of(s.facts["pid"]), PATIENCE, "the processes are not there")
    s.line.sock.shutdown(socket.SHUT_RD)
    p.close_input()  # its end is the message
    t.until(lambda: not any(session.alive(p) for p in pids), PATIENCE, "something lives")
    t.equal(s.launcher.gone(s), 0, "status of the supervisor")


def test_a_killed_supervisor_leaves_nothing(t):
    l = session.Launcher(t)
    for _ in range(5):
        s = l.launch().ready()
        s.start("sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; sleep 60' & (setsid sleep 60 &); sleep 60")
        pids = session.inside_of(s.facts["pid"])
        session.kill_hard(s.supervisor())
        t.equal(l.gone(s), 137, "status of the supervisor")
        t.until(lambda: zw.reap_zombies() or not any(session.alive(p) for p in pids), PATIENCE, "something lives")
    s = l.launch().ready()  # sweeps up the groups of the dead
    s.end()


def test_sessions_outlive_their_launcher(t):
    l = session.Launcher(t)
    s = l.launch().ready()
    l.process.kill()
    l.process.wait()
    expect(t, s.run("echo", "still here"), exit_code=0)
    t.equal(s.end()["status"], "deleted", "status")


def test_a_session_whose_agent_is_killed_says_so(t):
    s = one(t)
    p = s.start("sleep", "60")
    session.kill_hard(s.facts["pid"])
    t.equal(p.wait()["status"], "canceled", "status of the process")
    ended = s.line.wait("ended")
    t.equal(ended["status"], "error", "status")
    t.contains(ended["reason"], "SIGKILL", "reason")


def test_nonsense_on_the_line_ends_the_session_or_is_answered(t):
    l = session.Launcher(t)
    s = l.launch().ready()
    t.equal(s.ask("dance")["errno"], errno.ENOSYS, "an unknown request")
    s.done("signal", errno.ESRCH, process=4711, signal=15, tree=False)
    s.done("resize", errno.ESRCH, process=4711, rows=1, columns=1)
    for bad in (b"{", b"[]", b"\xff\xfe", b'{"t":"stats","t":"stats","id":1}'):
        s = l.launch().ready()
        session.send(s.line.sock, bad)
        t.equal(l.gone(s), 0, f"status of the supervisor after {bad}")
        t.check(not session.alive(s.facts["pid"]), "the agent lives")


def test_policies_that_cannot_be_had_are_refused_with_the_reason(t):
    l = session.Launcher(t)
    for policy, code, key in (({"limits": {"memory": "lots"}}, "invalid_policy", "limits.memory"), ({"nonsense": 1}, "invalid_policy", "nonsense"),
                              ("version: [", "invalid_policy", None), ({"filesystem": {"read": [{"source": "/nowhere/at/all"}]}}, "invalid_policy", None),
                              ({"isolation": "microvm"}, None, None)):
        s = l.launch(policy)
        m = s.line.wait(("refused", "ready"))
        t.equal(m["t"], "refused", f"the answer to {policy}")
        if code:
            t.equal(m["code"], code, f"code: {m}")
        if key:
            t.check(any(e["key"] == key for e in m["errors"]), f"errors: {m['errors']}")
        l.gone(s)


def test_many_sessions_at_once(t):
    l = session.Launcher(t)
    many = [l.launch() for _ in range(20)]
    for s in many:
        s.ready(60)
    for i, s in enumerate(many):
        s.p = s.start("sh", "-c", f"echo {i}")
    for i, s in enumerate(many):
        t.equal(s.p.communicate().out, b"%d\n" % i, "stdout")
        s.send("end")
    for s in many:
        s.line.wait("ended", 60)
        t.equal(l.gone(s, 60), 0, "status of the supervisor")


# ---- What it costs --------------------------------------------------------------------------------------------------------


def private(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        fields = dict(line.split(":") for line in f.read().splitlines()[1:])
    return sum(int(fields[k].split()[0]) for k in ("Private_Clean", "Private_Dirty")) * 1024


def switches(pid):
    with open(f"/proc/{pid}/status") as f:
        return sum(int(line.split(":")[1]) for line in f if "ctxt_switches" in line)


@zw.as_root
def test_an_idle_session_costs_two_mebibytes_and_no_time(t):
    s = one(t)
    expect(t, s.run("true"), exit_code=0)
    pids = [s.supervisor(), s.facts["pid"]]
    used = sum(private(p) for p in pids)
    t.note(f"private memory: {[private(p) for p in pids]}")
    t.between(used, 1, 2 << 20, "bytes of private memory")
    time.sleep(0.3)
    before = [switches(p) for p in pids]
    time.sleep(2)
    t.equal([switches(p) for p in pids], before, "times that they were woken")


def test_an_idle_session_of_an_ordinary_user_does_not_look_around(t):
    s = one(t)
    expect(t, s.run("true"), exit_code=0)
    time.sleep(1)
    before = switches(s.supervisor())
    time.sleep(2)
    t.equal(switches(s.supervisor()), before, "times that the supervisor was woken")


if __name__ == "__main__":
    zw.main(globals())
