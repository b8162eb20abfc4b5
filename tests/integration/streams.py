#!/usr/bin/python3 -B
"""stdin, stdout and stderr: binary clean, whole, in order, and never a reason to hang."""
import hashlib
import subprocess
import threading
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def test_all_bytes_pass_unchanged(t):
    data = bytes(range(256)) * 1000
    t.expect(t.run("cat", stdin=data), code=0, out=data, err="")
    t.expect(t.run("sh", "-c", "cat >&2", stdin=data), code=0, out="", err=data)


def test_a_hundred_megabytes_through(t):
    """More than the output limit by default: the limit is said to be none."""
    size = 100 << 20
    line, result = t.command([zw.INSIDE, "flood", "1", str(size)], ["--ro", zw.TOOLS, "--output", "null"])
    p = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=zw.caller_environment())
    got = 0
    while True:
        block = p.stdout.read(1 << 20)
        if not block:
            break
        got += len(block)
    err = p.communicate()[1]
    t.equal((p.returncode, err), (0, b""), "status and stderr")
    t.equal(got, size, "bytes")


def test_a_hundred_megabytes_of_input(t):
    block, count = os.urandom(1 << 20), 100
    want = hashlib.sha256(block * count).hexdigest()
    line, _ = t.command(["sha256sum"])
    p = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=zw.caller_environment())
    for _ in range(count):
        p.stdin.write(block)
    out, err = p.communicate()
    t.equal((p.returncode, out.split()[0].decode(), err), (0, want, b""), "status, sum, stderr")


def test_both_streams_at_once_do_not_block_each_other(t):
    script = "for i in $(seq 20000); do echo out$i; echo err$i >&2; done"
    r = t.run("bash", "-c", script)
    t.expect(r, code=0, out="".join(f"out{i}\n" for i in range(1, 20001)), err="".join(f"err{i}\n" for i in range(1, 20001)))


def test_output_arrives_while_the_command_runs(t):
    r = t.start("sh", "-c", "echo first; read x; echo $x", stdin=subprocess.PIPE)
    t.equal(r.read_line(5), b"first\n", "the first line, before the command ended")
    r.process.stdin.write(b"second\n")
    r.process.stdin.flush()
    t.equal(r.read_line(5), b"second\n", "the answer")
    r.process.stdin.close()
    r.process.stdin = None
    t.expect(r.finish(), code=0)


def test_a_question_and_an_answer_a_thousand_times(t):
    """Ping-pong through both pipes: an added delay of some milliseconds would show."""
    r = t.start("cat", stdin=subprocess.PIPE)
    start = time.monotonic()
    for i in range(1000):
        r.process.stdin.write(b"%d\n" % i)
        r.process.stdin.flush()
        t.equal(r.process.stdout.readline(), b"%d\n" % i, "the answer")
    t.between(time.monotonic() - start, 0, 3, "seconds for 1000 rounds")
    r.process.stdin.close()
    r.process.stdin = None
    t.expect(r.finish(), code=0)


@zw.alone
def test_a_reader_that_is_slow_or_never_reads_does_not_disarm_the_time_limit(t):
    r = t.start(zw.INSIDE, "flood", "1", str(50 << 20), flags=["--ro", zw.TOOLS, "--time", "1s"])
    time.sleep(2.5)  # nobody reads
    r = r.finish(5)
    t.expect(r, code=124, status="timeout")
    t.between(r.doc["usage"]["wall_seconds"], 0.9, 2, "wall_seconds")


def test_a_slow_reader_loses_nothing(t):
    r = t.start(zw.INSIDE, "flood", "1", str(4 << 20), flags=["--ro", zw.TOOLS])
    got = b""
    while True:
        block = os.read(r.process.stdout.fileno(), 200_000)
        if not block:
            break
        got += block
        time.sleep(0.005)
    r = r.finish()
    t.expect(r, code=0)
    t.equal(len(got), 4 << 20, "bytes")


def test_a_reader_that_goes_away_ends_the_writer_as_a_pipe_does(t):
    p = subprocess.run(f"{zw.ZWINGER} run -- sh -c 'while :; do echo yyyyyyyy; done' | head -n 1", shell=True, capture_output=True,
                       env=zw.caller_environment(), timeout=20)
    t.equal(p.stdout, b"yyyyyyyy\n", "stdout")


def closed(t, numbers, *argv):
    """Runs with these descriptors closed."""
    line, result = t.command(argv)
    redirect = " ".join(f"{n}{'<' if n == 0 else '>'}&-" for n in numbers)
    return subprocess.run(["sh", "-c", f'exec "$@" {redirect}', "sh", *line], capture_output=True, env=zw.caller_environment(), timeout=20), result


def test_closed_stdin_is_dev_null_inside(t):
    p, _ = closed(t, [0], "sh", "-c", "cat; readlink /proc/self/fd/0; echo end")
    t.equal((p.returncode, p.stdout.splitlines()[-1]), (0, b"end"), "status and stdout")


def test_closed_stdout_and_stderr_hurt_nobody(t):
    for numbers in ([1], [2], [1, 2], [0, 1, 2]):
        p, result = closed(t, numbers, "sh", "-c", "echo out; echo err >&2; exit 6")
        t.equal(p.returncode, 6, f"exit status with {numbers} closed")
        t.equal((p.stdout, p.stderr), (b"" if 1 in numbers else b"out\n", b"" if 2 in numbers else b"err\n"), "streams")


def test_files_opened_for_the_streams_are_not_taken_by_the_closed_ones(t):
    """With 0, 1, 2 closed, the first files that are opened get these numbers; the command must not write into them."""
    path = t.tmp("result.json")
    p = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", zw.ZWINGER, "run", "--result", path, "--", "sh", "-c", "echo spoiled; echo spoiled >&2"],
                       env=zw.caller_environment(), timeout=20)
    t.equal(p.returncode, 0, "exit status")
    with open(path) as f:
        t.lacks(f.read(), "spoiled", "the result document")


def test_stdin_from_a_file(t):
    f = t.file("from a file\n", "in")
    t.expect(t.run("cat", flags=["--stdin", f]), code=0, out="from a file\n")


def test_stdin_from_a_file_that_is_missing_is_refused(t):
    t.refused(t.run("cat", flags=["--stdin", t.tmp("missing")]), "missing")


def test_stdout_may_be_a_file_that_is_appended_to(t):
    path = t.file("before\n", "log")
    with open(path, "ab") as f:
        t.start("echo", "added", stdout=f).finish()
    with open(path) as f:
        t.equal(f.read(), "before\nadded\n", "the file")


def test_stdout_at_an_offset_of_a_file_writes_there(t):
    path = t.tmp("log")
    with open(path, "wb") as f:
        f.write(b"head\n")
        f.flush()
        t.start("echo", "tail", stdout=f).finish()
    with open(path) as f:
        t.equal(f.read(), "head\ntail\n", "the file")


def test_the_hosts_files_behind_the_streams_are_not_reopened_inside(t):
    """/proc/self/fd/1 of a regular file would be a way to write at any place of it, or to read what is in it."""
    path = t.file("secret of before\n", "log")
    with open(path, "ab") as f:
        t.start("sh", "-c", "dd if=/proc/self/fd/1 iflag=nonblock count=1 >&2; : > /proc/self/fd/1; echo end", stdout=f).finish()
    with open(path) as f:
        t.check(f.read().startswith("secret of before\n"), "the file behind stdout was truncated from inside")


def test_output_over_the_limit_is_dropped_and_counted(t):
    r = t.inside("flood", 1, 300_000, flags=["--output", "100000"])
    t.expect(r, code=0, status="exited", own=1)
    t.equal(len(r.out), 100_000, "bytes of stdout")
    t.equal((r.doc["stdout_bytes"], r.doc["stdout_truncated"], r.doc["stderr_truncated"]), (300_000, True, False), "counts")
    t.contains(r.own_lines[0].replace(",", ""), "200000", "the line says how much was dropped")


def test_the_output_limit_counts_per_stream(t):
    r = t.run("sh", "-c", "head -c 90000 /dev/zero; head -c 90000 /dev/zero >&2", flags=["--output", "100000"])
    t.expect(r, code=0)
    t.equal((len(r.out), len(r.err), r.doc["stdout_truncated"], r.doc["stderr_truncated"]), (90000, 90000, False, False), "streams")


def test_output_exactly_at_the_limit_is_not_truncated(t):
    r = t.inside("flood", 1, 100_000, flags=["--output", "100000"])
    t.expect(r, code=0, own=0)
    t.equal((len(r.out), r.doc["stdout_truncated"]), (100_000, False), "the stream")


def test_a_captured_stream_over_the_limit_keeps_head_and_tail(t):
    r = t.json("sh", "-c", "echo HEAD; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo TAIL", flags=["--output", "64K"])
    t.expect(r, code=0)
    t.check(r.doc["stdout"].startswith("HEAD\n") and r.doc["stdout"].endswith("TAIL\n"), "head and tail")
    t.equal((r.doc["stdout_bytes"], r.doc["stdout_truncated"]), (1_000_011, True), "counts")
    t.between(len(r.doc["stdout"]), 60_000, 66_000, "characters kept")


@zw.alone
def test_a_flood_does_not_grow_the_supervisor(t):
    r = t.start(zw.INSIDE, "flood", "1", str(300 << 20), flags=["--ro", zw.TOOLS, "--json", "--output", "1M"], result=False)
    peak = [0]

    def watch():
        while r.process.poll() is None:
            try:
                with open(f"/proc/{r.pid}/status") as f:
                    for line in f:
                        if line.startswith("RssAnon:"):
                            peak[0] = max(peak[0], int(line.split()[1]))
            except (OSError, ValueError):
                return
            time.sleep(0.01)

    w = threading.Thread(target=watch)
    w.start()
    run = r.finish()
    w.join()
    t.expect(run, code=0)
    t.between(peak[0], 1, 12 << 10, "anonymous memory of the supervisor in KiB")


def test_descriptors_of_the_caller_do_not_leak_inside(t):
    line, _ = t.command([zw.INSIDE, "descriptors"], ["--ro", zw.TOOLS])
    a = os.open("/etc/passwd", os.O_RDONLY)
    b = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    p = subprocess.run(line, pass_fds=[a, b], stdin=subprocess.DEVNULL, capture_output=True, env=zw.caller_environment(), timeout=20)
    os.close(a), os.close(b)
    t.equal((p.returncode, p.stdout), (0, b"0 1 2 \n"), "open descriptors inside")


if __name__ == "__main__":
    zw.main(globals())
