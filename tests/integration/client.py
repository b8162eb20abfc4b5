#!/usr/bin/python3 -B
"""The verbs that talk to a daemon: against the daemon itself, and against servers that lie."""
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon  # noqa: E402
from zw import ZWINGER  # noqa: E402

LOOSE = {"enforcement": "best-effort"}  # this machine may not hold every limit for the caller


def serve(t, *flags, **options):
    path = t.file(json.dumps({"version": 1, **LOOSE}), "loose.yaml")
    return Daemon(t, "--ceiling", path, "--policy", path, *flags, **options)


def client(t, where, *words, stdin=b"", timeout=30, code=0, environment=None):
    """`where`: a daemon (its socket), or flags."""
    flags = ["--state", where.state] if isinstance(where, Daemon) else list(where)
    r = subprocess.run([ZWINGER, words[0], *flags, *words[1:]], input=stdin, capture_output=True, timeout=timeout, env=zw.caller_environment(environment))
    if code is not None and r.returncode != code:
        t.fail(f"{' '.join(words)}: {r.returncode}: {r.stdout[:300]} {r.stderr[:600]}")
    return r


def create(t, d, *words):
    made = client(t, d, "create", *words).stdout.decode().strip()
    t.check(made.isalnum() and len(made) >= 20, f"an id: {made!r}")
    return made


# ---- The daemon itself -----------------------------------------------------------------------------------------------------


def test_a_sandbox_from_creation_to_removal(t):
    d = serve(t)
    a, b = create(t, d, "--metadata", "user=u1", "--name", "first", "--env", "COLOUR=green"), create(t, d)
    t.equal(client(t, d, "exec", a, "sh", "-c", "echo $COLOUR").stdout, b"green\n", "environment")
    t.equal([x["id"] for x in json.loads(client(t, d, "ps", "--json").stdout)], [b, a], "ps")
    t.equal([x["id"] for x in json.loads(client(t, d, "ps", "--json", "--metadata", "user=u1").stdout)], [a], "by metadata")
    listed = client(t, d, "ps").stdout.decode()
    t.check(listed.startswith("ID") and "first" in listed and "user=u1" in listed, listed)
    t.contains(client(t, d, "stats").stdout.decode(), a, "stats")
    t.contains(client(t, d, "top").stdout.decode(), b, "top without a terminal prints once")
    client(t, d, "pause", a)
    t.contains(client(t, d, "exec", a, "true", code=125).stderr, b"paused", "work in a paused one")
    client(t, d, "resume", a)
    client(t, d, "rm", a, b)
    t.equal(json.loads(client(t, d, "ps", "--json").stdout), [], "removed")
    t.equal(len(json.loads(client(t, d, "ps", "--all", "--json").stdout)), 2, "ended ones")


def test_exit_statuses_are_those_of_run(t):
    d = serve(t)
    s = create(t, d)
    client(t, d, "exec", s, "true")
    client(t, d, "exec", s, "--", "sh", "-c", "exit 42", code=42)
    client(t, d, "exec", s, "sh", "-c", "kill -TERM $$", code=143)
    t.contains(client(t, d, "exec", s, "no-such-program", code=127).stderr, b"no-such-program: not found", "missing")
    t.contains(client(t, d, "exec", s, "/etc/passwd", code=126).stderr, b"cannot be executed", "no program")
    client(t, d, "exec", "--cwd", "/nowhere", s, "true", code=125)
    r = client(t, d, "exec", "--timeout", "300ms", s, "sleep", "1000", code=124)
    t.check(r.stderr.startswith(b"zwinger: "), r.stderr)
    t.check(client(t, d, "exec", "aaaaaaaaaaaaaaaaaaaa", "true", code=125).stderr.startswith(b"zwinger: "), "unknown sandbox")
    t.contains(client(t, d, "exec", s, "no-such-program", "x", code=127).stderr, b"no-such-program", "not found")
    client(t, d, "exec", s, "/no/such/program", code=127)
    client(t, d, "exec", s, "/etc/passwd/x", code=127)
    client(t, d, "exec", s, "/etc/passwd", code=126)
    client(t, d, "exec", "--cwd", "/no/such/folder", s, "true", code=125)
    t.contains(client(t, d, "exec", "--frob", s, "true", code=125).stderr, b"there is no flag", "unknown flag")
    t.equal(json.loads(client(t, d, "exec", "--json", s, "sh", "-c", "echo x; exit 3", code=3).stdout)["exit_code"], 3, "--json")


def test_streams_are_clean_in_both_directions(t):
    d = serve(t)
    s = create(t, d)
    data = bytes(range(256)) * 20000 + os.urandom(100001)
    t.check(client(t, d, "exec", "-i", s, "cat", stdin=data, timeout=60).stdout == data, "what went in came out")
    r = client(t, d, "exec", s, "sh", "-c", "echo out; echo err >&2")
    t.equal((r.stdout, r.stderr), (b"out\n", b"err\n"), "apart")
    t.equal(client(t, d, "exec", s, "cat", stdin=b"x").stdout, b"", "without -i there is no input")


def test_output_comes_while_the_command_runs(t):
    d = serve(t)
    s = create(t, d)
    p = subprocess.Popen([ZWINGER, "exec", "--state", d.state, "-i", s, "sh", "-c", "echo one; read x; echo two $x"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, env=zw.caller_environment())
    t.at_end(p.stdout.close)
    t.equal(p.stdout.readline(), b"one\n", "before the input")
    p.stdin.write(b"more\n")
    p.stdin.close()
    t.equal(p.stdout.readline(), b"two more\n", "after it")
    t.equal(p.wait(20), 0, "exit status")


def test_who_stops_reading_ends_the_command(t):
    d = serve(t)
    s = create(t, d)
    p = subprocess.Popen([ZWINGER, "exec", "--state", d.state, s, "yes"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=zw.caller_environment())
    t.equal(p.stdout.readline(), b"y\n", "output")
    p.stdout.close()
    t.equal(p.wait(20), 128 + signal.SIGPIPE, p.stderr.read())
    p.stderr.close()


def test_signals_reach_the_command(t):
    d = serve(t)
    s = create(t, d)
    p = subprocess.Popen([ZWINGER, "exec", "--state", d.state, s, "sh", "-c", "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.1; done"],
                         stdout=subprocess.PIPE, env=zw.caller_environment())
    t.equal(p.stdout.readline(), b"ready\n", "it runs")
    p.send_signal(signal.SIGTERM)
    t.equal((p.stdout.readline(), p.wait(20)), (b"caught\n", 7), "the handler inside")
    p.stdout.close()
    p = subprocess.Popen([ZWINGER, "exec", "--state", d.state, s, "sh", "-c", "echo $$; exec sleep 1000"], stdout=subprocess.PIPE, env=zw.caller_environment())
    pid = p.stdout.readline().decode().strip()
    client(t, d, "kill", "-s", "KILL", s, pid)
    t.equal(p.wait(20), 137, "kill")
    p.stdout.close()
    t.contains(client(t, d, "kill", s, "99999", code=125).stderr, b"no process", "kill of nothing")


def test_a_terminal_is_raw_and_restored(t):
    d = serve(t)
    s = create(t, d)
    master, slave = pty.openpty()
    t.at_end(os.close, master)
    t.at_end(os.close, slave)
    termios.tcsetwinsize(slave, (33, 99)) if hasattr(termios, "tcsetwinsize") else set_size(slave, 33, 99)
    before = termios.tcgetattr(slave)
    p = subprocess.Popen([ZWINGER, "exec", "--state", d.state, "-it", s, "sh", "-c", "stty size; read x; stty size; exit 5"], stdin=slave, stdout=slave,
                         stderr=slave, preexec_fn=lambda: own_terminal(), env=zw.caller_environment({"TERM": "xterm"}))
    wait_for_text(t, master, b"33 99")
    t.check(termios.tcgetattr(slave) != before, "raw")
    set_size(slave, 44, 111)
    p.send_signal(signal.SIGWINCH)  # the kernel sends it to the foreground, which is it
    t.until(lambda: b"44 111" in client(t, d, "exec", s, "sh", "-c", "for f in /proc/[0-9]*; do stty size < $f/fd/0; done 2> /dev/null; true").stdout, 20,
            "the size arrives")
    os.write(master, b"go\r")
    wait_for_text(t, master, b"44 111")
    t.equal(p.wait(20), 5, "exit status")
    t.equal(termios.tcgetattr(slave), before, "as it was")


def set_size(fd, rows, columns):
    import fcntl
    import struct
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def own_terminal():
    import fcntl
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def wait_for_text(t, fd, text):
    import select
    seen = b""
    end = time.monotonic() + 20
    while text not in seen:
        t.check(time.monotonic() < end, f"{text!r} did not come: {seen!r}")
        if select.select([fd], [], [], 0.5)[0]:
            seen += os.read(fd, 65536)


def test_the_daemon_is_found_by_each_of_the_ways(t):
    d = serve(t)
    s = create(t, d)
    bare = t.file(d.key + "\n", "bare", mode=0o600)
    for flags, environment in ((["--key-file", d.key_file], {}), (["--url", d.url, "--key-file", bare], {}), ([], {"ZWINGER_URL": d.url, "ZWINGER_KEY": d.key}),
                               (["--url", d.url], {"ZWINGER_KEY": d.key}), (["--url", "unix:" + os.path.join(d.state, "zwinger.sock")], {})):
        t.contains(client(t, flags, "ps", environment=environment).stdout.decode(), s, f"{flags} {environment}")
    t.contains(client(t, ["--url", d.url], "ps", code=125).stderr, b"hint: ", "without a key")
    wrong = client(t, ["--url", d.url], "ps", code=125, environment={"ZWINGER_KEY": "zwk_" + "0" * 40})
    t.lacks(wrong.stderr, b"zwk_", "the key is not printed")


def test_certificates_are_verified(t):
    d = serve(t, "--tls", "self-signed")
    cert = os.path.join(d.state, "tls/cert.pem")
    s = create(t, d)
    elsewhere = {"XDG_STATE_HOME": t.folder("elsewhere"), "HOME": t.folder("elsewhere")}
    t.contains(client(t, ["--key-file", d.key_file, "--cacert", cert], "ps").stdout.decode(), s, "--cacert")
    t.contains(client(t, ["--key-file", d.key_file, "--url", d.url, "--state", d.state], "ps").stdout.decode(), s, "of the state")
    r = client(t, ["--key-file", d.key_file, "--cacert", "/etc/ssl/certs/ca-certificates.crt"], "ps", code=125, environment=elsewhere)
    t.contains(r.stderr, b"not trusted", "another certificate")


def test_logs_are_followed(t):
    d = serve(t)
    s = create(t, d)
    p = subprocess.Popen([ZWINGER, "logs", "--state", d.state, "-f", s], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=zw.caller_environment())
    client(t, d, "exec", s, "sh", "-c", "echo one; echo two >&2")
    t.equal(sorted(p.stdout.readline().split(b" ", 1)[1] for _ in range(2)), [b"stderr two\n", b"stdout one\n"], "while it runs")
    client(t, d, "rm", s)
    t.equal((p.wait(20), p.stdout.read(), p.stderr.read()), (0, b"", b""), "the end of the sandbox is that of the logs")
    s = create(t, d)
    p2 = subprocess.Popen([ZWINGER, "logs", "--state", d.state, "-f", s], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=zw.caller_environment())
    client(t, d, "exec", s, "echo", "up")
    t.contains(p2.stdout.readline(), b"up", "it follows")
    d.process.kill()
    t.equal(p2.wait(20), 125, "a daemon that dies")
    t.contains(p2.stderr.read(), b"connection", "is told")
    for x in (p, p2):
        x.stdout.close()
        x.stderr.close()


def test_a_daemon_that_dies_lets_nobody_wait(t):
    d = serve(t)
    s = create(t, d)
    p = subprocess.Popen([ZWINGER, "exec", "--state", d.state, "-i", s, "sh", "-c", "echo up; exec sleep 1000"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=zw.caller_environment())
    t.equal(p.stdout.readline(), b"up\n", "it runs")
    d.process.kill()
    out, err = p.communicate(timeout=30)
    t.equal((p.returncode, out), (125, b""), err)
    t.contains(err, b"no daemon answers", "the reason")


def test_no_daemon_is_said(t):
    state = t.folder("state")
    r = client(t, ["--state", state], "ps", code=125)
    t.check(state.encode() in r.stderr and b"zwinger serve --state" in r.stderr, r.stderr)
    t.check(b"no daemon" in client(t, ["--url", "http://127.0.0.1:1"], "ps", code=125).stderr, "nothing listens")


def tree_of(path):
    found = {}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            full = os.path.join(folder, name)
            key = os.path.relpath(full, path)
            if os.path.islink(full):
                found[key] = os.readlink(full)
            else:
                mode = os.stat(full).st_mode & 0o777
                found[key] = mode if os.path.isdir(full) else (mode, open(full, "rb").read())
    return found


def test_files_and_folders_are_copied_both_ways(t):
    d = serve(t)
    s = create(t, d)
    data = os.urandom(3000000)
    t.file(data, "src", "big", mode=0o600)
    t.file("#!/bin/sh\n", "src", "deep", "er", "run.sh", mode=0o755)
    t.file("", "src", "a name: with, odd%2fparts")
    os.chmod(t.folder("src", "empty"), 0o750)
    src, back = t.folder("src"), t.tmp("back")
    client(t, d, "cp", src, f"{s}:copy", timeout=60)
    t.equal(client(t, d, "exec", s, "sh", "-c", "stat -c %a copy/big copy/deep/er/run.sh copy/empty").stdout, b"600\n755\n750\n", "modes inside")
    client(t, d, "cp", f"{s}:copy", back, timeout=60)
    t.equal(tree_of(back), tree_of(src), "there and back")
    client(t, d, "cp", f"{s}:copy", t.folder("into"))
    t.equal(tree_of(t.tmp("into", "copy")), tree_of(src), "into a folder")
    client(t, d, "cp", os.path.join(src, "big"), f"{s}:copy/deep/")
    t.check(client(t, d, "cp", f"{s}:copy/deep/big", "-").stdout == data, "to standard output")
    client(t, d, "cp", "-", f"{s}:typed", stdin=b"typed\n")
    t.equal(client(t, d, "exec", s, "cat", "typed").stdout, b"typed\n", "from standard input")
    t.contains(client(t, d, "cp", f"{s}:missing", t.tmp("x"), code=125).stderr, b"no such file", "missing")
    t.check(not os.path.exists(t.tmp("x")), "nothing is left of it")
    os.symlink("/etc/passwd", os.path.join(src, "link"))
    t.contains(client(t, d, "cp", src, f"{s}:again", code=125).stderr, b"a link", "a link here is not followed")


def test_links_of_a_sandbox_are_made_only_where_they_stay_inside(t):
    d = serve(t)
    s = create(t, d)
    client(t, d, "exec", s, "sh", "-c", "mkdir -p tree/x/y; echo hi > tree/file; cd tree; ln -s file good; ln -s ../../file x/y/up; ln -s /etc/passwd bad1; "
           "ln -s ../.. bad2; ln -s x/y/../../.. bad3; ln -s ../.. x/y/top; ln -s x/y/top/.. bad4; mkfifo fifo")
    r = client(t, d, "cp", f"{s}:tree", t.tmp("out"), code=125)
    t.equal({k: v for k, v in tree_of(t.tmp("out")).items() if isinstance(v, str)}, {"good": "file", "x/y/up": "../../file", "x/y/top": "../.."}, "links")
    t.equal(open(t.tmp("out", "good")).read(), "hi\n", "and files")
    t.equal(r.stderr.count(b"not copied"), 5, r.stderr)


# ---- Servers that lie ------------------------------------------------------------------------------------------------------


class Fake:
    """Answers each request by `answer(method, path, send)`; the connection closes then."""

    def __init__(self, t, answer):
        self.answer, self.seen = answer, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        t.at_end(self.close)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(20)
        self.socket.close()

    def serve(self):
        while True:
            try:
                c, _ = self.socket.accept()
            except OSError:
                return
            with c:
                c.settimeout(20)
                try:
                    self.one(c)
                except OSError:
                    pass

    def one(self, c):
        head = b""
        while b"\r\n\r\n" not in head:
            part = c.recv(65536)
            if not part:
                return
            head += part
        head, _, body = head.partition(b"\r\n\r\n")
        size = next((int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0)
        while len(body) < size:
            body += c.recv(65536)
        method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.seen.append((method, path, head))
        self.answer(method, path, c.sendall)
        c.shutdown(socket.SHUT_WR)


def reply(send, body, status=200, kind="application/json", headers=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    send(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n".encode() + body)


def test_answers_that_are_none_are_refused(t):
    for what, text in ((b"{", b"no JSON"), (b'{"sandboxes":[],"sandboxes":[]}', b"no JSON"), (b'{"sandboxes":5}', b"no list"), (b"[" * 100000, b"no JSON")):
        fake = Fake(t, lambda m, p, send, what=what: reply(send, what))
        t.contains(client(t, ["--url", fake.url], "ps", code=125).stderr, text, what[:40])


def test_answers_without_end_are_left(t):
    def endless(method, path, send):
        send(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n[")
        while True:
            send(b"1," * 32768)

    t.contains(client(t, ["--url", Fake(t, endless).url], "ps", code=125).stderr, b"more than a client accepts", "a body")
    pages = Fake(t, lambda m, p, send: reply(send, {"sandboxes": [], "next_cursor": "again"}))
    t.contains(client(t, ["--url", pages.url], "ps", code=125).stderr, b"no end", "pages")


def test_escapes_of_a_stranger_do_not_reach_the_terminal(t):
    evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202e"

    def answer(method, path, send):
        if method == "POST":
            reply(send, {"status": 400, "code": "bad_request", "message": evil + "\nzwinger: forged", "hint": evil}, 400, "application/problem+json")
        else:
            reply(send, {"sandboxes": [{"id": evil, "name": evil, "state": evil, "metadata": {evil: evil}}], "next_cursor": None})

    fake = Fake(t, answer)
    for words, code in ((["ps"], 0), (["ps", "--json"], 0), (["create"], 125)):
        r = client(t, ["--url", fake.url], *words, code=code)
        for bad in (b"\x1b", b"\x07", "\u009b".encode(), "\u202e".encode()):
            t.lacks(r.stdout + r.stderr, bad, words)
    t.equal(len(client(t, ["--url", fake.url], "create", code=125).stderr.splitlines()), 2, "one line each")


def test_a_redirect_is_not_followed_with_the_key(t):
    other = Fake(t, lambda m, p, send: reply(send, {"sandboxes": []}))
    fake = Fake(t, lambda m, p, send: reply(send, b"", 302, headers=f"Location: {other.url}/\r\n"))
    client(t, ["--url", fake.url], "ps", code=125, environment={"ZWINGER_KEY": "zwk_" + "1" * 40})
    t.check(b"Bearer zwk_" in fake.seen[0][2], "the key went to the one that was meant")
    t.equal(other.seen, [], "and to no other")


def event(name, data, number=None):
    return ((f"id: {number}\n" if number else "") + f"event: {name}\ndata: {json.dumps(data)}\n\n").encode()


def output_of(parts):
    """A server whose process has this output: one list of bytes a connection."""
    parts = list(parts)

    def answer(method, path, send):
        if method == "POST":
            reply(send, {"pid": 7}, 201)
        else:
            send(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + (parts.pop(0) if parts else b""))

    return answer


def test_output_that_breaks_is_taken_up_again(t):
    fake = Fake(t, output_of([event("stdout", {"text": "one "}, 1) + b"id: 2\nevent: stdout\ndata: {\"te", event("stdout", {"text": "two"}, 2) +
                              event("exit", {"pid": 7, "exit_code": 4, "status": "exited"})]))
    t.equal(client(t, ["--url", fake.url], "exec", "a" * 20, "x", code=4).stdout, b"one two", "nothing lost, nothing twice")
    t.check(b"Last-Event-ID: 1" in fake.seen[2][2], fake.seen[2])


def test_output_that_is_none_is_refused(t):
    for parts, text in (([b"data: " + b"x" * 3000000], b"larger than"), ([b"event: stdout\ndata: {\n\n"], b"no JSON"),
                        ([b"event: stdout\ndata: {\"base64\":\"%%%\"}\n\n"], b"cannot be decoded"), ([], b"again and again")):
        fake = Fake(t, output_of(parts))
        r = client(t, ["--url", fake.url], "exec", "a" * 20, "x", code=125)
        t.check(any(x in r.stderr for x in text.split(b"|")), f"{parts[:1]!r:.60}: {r.stderr}")


def test_names_of_a_stranger_do_not_lead_out(t):
    outside = t.folder("outside")
    os.makedirs(t.tmp("out", "tree"))
    os.symlink(outside, t.tmp("out", "tree", "led"))  # it was there before, as an earlier copy may have left it
    names = ["../up", "..", ".", "", "/abs", "a/b", "led", "fine"]

    def answer(method, path, send):
        if "/files/stat" in path:
            reply(send, {"name": "tree", "path": "tree", "type": "directory", "mode": "0755"})
        elif "/files/list" in path and path.split("path=")[1].startswith("tree&"):
            entries = [{"name": n, "path": "/home/user/tree/" + n, "type": "file", "mode": "6777"} for n in names]
            entries += [{"name": "led", "path": "../../led", "type": "directory", "mode": "0755"}, {"name": "enc", "path": "x", "path_encoded": "a%2f..", "type": "file"},
                        {"name": "l", "path": "l", "type": "symlink", "target": outside}, 5, None, {"type": "file"}]
            reply(send, {"entries": entries, "next_cursor": None})
        elif "/files/list" in path:
            reply(send, {"entries": [{"name": "inside", "path": "inside", "type": "file"}], "next_cursor": None})
        else:
            reply(send, b"payload", kind="application/octet-stream")

    fake = Fake(t, answer)
    client(t, ["--url", fake.url], "cp", "a" * 20 + ":tree", t.tmp("out"), code=125)
    t.equal(os.listdir(outside), [], "nothing came there")
    found = tree_of(t.tmp("out", "tree"))
    t.equal(found["fine"], (0o777, b"payload"), "a good one, without set-user-ID")
    t.equal(sorted(os.listdir(t.tmp("out"))), ["tree"], "nothing beside it")
    t.check(set(found) <= {"fine", "led", "led/inside"}, found)


def test_a_copy_without_end_or_half_is_told(t):
    def answer(method, path, send):
        if "/files/stat" in path:
            reply(send, {"name": "f", "path": "f", "type": "directory" if "tree" in path else "file", "mode": "0644"})
        elif "/files/list" in path:
            reply(send, {"entries": [], "next_cursor": "more"})
        else:
            send(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf")

    fake = Fake(t, answer)
    t.contains(client(t, ["--url", fake.url], "cp", "a" * 20 + ":tree", t.folder("o"), code=125).stderr, b"no end", "pages")
    client(t, ["--url", fake.url], "cp", "a" * 20 + ":file", t.tmp("p", "file"), code=125)
    t.equal(os.listdir(t.tmp("p")), [], "no half of a file")


if __name__ == "__main__":
    zw.main(globals())
