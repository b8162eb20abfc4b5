#!/usr/bin/python3 -B
"""Signals to the front end, and endings by the caller."""
import signal
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402


CATCH = "trap 'echo INT' INT; trap 'echo TERM; exit 3' TERM; trap 'echo HUP' HUP; trap 'echo QUIT' QUIT; echo up; while :; do sleep 0.02; done"


def started(t, *argv, flags=()):
    r = t.start(*argv, flags=flags)
    t.check(r.read_line(10).strip() in (b"up", b"ready"), "the command did not start")
    return r


def test_int_term_and_hup_end_a_command_that_does_not_handle_them(t):
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        r = started(t, "sh", "-c", "echo up; exec sleep 30")
        r.send(s)
        r = t.expect(r.finish(10), code=128 + s, status="canceled")
        t.contains(r.reason, s.name, "reason")


def test_handlers_inside_run_before_the_end(t):
    r = started(t, "sh", "-c", CATCH)
    r.send(signal.SIGTERM)
    r = t.expect(r.finish(10), out=b"TERM\n", status="canceled")
    t.equal(r.doc["exit_code"], 3, "what the main process did")


@zw.alone
def test_what_ignores_the_signal_is_killed_after_two_seconds(t):
    r = started(t, "sh", "-c", "trap '' TERM INT HUP; echo up; while :; do sleep 0.05; done")
    at = time.monotonic()
    r.send(signal.SIGTERM)
    r = t.expect(r.finish(10), code=143, status="canceled")
    t.between(time.monotonic() - at, 1.8, 3.5, "seconds from the signal to the end")


def test_children_that_ignore_it_are_killed_too(t):
    r = started(t, "sh", "-c", "(trap '' TERM; while :; do sleep 1; done) & echo up; wait")
    r.send(signal.SIGTERM)
    t.expect(r.finish(10), status="canceled")
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), 2, "nothing of it is left")


def test_quit_is_forwarded_and_ends_only_what_does_not_handle_it(t):
    """A JVM prints its threads at SIGQUIT and goes on."""
    r = started(t, zw.INSIDE, "signals", flags=["--ro", zw.TOOLS])
    r.send(signal.SIGQUIT)
    t.equal(r.read_line(5), b"SIGQUIT\n", "what arrived")
    time.sleep(2.5)
    t.check(r.process.poll() is None, "the run ended although the command goes on")
    r.send(signal.SIGTERM)
    t.equal(r.read_line(5), b"SIGTERM\n", "what arrived")
    r.finish(10)
    r = started(t, "sh", "-c", "echo up; exec sleep 30")
    r.send(signal.SIGQUIT)
    t.expect(r.finish(10), code=131)


def test_winch_without_a_terminal_changes_nothing(t):
    r = started(t, "sh", "-c", "echo up; sleep 0.5; echo done")
    for _ in range(3):
        r.send(signal.SIGWINCH)
    t.expect(r.finish(), code=0, out=b"done\n")


def test_stop_and_continue_of_the_front_end_change_nothing(t):
    r = started(t, "sh", "-c", "echo up; sleep 0.5; echo done")
    r.send(signal.SIGSTOP)
    time.sleep(0.2)
    r.send(signal.SIGCONT)
    t.expect(r.finish(), code=0, out=b"done\n")


def test_a_signal_during_the_set_up_ends_it_cleanly(t):
    for i in range(30):
        r = t.start("sh", "-c", "sleep 5")
        time.sleep(i * 0.0002)
        r.send(signal.SIGTERM)
        r = r.finish(10)
        t.among(r.code, (143, -15), "exit status")
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), 2, "nothing of it is left")


def test_signals_are_at_their_defaults_inside_whatever_the_caller_did(t):
    def spoil():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1])

    r = t.start(zw.INSIDE, "dispositions", flags=["--ro", zw.TOOLS], preexec_fn=spoil, restore_signals=False).finish()
    t.expect(r, code=0, out=b"\n")


def test_a_caller_that_ignores_sigchld_still_gets_the_status(t):
    r = t.start("sh", "-c", "exit 9", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), restore_signals=False).finish()
    t.expect(r, code=9)


def test_a_command_cannot_signal_the_front_end_or_pid_1(t):
    r = t.run("sh", "-c", "kill -9 1; kill -STOP 1; kill -9 -1; echo alive")
    t.among(r.code, (0, 137), "exit status")
    t.check(r.status in ("exited", "signaled"), f"status: {r.status}")


if __name__ == "__main__":
    zw.main(globals())
