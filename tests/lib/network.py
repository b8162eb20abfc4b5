"""A network of the test's own, with nothing behind it.

A suite that ends with network.main(globals()) runs in a new network and mount namespace (as an ordinary user: a user namespace as well, in
which it stays that user, so that zwinger is still started by somebody without any rights). In it every address there is leads to the
namespace itself: what is dialled anywhere, by whomever, arrives at the servers of the test or is seen by wire.Wire, and nothing leaves the
machine. /etc/resolv.conf names a name server of the test, /etc/ssl/certs/ca-certificates.crt also holds a certification authority of the
test, /etc/passwd a user for servers that will not run as root or need a name.

A test makes a World, which starts servers, keeps the record, and runs zwinger with rules.
"""
import atexit
import ctypes
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile

import certificates
import resolver
import servers
import wire
import zw

PUBLIC, OTHER, PUBLIC6 = "93.184.216.34", "93.184.216.40", "2606:2800:220:1::1"
PRIVATE, PRIVATE6, METADATA = "10.9.8.7", "fd00:9::7", "169.254.169.254"
ALL_METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


# ---- The namespaces -------------------------------------------------------------------------------------------------------


class _Place:
    """What is made once for a suite."""
    folder = authority = second = server_user = None


def _unshare():
    uid, gid = os.getuid(), os.getgid()
    newuser, newns, newnet = 0x10000000, 0x20000, 0x40000000
    _check(_libc.unshare(newns | newnet | (newuser if uid else 0)), "unshare")
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
    private, recursive = 1 << 18, 1 << 14
    _check(_libc.mount(b"none", b"/", None, private | recursive, None), "mount --make-rprivate /")


def _bind(source, target):
    if not os.path.exists(target):
        raise zw.Failure(f"{target} is not there; the tests of the network bind one of their own over it")
    _check(_libc.mount(source.encode(), os.path.realpath(target).encode(), None, 4096, None), f"bind {source} over {target}")


def keep_capabilities():
    """For a child about to execute a program: what this process may in its namespaces the program may too."""
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    class Data(ctypes.Structure):
        _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]

    header, data = Header(0x20080522, 0), (Data * 2)()
    _libc.capget(ctypes.byref(header), data)
    for d in data:
        d.inheritable = d.permitted
    _libc.capset(ctypes.byref(header), data)
    for cap in range(64):
        _libc.prctl(47, 2, cap, 0, 0)  # PR_CAP_AMBIENT_RAISE; those that are not there stay away


def _addresses():
    lines = ["link set lo up", "route add local default dev lo", "-6 route add local default dev lo"]
    lines += [f"addr add {a}/32 dev lo" for a in (PUBLIC, OTHER, PRIVATE, METADATA)]
    lines += [f"addr add {a}/128 dev lo nodad" for a in (PUBLIC6, PRIVATE6)]
    for line in lines:  # -batch knows no -6 within
        p = subprocess.run(["ip", *line.split()], capture_output=True, text=True, preexec_fn=keep_capabilities)
        if p.returncode != 0:
            raise zw.Failure(f"ip {line}: {p.stderr}")


def _passwd():
    """A name for this user where there is none, and for root a user without rights to run servers as."""
    with open("/etc/passwd") as f:
        text = f.read()
    home = os.path.join(_Place.folder, "home")
    os.mkdir(home)
    if zw.AM_ROOT:
        used = {u.pw_uid for u in pwd.getpwall()}
        uid = next(u for u in range(53000, 54000) if u not in used)
        os.chown(home, uid, uid)
    else:
        uid = os.getuid()
        text = "".join(x for x in text.splitlines(True) if x.split(":")[2] != str(uid))
    _Place.server_user = (uid, home)
    path = os.path.join(_Place.folder, "passwd")
    with open(path, "w") as f:
        f.write(text + f"tester:x:{uid}:{uid if zw.AM_ROOT else os.getgid()}::{home}:/bin/sh\n")
    _bind(path, "/etc/passwd")


def enter():
    """Makes the world and moves this process into it. No thread may run yet."""
    if not any(os.access(os.path.join(d, "ip"), os.X_OK) for d in zw.PATH.split(":")):
        print("1..0 # SKIP ip is not installed")
        sys.exit(0)
    _unshare()
    folder = _Place.folder = tempfile.mkdtemp(prefix="w-")
    atexit.register(zw.remove_tree, folder)
    os.chmod(folder, 0o711)
    _addresses()
    _passwd()
    with open(os.path.join(folder, "resolv.conf"), "w") as f:
        f.write("nameserver 127.0.0.1\n")
    _bind(os.path.join(folder, "resolv.conf"), "/etc/resolv.conf")
    with open(os.path.join(folder, "hosts"), "w") as f:
        f.write(f"127.0.0.1 localhost\n::1 localhost\n{PUBLIC} of-hosts.test\n{PRIVATE} inward.of-hosts.test\n")
    _bind(os.path.join(folder, "hosts"), "/etc/hosts")
    _Place.authority = certificates.Authority(os.path.join(folder, "ca"), "Test of the Host")
    _Place.second = certificates.Authority(os.path.join(folder, "ca2"), "Test of the Policy")
    with open(BUNDLE, "rb") as f, open(_Place.authority.path, "rb") as ca, open(os.path.join(folder, "bundle"), "wb") as out:
        out.write(f.read() + ca.read())
    _bind(os.path.join(folder, "bundle"), BUNDLE)


def main(namespace, limit=120):
    if "--list" not in sys.argv:
        enter()
    zw.main(namespace, limit)


# ---- One test's part of it ------------------------------------------------------------------------------------------------


# What scripts inside may use without saying so.
PRELUDE = r'''
import errno, json, os, socket, ssl, struct, sys, threading, time
def say(*a): print(*a, flush=True)
def word(e):
    if isinstance(e, socket.gaierror): return "noname"
    if isinstance(e, socket.timeout): return "timeout"
    return errno.errorcode.get(e.errno, str(e)) if isinstance(e, OSError) and e.errno else type(e).__name__
def read_all(s):
    data = b""
    while b := s.recv(65536): data += b
    return data
def reach(host, port, timeout=8, send=b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
    """"reached", "empty" for a close without a word, or the name of the error."""
    try:
        with socket.create_connection((host.encode(), port), timeout) as s:  # bytes: as it is, without Python's own idea of names
            s.sendall(send)
            data = read_all(s)
        return "reached" if data.endswith(b"ok\n") else "empty" if not data else "odd %r" % data[:80]
    except OSError as e:
        return word(e)
def exchange(host, port, data, timeout=8):
    """Sends, and gives what came until the close, or what had come when it was reset."""
    got = b""
    with socket.create_connection((host, port), timeout) as s:
        try:
            s.sendall(data)
            while b := s.recv(65536): got += b
        except OSError as e:
            return got, word(e)
    return got, "closed"
def http(host, port, request, tls=None, timeout=8):
    """One request on a connection of its own: (status, body), or (0, error)."""
    import http.client
    try:
        s = socket.create_connection((host, port), timeout)
        if tls: s = tls.wrap_socket(s, server_hostname=host)
        s.sendall(request)
        r = http.client.HTTPResponse(s, method=request.split(b" ")[0].decode("latin-1"))
        r.begin()
        return r.status, r.read()
    except (OSError, http.client.HTTPException) as e:
        return 0, word(e).encode()
def get(path, host="api.test", method="GET", extra="", body=b"", version="1.1"):
    length = "Content-Length: %d\r\n" % len(body) if body else ""
    return ("%s %s HTTP/%s\r\nHost: %s\r\nConnection: close\r\n%s%s\r\n" % (method, path, version, host, length, extra)).encode("latin-1") + body
def nameserver():
    return next(x.split()[1] for x in open("/etc/resolv.conf") if x.startswith("nameserver"))
def question(name, kind=1, number=0x1234, klass=1, flags=0x0100):
    labels = name if isinstance(name, bytes) else b"".join(bytes([len(x)]) + x for x in name.encode("latin-1").split(b".") if x) + b"\0"
    return struct.pack("!HHHHHH", number, flags, 1, 0, 0, 0) + labels + struct.pack("!HH", kind, klass)
def ask(packet, server=None, port=53, tcp=False, timeout=3):
    server = server or nameserver()
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        s.connect((server, port))
        if not tcp:
            s.send(packet)
            return s.recv(65535)
        s.sendall(struct.pack("!H", len(packet)) + packet)
        data = s.recv(65535)
        while len(data) < 2 or len(data) - 2 < int.from_bytes(data[:2], "big"):
            b = s.recv(65535)
            if not b: break
            data += b
        return data[2:]
def rcode(answer): return answer[3] & 15
def answers(answer): return int.from_bytes(answer[6:8], "big")
'''


class World:
    """The servers, names and runs of one test."""

    def __init__(self, t, resolving=True):
        self.t, self.public, self.other = t, PUBLIC, OTHER
        self.authority, self.second = _Place.authority, _Place.second
        self.dns = None
        if resolving:
            self.dns = self._own(resolver.Resolver())
        self._wire = None

    def _own(self, server):
        self.t.at_end(server.close)
        return server

    def name(self, name, *addresses):
        """What a name resolves to: addresses, a function, or (nothing given) the public address."""
        self.dns.names[name] = addresses[0] if len(addresses) == 1 and callable(addresses[0]) else list(addresses or (PUBLIC,))

    def wire(self):
        if self._wire is None:
            self._wire = self._own(wire.Wire())
        return self._wire

    # ---- servers -----------------------------------------------------------

    def origin(self, port=80, *names, authority=None, **more):
        """An HTTP server; names given are looked up to find it, and with tls=True certified."""
        for n in names:
            if self.dns:
                self.dns.names.setdefault(n, [PUBLIC])
        if more.pop("tls", False):
            more["certificate"] = (authority or self.authority).issue(*names)
        return self._own(servers.Origin(port, **more))

    def recorder(self, port=80, **more):
        return self._own(servers.Recorder(port, **more))

    def echo(self, port=7, **more):
        return self._own(servers.Echo(port, **more))

    def udp_echo(self, port, **more):
        return self._own(servers.UdpEcho(port, **more))

    def talker(self, port, conversation, **more):
        return self._own(servers.Talker(port, conversation, **more))

    # ---- runs --------------------------------------------------------------

    def policy(self, allow=None, secrets=None, more=None, **network):
        """A policy with these rules and keys of `network`; `more` are keys of the top."""
        p = {"version": 1, **(more or {})}
        if allow is not None:
            network["allow"] = allow
        if network:
            p["network"] = network
        if secrets:
            p["secrets"] = secrets
        return p

    def _split(self, more):
        keys = ("allow", "secrets", "hosts", "limits", "proxy_env", "publish", "ca_file")
        given = {k: more.pop(k) for k in keys if k in more}
        if "policy_more" in more:
            given["more"] = more.pop("policy_more")
        return self.policy(**given), more

    def run(self, *argv, **more):
        """zwinger run with rules: allow=[...], hosts={...}, limits={...}, secrets={...}, ...; the rest as for SandboxTest.run."""
        policy, more = self._split(more)
        return self.t.run(*map(str, argv), policy=policy, **more)

    def start(self, *argv, **more):
        policy, more = self._split(more)
        return self.t.start(*map(str, argv), policy=policy, **more)

    def script(self, code, *args):
        return [zw.PYTHON, "-c", PRELUDE + code, *map(str, args)]

    def python(self, code, *args, **more):
        """A script inside, with the helpers of PRELUDE."""
        return self.run(*self.script(code, *args), **more)

    def start_python(self, code, *args, **more):
        return self.start(*self.script(code, *args), **more)

    def verdicts(self, targets, port=8080, **more):
        """What becomes of a plain connection and request to each: {target: "reached" or the error}. Targets may be "host:port"."""
        code = ("for x in json.loads(sys.argv[1]):\n"
                "    h, p = x.rsplit('|', 1)\n"
                "    began = time.monotonic()\n"
                "    say(json.dumps([x, reach(h, int(p)), time.monotonic() - began]))\n")
        full = [x if "|" in x else f"{x}|{port}" for x in targets]
        r = self.python(code, json.dumps(full), **more)
        self.t.expect(r, code=0)
        found = {}
        for (x, verdict, took), target in zip(map(json.loads, r.lines), targets):
            found[target] = verdict
            self.t.check(verdict == "reached" or took < 2, f"the refusal of {x!r} took {took:.1f} s")
        self.t.equal(len(found), len(set(targets)), "verdicts")
        return r, found


# ---- Reading the result ---------------------------------------------------------------------------------------------------


def denied(run, kind, host, port=None, **more):
    """How often the result says that this was refused."""
    total = 0
    for d in run.denials(kind):
        if host not in (d.get("host"), d.get("address")):
            continue
        if port is not None and d.get("port") != port:
            continue
        if all(d.get(k) == v for k, v in more.items()):
            total += d.get("count", 1)
    return total


def connections(run, host=None, port=None):
    return [c for c in run.doc.get("connections") or [] if host in (None, c.get("host")) and port in (None, c.get("port"))]


def requests(run, host):
    """(method, path, status) of all requests of the connections to a host."""
    return [(q["method"], q["path"], q["status"]) for c in connections(run, host) for q in c.get("requests") or []]


def not_started(t, run, *words):
    """Nothing ran, since something that the policy names cannot be had, and the message names it."""
    t.equal(run.code, 125, "exit status")
    t.equal(run.out, b"", "stdout")
    t.among(run.status, ("refused", "error"), "status")
    for w in words:
        t.contains(run.errors, w, "message")


# ---- Processes ------------------------------------------------------------------------------------------------------------


def brokers(run):
    """The broker processes below a run that is still going on."""
    def below(pid, table):
        while pid in table:
            pid = table[pid][0]
            if pid == run.pid:
                return True
        return False

    table = zw.descendants()
    return [p for p, (_, name, state) in table.items() if name == "zwinger-egress" and state != "Z" and below(p, table)]


def inside(run):
    """The processes of a run that are within the walls: those of another pid namespace."""
    own, out = os.readlink("/proc/self/ns/pid"), []
    for p in zw.descendants():
        try:
            if os.readlink(f"/proc/{p}/ns/pid") != own:
                out.append(p)
        except OSError:
            pass
    return out


class _Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def _read_memory(pid, address, buffer, size):
    """process_vm_readv(2): unlike /proc/PID/mem it asks only whether the process may be traced, not who owns a file."""
    here, there = _Part(ctypes.addressof(buffer), size), _Part(address, size)
    return _libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


def memory_has(pid, needles):
    """Which of these byte strings are in the memory of a process, its arguments and environment included."""
    _libc.process_vm_readv.restype = ctypes.c_ssize_t
    found, longest, buffer = set(), max(len(n) for n in needles), ctypes.create_string_buffer(1 << 20)
    try:
        with open(f"/proc/{pid}/maps") as f:
            areas = [line.split() for line in f]
    except (FileNotFoundError, ProcessLookupError):
        return found
    read = 0
    for area in areas:
        if not area[1].startswith("r") or area[-1] in ("[vvar]", "[vsyscall]"):
            continue
        low, high = (int(x, 16) for x in area[0].split("-"))
        tail = b""
        while low < high:
            n = _read_memory(pid, low, buffer, min(high - low, len(buffer)))
            if n <= 0:
                if ctypes.get_errno() == 1:
                    raise zw.Failure(f"the memory of {pid} may not be read")
                low, tail = low + 4096, b""  # a page of a file that is shorter now
                continue
            data = tail + buffer.raw[:n]
            found.update(x for x in needles if x in data)
            tail, low, read = data[-longest:], low + n, read + n
    if areas and not read:
        raise zw.Failure(f"nothing of the memory of {pid} could be read")
    return found


def private_bytes(pid):
    """Private anonymous memory of a process."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        fields = dict(line.split(":", 1) for line in f if ":" in line)
    return int(fields["Anonymous"].split()[0]) * 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
