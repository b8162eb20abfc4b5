#!/usr/bin/python3 -B
"""The whole tree of processes ends with the run, and nothing that is left running can hold the end back."""
import signal
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def nothing_runs(t, seconds=2):
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), seconds, lambda: f"nothing of it is left: {zw.descendants()}")


def test_a_grandchild_that_keeps_the_pipes_open_does_not_hold_the_end(t):
    r = t.inside("keep-pipes", 60)
    t.expect(r, code=7, status="exited", out="before\n")
    t.between(r.wall, 0, 3, "seconds")
    nothing_runs(t)


def test_a_background_process_of_a_shell_does_not_hold_the_end(t):
    r = t.run("sh", "-c", "sleep 60 & echo done")
    t.expect(r, code=0, out="done\n")
    t.between(r.wall, 0, 3, "seconds")
    nothing_runs(t)


def test_output_of_a_child_written_just_before_the_end_is_kept(t):
    for _ in range(20):
        r = t.run("sh", "-c", "seq 5000; exec true")
        t.equal(len(r.lines), 5000, "lines")


def test_daemons_end_with_the_run(t):
    w = t.folder("w")
    r = t.inside("daemon", "/work/heartbeat", flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0)
    path = os.path.join(w, "heartbeat")
    t.check(os.path.exists(path), "the daemon did not run at all")
    with open(path) as f:
        first = f.read()
    time.sleep(0.3)
    with open(path) as f:
        t.equal(f.read(), first, "heartbeat after the end")
    nothing_runs(t)


def test_a_thousand_zombies_do_no_harm(t):
    r = t.run(zw.PYTHON, "-c", "import os\nfor i in range(1000):\n    if os.fork() == 0:\n        if os.fork() == 0: os._exit(0)\n        os._exit(0)\n"
              "    os.wait()\nprint('end')")
    t.expect(r, code=0, out="end\n")


def test_the_main_process_may_exec_another(t):
    t.expect(t.run("sh", "-c", "exec sh -c 'exit 5'"), code=5)


def test_the_main_process_that_ends_while_its_threads_run(t):
    code = "import threading, os, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nos._exit(4)"
    t.expect(t.run(zw.PYTHON, "-c", code), code=4)


def test_kill_all_inside_ends_the_sandbox_and_nothing_else(t):
    r = t.run("sh", "-c", "sleep 60 & sleep 60 & kill -9 -1; echo here")
    t.among(r.code, (0, 137), "exit status")
    nothing_runs(t)


def test_a_fast_exit_while_children_are_being_made(t):
    for _ in range(10):
        t.run("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (while :; do (true); done) & done; exit 0", flags=["--processes", "60"])
        nothing_runs(t)


def test_a_command_that_is_stopped_is_not_taken_for_ended(t):
    r = t.start("sh", "-c", "echo up; kill -STOP $$; echo again", flags=["--time", "20s"])
    r.read_line()
    time.sleep(0.3)
    t.check(r.process.poll() is None, "the run ended although the command is only stopped")
    r.send(signal.SIGTERM)
    t.expect(r.finish(10), status="canceled")


@zw.alone
def test_the_front_end_waits_without_using_the_processor(t):
    r = t.start("sleep", "2")
    time.sleep(1.5)
    with open(f"/proc/{r.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    t.expect(r.finish(), code=0)
    t.between(used, 0, 0.1 if zw.AM_ROOT else 0.3, "seconds of processor time of a front end that only waits")


if __name__ == "__main__":
    zw.main(globals())
