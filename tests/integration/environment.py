#!/usr/bin/python3 -B
"""What the command finds around it: variables, identity, files, and nothing of the host's or of another sandbox."""
import re
import socket
import subprocess
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def environment(t, *flags, env=None, tty=False):
    r = t.run("env", "-0", flags=flags, env=env)
    t.expect(r, code=0)
    return dict(x.split("=", 1) for x in r.text.split("\0") if x)


def test_the_environment_is_minimal(t):
    e = environment(t)
    t.equal(set(e), {"PATH", "HOME", "USER", "LANG", "TMPDIR"}, "names")
    t.equal((e["TMPDIR"], e["LANG"]), ("/tmp", "C.UTF-8"), "TMPDIR and LANG")


def test_python_has_its_short_name_too(t):
    t.need("python3")
    lent = not any(os.path.exists(os.path.join(d, "python")) for d in ("/usr/bin", "/usr/local/bin"))
    t.equal(environment(t)["PATH"].endswith(":/run/zwinger/bin"), lent, "PATH ends with what is lent")
    t.expect(t.run("python", "-c", "import sys; print(sys.version_info[0] > 2)"), code=0, out="True\n")
    t.check(t.run("sh", "-c", "rm /run/zwinger/bin/python || touch /run/zwinger/bin/ls").code != 0, "it can be changed")


def test_secrets_of_the_caller_are_not_inside(t):
    secret = {"AWS_SECRET_ACCESS_KEY": "s3cr3t-1", "GITHUB_TOKEN": "s3cr3t-2", "SSH_AUTH_SOCK": "/tmp/s3cr3t-3", "LD_PRELOAD": "/s3cr3t-4.so",
              "PYTHONPATH": "/s3cr3t-5", "BASH_ENV": "/s3cr3t-6", "LD_LIBRARY_PATH": "/s3cr3t-7", "BASH_FUNC_x%%": "() { echo s3cr3t-8; }"}
    r = t.run("sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; set", env=secret)
    t.lacks(r.text, "s3cr3t", "what can be seen inside")


def test_variables_are_set_and_passed_by_name(t):
    e = environment(t, "--env", "A=1=2", "--env", "EMPTY=", "--pass", "B", "--pass", "NOT_THERE", env={"B": "of the caller", "C": "not asked for"})
    t.equal({k: e.get(k) for k in ("A", "EMPTY", "B", "NOT_THERE", "C")},
            {"A": "1=2", "EMPTY": "", "B": "of the caller", "NOT_THERE": None, "C": None}, "variables")


def test_a_variable_that_is_set_replaces_a_default(t):
    t.equal(environment(t, "--env", "LANG=de_DE.UTF-8")["LANG"], "de_DE.UTF-8", "LANG")


def test_a_wrong_variable_is_refused(t):
    for x in ("=x", "A", ""):
        t.equal(t.plain("run", "--env", x, "--", "true").code, 125, f"exit status for {x!r}")


def test_user_and_group_1000_with_a_name_and_a_home(t):
    r = t.run("sh", "-c", "id -u; id -g; id -G; id -un; id -gn; echo $USER; echo $HOME; cd ~ && pwd && touch x && ls")
    t.expect(r, code=0, err="")
    uid, gid, groups, name, group, user, home, cd, made = r.lines
    t.equal((uid, gid, groups), ("1000", "1000", "1000"), "ids")
    t.equal((name, home), (user, cd), "name and home")
    t.check(re.match(r"^[a-z]+$", name) and re.match(r"^[a-z]+$", group), f"names: {name} {group}")
    t.equal(made, "x", "what can be made at home")


def test_another_user_inside(t):
    t.expect(t.run("sh", "-c", "id -u; id -g; id -un", flags=["--user", "4321:4322"]), code=0)
    r = t.run("sh", "-c", "id -u; id -g", flags=["--user", "4321:4322"])
    t.expect(r, out="4321\n4322\n")


def test_the_hostname_is_stable_and_not_the_hosts(t):
    r = t.run("sh", "-c", "hostname; cat /proc/sys/kernel/hostname; uname -n; getent hosts $(hostname)")
    t.expect(r, code=0)
    t.equal(r.lines[:3], ["zwinger"] * 3, "names")
    t.check(r.lines[3].startswith(("127.", "::1")), f"address of the name: {r.lines[3]}")
    t.expect(t.run("hostname", flags=["--hostname", "moat"]), out="moat\n")


def test_localhost_resolves_and_serves(t):
    code = ("import socket, threading\n"
            "for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):\n"
            "    s = socket.socket(family); s.bind((address, 0)); s.listen()\n"
            "    threading.Thread(target=lambda s=s: s.accept()[0].sendall(b'hi'), daemon=True).start()\n"
            "    print(socket.create_connection((address, s.getsockname()[1]), 3).recv(2).decode())\n"
            "print(socket.gethostbyname('localhost'))\n"
            "s = socket.socket(); s.bind(('127.0.0.1', 80)); print('port 80')\n")
    t.expect(t.run(zw.PYTHON, "-c", code), code=0, out="hi\nhi\n127.0.0.1\nport 80\n")


def test_only_loopback_is_there(t):
    r = t.run("sh", "-c", "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '; cat /proc/net/route | wc -l")
    t.expect(r, code=0, out="lo\n1\n")


def test_a_socket_of_the_host_cannot_be_reached(t):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    port = s.getsockname()[1]
    r = t.inside("connect", "127.0.0.1", port)
    s.close()
    t.expect(r, code=0, out="ECONNREFUSED\n")


def test_the_synthetic_etc_has_what_programs_need_and_no_more(t):
    r = t.run("sh", "-c", "cd /etc; ls -A; cat passwd group hosts nsswitch.conf resolv.conf")
    t.expect(r, code=0, err="")
    names = r.text.split()
    for want in ("passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "ld.so.cache", "localtime"):
        t.check(want in names or not os.path.exists(f"/etc/{want}"), f"/etc/{want} is not there")
    for hidden in ("shadow", "gshadow", "sudoers", "ssh", "crontab", "machine-id", "cron.d", "fstab"):
        t.check(hidden not in names, f"/etc/{hidden} is there")


def test_accounts_of_the_host_are_not_listed(t):
    r = t.run("getent", "passwd")
    t.check(len(r.lines) <= 4, f"accounts: {r.lines}")


def test_certificates_fonts_and_alternatives_are_there(t):
    for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/fonts/fonts.conf", "/etc/alternatives", "/usr/share/zoneinfo/UTC"):
        if os.path.exists(path):
            t.expect(t.run("test", "-r", path), code=0)


def test_the_locale_works(t):
    r = t.run(zw.PYTHON, "-c", "import locale, sys; print(locale.setlocale(locale.LC_ALL, ''), sys.stdout.encoding, 'é€😀')")
    t.expect(r, code=0, out="C.UTF-8 utf-8 é€😀\n")


def test_no_files_of_the_host_show(t):
    r = t.run("sh", "-c", "ls -A /; for d in /root /home /boot /srv /work /mnt /media /opt /lost+found; do ls -A $d 2>/dev/null; done | head -5")
    allowed = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr", "var", "home", "opt", "root", "sandbox"}
    t.check(set(r.lines) <= allowed, f"more than expected at /: {set(r.lines) - allowed}")


def test_var_and_run_are_not_the_hosts(t):
    r = t.run("sh", "-c", "find /var /run -type f 2>/dev/null | head; ls /var/log /var/lib 2>/dev/null | head")
    t.equal([x for x in r.lines if x != "/run/zwinger/policy.json"], [], "files")


def test_tmp_is_private_and_empty(t):
    t.file("outside", "x")
    r = t.run("sh", "-c", "ls -A /tmp /var/tmp /dev/shm; stat -c %a /tmp; touch /tmp/zwinger-test-mark")
    t.expect(r, code=0)
    t.check("1777" in r.lines, f"mode of /tmp: {r.lines}")
    t.equal([x for x in r.lines if x and not x.startswith("/") and x != "1777"], [], "what is in it")
    t.check(not os.path.exists("/tmp/zwinger-test-mark"), "a file made in /tmp is on the host")


def test_scratch_executes_by_default_and_not_when_forbidden(t):
    script = "cp /bin/true /tmp/x && /tmp/x && echo ran"
    t.expect(t.run("sh", "-c", script), code=0, out="ran\n")
    t.equal(t.run("sh", "-c", script, flags=["--scratch-noexec"]).code, 126, "exit status")


def test_dev_has_the_few_that_programs_need(t):
    r = t.run("sh", "-c", "ls -A /dev; echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c; echo full > /dev/full || echo ENOSPC; "
              "ls -l /dev/stdin /dev/fd >/dev/null && echo links")
    names = set(r.lines[:-4])
    t.equal(r.lines[-4:], ["4", "4", "ENOSPC", "links"], "what they do")
    allowed = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr", "mqueue"}
    t.check(names <= allowed, f"more than expected: {names - allowed}")


def test_proc_shows_only_the_sandbox(t):
    r = t.run("sh", "-c", "ls /proc | grep -c '^[0-9]'; cat /proc/1/comm; cat /proc/1/cmdline | tr '\\0' ' '")
    t.between(int(r.lines[0]), 2, 6, "processes")
    t.lacks(r.text, "--result", "the command line of pid 1")


def test_the_working_folder(t):
    w = t.folder("w")
    t.expect(t.run("pwd", flags=["--workspace", f"{w}:/work:rw"]), out="/work\n")
    t.expect(t.run("pwd", flags=["--workspace", f"{w}:/project/a:rw"]), out="/project/a\n")
    t.expect(t.run("pwd", flags=["--workspace", f"{w}:/work:rw", "--cwd", "/tmp"]), out="/tmp\n")
    r = t.run("sh", "-c", "pwd; echo $HOME")
    t.equal(r.lines[0], r.lines[1], "without a workspace: HOME")


def test_a_working_folder_that_is_missing_starts_nothing(t):
    r = t.run("true", flags=["--cwd", "/no/such/folder"])
    t.equal(r.code, 125, "exit status")
    t.contains(r.errors, "/no/such/folder", "message")


def test_read_only_folders_cannot_be_written(t):
    d = t.folder("d")
    t.file("x", "d", "f", mode=0o666)
    os.chmod(d, 0o777)
    r = t.run("sh", "-c", "echo y > /in/f; touch /in/new; rm -f /in/f; chmod 600 /in/f; touch -d yesterday /in/f; ls /in; cat /in/f", flags=["--ro", f"{d}:/in"])
    t.equal(r.out, b"f\nx", "the folder as seen inside")
    t.equal(os.listdir(d), ["f"], "the folder")


def test_a_read_only_workspace(t):
    w = t.folder("w")
    os.chmod(w, 0o777)
    r = t.run("sh", "-c", "pwd; touch x 2>&1; ls", flags=["--workspace", f"{w}:/work:ro"])
    t.contains(r.text, "Read-only", "message")
    t.equal(os.listdir(w), [], "the workspace")


def test_a_single_file_can_be_shown(t):
    f = t.file("one\n", "f")
    t.file("two\n", "g")
    r = t.run("sh", "-c", "cat /in/f; ls /in", flags=["--ro", f"{f}:/in/f"])
    t.expect(r, code=0, out="one\nf\n")


def test_a_single_file_can_be_written(t):
    f = t.file("one\n", "f")
    t.expect(t.run("sh", "-c", "echo two >> /data/f", flags=["--rw", f"{f}:/data/f"]), code=0)
    with open(f) as x:
        t.equal(x.read(), "one\ntwo\n", "the file")


def test_mounts_within_mounts(t):
    a = t.folder("a")
    os.makedirs(a + "/sub")
    t.file("inner\n", "b", "x")
    r = t.run("sh", "-c", "cat /a/sub/x; touch /a/sub/y && echo wrote; touch /a/z || echo read-only",
              flags=["--ro", f"{a}:/a", "--rw", f"{t.tmp('b')}:/a/sub"])
    t.equal(r.lines, ["inner", "wrote", "read-only"], "stdout")


def test_a_source_reached_by_a_symlink(t):
    t.file("real\n", "real", "x")
    os.symlink(t.tmp("real"), t.tmp("link"))
    r = t.run("cat", "/in/x", flags=["--ro", t.tmp("link") + ":/in"])
    t.check(r.code == 0 and r.out == b"real\n" or r.code == 125, f"{r.code} {r.out!r}")


def test_names_with_odd_characters_can_be_mounted(t):
    d = t.folder("with space and 'quotes' \"and\" é €")
    t.file("x\n", "with space and 'quotes' \"and\" é €", "f")
    t.expect(t.run("cat", "/in/f", flags=["--ro", f"{d}:/in"]), code=0, out="x\n")


def test_files_written_inside_belong_to_the_caller_outside(t):
    w = t.folder("w")
    r = t.run("sh", "-c", "touch a; mkdir d; echo x > d/f; ln -s a l; umask; stat -c '%u %g' a", flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0)
    t.equal(r.lines[-1], "1000 1000", "owner inside")
    for name in ("a", "d", "d/f", "l"):
        st = os.lstat(os.path.join(w, name))
        t.equal((st.st_uid, st.st_gid), (os.getuid(), os.getgid()), f"owner of {name}")


def test_files_of_the_caller_can_be_changed_inside(t):
    w = t.folder("w")
    f = t.file("old\n", "w", "f", mode=0o600)
    r = t.run("sh", "-c", "cat f; echo new > f; chmod 640 f; stat -c '%u %a' f", flags=["--workspace", f"{w}:/work:rw"])
    t.expect(r, code=0, out="old\n1000 640\n")
    with open(f) as x:
        t.equal(x.read(), "new\n", "the file")


@zw.as_root
def test_two_sandboxes_of_root_have_ids_of_their_own_that_no_account_has(t):
    import pwd
    script = "echo up; read x"
    a = t.start("sh", "-c", script, stdin=subprocess.PIPE)
    b = t.start("sh", "-c", script, stdin=subprocess.PIPE)
    a.read_line(), b.read_line()

    def uids(run):
        found = set()
        for pid, (parent, comm, _) in zw.descendants().items():
            if parent == run.pid or zw.descendants().get(parent, (0,))[0] == run.pid:
                with open(f"/proc/{pid}/status") as f:
                    found.update(int(x) for line in f if line.startswith("Uid:") for x in line.split()[1:])
        return found

    ua, ub = uids(a), uids(b)
    for r in (a, b):
        r.process.stdin.close()
        r.process.stdin = None
        r.finish()
    t.check(ua and ub, "no process was found")
    t.check(0 not in ua | ub, f"uid 0 outside: {ua} {ub}")
    t.check(not ua & ub, f"the same uid for two sandboxes: {ua} {ub}")
    accounts = {u.pw_uid for u in pwd.getpwall()}
    t.check(not accounts & (ua | ub), f"uids of accounts: {accounts & (ua | ub)}")


def test_the_umask_of_the_caller_does_not_make_files_that_others_can_write(t):
    w = t.folder("w")
    before = os.umask(0)
    try:
        t.run("sh", "-c", "touch f; mkdir d", flags=["--workspace", f"{w}:/work:rw"])
    finally:
        os.umask(before)
    for name in ("f", "d"):
        t.equal(os.stat(os.path.join(w, name)).st_mode & 0o002, 0, f"bit that lets others write {name}")


def test_capabilities_are_none_and_no_new_privileges(t):
    r = t.run("grep", "-E", "^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):", "/proc/self/status")
    got = {x.split(":")[0]: x.split()[1] for x in r.lines}
    for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        t.equal(int(got[c], 16), 0, c)
    t.equal((got["NoNewPrivs"], got["Seccomp"]), ("1", "2"), "NoNewPrivs and Seccomp")


def test_supplementary_groups_of_the_caller_are_gone(t):
    r = t.run("sh", "-c", "id -G; grep Groups /proc/self/status")
    t.equal(r.lines[0], "1000", "groups")


if __name__ == "__main__":
    zw.main(globals())
