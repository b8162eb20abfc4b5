#!/usr/bin/python3 -B
"""--tty: a terminal inside, and the caller's own left as it was."""
import signal
import termios
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402

from terminal import Terminal  # noqa: E402


def test_the_command_has_a_terminal_of_its_own(t):
    x = Terminal(t, ["sh", "-c", "tty; test -t 0 && test -t 1 && test -t 2 && echo all; ps -o tty= -p $$ 2>/dev/null; echo $TERM"])
    r = t.expect(x.finish(), code=0, status="exited")
    t.check(r.lines[0].startswith("/dev/pts/") or r.lines[0] == "/dev/console", f"tty: {r.lines[0]}")
    t.equal(r.lines[1], "all", "standard streams")
    t.equal(r.lines[-1], "xterm", "TERM")


def test_it_is_the_controlling_terminal(t):
    t.expect(Terminal(t, ["sh", "-c", "echo hello > /dev/tty"]).finish(), code=0, out=b"hello\r\n")


def test_the_size_is_the_callers(t):
    t.expect(Terminal(t, ["stty", "size"], rows=31, columns=97).finish(), code=0, out=b"31 97\r\n")


def test_a_resize_follows(t):
    x = Terminal(t, ["sh", "-c", "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.05; done"], rows=24, columns=80)
    x.wait_for(b"up")
    x.resize(40, 120)
    x.wait_for(b"40 120", 3)
    t.expect(x.finish(), code=0)


def test_keys_go_to_the_terminal_inside(t):
    x = Terminal(t, ["sh", "-c", "echo up; read line; echo got:$line"])
    x.wait_for(b"up")
    x.write(b"hello\r")
    x.wait_for(b"got:hello")
    t.expect(x.finish(), code=0)


def test_control_c_interrupts_inside_and_not_the_supervisor(t):
    x = Terminal(t, ["sh", "-c", "trap 'echo caught; exit 7' INT; echo up; while :; do sleep 0.05; done"])
    x.wait_for(b"up")
    x.write(b"\x03")
    x.wait_for(b"caught")
    t.expect(x.finish(), code=7, status="exited")


def test_control_d_ends_the_input(t):
    x = Terminal(t, ["sh", "-c", "echo up; cat; echo end"])
    x.wait_for(b"up")
    x.write(b"\x04")
    x.wait_for(b"end")
    t.expect(x.finish(), code=0)


def test_the_callers_terminal_is_raw_meanwhile_and_restored_after_an_exit(t):
    x = Terminal(t, ["sh", "-c", "echo up; read x"])
    x.wait_for(b"up")
    t.check(not termios.tcgetattr(x.slave)[3] & termios.ICANON, "the caller's terminal is not raw while the command runs")
    x.write(b"\r")
    t.expect(x.finish(), code=0)
    t.check(x.restored(), "the modes of the terminal are not those of before")


def test_the_terminal_is_restored_after_every_ending(t):
    endings = {"time": (["sh", "-c", "stty raw -echo; sleep 30"], ["--time", "300ms"], 124),
               "killed": (["sh", "-c", "stty raw -echo; kill -9 $$"], [], 137),
               "crash": (["sh", "-c", "stty -icanon; kill -SEGV $$"], [], 139),
               "missing": (["no-such-program"], [], 127),
               "refused": (["true"], ["--ro", "/no/such/folder"], 125)}
    for name, (argv, flags, code) in endings.items():
        x = Terminal(t, argv, ["--tty", *flags])
        r = x.finish()
        t.equal(r.code, code, f"exit status for {name}")
        t.check(x.restored(), f"after {name} the modes of the terminal are not those of before")


def test_the_terminal_is_restored_when_the_supervisor_is_ended(t):
    for s in (signal.SIGTERM, signal.SIGHUP):
        x = Terminal(t, ["sh", "-c", "echo up; sleep 30"])
        x.wait_for(b"up")
        x.process.send_signal(s)
        x.finish(10)
        t.check(x.restored(), f"after {s.name} the modes of the terminal are not those of before")


def test_stop_gives_the_terminal_back_and_continue_takes_it(t):
    """SIGTSTP from outside (not ^Z, which goes inside) suspends the front end, with the caller's modes; `fg` of the caller's shell resumes."""
    x = Terminal(t, ["sh", "-c", "echo up; read x; echo got:$x"], around=["bash", "-c", 'set -m; "$@"; echo "stopped $?"; read y; fg > /dev/null', "bash"])
    x.wait_for(b"up")
    pid = next(p for p, (parent, _, _) in zw.descendants().items() if parent == x.process.pid)
    os.kill(pid, signal.SIGTSTP)
    x.wait_for(b"stopped 148", 5)
    t.check(x.restored(), "stopped, but the terminal is not as before")
    x.write(b"\r")
    t.until(lambda: not termios.tcgetattr(x.slave)[3] & termios.ICANON, 5, "the terminal is raw again")
    x.write(b"back\r")
    x.wait_for(b"got:back")
    t.expect(x.finish(), code=0)


def test_output_is_whole_at_the_end(t):
    x = Terminal(t, ["sh", "-c", "seq 20000"])
    r = t.expect(x.finish(), code=0)
    t.equal(r.lines[-1], "20000", "last line")
    t.equal(len(r.lines), 20000, "lines")


def test_job_control_works_inside(t):
    x = Terminal(t, ["bash", "--norc", "-i"], env={"PS1": "$ "})
    x.write(b"sleep 100 &\r")
    x.wait_for(b"[1] ")
    x.write(b"jobs; kill %1; wait; echo 'do''ne'\r")
    x.wait_for(b"Running")
    x.wait_for(b"done")
    x.write(b"exit 4\r")
    t.expect(x.finish(), code=4)
    t.lacks(x.output, b"no job control", "terminal output")


def test_nothing_can_be_pushed_into_the_callers_terminal(t):
    """TIOCSTI and the like are refused, and what the command does to its own terminal stays there."""
    code = ("import fcntl, termios\n"
            "for name, call in (('TIOCSTI', lambda: fcntl.ioctl(0, termios.TIOCSTI, b'x')), ('TIOCLINUX', lambda: fcntl.ioctl(0, 0x541C, b'\\3'))):\n"
            "    try:\n        call(); print(name, 'worked')\n"
            "    except OSError as e:\n        print(name, e.errno)\n")
    x = Terminal(t, [zw.PYTHON, "-c", code])
    r = t.expect(x.finish(), code=0)
    t.lacks(r.text, "worked", "output")


def test_a_run_without_tty_has_no_terminal_even_when_the_caller_has(t):
    x = Terminal(t, ["sh", "-c", "test -t 0 && echo in; test -t 1 && echo out; (echo x > /dev/tty) 2>/dev/null && echo tty; echo end"], flags=())
    t.expect(x.finish(), code=0, out=b"end\r\n")


def test_control_c_without_tty_cancels(t):
    x = Terminal(t, ["sh", "-c", "echo up; sleep 30"], flags=())
    x.wait_for(b"up")
    time.sleep(0.1)
    x.write(b"\x03")
    t.expect(x.finish(10), code=130, status="canceled")


def test_tty_without_a_terminal_of_the_caller_works_with_a_size_of_its_own(t):
    r = t.run("sh", "-c", "test -t 1 && stty size", flags=["--tty"])
    t.expect(r, code=0)
    t.equal(len(r.text.split()), 2, f"rows and columns: {r.text!r}")


if __name__ == "__main__":
    zw.main(globals())
