#!/usr/bin/python3 -B
"""The result document: every key, its type, and what is null."""
import base64
import datetime
import json
import stat
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402


TOP = {"schema", "id", "status", "exit_code", "signal", "reason", "isolation", "stdout_bytes", "stderr_bytes", "stdout_truncated",
       "stderr_truncated", "started_at", "usage", "setup_seconds", "enforcement", "denials", "connections", "files"}
TEXT = {"stdout", "stderr", "stdout_encoding", "stderr_encoding"}
USAGE = {"wall_seconds", "cpu_seconds", "memory_peak_bytes", "processes_peak", "scratch_peak_bytes", "oom_kills", "io_read_bytes",
         "io_write_bytes", "net_received_bytes", "net_sent_bytes"}
NUMBER = (int, float)


def check_document(t, doc, with_text):
    t.check(TOP <= set(doc), f"keys that are missing: {TOP - set(doc)}")
    t.equal(doc["schema"], "zwinger.result/1", "schema")
    t.check(doc["id"].startswith("zw-") and len(doc["id"]) > 10, f"id: {doc['id']!r}")
    t.check(isinstance(doc["reason"], str) and doc["reason"], "reason is empty")
    t.among(doc["isolation"], ["container", "process"], "isolation")
    for s in ("stdout", "stderr"):
        t.check(type(doc[s + "_bytes"]) is int, f"{s}_bytes: {doc[s + '_bytes']!r}")
        t.check(type(doc[s + "_truncated"]) is bool, f"{s}_truncated: {doc[s + '_truncated']!r}")
        t.equal(s in doc, with_text, f"{s} is in the document")
        if with_text:
            t.check(isinstance(doc[s], str), f"{s}: {doc[s]!r}")
            t.among(doc[s + "_encoding"], ["utf-8", "base64"], s + "_encoding")
    t.check(USAGE <= set(doc["usage"]), f"keys of usage that are missing: {USAGE - set(doc['usage'])}")
    for k, v in doc["usage"].items():
        t.check(v is None or (isinstance(v, NUMBER) and not isinstance(v, bool) and v >= 0), f"usage.{k}: {v!r}")
    t.check(isinstance(doc["enforcement"], dict), "enforcement")
    t.check(isinstance(doc["denials"], list) and isinstance(doc["connections"], list), "denials, connections")
    t.check({"created", "modified", "deleted"} <= set(doc["files"]), f"files: {doc['files']!r}")
    t.check("not_enforced" not in doc, "not_enforced is there although nothing was best-effort")


def test_every_key_is_there_after_a_plain_run(t):
    r = t.run("sh", "-c", "echo hi; exit 3")
    check_document(t, r.doc, False)
    t.equal((r.doc["exit_code"], r.doc["signal"], r.doc["status"], r.doc["reason"]), (3, None, "exited", "exited with 3"), "the end")
    t.equal((r.doc["stdout_bytes"], r.doc["stderr_bytes"]), (3, 0), "byte counts")
    t.equal((r.doc["stdout_truncated"], r.doc["stderr_truncated"]), (False, False), "truncated")


def test_times_are_true(t):
    before = datetime.datetime.now(datetime.timezone.utc)
    r = t.inside("sleep", 300)
    started = datetime.datetime.fromisoformat(r.doc["started_at"].replace("Z", "+00:00"))
    t.check(r.doc["started_at"].endswith("Z") and len(r.doc["started_at"]) == 24, f"started_at: {r.doc['started_at']}")
    t.between((started - before).total_seconds(), -0.01, 2, "seconds from our start to started_at")
    t.between(r.doc["usage"]["wall_seconds"], 0.29, r.wall, "wall_seconds")
    t.between(r.doc["setup_seconds"], 0.00001, 1, "setup_seconds")
    t.between(r.doc["usage"]["cpu_seconds"], 0, 0.2, "cpu_seconds")


def test_figures_of_use_are_true(t):
    r = t.inside("hog", 100)
    peak = r.doc["usage"]["memory_peak_bytes"]
    t.between(peak, 95 << 20, 160 << 20, "memory_peak_bytes of a program that touches 100 MiB")
    r = t.inside("spin", 400)
    t.between(r.doc["usage"]["cpu_seconds"], 0.39, 0.8, "cpu_seconds of a program that uses 0.4 s")
    r = t.inside("processes", 9)
    t.check(r.doc["usage"]["processes_peak"] in (10, None), f"processes_peak of ten processes: {r.doc['usage']['processes_peak']}")


def test_processor_time_counts_processes_whose_parents_are_gone(t):
    r = t.inside("spin-orphans", 400)
    t.between(r.doc["usage"]["cpu_seconds"], 0.38, 0.9, "cpu_seconds")


def test_scratch_in_use_is_known_or_null(t):
    r = t.inside("fill", "/tmp/x", 40)
    t.expect(r, out="40 ok\n")
    peak = r.doc["usage"]["scratch_peak_bytes"]
    t.check(peak is None or 40 << 20 <= peak <= 48 << 20, f"scratch_peak_bytes: {peak}")


def test_enforcement_names_a_mechanism_for_each_limit(t):
    r = t.run("true")
    for name in ("memory", "processes", "wall_time", "cpu_time", "filesystem", "syscalls", "network"):
        t.check(isinstance(r.doc["enforcement"].get(name), str) and r.doc["enforcement"][name], f"enforcement.{name}")
        t.check(r.doc["enforcement"][name] != "none", f"enforcement.{name} is none")
    t.contains(r.doc["enforcement"]["filesystem"], "landlock", "enforcement.filesystem")
    t.contains(r.doc["enforcement"]["syscalls"], "seccomp", "enforcement.syscalls")


@zw.as_root
def test_root_on_this_machine_holds_limits_by_control_groups(t):
    r = t.run("true", flags=["--cpus", "1"])
    for name in ("memory", "processes", "cpus"):
        t.check(r.doc["enforcement"][name].startswith("cgroup"), f"enforcement.{name}: {r.doc['enforcement'][name]}")


def test_json_prints_one_document_and_nothing_else(t):
    r = t.json("sh", "-c", "echo out; echo err >&2; exit 5")
    t.expect(r, code=5, err="")
    check_document(t, r.doc, True)
    t.equal((r.doc["stdout"], r.doc["stderr"]), ("out\n", "err\n"), "streams")
    t.equal((r.doc["stdout_encoding"], r.doc["stderr_encoding"]), ("utf-8", "utf-8"), "encodings")


def test_json_prints_a_document_for_every_ending(t):
    for argv, flags, status in ((["no-such"], [], "error"), (["sleep", "9"], ["--time", "200ms"], "timeout"), (["sh", "-c", "kill -9 $$"], [], "signaled"),
                                (["true"], ["--ro", "/no/such/folder"], "refused")):
        r = t.json(*argv, flags=flags)
        check_document(t, r.doc, True)
        t.equal(r.status, status, "status")


def test_json_and_result_may_be_given_together(t):
    path = t.tmp("both.json")
    r = t.json("echo", "hi", flags=["--result", path])
    with open(path) as f:
        check_document(t, json.load(f), False)
    t.equal(r.doc["stdout"], "hi\n", "stdout")


def test_bytes_that_are_not_utf8_come_as_base64(t):
    r = t.json("printf", r"\377\376\0A")
    t.equal(r.doc["stdout_encoding"], "base64", "stdout_encoding")
    t.equal(base64.b64decode(r.doc["stdout"]), b"\xff\xfe\0A", "stdout")
    t.equal((r.doc["stderr_encoding"], r.doc["stdout_bytes"]), ("utf-8", 4), "the rest")


def test_control_characters_and_nul_survive_in_text(t):
    r = t.json("printf", r"a\0b\001\033[0m\"\\\177\342\202\254")
    t.equal(r.doc["stdout"], "a\0b\x01\x1b[0m\"\\\x7f€", "stdout")


def test_the_document_of_a_refused_run_lists_each_error(t):
    r = t.run("true", policy="version: 1\nlimits:\n  memroy: 64M\nfilesystem:\n  read: [{source: /no/such/place}]\n")
    t.refused(r)
    t.check(isinstance(r.doc["errors"], list) and r.doc["errors"], "errors")
    for e in r.doc["errors"]:
        t.check({"file", "line", "key", "message", "suggestion"} <= set(e), f"keys of an error: {e}")
    e = [e for e in r.doc["errors"] if "memroy" in (e["key"] or "")][0]
    t.equal(e["line"], 3, "line")
    t.check(e["file"].endswith(".yaml"), f"file: {e['file']}")
    t.contains(e["suggestion"], "memory", "suggestion")
    t.equal((r.doc["exit_code"], r.doc["signal"]), (None, None), "what the main process did")
    t.equal(r.doc["usage"]["cpu_seconds"] in (None, 0), True, "cpu_seconds of a run that was not")


def test_what_the_main_process_did_is_told_for_other_endings(t):
    r = t.run("sh", "-c", "trap 'exit 5' TERM; sleep 30 & wait", flags=["--time", "300ms"])
    t.equal(r.status, "timeout", "status")
    t.check(r.doc["exit_code"] in (5, None), f"exit_code: {r.doc['exit_code']}")
    t.check(r.doc["exit_code"] is not None or r.doc["signal"] in ("SIGKILL", "SIGTERM", None), f"signal: {r.doc['signal']}")


def test_the_reason_of_an_out_of_memory_names_limit_and_process(t):
    r = t.inside("hog", 400, flags=["--memory", "64M"])
    t.contains(r.reason, "64", "reason")
    t.contains(r.reason, "inside", "reason: the largest process")


def test_a_signal_is_named_in_the_reason(t):
    t.contains(t.inside("crash", 11).reason, "SIGSEGV", "reason")


def test_two_runs_have_two_ids(t):
    t.check(t.run("true").doc["id"] != t.run("true").doc["id"], "the ids are the same")


def test_a_result_file_that_is_there_is_replaced_whole(t):
    path = t.file("x" * 100000, "old.json")
    t.plain("run", "--result", path, "--", "true")
    with open(path) as f:
        json.load(f)


def test_a_result_file_that_cannot_be_written_is_refused_before_anything_runs(t):
    w = t.folder("w")
    r = t.plain("run", "--workspace", f"{w}:/work:rw", "--result", t.tmp() + "/no/such/folder/r.json", "--", "touch", "ran")
    t.equal(r.code, 125, "exit status")
    t.equal(os.listdir(w), [], "the workspace")


def test_best_effort_lists_what_was_not_held(t):
    """No disk can be asked for that this host has: a limit on it by the kernel (see limits.kernel) is what it lacks somewhere."""
    policy = {"version": 1, "limits": {"kernel": True, "io_read_bps": "1M", "disk": "1M"}}
    r = t.run("true", policy=policy, flags=["--best-effort"])
    t.expect(r, code=0)
    for n in r.doc.get("not_enforced", []):
        t.check(n["control"] and n["why"], f"an entry without control or reason: {n}")
        t.equal(r.doc["enforcement"].get(n["control"]), "none", f"enforcement.{n['control']}")
    strict = t.run("true", policy=policy)
    t.equal(strict.code, 125 if r.doc.get("not_enforced") else 0, "exit status under strict")
    for control, by in r.doc["enforcement"].items():
        t.equal(by == "none", control in [n["control"] for n in r.doc.get("not_enforced", [])], f"{control} is listed as not enforced")


def test_a_file_of_the_document_is_not_readable_by_others_by_surprise(t):
    path = t.tmp("r.json")
    t.plain("run", "--result", path, "--", "true")
    t.equal(stat.S_IMODE(os.stat(path).st_mode) & 0o022, 0, "bits that let others write")


if __name__ == "__main__":
    zw.main(globals())
