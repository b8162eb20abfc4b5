#!/usr/bin/python3 -B
"""Each limit holds, and each ending is told apart from the others by evidence."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402

M = 1 << 20


@zw.alone
def test_the_wall_time_limit_ends_a_sleeper_in_time(t):
    for limit, low, high in (("200ms", 0.19, 0.8), ("1s", 0.99, 1.8)):
        r = t.expect(t.run("sleep", "20", flags=["--time", limit]), code=124, status="timeout")
        t.between(r.wall, low, high, "seconds")


@zw.alone
def test_the_wall_time_limit_ends_what_ignores_term(t):
    r = t.run("sh", "-c", "trap '' TERM; while :; do sleep 1; done", flags=["--time", "500ms"])
    t.expect(r, code=124, status="timeout")
    t.between(r.wall, 0.45, 3, "seconds")


@zw.alone
def test_a_stopped_command_ends_at_the_time_limit(t):
    t.expect(t.run("sh", "-c", "kill -STOP $$", flags=["--time", "500ms"]), code=124, status="timeout")


@zw.alone
def test_no_time_limit_means_none(t):
    t.expect(t.run("sleep", "1", flags=["--time", "null"]), code=0)


@zw.alone
def test_the_processor_limit_counts_the_whole_tree(t):
    r = t.expect(t.inside("spin", 5000, 2, flags=["--cpu-time", "1s"]), code=124, status="cpu_timeout")
    t.between(r.doc["usage"]["cpu_seconds"], 0.95, 1.5, "processor time of two processes")


@zw.alone
def test_the_processor_limit_counts_orphans(t):
    r = t.expect(t.inside("spin-orphans", 8000, flags=["--cpu-time", "1s"]), code=124, status="cpu_timeout")
    t.between(r.doc["usage"]["cpu_seconds"], 0.95, 1.5, "processor time")


@zw.alone
def test_sleeping_uses_no_processor_time(t):
    t.expect(t.inside("sleep", 1500, flags=["--cpu-time", "500ms"]), code=0, out="slept\n")


@zw.alone
def test_cpus_slow_a_program_down_and_do_not_end_it(t):
    """A quarter of a processor: 0.3 s of processor time take more than a second."""
    if not zw.AM_ROOT:
        r = t.run("true", flags=["--cpus", "0.25"])
        if r.code == 125:
            t.contains(r.errors, "cpus", "message")
            return
    r = t.expect(t.inside("spin", 300, flags=["--cpus", "0.25"]), code=0)
    t.between(r.wall, 0.8, 6, "seconds")


@zw.alone
def test_one_cpu_for_two_busy_processes(t):
    r = t.expect(t.inside("spin", 700, 2, flags=["--cpus", "1"]), code=0)
    t.between(r.wall, 1.2, 6, "seconds")


def test_memory_of_the_main_process(t):
    r = t.expect(t.inside("hog", 300, flags=["--memory", "64M"]), code=137, status="out_of_memory", out="")
    t.between(r.doc["usage"]["memory_peak_bytes"], 50 * M, 80 * M, "memory_peak_bytes")


def test_memory_below_the_limit_is_left_alone(t):
    t.expect(t.inside("hog", 80, flags=["--memory", "128M"]), code=0, out="touched 80\n")


def test_memory_of_a_child(t):
    r = t.expect(t.inside("hog-child", 300, flags=["--memory", "64M"]), code=0, status="exited", out="child killed by 9\n")
    t.between(r.doc["usage"]["oom_kills"], 1, 3, "oom_kills")
    t.contains(r.reason, "memory", "reason")


def test_memory_of_many_processes_together(t):
    """Thirty times 20 MiB: none is large, the whole is."""
    script = f"for i in $(seq 30); do {zw.INSIDE} hog 20 2 & done; wait; echo end"
    r = t.run("sh", "-c", script, flags=["--ro", zw.TOOLS, "--memory", "100M"])
    t.check(r.status == "out_of_memory" or r.doc["usage"]["oom_kills"], "nothing was killed for memory")
    much = 400 if r.doc["enforcement"]["memory"] == "watchdog" else 105  # of 600: a watchdog looks from time to time
    t.between(r.doc["usage"]["memory_peak_bytes"], 60 * M, much * M, "memory_peak_bytes")


def test_reserving_addresses_is_not_using_memory(t):
    code = "import mmap; m = [mmap.mmap(-1, 1 << 33) for _ in range(8)]; print('ok')"
    t.expect(t.run(zw.PYTHON, "-c", code, flags=["--memory", "64M"]), code=0, out="ok\n")


def test_scratch_counts_as_memory(t):
    r = t.inside("fill", "/tmp/x", 200, flags=["--memory", "64M", "--scratch", "500M"])
    t.check(r.status == "out_of_memory" or r.doc["usage"]["oom_kills"], f"200 MiB of scratch under 64 MiB of memory: {r.status}")


def test_scratch_over_its_size_is_enospc(t):
    r = t.expect(t.inside("fill", "/tmp/x", 200, flags=["--scratch", "20M"]), code=0, status="exited")
    n, error = r.text.split()
    t.equal(error, "ENOSPC", "error")
    t.between(int(n), 18, 20, "MiB written")


def test_other_writable_places_are_limited_too(t):
    for path in ("/dev/shm/x", "/var/tmp/x", "/run/x", "$HOME/x"):
        r = t.run("sh", "-c", f"exec {zw.INSIDE} fill {path} 300", flags=["--ro", zw.TOOLS, "--scratch", "20M", "--memory", "256M"])
        n = int(r.text.split()[0]) if r.text else 0
        t.check(r.status == "out_of_memory" or n <= 256, f"{path}: {n} MiB could be written")


def test_the_inodes_of_scratch(t):
    r = t.inside("inodes", "/tmp", 5000, policy={"version": 1, "filesystem": {"scratch": {"inodes": 1000}}})
    n, error = r.text.split()
    t.equal(error, "ENOSPC", "error")
    t.between(int(n), 950, 1000, "files")


def test_the_disk_limit_of_write_mounts(t):
    w = t.folder("w")
    r = t.inside("fill", "/out/x", 200, flags=["--rw", f"{w}:/out", "--disk", "20M", "--memory", "256M"])
    written = sum(os.path.getsize(os.path.join(w, f)) for f in os.listdir(w))
    t.check(written <= 21 * M, f"{written / M:.0f} MiB are on the disk")
    t.check("ENOSPC" in r.text or "EFBIG" in r.text or r.code != 0, f"the program was not told: {r.text!r}")


def test_processes_are_counted_for_this_sandbox_alone(t):
    others = [t.start(zw.INSIDE, "processes", "40", flags=["--ro", zw.TOOLS, "--processes", "50"]) for _ in range(3)]
    r = t.inside("processes", 40, flags=["--processes", "50"])
    t.expect(r, code=0, out="40 ok\n")
    for o in others:
        o.finish()


def test_the_process_limit(t):
    r = t.expect(t.inside("processes", 100, flags=["--processes", "30"]), code=0)
    n, error = r.text.split()
    t.equal(error, "EAGAIN", "error")
    t.equal(int(n), 29, "children beside the main process")
    # The refusals of an rlimit are counted by nobody: it is recorded when the supervisor looks while the limit is met.
    if r.doc["enforcement"]["processes"] != "rlimit":
        t.check([d for d in r.denials("process") if d.get("name") == "processes"], "not among the denials")


def test_threads_count_as_processes(t):
    r = t.expect(t.inside("threads", 100, flags=["--processes", "30"]), code=0)
    t.equal(r.text.split(), ["29", "EAGAIN"], "threads beside the first")


@zw.alone
def test_a_fork_bomb_ends_at_the_time_limit_and_nothing_is_left(t):
    r = t.run(zw.INSIDE, "forkbomb", flags=["--ro", zw.TOOLS, "--time", "1500ms", "--processes", "100"], timeout=20)
    t.expect(r, code=124)
    t.between(r.wall, 1, 8, "seconds")
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), 3, "nothing of it is left")


def test_open_files(t):
    r = t.expect(t.inside("files", 5000, flags=["--files", "100"]), code=0)
    t.equal(r.text.split(), ["97", "EMFILE"], "files beside the three streams")


def test_open_files_cannot_be_raised_inside(t):
    r = t.run("sh", "-c", "ulimit -n 100; ulimit -n 200; ulimit -Hn 4000; ulimit -n", flags=["--files", "100"])
    t.equal(r.lines[-1] if r.lines else "", "100", "the limit inside")


def test_file_size(t):
    w = t.folder("w")
    r = t.inside("fill", "/out/x", 50, flags=["--rw", f"{w}:/out", "--file-size", "10M"])
    t.equal(r.text.split(), ["10", "EFBIG"], "what could be written")
    t.equal(os.path.getsize(os.path.join(w, "x")), 10 * M, "size outside")


def test_a_program_over_the_file_size_ends_by_the_signal_for_it(t):
    r = t.run("sh", "-c", "exec head -c 3000000 /dev/zero > /tmp/x", flags=["--file-size", "1M"])
    t.expect(r, code=128 + signal.SIGXFSZ, status="signaled")


def test_core_dumps_are_never_made(t):
    w = t.folder("w")
    r = t.run("sh", "-c", f"cd /out; ulimit -c unlimited 2>/dev/null; exec {zw.INSIDE} core", flags=["--ro", zw.TOOLS, "--rw", f"{w}:/out"])
    t.expect(r, code=0, out="no dump\n")
    t.equal(os.listdir(w), [], "the folder")


@zw.as_root
@zw.alone
def test_a_crash_never_reaches_the_hosts_core_handler(t):
    """A handler is set, which is run for every dump outside of a limit of 1; a crash inside must not start it."""
    with open("/proc/sys/kernel/core_pattern") as f:
        before = f.read()
    mark = t.tmp("mark")
    os.chmod(os.path.dirname(mark), 0o777)
    handler = t.file(f"#!/bin/sh\necho $1 >> {mark}\ncat > /dev/null\n", "handler", mode=0o755)
    try:
        with open("/proc/sys/kernel/core_pattern", "w") as f:
            f.write(f"|{handler} %p")
    except OSError:
        t.skip("/proc/sys/kernel/core_pattern cannot be written")
    try:
        import resource
        subprocess.run([zw.INSIDE, "crash", "6"], check=False,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2))
        time.sleep(0.3)
        t.check(os.path.exists(mark), "the handler does not run even outside: the test would prove nothing")
        os.unlink(mark)
        for verb in (["core"], ["crash", "11"], ["crash", "6"]):
            t.inside(*verb)
        time.sleep(0.3)
        t.check(not os.path.exists(mark), "a crash inside started the host's core handler")
    finally:
        with open("/proc/sys/kernel/core_pattern", "w") as f:
            f.write(before)


def test_the_output_limit_that_kills(t):
    p = {"version": 1, "limits": {"output": "1M", "on_output_limit": "kill"}}
    r = t.expect(t.inside("flood", 2, 100 * M, policy=p), code=122, status="output_limit", own=1)
    t.contains(r.reason, "output", "reason")


def test_endings_by_the_same_signal_are_told_apart(t):
    """All of these end in SIGKILL: only the evidence tells why."""
    t.expect(t.run("sh", "-c", "kill -9 $$"), code=137, status="signaled")
    t.expect(t.inside("hog", 300, flags=["--memory", "64M"]), code=137, status="out_of_memory")
    t.expect(t.run("sh", "-c", "trap '' TERM; sleep 20", flags=["--time", "300ms"]), code=124, status="timeout")
    t.expect(t.run("sh", "-c", "while :; do :; done", flags=["--cpu-time", "300ms"]), code=124, status="cpu_timeout")


def test_a_child_killed_for_memory_long_before_a_plain_exit_is_not_an_out_of_memory(t):
    script = f"{zw.INSIDE} hog 300; echo survived; exit 3"
    r = t.run("sh", "-c", script, flags=["--ro", zw.TOOLS, "--memory", "64M"])
    t.expect(r, code=3, status="exited")
    t.contains(r.out, b"survived", "stdout")


def test_kernel_true_refuses_what_only_a_watchdog_could_hold(t):
    r = t.run("true", policy={"version": 1, "limits": {"kernel": True}})
    if r.code == 0:
        for name in ("memory", "processes"):
            t.check(r.doc["enforcement"][name].startswith(("cgroup", "rlimit")), f"enforcement.{name}: {r.doc['enforcement'][name]}")
    else:
        t.refused(r, "memory")


def test_limits_of_nothing_are_refused(t):
    for flag, value in (("--memory", "0"), ("--processes", "0"), ("--time", "0s"), ("--memory", "-1"), ("--cpus", "0"), ("--memory", "99999999999G"),
                        ("--time", "1"), ("--memory", "1.5.5M"), ("--processes", "many")):
        r = t.plain("run", flag, value, "--", "true")
        t.equal(r.code, 125, f"exit status for {flag} {value}")


def test_memory_is_enough_to_start_or_the_refusal_says_so(t):
    r = t.run("true", flags=["--memory", "64K"])
    t.among(r.code, (125, 137), "exit status")
    t.check(r.own_lines, "no message")
    t.contains(r.errors, "memory", "message")


if __name__ == "__main__":
    zw.main(globals())
