"""A terminal that a test holds the other end of."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import zw
from tap import Failure


class Terminal:
    """Starts zwinger as the leader of a session whose controlling terminal is ours; or a command `around` it, such as a shell with job
    control."""

    def __init__(self, test, argv, flags=("--tty",), rows=24, columns=80, policy=None, result=True, env=None, around=()):
        self.test = test
        line, self.result_path = test.command(argv, flags, policy, result)
        line = [*around, *line]
        self.argv = line
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.output = b""
        self.started = time.monotonic()

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(line, stdin=self.slave, stdout=self.slave, stderr=self.slave, preexec_fn=own_terminal,
                                        env=zw.caller_environment({"TERM": "xterm", **(env or {})}), cwd=test.folder("cwd"), close_fds=True)
        test.at_end(self.close)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, data):
        os.write(self.master, data)

    def _read_some(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.output += data
        return bool(data)

    def wait_for(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.output:
            left = end - time.monotonic()
            if left <= 0:
                self.test.note(f"terminal output so far: {self.output!r}")
                raise Failure(f"{text!r} did not appear within {seconds} s")
            self._read_some(min(left, 0.5))
        return time.monotonic()

    def finish(self, seconds=30):
        """Waits for the end, reading all the while. Returns the Run."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                self.test.note(f"terminal output: {self.output!r}")
                raise Failure(f"zwinger did not end within {seconds} s")
            self._read_some(0.02)
        while self._read_some(0.05):
            pass
        doc = None
        if self.result_path and os.path.exists(self.result_path):
            import json
            with open(self.result_path) as f:
                doc = json.load(f)
        run = zw.Run(self.argv, self.process.returncode, self.output, b"", doc, time.monotonic() - self.started)
        self.test.last(run)
        return run

    def restored(self):
        """Whether the modes of the terminal are those of before."""
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for fd in (self.master, self.slave):
            try:
                os.close(fd)
            except OSError:
                pass
