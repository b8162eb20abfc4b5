#!/usr/bin/python3 -B
"""What comes out of a sandbox: sized write mounts, the record of changes, and what must not be left in a folder."""
import stat
import time
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402


M = 1 << 20


def sized(source, size, target="/out"):
    return {"version": 1, "limits": {"memory": "256M"}, "filesystem": {"write": [{"source": source, "target": target, "size": size}]}}


def test_a_sized_write_mount_is_filled_inside_and_committed(t):
    w = t.folder("w")
    t.file("old\n", "w", "kept")
    r = t.run("sh", "-c", "cat /out/kept; echo new > /out/new; mkdir /out/d; echo deep > /out/d/f; echo changed > /out/kept", policy=sized(w, "10M"))
    t.expect(r, code=0, out="old\n")
    got = {}
    for folder, _, files in os.walk(w):
        for f in files:
            with open(os.path.join(folder, f)) as x:
                got[os.path.relpath(os.path.join(folder, f), w)] = x.read()
            st = os.stat(os.path.join(folder, f))
            t.equal((st.st_uid, st.st_gid), (os.getuid(), os.getgid()), f"owner of {f}")
    t.equal(got, {"kept": "changed\n", "new": "new\n", "d/f": "deep\n"}, "the folder afterwards")


def test_a_sized_write_mount_over_its_size_is_enospc_inside(t):
    w = t.folder("w")
    r = t.inside("fill", "/out/x", 100, policy=sized(w, "10M"))
    t.expect(r, code=0, status="exited")
    n, error = r.text.split()
    t.equal(error, "ENOSPC", "error")
    t.between(int(n), 8, 10, "MiB written")
    t.between(os.path.getsize(os.path.join(w, "x")), 8 * M, 10 * M, "size of the file outside")


def test_deletions_and_renames_in_a_sized_write_mount_are_committed(t):
    w = t.folder("w")
    for n in ("a", "b", "d/c"):
        t.file(n, "w", *n.split("/"))
    r = t.run("sh", "-c", "cd /out; rm a; mv b B; rm -r d; mkdir d; touch d/new", policy=sized(w, "10M"))
    t.expect(r, code=0)
    t.equal(sorted(os.listdir(w)), ["B", "d"], "the folder afterwards")
    t.equal(os.listdir(os.path.join(w, "d")), ["new"], "the folder that was made anew")


def test_a_sized_write_mount_is_committed_after_a_time_limit_too(t):
    w = t.folder("w")
    t.expect(t.run("sh", "-c", "echo x > /out/f; sleep 30", policy=sized(w, "10M"), flags=["--time", "500ms"]), code=124)
    t.equal(os.listdir(w), ["f"], "the folder afterwards")


def test_the_record_of_changes(t):
    w = t.folder("w")
    for n in ("same", "changed", "gone", "sub/deep", "touched"):
        t.file("1234", "w", *n.split("/"))
    script = "echo new > new; echo 5678 > changed; rm gone; echo more >> sub/deep; mkdir made; touch made/in; cat same touched > /dev/null"
    r = t.run("sh", "-c", script, flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0)
    f = r.doc["files"]
    t.equal(sorted(x for x in f["created"] if not x.endswith("/made")), ["/work/made/in", "/work/new"], "created")
    t.equal(sorted(x for x in f["modified"] if x not in ("/work", "/work/sub")), ["/work/changed", "/work/sub/deep"], "modified")
    t.equal(f["deleted"], ["/work/gone"], "deleted")


def test_a_change_that_keeps_size_and_times_is_still_seen(t):
    w = t.folder("w")
    f = t.file("aaaa", "w", "f")
    os.utime(f, (1000000000, 1000000000))
    r = t.run("sh", "-c", "printf bbbb > f; touch -d @1000000000 f", flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0)
    t.equal(r.doc["files"]["modified"], ["/work/f"], "modified")


def test_a_renamed_file_is_a_deletion_and_a_creation(t):
    w = t.folder("w")
    t.file("x", "w", "a")
    r = t.run("mv", "a", "b", flags=["--workspace", f"{w}:/work:rw"])
    t.equal((r.doc["files"]["created"], r.doc["files"]["deleted"]), (["/work/b"], ["/work/a"]), "created and deleted")


def test_no_changes_are_empty_lists(t):
    w = t.folder("w")
    r = t.run("ls", flags=["--workspace", f"{w}:/work:rw"])
    t.equal({k: r.doc["files"][k] for k in ("created", "modified", "deleted")}, {"created": [], "modified": [], "deleted": []}, "files")


def test_ten_thousand_files_are_recorded_within_bounds(t):
    w = t.folder("w")
    r = t.inside("inodes", "/work", 12000, flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0, out="12000 ok\n")
    t.between(len(r.doc["files"]["created"]), 9000, 12000, "entries")
    t.check(os.path.getsize(t._tmp + "/" + [f for f in os.listdir(t._tmp) if f.startswith("result")][0]) < 2 * M, "the document is very large")


def test_set_id_bits_are_taken_off(t):
    w = t.folder("w")
    script = "cp /bin/true u; cp /bin/true g; chmod 4755 u; chmod 2755 g; mkdir d; chmod 2777 d; mkdir -p x/y; cp /bin/true x/y/z; chmod 6755 x/y/z"
    r = t.run("sh", "-c", script, flags=["--workspace", f"{w}:/work:rw"])
    for name in ("u", "g", "d", "x/y/z"):
        path = os.path.join(w, name)
        if os.path.exists(path):
            t.equal(stat.S_IMODE(os.stat(path).st_mode) & 0o6000, 0, f"set-id bits of {name}")


def test_set_id_bits_hidden_in_closed_folders_are_taken_off(t):
    w = t.folder("w")
    t.run("sh", "-c", "mkdir d; cp /bin/true d/u; chmod 4755 d/u; chmod 000 d", flags=["--workspace", f"{w}:/work:rw"])
    path = os.path.join(w, "d")
    os.chmod(path, 0o700)
    if os.path.exists(path + "/u"):
        t.equal(stat.S_IMODE(os.stat(path + "/u").st_mode) & 0o6000, 0, "set-id bits")


@zw.as_root
def test_a_set_id_program_that_was_there_before_stays(t):
    w = t.folder("w")
    f = t.file("x", "w", "f", mode=0o755)
    os.chmod(f, 0o4755)
    t.run("ls", flags=["--workspace", f"{w}:/work:rw"])
    t.equal(stat.S_IMODE(os.stat(f).st_mode), 0o4755, "mode")


def test_links_that_lead_out_are_removed_and_said(t):
    w = t.folder("w")
    script = ("ln -s /etc/passwd abs; ln -s ../../etc/passwd rel; ln -s .. up; mkdir d; ln -s ../ok d/in; touch ok; ln -s ok good; ln -s /work/ok absin; "
              "ln -s d/../../outside tricky; ln -s dangling gone")
    r = t.run("sh", "-c", script, flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0)
    left = set(os.listdir(w))
    for bad in ("abs", "rel", "up", "tricky"):
        t.check(bad not in left, f"the link {bad}, which leads out, is left")
    for good in ("good", "gone", "d", "ok"):
        t.check(good in left, f"{good} was removed")
    t.check(os.path.islink(os.path.join(w, "d/in")), "a link that stays inside was removed")
    t.contains(str(r.doc["files"]), "/etc/passwd", "the record says where a removed link led")


def test_links_that_were_there_before_stay(t):
    w = t.folder("w")
    os.symlink("/etc/hostname", os.path.join(w, "mine"))
    t.run("touch", "x", flags=["--workspace", f"{w}:/work:rw"])
    t.equal(os.readlink(os.path.join(w, "mine")), "/etc/hostname", "the link")


def test_device_nodes_cannot_be_made_nor_left(t):
    w = t.folder("w")
    t.run("sh", "-c", "mknod c c 1 3; mknod b b 7 0; mknod p p; ls", flags=["--workspace", f"{w}:/work:rw"])
    for name in os.listdir(w):
        mode = os.lstat(os.path.join(w, name)).st_mode
        t.check(not stat.S_ISCHR(mode) and not stat.S_ISBLK(mode), f"{name} is a device")


def test_writing_through_planted_links_of_the_workspace_does_not_leave_it(t):
    """The links are the caller's own, and lead out: inside they lead to what is there inside."""
    w = t.folder("w")
    secret = t.file("secret\n", "outside", "f")
    os.symlink(secret, os.path.join(w, "link"))
    os.symlink(os.path.dirname(secret), os.path.join(w, "dir"))
    r = t.run("sh", "-c", "cat link dir/f; echo spoiled > link; echo spoiled > dir/g", flags=["--workspace", f"{w}:/work:rw"])
    t.lacks(r.text, "secret", "what could be read")
    t.equal(os.listdir(os.path.dirname(secret)), ["f"], "the folder outside")
    with open(secret) as f:
        t.equal(f.read(), "secret\n", "the file outside")


def test_a_folder_whose_source_becomes_a_link_is_not_followed_out(t):
    """The source is looked at once: what the name leads to later does not matter."""
    import threading
    real, other = t.folder("real"), t.folder("other")
    name = t.tmp("name")
    os.symlink(real, name)
    stop = threading.Event()

    def swap():
        i = 0
        while not stop.is_set():
            tmp = name + ".new"
            os.symlink((other, real)[i % 2], tmp)
            os.rename(tmp, name)
            i += 1

    x = threading.Thread(target=swap)
    x.start()
    try:
        for _ in range(20):
            r = t.run("sh", "-c", "touch /out/a; touch /out/b; sleep 0.01; touch /out/c", flags=["--rw", f"{name}:/out"])
            t.among(r.code, (0, 125), "exit status")
            for d in (real, other):
                t.among(len(os.listdir(d)), (0, 3), "files: all in one folder or none")
                for f in os.listdir(d):
                    os.unlink(os.path.join(d, f))
    finally:
        stop.set()
        x.join()


def test_swapping_links_during_the_clean_up_does_not_lead_it_astray(t):
    """While the folder is being checked after the end, somebody outside may still change it: no file outside is touched."""
    import threading
    w = t.folder("w")
    outside = t.folder("outside")
    victim = t.file("x", "outside", "u", mode=0o755)
    if zw.AM_ROOT:
        os.chmod(victim, 0o4755)
    mode = stat.S_IMODE(os.stat(victim).st_mode)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            try:
                os.rename(os.path.join(w, "d"), os.path.join(w, "kept"))
                os.symlink(outside, os.path.join(w, "d"))
                os.unlink(os.path.join(w, "d"))
                os.rename(os.path.join(w, "kept"), os.path.join(w, "d"))
            except OSError:
                time.sleep(0.0001)

    x = threading.Thread(target=swap)
    x.start()
    try:
        for _ in range(20):
            t.run("sh", "-c", "mkdir -p d; cp /bin/true d/u; chmod 6755 d/u", flags=["--workspace", f"{w}:/work:rw"])
            t.equal(stat.S_IMODE(os.stat(victim).st_mode), mode, "mode of the file outside")
            t.equal(os.listdir(outside), ["u"], "the folder outside")
    finally:
        stop.set()
        x.join()


def test_hard_links_into_the_read_only_part_are_refused(t):
    w = t.folder("w")
    d = t.folder("d")
    t.file("x", "d", "f")
    r = t.run("sh", "-c", "ln /in/f /work/f; ln /etc/passwd /work/p; ln /usr/bin/env /work/e; ls /work", flags=["--workspace", f"{w}:/work:rw", "--ro", f"{d}:/in"])
    t.equal(r.out, b"", "links")


def test_a_folder_that_the_run_makes_unreadable_can_be_removed_by_the_caller(t):
    w = t.folder("w")
    t.run("sh", "-c", "mkdir -p a/b; touch a/b/c; chmod 000 a/b a", flags=["--workspace", f"{w}:/work:rw"])
    os.chmod(os.path.join(w, "a"), 0o700)
    os.chmod(os.path.join(w, "a/b"), 0o700)
    os.unlink(os.path.join(w, "a/b/c"))


if __name__ == "__main__":
    zw.main(globals())
