"""Drives zwinger-egress alone, as the supervisor does: a network namespace of the test's own, sockets in it, the control line.

A suite calls enter() before anything else: it starts itself again in a new network namespace (as an ordinary user also in a user
namespace), where 198.18.0.0/16 is local. Sandbox, transit and host are one namespace here; which socket is whose is the test's business.
"""
import array
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
ENTERED = "ZWINGER_TEST_BROKER_NAMESPACE"
STUB = "198.18.0.1"
PROTOCOLS = ("tcp", "tls", "http", "https", "udp")


def _program():
    beside = os.path.join(os.path.dirname(os.environ.get("ZWINGER", "")), "zwinger-egress")
    for path in (os.environ.get("ZWINGER_EGRESS"), beside, os.path.join(TOP, "build/bin/zwinger-egress"), os.path.join(TOP, "build/src/egress/zwinger-egress")):
        if path and os.path.exists(path):
            return os.path.realpath(path)
    return None


PROGRAM = _program()


def _address(name, address, mask):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for request, value in ((0x8916, address), (0x891C, mask)):  # SIOCSIFADDR, SIOCSIFNETMASK
            fcntl.ioctl(s, request, struct.pack("16sH2s4s8x", name.encode(), socket.AF_INET, b"", socket.inet_aton(value)))
        flags = struct.unpack("16sh", fcntl.ioctl(s, 0x8913, struct.pack("16sh", name.encode(), 0)))[1]  # SIOCGIFFLAGS, SIOCSIFFLAGS
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", name.encode(), flags | 1))


def enter():
    """Returns only in the namespace. Without one (ENTERED is "no"), every test is to be skipped."""
    state = os.environ.get(ENTERED)
    if state is None:
        options = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
        can = shutil.which("unshare") and subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0
        os.environ[ENTERED] = "yes" if can else "no"
        if can:
            os.execvp("unshare", ["unshare", *options, sys.executable, "-B", *sys.argv])
    elif state == "yes":
        _address("lo", "127.0.0.1", "255.0.0.0")
        _address("lo:1", STUB, "255.255.0.0")


def rule(host=None, ports=((443, 443),), protocol="tcp", address=None, label="network.allow[0]", **more):
    r = {"host": host, "address": address, "ports": [list(p) for p in ports], "protocol": PROTOCOLS.index(protocol), "methods": None, "paths": None,
         "request_max": None, "secret": {"name": None, "header": None, "format": None, "placeholder": None}, "label": label}
    r.update(more)
    return r


def network(rules, hosts=(), proxy_env=False, kill=False, **limits):
    """hosts: (name, address, port)."""
    all_limits = {"bytes_out": None, "bytes_in": None, "requests": None, "connections": None, "rate": None, "kill": kill, **limits}
    return {"rules": list(rules), "hosts": [{"name": n, "address": a, "port": p} for n, a, p in hosts], "limits": all_limits,
            "proxy_env": proxy_env, "ca_file": None}


def query(name, kind=1):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
    return struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def listener(address="127.0.0.1", port=0, kind=socket.SOCK_STREAM, backlog=1024):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    if kind == socket.SOCK_STREAM:
        s.listen(backlog)
    s.settimeout(10)
    return s


class Broker:
    """One broker. `messages` holds what it has said so far."""

    def __init__(self, config, environment=None, wrap=()):
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.messages, self.ended, self.fds = [], False, []
        self.began = time.perf_counter()
        memory = os.memfd_create("config", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(memory, config if isinstance(config, bytes) else json.dumps({"network": config, "id": "zw-test"}).encode())
        keep = theirs.fileno()

        def prepare():
            if keep != 3:
                os.dup2(keep, 3)
            os.set_inheritable(3, True)

        self.process = subprocess.Popen([*wrap, PROGRAM], stdin=subprocess.DEVNULL, close_fds=False, preexec_fn=prepare, env=environment or {"PATH": os.defpath})
        theirs.close()
        self.send({"t": "config"}, [memory])
        os.close(memory)

    # ---- the line ------------------------------------------------------------

    def send(self, message, fds=()):
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.line.sendmsg([json.dumps(message).encode()], ancillary)

    def read(self, seconds):
        """One more message into self.messages; False when none came."""
        if self.ended or not select.select([self.line], [], [], max(seconds, 0))[0]:
            return False
        data, fds, _, _ = socket.recv_fds(self.line, 1 << 17, 8)
        self.fds += fds
        if not data:
            self.ended = True
            return False
        self.messages.append(json.loads(data))
        return True

    def wait(self, kind, seconds=10, **members):
        """The first message of that kind with these members that was not asked for before."""
        end, at = time.monotonic() + seconds, 0
        while True:
            while at < len(self.messages):
                m = self.messages[at]
                if m["t"] == kind and all(m.get(k) == v for k, v in members.items()):
                    return self.messages.pop(at)
                at += 1
            if not self.read(end - time.monotonic()):
                raise AssertionError(f"no message {kind} {members} within {seconds} s; there are {self.messages[-20:]}")

    def ready(self):
        m = self.wait("ready")
        self.took = time.perf_counter() - self.began
        return m

    # ---- what it serves ------------------------------------------------------

    def listen(self, address, port, udp=False):
        s = listener(address, port, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
        self.send({"t": "listeners", "listeners": [{"address": address, "port": s.getsockname()[1], "udp": udp}]}, [s.fileno()])
        port = s.getsockname()[1]
        s.close()
        return port

    def serve_names(self):
        self.listen(STUB, 53, udp=True)
        self.listen(STUB, 53)

    def lookup(self, name, kind=1):
        """The address that the stub gives, None for NXDOMAIN or no data."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(10)
            s.connect((STUB, 53))
            s.send(query(name, kind))
            answer = s.recv(4096)
        if answer[3] & 15 or struct.unpack(">H", answer[6:8])[0] == 0:
            return None
        return socket.inet_ntoa(answer[-4:])

    # ---- the end -------------------------------------------------------------

    def end(self):
        """Ends it in order and returns its exit status; everything it said is in self.messages."""
        self.send({"t": "end"})
        while self.read(10):
            pass
        return self.process.wait(10)

    def close(self):
        self.line.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
