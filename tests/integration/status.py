#!/usr/bin/python3 -B
"""The exit status of `zwinger run` and what it says on stderr beside the command's own words."""
import signal
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def test_the_status_of_the_command_is_passed_on(t):
    for code in (0, 1, 2, 42, 99, 255):
        t.expect(t.run("sh", "-c", f"exit {code}"), code=code, status="exited", out="", err="")


def test_a_command_that_itself_exits_with_one_of_our_codes_is_not_mistaken(t):
    for code in (122, 124, 125, 126, 127, 137, 143):
        r = t.expect(t.run("sh", "-c", f"exit {code}"), code=code, status="exited", err="")
        t.equal(r.doc["exit_code"], code, "exit_code")


def test_death_by_a_signal_is_128_and_its_number(t):
    for s in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE):
        r = t.expect(t.inside("crash", int(s)), code=128 + s, status="signaled", err="")
        t.equal((r.doc["signal"], r.doc["exit_code"]), (s.name, None), "signal and exit_code")


def test_a_real_time_signal_has_a_name_too(t):
    r = t.expect(t.inside("crash", signal.SIGRTMIN + 3), code=128 + signal.SIGRTMIN + 3, status="signaled")
    t.check(isinstance(r.doc["signal"], str) and r.doc["signal"].startswith("SIG"), f"signal: {r.doc['signal']!r}")


def test_a_command_that_is_not_there_is_127(t):
    for name in ("no-such-program-here", "/no/such/program", "./nothing"):
        r = t.expect(t.run(name), code=127, status="error", out="", own=1)
        t.equal(r.doc["exit_code"], 127, "exit_code")
        t.contains(r.own_lines[0], name, "message")
        t.equal(len(r.errors.splitlines()), 1, "lines on stderr")


def test_a_command_that_is_not_executable_is_126(t):
    w = t.folder("w")
    t.file("just text", "w", "text")
    t.file(b"\0\1\2", "w", "junk", mode=0o755)
    for name in ("./text", "./junk", "/etc", "/etc/passwd"):
        r = t.expect(t.run(name, flags=["--workspace", f"{w}:/work:rw"]), code=126, status="error", out="", own=1)
        t.equal(r.doc["exit_code"], 126, "exit_code")
        t.contains(r.own_lines[0], name, "message")


def test_a_script_whose_interpreter_is_missing_is_127_and_says_so(t):
    w = t.folder("w")
    t.file("#!/no/such/interpreter\n", "w", "script", mode=0o755)
    r = t.expect(t.run("./script", flags=["--workspace", f"{w}:/work:rw"]), code=127, own=1)
    t.contains(r.own_lines[0], "interpreter", "message")


def test_a_script_without_an_interpreter_line_is_an_exec_format_error(t):
    w = t.folder("w")
    t.file("echo hi\n", "w", "script", mode=0o755)
    t.expect(t.run("./script", flags=["--workspace", f"{w}:/work:rw"]), code=126, own=1)


@zw.alone
def test_the_wall_time_limit_is_124(t):
    r = t.expect(t.run("sleep", "30", flags=["--time", "500ms"]), code=124, status="timeout", own=1)
    t.between(r.wall, 0.45, 2, "seconds")
    t.between(r.doc["usage"]["wall_seconds"], 0.45, 2, "wall_seconds")
    t.contains(r.own_lines[0], "time", "message")


@zw.alone
def test_the_processor_time_limit_is_124(t):
    r = t.expect(t.inside("spin", 20000, flags=["--cpu-time", "500ms"]), code=124, status="cpu_timeout", own=1)
    t.between(r.doc["usage"]["cpu_seconds"], 0.45, 1.0, "cpu_seconds")
    t.contains(r.own_lines[0].lower(), "cpu", "message")


def test_out_of_memory_is_137(t):
    r = t.expect(t.inside("hog", 400, flags=["--memory", "64M"]), code=137, status="out_of_memory", own=1, out="")
    t.contains(r.own_lines[0], "memory", "message")


def test_output_over_the_limit_that_kills_is_122(t):
    p = {"version": 1, "limits": {"output": "64K", "on_output_limit": "kill"}}
    r = t.expect(t.inside("flood", 1, 10 << 20, policy=p), code=122, status="output_limit", own=1)
    t.between(len(r.out), 1, 64 << 10, "bytes of stdout")


def test_a_wrong_flag_is_125_and_one_line(t):
    for flags in (["--no-such-flag"], ["--memory"], ["--memory", "lots", "--", "true"], ["--isolation", "moat", "--", "true"], []):
        r = t.plain("run", *flags)
        t.expect(r, code=125, out="")
        t.equal(len(r.errors.splitlines()), 1, f"lines on stderr for {flags}")
        t.check(r.errors.startswith("zwinger: "), f"stderr: {r.errors!r}")


def test_a_wrong_flag_is_answered_with_the_nearest_one(t):
    t.contains(t.plain("run", "--memry", "64M", "--", "true").errors, "--memory", "message")


def test_a_wrong_policy_is_125_with_a_line_for_each_error(t):
    r = t.run("true", policy="version: 1\nlimits:\n  memroy: 64M\n  time: soon\n  cpus: many\n")
    t.refused(r)
    t.equal(len(r.own_lines), 3, "lines on stderr")
    t.equal(len(r.errors.splitlines()), 3, "lines on stderr")


def test_nothing_runs_when_the_policy_is_wrong(t):
    w = t.folder("w")
    t.refused(t.run("touch", "ran", flags=["--workspace", f"{w}:/work:rw"], policy="version: 1\nfilesytem: {}\n"))
    t.equal(os.listdir(w), [], "the workspace")


def test_a_feature_that_is_not_built_yet_is_refused_with_its_name(t):
    for policy, word in (({"network": {"ask": True}}, "network.ask"),
                         ({"filesystem": {"workspace": {"source": ".", "mode": "cow"}}}, "workspace"),
                         ({"root": "debian:12"}, "root"),
                         ({"isolation": "microvm"}, "microvm"), ({"isolation": "gvisor"}, "gvisor"), ({"isolation": "wasm"}, "wasm"),
                         ({"lsm": {"apparmor": "some"}}, "lsm")):
        t.refused(t.run("true", policy={"version": 1, **policy}), word)


def test_quiet_keeps_the_line_away_and_the_status(t):
    t.expect(t.run("no-such-program-here", flags=["--quiet"]), code=127, err="")


def test_verbose_adds_and_takes_nothing_from_the_commands_own_words(t):
    r = t.expect(t.run("sh", "-c", "echo out; echo err >&2", flags=["--verbose"]), code=0, out="out\n")
    t.contains(r.errors, "err\n", "stderr")


def test_a_run_that_ends_well_adds_nothing_to_stderr(t):
    t.expect(t.run("sh", "-c", "echo out; echo err >&2; exit 7"), code=7, out="out\n", err="err\n")


def test_help_and_version_exit_with_0(t):
    for args in (["--help"], ["--version"], ["run", "--help"], ["policy", "--help"], ["doctor", "--help"]):
        r = t.plain(*args)
        t.expect(r, code=0, err="")
        t.check(r.out, f"{args}: nothing on stdout")
    for flag in ("--memory", "--workspace", "--json", "--plan", "--scratch-noexec", "--allow", "--tty", "--best-effort"):
        t.contains(t.plain("run", "--help").text, flag, "help")


def test_arguments_of_the_command_are_not_taken_for_ours(t):
    t.expect(t.run("echo", "--memory", "1", "--help"), code=0, out="--memory 1 --help\n")
    r = t.plain("run", "echo", "--json", "-t")
    t.expect(r, code=0, out="--json -t\n", err="")


def test_an_empty_argument_and_odd_bytes_arrive_unchanged(t):
    r = t.run("sh", "-c", 'for a; do printf "<%s>" "$a"; done', "sh", "", " ", "a\nb", b"\xff\xfe", "-", "--")
    t.expect(r, code=0, out=b"<>< ><a\nb><\xff\xfe><-><-->")


def test_two_thousand_arguments_arrive(t):
    r = t.run("sh", "-c", 'echo $#', "sh", *["x" * 100] * 2000)
    t.expect(r, code=0, out="2000\n")


if __name__ == "__main__":
    zw.main(globals())
