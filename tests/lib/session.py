"""Plays the daemon: starts `zwinger launcher`, asks it for sessions, and talks with their supervisors over src/sandbox/session-wire.h."""
import array
import errno
import json
import os
import select
import signal
import socket
import subprocess
import time

import zw
from tap import Failure

MESSAGE_MAX = 192 * 1024


def send(line, message, fds=()):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    line.sendmsg([message if isinstance(message, bytes) else json.dumps(message).encode()], ancillary)


def seqpacket():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Line:
    """One end of a line: messages are kept until somebody asks for them."""

    def __init__(self, sock):
        self.sock, self.messages, self.over = sock, [], False

    def read(self, seconds):
        if self.over or not select.select([self.sock], [], [], max(seconds, 0))[0]:
            return False
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, MESSAGE_MAX + 1, 8)
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            self.over = True
            return False
        message = json.loads(data)
        message["fds"] = list(fds)
        self.messages.append(message)
        return True

    def wait(self, kinds, seconds=20, **members):
        """The first message of one of these kinds, with these members, that was not asked for before."""
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        end, at = time.monotonic() + seconds, 0
        while True:
            while at < len(self.messages):
                m = self.messages[at]
                if m["t"] in kinds and all(m.get(k) == v for k, v in members.items()):
                    return self.messages.pop(at)
                at += 1
            if not self.read(end - time.monotonic()):
                what = "the line is over" if self.over else f"not within {seconds} s"
                raise Failure(f"no message {kinds} {members}: {what}; there are {self.messages[-10:]}")

    def drain(self):
        while self.read(0):
            pass

    def close(self):
        for m in self.messages:
            for fd in m["fds"]:
                os.close(fd)
        self.sock.close()


class Launcher:
    def __init__(self, t):
        ours, theirs = seqpacket()
        fd = theirs.fileno()

        def prepare():
            if fd != 3:
                os.dup2(fd, 3)
            os.set_inheritable(3, True)

        self.t = t
        self.line = Line(ours)
        self.errors = open(t.tmp("launcher.err"), "w+")
        self.process = subprocess.Popen([zw.ZWINGER, "launcher"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors, close_fds=False,
                                        preexec_fn=prepare, env=zw.caller_environment())
        theirs.close()
        self.sessions, self.next = [], 1
        t.at_end(self.close)

    def launch(self, policy=None, label="test"):
        ours, theirs = seqpacket()
        number, self.next = self.next, self.next + 1
        policy = policy if isinstance(policy, str) else json.dumps({"version": 1, **(policy or {})})
        send(self.line.sock, {"t": "launch", "id": number, "policy": policy, "label": label}, [theirs.fileno()])
        theirs.close()
        s = Session(self, number, ours)
        self.sessions.append(s)
        return s

    def gone(self, session, seconds=20):
        return self.line.wait("gone", seconds, id=session.number)["status"]

    def close(self):
        for s in self.sessions:
            s.close()
        self.line.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.seek(0)
        text = self.errors.read()
        self.errors.close()
        if text:
            self.t.note("launcher: " + text[-2000:])
            if "Sanitizer" in text or "runtime error" in text:
                raise Failure(text[-2000:])


class Session:
    def __init__(self, launcher, number, sock):
        self.launcher, self.number, self.line, self.next = launcher, number, Line(sock), 1

    def ready(self, seconds=20):
        m = self.line.wait(("ready", "refused"), seconds)
        if m["t"] != "ready":
            raise Failure(f"refused: {m}")
        self.facts = m
        return self

    def supervisor(self):
        """Its pid: the parent of the agent."""
        with open(f"/proc/{self.facts['pid']}/stat") as f:
            return int(f.read().rpartition(")")[2].split()[1])

    def send(self, kind, fds=(), **members):
        number, self.next = self.next, self.next + 1
        send(self.line.sock, {"t": kind, "id": number, **members}, fds)
        return number

    def ask(self, kind, fds=(), want="done", seconds=20, **members):
        return self.line.wait(want, seconds, id=self.send(kind, fds, **members))

    def done(self, kind, error=0, **members):
        m = self.ask(kind, **members)
        if m["errno"] != error:
            raise Failure(f"{kind} {members}: {m}, expected errno {error} ({os.strerror(error)})")
        return m

    def start(self, *argv, **options):
        return Process(self, argv, **options)

    def run(self, *argv, input=b"", seconds=30, **options):
        return self.start(*argv, **options).communicate(input, seconds)

    def end(self, status="deleted", reason="by the test"):
        self.send("end", status=status, reason=reason)
        return self.line.wait("ended")

    def close(self):
        self.line.close()


class Process:
    """Pipes of ours on both sides of what the agent starts; with tty=(rows, columns) a terminal, whose master comes with "started"."""

    def __init__(self, session, argv, tty=None, channel=None, program=None, wait=True, **members):
        self.session, self.ended, self.failed = session, None, None
        self.stdin = self.stdout = self.stderr = self.master = None
        theirs, keep = [], []
        if tty is None:
            (r0, self.stdin), (self.stdout, w1), (self.stderr, w2) = os.pipe(), os.pipe(), os.pipe()
            theirs = [r0, w1, w2]
        keep = list(theirs)
        if channel is not None:
            theirs.append(channel)
        if program is not None:
            theirs.append(program)
        members.setdefault("env", {})
        members.setdefault("tree", True)
        members["tty"] = {"rows": tty[0], "columns": tty[1]} if tty else None
        self.id = session.send("start", theirs, argv=list(argv), channel=channel is not None, program=program is not None, **members)
        for fd in keep:
            os.close(fd)
        self.out = self.err = b""
        if wait:
            self.wait_started()

    def wait_started(self):
        m = self.session.line.wait(("started", "failed"), id=self.id)
        if m["t"] == "failed":
            self.failed = m
            self.close()
            return self
        self.pid = m["pid"]
        if m["fds"]:
            self.master = m["fds"][0]
        return self

    def signal(self, number, tree=False, error=0):
        return self.session.done("signal", error, process=self.id, signal=int(number), tree=tree)

    def write(self, data):
        os.write(self.stdin if self.master is None else self.master, data)

    def close_input(self):
        if self.stdin is not None:
            os.close(self.stdin)
        self.stdin = None

    def read_line(self, seconds=20):
        line, end = b"", time.monotonic() + seconds
        fd = self.stdout if self.master is None else self.master
        while not line.endswith(b"\n"):
            if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
                raise Failure(f"no line within {seconds} s, only {line!r}")
            c = os.read(fd, 1)
            if not c:
                break
            line += c
        return line

    def wait(self, seconds=20):
        if self.ended is None:
            self.ended = self.session.line.wait("exited", seconds, id=self.id)
        return self.ended

    def communicate(self, input=b"", seconds=30):
        """Input in, both outputs until their ends, then the exit."""
        end = time.monotonic() + seconds
        if self.failed:
            return self
        if not input:
            self.close_input()
        sources = [f for f in (self.stdout, self.stderr) if f is not None]
        while sources:
            readable, writable, _ = select.select(sources, [self.stdin] if input else [], [], max(0, end - time.monotonic()))
            if not readable and not writable:
                raise Failure(f"no end of output within {seconds} s; so far {self.out[-200:]!r} {self.err[-200:]!r}")
            if writable:
                try:
                    input = input[os.write(self.stdin, input[:65536]):]
                except BrokenPipeError:
                    input = b""
                if not input:
                    self.close_input()
            for fd in readable:
                data = os.read(fd, 65536)
                if not data:
                    sources.remove(fd)
                elif fd == self.stdout:
                    self.out += data
                else:
                    self.err += data
        self.wait(max(1, end - time.monotonic()))
        self.close()
        return self

    def close(self):
        for name in ("stdin", "stdout", "stderr", "master"):
            fd = getattr(self, name)
            if fd is not None:
                os.close(fd)
            setattr(self, name, None)

    def show(self):
        return f"{self.ended or self.failed}; stdout {self.out[-500:]!r}, stderr {self.err[-500:]!r}"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ESRCH):
            return False
        raise


def inside_of(agent):
    """Pids on the host of the agent and what is below it: {pid: command line}."""
    found = {}
    if alive(agent):
        found[agent] = "agent"
    left = {pid: (parent, comm) for pid, (parent, comm, state) in zw.descendants().items() if state not in ("Z", "X") and pid != agent}
    while below := {pid: comm for pid, (parent, comm) in left.items() if parent in found and pid not in found}:  # a child may have the lower number
        found.update(below)
    return found


def kill_hard(pid):
    os.kill(pid, signal.SIGKILL)
