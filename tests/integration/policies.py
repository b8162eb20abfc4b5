#!/usr/bin/python3 -B
"""Policy files and flags, from outside: merging, refusals, presets, --plan, check and explain."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def plan(t, *flags, policy=None, argv=("true",)):
    line, _ = t.command(argv, ["--plan", *flags], policy, result=False)
    r = t.plain(*line[1:])
    t.expect(r, code=0, err="")
    return json.loads(r.out)


def values(node, key):
    """Every value of a key anywhere in the plan."""
    found = []
    if isinstance(node, dict):
        for k, v in node.items():
            if k == key:
                found.append(v)
            found += values(v, key)
    elif isinstance(node, list):
        for v in node:
            found += values(v, key)
    return found


def test_plan_prints_json_and_runs_nothing(t):
    w = t.folder("w")
    p = plan(t, "--workspace", f"{w}:/work:rw", argv=("touch", "ran"))
    t.check(isinstance(p, dict) and p, "the plan is empty")
    t.equal(os.listdir(w), [], "the workspace")
    t.contains(json.dumps(p), w, "the plan")
    t.contains(json.dumps(p), "touch", "the plan")


def test_plan_shows_what_flags_say(t):
    p = json.dumps(plan(t, "--memory", "123M", "--processes", "77", "--hostname", "moat"))
    for word in (str(123 << 20), "77", "moat"):
        t.contains(p, word, "the plan")


def test_flags_override_policy_files(t):
    r = t.run("hostname", policy={"version": 1, "process": {"hostname": "file"}}, flags=["--hostname", "flag"])
    t.expect(r, code=0, out="flag\n")


def test_later_files_override_earlier_ones_key_by_key(t):
    a = t.policy("version: 1\nprocess: {hostname: one}\nenv: {set: {A: a, B: a}}\n")
    b = t.policy("version: 1\nprocess: {hostname: two}\nenv: {set: {B: b}}\n")
    r = t.run("sh", "-c", "hostname; echo $A $B", flags=["--policy", a, "--policy", b])
    t.expect(r, code=0, out="two\na b\n")


def test_lists_of_a_later_file_replace(t):
    one, two = t.folder("one"), t.folder("two")
    a = t.policy({"version": 1, "filesystem": {"read": [{"source": one, "target": "/one"}]}})
    b = t.policy({"version": 1, "filesystem": {"read": [{"source": two, "target": "/two"}]}})
    r = t.run("sh", "-c", "ls -d /one /two 2>/dev/null", flags=["--policy", a, "--policy", b])
    t.expect(r, out="/two\n")


def test_yaml_and_json_say_the_same(t):
    for policy in ("version: 1\nprocess:\n  hostname: same\n", {"version": 1, "process": {"hostname": "same"}}):
        t.expect(t.run("hostname", policy=policy), code=0, out="same\n")


def test_a_policy_from_stdin(t):
    r = t.run("hostname", flags=["--policy", "-"], stdin=b"version: 1\nprocess: {hostname: stdin}\n")
    t.expect(r, code=0, out="stdin\n")


def test_paths_of_a_file_are_relative_to_it_and_of_flags_to_the_working_folder(t):
    t.file("file\n", "there", "data", "x")
    t.file("flag\n", "here", "data2", "x")
    p = t.file("version: 1\nfilesystem: {read: [{source: ./data, target: /data}]}\n", "there", "p.yaml")
    r = t.run("sh", "-c", "cat /data/x", flags=["--policy", p], cwd=t.folder("elsewhere"))
    t.expect(r, code=0, out="file\n")
    r = t.run("cat", "/data2/x", flags=["--ro", "data2:/data2"], cwd=t.tmp("here"))
    t.expect(r, code=0, out="flag\n")


def test_a_missing_target_is_the_same_absolute_path(t):
    f = t.file("hello\n", "seen", "x")
    t.expect(t.run("cat", f, flags=["--ro", os.path.dirname(f)]), code=0, out="hello\n")


def test_presets_run(t):
    for name in ("@python", "@offline-tests", "@tutor", "@research"):
        r = t.run(zw.PYTHON, "-c", "print(1)", flags=["--policy", name])
        t.check(r.code == 0 or "network" in r.errors, f"{name}: {r.errors}")
        if r.code == 0:
            t.equal(r.out, b"1\n", "stdout")


def test_an_unknown_preset_is_refused_with_the_nearest_name(t):
    t.refused(t.run("true", flags=["--policy", "@pyton"]), "@python")


def test_presets_for_pupils_do_not_execute_from_scratch(t):
    r = t.run("sh", "-c", "cp /bin/true /tmp/x && /tmp/x", flags=["--policy", "@tutor"])
    t.equal(r.code, 126, "exit status")


def test_all_errors_of_a_file_come_at_once(t):
    r = t.run("true", policy="version: 1\nnam: x\nlimits:\n  time: -3s\n  processes: 1.5\nfilesystem: [1]\nenv:\n  pass: HOME\n")
    t.refused(r)
    t.check(len(r.doc["errors"]) >= 5, f"errors: {json.dumps(r.doc['errors'])}")
    t.equal(sorted({e["line"] for e in r.doc["errors"]}), [2, 4, 5, 6, 8], "lines")


def test_hostile_policies_are_refused_quickly(t):
    bombs = {
        "nesting": "version: 1\nx: " + "[" * 100000,
        "json nesting": '{"a":' * 100000,
        "anchors": "version: 1\na: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
        "nul": b"version: 1\nname: \"a\0b\"\n",
        "bad utf8": b"version: 1\nname: \xff\xfe\n",
        "duplicate keys": "version: 1\nlimits: {time: 1s, time: 2s}\n",
        "two documents": "version: 1\n---\nversion: 1\n",
        "not a map": "[1, 2]\n",
        "future version": "version: 2\n",
        "no version of ours": "version: one\n",
    }
    for name, text in bombs.items():
        r = t.run("true", flags=["--policy", t.file(text, "bomb")])
        t.note(name)
        t.refused(r)
        t.between(r.wall, 0, 5, f"seconds for {name}")


def test_a_policy_of_100_megabytes_is_refused_without_being_read_into_memory(t):
    path = t.tmp("huge.yaml")
    with open(path, "wb") as f:
        f.write(b"version: 1\n# ")
        f.truncate(100 << 20)
    r = t.run("true", flags=["--policy", path])
    t.refused(r)
    t.between(r.wall, 0, 5, "seconds")


def test_a_policy_file_that_is_a_fifo_or_a_folder_or_missing(t):
    t.refused(t.run("true", flags=["--policy", t.folder("d")]))
    t.refused(t.run("true", flags=["--policy", t.tmp("missing.yaml")]), "missing.yaml")


def test_null_means_no_limit_and_an_absent_key_the_default(t):
    r = t.inside("limit", 1, policy={"version": 1, "limits": {"file_size": None}})  # RLIMIT_FSIZE
    t.expect(r, out="-1 -1\n")
    r = t.inside("processes", 400, policy={"version": 1})
    n = int(r.text.split()[0])
    t.between(n, 250, 255, "processes by default")


def test_an_empty_allow_list_opens_nothing(t):
    for policy in ({"version": 1}, {"version": 1, "network": {"allow": []}}, {"version": 1, "network": {}}):
        r = t.inside("connect", "192.0.2.1", 443, policy=policy)
        t.expect(r, out="ENETUNREACH\n")


def test_an_empty_read_list_shows_nothing_more_than_an_absent_one(t):
    for fs in ({}, {"read": []}, {"write": []}):
        r = t.run("sh", "-c", "ls /", policy={"version": 1, "filesystem": fs})
        t.check(not {"root", "boot", "work", "srv", "mnt", "media"} & set(r.lines), f"/: {r.lines}")


def test_every_missing_source_is_named(t):
    r = t.run("true", flags=["--ro", "/no/such/one:/a", "--rw", "/no/such/two:/b"])
    t.refused(r, "/no/such/one", "/no/such/two")


def test_targets_that_would_hide_the_walls_are_refused(t):
    d = t.folder("d")
    for target in ("/", "/proc", "/proc/self", "/sys", "/dev", "relative", "/run/zwinger"):
        t.refused(t.run("true", flags=["--ro", f"{d}:{target}"]))


def test_the_same_target_twice_is_refused(t):
    a, b = t.folder("a"), t.folder("b")
    t.refused(t.run("true", flags=["--ro", f"{a}:/x", "--ro", f"{b}:/x"]), "/x")


def test_a_target_with_dots_is_not_a_way_out(t):
    d = t.folder("d")
    t.refused(t.run("true", flags=["--rw", f"{d}:/x/../../proc"]))


def test_policy_check_accepts_a_valid_file_and_lists_what_is_not_built(t):
    ok = t.policy({"version": 1, "limits": {"memory": "64M"}})
    t.expect(t.plain("policy", "check", ok), code=0)
    r = t.plain("policy", "check", t.policy({"version": 1, "network": {"ask": True}}))
    t.expect(r, code=0)
    t.contains(r.text + r.errors, "network.ask", "message")


def test_policy_check_refuses_a_wrong_file(t):
    r = t.plain("policy", "check", t.policy("version: 1\nlimits: {memroy: 1M}\n"))
    t.equal(r.code, 125, "exit status")
    t.contains(r.text + r.errors, "memory", "message")


def test_policy_explain_says_what_the_code_can_do(t):
    d = t.folder("d")
    r = t.plain("policy", "explain", t.policy({"version": 1, "limits": {"memory": "77M"}, "filesystem": {"write": [{"source": d, "target": "/out"}]}}))
    t.expect(r, code=0)
    for word in ("/out", "77", "network"):
        t.contains(r.text.lower(), word, "text")


def test_the_summary_of_its_limits_is_readable_inside(t):
    d = t.folder("d")
    r = t.run("cat", "/run/zwinger/policy.json", flags=["--memory", "99M", "--rw", f"{d}:/out"])
    t.expect(r, code=0)
    doc = json.loads(r.out)
    text = json.dumps(doc)
    t.contains(text, str(99 << 20), "memory")
    t.contains(text, "/out", "the write mount")
    t.lacks(text, d, "the host's path")


def test_the_summary_cannot_be_written_inside(t):
    r = t.run("sh", "-c", "echo x > /run/zwinger/policy.json; echo y > /run/zwinger/new; rm -f /run/zwinger/policy.json; ls /run/zwinger")
    t.equal(r.out, b"bin\npolicy.json\n", "stdout")


if __name__ == "__main__":
    zw.main(globals())
