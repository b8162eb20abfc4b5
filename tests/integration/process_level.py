#!/usr/bin/python3 -B
"""The process level: the same policy without namespaces, for places where they are forbidden. What it cannot hold is refused, or listed."""
import subprocess
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402


LEVEL = ["--isolation", "process", "--best-effort"]


def folder_for_all(t, name):
    """Root's command has another uid at this level: a folder that it is to write in belongs to an ordinary user."""
    path = t.folder(name)
    os.chmod(t._tmp, 0o755)
    if zw.AM_ROOT:
        os.chown(path, 54320, 54320)
    return path


def run(t, *argv, flags=(), **more):
    return t.run(*argv, flags=[*LEVEL, *flags], **more)


def test_a_command_runs_and_its_status_is_passed_on(t):
    r = run(t, "sh", "-c", "echo out; echo err >&2; exit 5")
    t.expect(r, code=5, out="out\n", status="exited")
    t.contains(r.errors, "err\n", "stderr")
    t.equal(r.doc["isolation"], "process", "isolation")


def test_what_it_cannot_hold_is_refused_or_under_best_effort_listed(t):
    strict = t.run("true", flags=["--isolation", "process"])
    r = run(t, "true")
    t.expect(r, code=0)
    listed = {x["control"]: x["why"] for x in r.doc.get("not_enforced", [])}
    t.equal(strict.code, 125 if listed else 0, f"exit status under strict, where {sorted(listed)} cannot be held")
    for control, why in listed.items():
        t.check(len(why) > 10, f"{control}: {why!r}")
        t.equal(r.doc["enforcement"][control], "none", f"enforcement.{control}")
        t.contains(strict.errors + str(strict.doc.get("errors")), control, "what strict says")


def test_files_outside_the_policy_cannot_be_read(t):
    f = t.file("secret", "hidden", "f", mode=0o644)
    r = run(t, "sh", "-c", f"cat {f}; cat /etc/shadow; echo end")
    t.expect(r, code=0, out="end\n")


def test_files_of_the_policy_can_be_read_and_written(t):
    a, w = t.file("shown\n", "in", "f"), folder_for_all(t, "out")
    r = run(t, "sh", "-c", f"cat {a}; echo new > {w}/f; echo x > {a} || echo refused", flags=["--ro", os.path.dirname(a), "--rw", w])
    t.contains(r.text, "shown\n", "stdout")
    t.contains(r.text, "refused", "stdout")
    with open(os.path.join(w, "f")) as f:
        t.equal(f.read(), "new\n", "the file written")
    t.equal(os.stat(os.path.join(w, "f")).st_uid, os.stat(w).st_uid, "owner of the file written")


def test_the_system_tree_is_read_only(t):
    r = run(t, "sh", "-c", "touch /usr/bin/planted /etc/planted; echo end")
    t.contains(r.text, "end", "stdout")
    t.check(not os.path.exists("/usr/bin/planted") and not os.path.exists("/etc/planted"), "a file was made in the system tree")


def test_no_network(t):
    r = t.inside("connect", "127.0.0.1", 9, flags=LEVEL)
    t.check(r.text.strip() not in ("ok", "ECONNREFUSED"), f"connect: {r.text}")


def test_the_filter_and_no_new_privileges_hold(t):
    w = folder_for_all(t, "w")
    t.expect(t.inside("look", w + "/look", flags=[*LEVEL, "--rw", w]), code=0)
    with open(w + "/look") as f:
        words = f.read().split()
    got = {words[i]: words[i + 1] for i in range(len(words) - 1)}
    t.equal({k: got[k] for k in ("caps", "nnp", "seccomp", "mount", "chroot", "userns")},
            {"caps": "0", "nnp": "1", "seccomp": "2", "mount": "-1", "chroot": "-1", "userns": "-1"}, "walls")


def test_limits_hold(t):
    t.expect(run(t, "sleep", "20", flags=["--time", "500ms"]), code=124, status="timeout")
    t.expect(t.inside("spin", 20000, flags=[*LEVEL, "--cpu-time", "500ms"]), code=124, status="cpu_timeout")
    r = t.inside("hog", 300, flags=[*LEVEL, "--memory", "64M"])
    t.check(r.status == "out_of_memory", f"status: {r.status}")
    r = t.inside("files", 500, flags=[*LEVEL, "--files", "100"])
    t.equal(r.text.split()[1], "EMFILE", "error")


def test_daemons_end_with_the_run(t):
    w = folder_for_all(t, "w")
    t.inside("daemon", w + "/beat", flags=[*LEVEL, "--rw", w])
    t.until(lambda: zw.reap_zombies() or not zw.descendants(), 3, lambda: f"nothing is left: {zw.descendants()}")


def test_the_environment_is_minimal_here_too(t):
    r = run(t, "env", env={"GITHUB_TOKEN": "s3cr3t"})
    t.lacks(r.text, "s3cr3t", "environment")


@zw.as_root
def test_root_does_not_stay_root(t):
    r = t.inside("ids", flags=LEVEL)
    t.check("0" not in r.text.split(), f"ids: {r.text}")


FORBID = "echo 0 > /proc/sys/user/max_user_namespaces; for n in mnt pid net ipc uts cgroup; do echo 0 > /proc/sys/user/max_${n}_namespaces; done; "


def without_namespaces(t, argv, flags, ordinary):
    """Runs where no namespace can be made: in a user namespace whose limits are 0, as its root or as an ordinary user."""
    t.need("unshare", "setpriv")
    t.file("", "mark")  # the folder of the test
    os.chmod(t._tmp, 0o777)
    line, _ = t.command(argv, flags, result=False)
    drop = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=-all"] if ordinary and zw.AM_ROOT else []
    if ordinary:
        around = [*drop, "unshare", "-c", "--keep-caps", "sh", "-ec", FORBID + 'exec setpriv --inh-caps=-all --ambient-caps=-all -- "$@"', "sh"]
    else:
        around = ["unshare", "-r", "sh", "-ec", FORBID + 'exec "$@"', "sh"]
    return subprocess.run([*around, *line], capture_output=True, text=True, env=zw.caller_environment({"TMPDIR": "/tmp"}), cwd="/", timeout=60)


def test_there_is_no_silent_fall_from_container_to_process(t):
    """Where namespaces are forbidden, the container level refuses and says how to go on, and the process level runs."""
    for ordinary in (True, False):
        p = without_namespaces(t, ["echo", "ran"], [], ordinary)
        t.equal((p.returncode, p.stdout), (125, ""), f"exit status and stdout where namespaces are forbidden ({p.stderr})")
        t.contains(p.stderr, "process", "the message names the other level")


def test_it_runs_where_namespaces_are_forbidden(t):
    p = without_namespaces(t, ["echo", "ran"], LEVEL, True)
    t.equal((p.returncode, p.stdout), (0, "ran\n"), f"exit status and stdout ({p.stderr})")


def test_it_runs_as_root_of_a_user_namespace_with_one_uid(t):
    p = without_namespaces(t, ["echo", "ran"], LEVEL, False)
    t.equal((p.returncode, p.stdout), (0, "ran\n"), f"exit status and stdout ({p.stderr})")


def test_python_runs(t):
    t.expect(run(t, zw.PYTHON, "-c", "import threading, json; print(json.dumps([1]))"), code=0, out="[1]\n")


if __name__ == "__main__":
    zw.main(globals())
