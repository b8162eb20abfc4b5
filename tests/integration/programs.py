#!/usr/bin/python3 -B
# shards: 3
"""Real programs, unmodified, in an ordinary sandbox with a writable workspace."""
import shutil
import subprocess
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402



def workspace(t, **files):
    w = t.folder("w")
    for name, text in files.items():
        t.file(text, "w", *name.replace("__", ".").split("/"))
    return w


def run(t, w, *argv, flags=(), **more):
    return t.run(*argv, flags=["--workspace", f"{w}:/work:rw", "--time", "60s", *flags], **more)


def module(t, name):
    import subprocess
    if subprocess.run([zw.PYTHON, "-c", f"import {name}"], capture_output=True).returncode:
        t.skip(f"the python module {name} is not installed")


def test_numpy_and_pandas(t):
    module(t, "pandas")
    w = workspace(t, data__csv="city,value\nKöln,3\nZürich,\nParis,5\n", a__py="""
import numpy, pandas
d = pandas.read_csv("data.csv").dropna()
d.to_csv("out.csv", index=False)
print(d.value.mean(), list(d.city), numpy.linalg.inv(numpy.eye(3)).trace())
""")
    t.expect(run(t, w, zw.PYTHON, "a.py"), code=0, out="4.0 ['Köln', 'Paris'] 3.0\n", err="")
    t.check(os.path.exists(os.path.join(w, "out.csv")), "out.csv is not there")


def test_matplotlib_writes_a_chart(t):
    module(t, "matplotlib")
    w = workspace(t, a__py="""
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 2, 3]); plt.title("é €"); plt.savefig("a.png"); plt.savefig("a.svg")
""")
    t.expect(run(t, w, zw.PYTHON, "a.py"), code=0)
    with open(os.path.join(w, "a.png"), "rb") as f:
        t.equal(f.read(4), b"\x89PNG", "signature")


def test_pytest(t):
    module(t, "pytest")
    w = workspace(t, test_a__py="""
def test_good(tmp_path, capfd):
    (tmp_path / "x").write_text("1")
    print("hi")
    assert capfd.readouterr().out == "hi\\n"
def test_bad():
    assert 1 == 2
""")
    r = run(t, w, zw.PYTHON, "-m", "pytest", "-q", "test_a.py")
    t.expect(r, code=1)
    t.contains(r.text, "1 failed, 1 passed", "stdout")


def test_multiprocessing_in_every_way(t):
    w = workspace(t, a__py="""
import multiprocessing as mp
from multiprocessing import shared_memory
def f(x):
    return x * x
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with mp.get_context(how).Pool(2) as p:
            print(how, p.map(f, range(4)))
    m = shared_memory.SharedMemory(create=True, size=100)
    m.close(); m.unlink()
    q = mp.Queue(); q.put(1); print(q.get())
    with mp.Manager() as g:
        d = g.dict(); d["x"] = 1; print(dict(d))
""")
    r = run(t, w, zw.PYTHON, "a.py")
    t.expect(r, code=0, out="".join(f"{h} [0, 1, 4, 9]\n" for h in ("fork", "spawn", "forkserver")) + "1\n{'x': 1}\n", err="")


def test_a_virtual_environment(t):
    module(t, "ensurepip")
    w = workspace(t)
    r = run(t, w, "sh", "-c", f"{zw.PYTHON} -m venv v && v/bin/python -c 'import sys; print(sys.prefix)' && v/bin/pip --version")
    t.check(r.code == 0, f"exit status {r.code}")
    t.equal(r.lines[0], "/work/v", "prefix")
    t.contains(r.lines[1], "pip ", "pip --version")


def test_pip_installs_a_local_project(t):
    module(t, "pip")
    module(t, "setuptools")
    w = workspace(t, **{"proj/setup__py": "from setuptools import setup\nsetup(name='hello', version='1', py_modules=['hello'])\n",
                        "proj/hello__py": "print('hello from the project')\n"})
    r = run(t, w, "sh", "-c", f"{zw.PYTHON} -m venv --system-site-packages v && v/bin/pip install -q --no-build-isolation --no-index ./proj && v/bin/python -m hello")
    t.check(r.code == 0, f"exit status {r.code}")
    t.equal(r.lines[-1], "hello from the project", "stdout")


def test_sqlite(t):
    t.need("sqlite3")
    w = workspace(t, a__py="""
import sqlite3
c = sqlite3.connect("a.db")
c.execute("pragma journal_mode=wal")
c.execute("create table t (x)")
c.executemany("insert into t values (?)", [(i,) for i in range(1000)])
c.commit()
print(c.execute("select sum(x) from t").fetchone()[0])
""")
    t.expect(run(t, w, zw.PYTHON, "a.py"), code=0, out="499500\n")
    t.expect(run(t, w, "sqlite3", "a.db", "select count(*) from t; vacuum;"), code=0, out="1000\n")


def test_node(t):
    t.need("node")
    w = workspace(t, a__js="""
const { execFileSync } = require("child_process"), { Worker, isMainThread } = require("worker_threads"), http = require("http"), fs = require("fs");
if (!isMainThread) { require("worker_threads").parentPort.postMessage("worker"); }
else {
  const s = http.createServer((q, a) => a.end("served")).listen(0, "127.0.0.1", async () => {
    console.log(await (await fetch(`http://127.0.0.1:${s.address().port}/`)).text());
    console.log(execFileSync("echo", ["child"]).toString().trim());
    fs.writeFileSync("out.txt", "written");
    new Worker(__filename).on("message", (m) => { console.log(m); s.close(); });
  });
}
""")
    t.expect(run(t, w, "node", "a.js"), code=0, out="served\nchild\nworker\n", err="")
    t.check(os.path.exists(os.path.join(w, "out.txt")), "out.txt is not there")


def test_npm_run(t):
    t.need("npm")
    w = workspace(t, package__json='{"name": "x", "version": "1.0.0", "scripts": {"hello": "echo hello from npm && node -p 1+1"}}\n')
    r = run(t, w, "npm", "run", "--silent", "hello")
    t.expect(r, code=0, out="hello from npm\n2\n")


def test_npm_installs_a_local_package(t):
    t.need("npm")
    w = workspace(t, **{"dep/package__json": '{"name": "dep", "version": "1.0.0", "main": "i.js"}', "dep/i__js": "module.exports = 42\n",
                        "package__json": '{"name": "x", "version": "1.0.0", "dependencies": {"dep": "file:./dep"}}'})
    r = run(t, w, "sh", "-c", "npm install --offline --no-audit --no-fund --silent && node -p 'require(\"dep\")'")
    t.check(r.code == 0 and r.lines[-1:] == ["42"], "npm install of a local package")


def test_gcc_and_make(t):
    t.need("gcc", "make")
    w = workspace(t, Makefile="all: a\n\t./a\na: a.o b.o\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O2 -pthread -c $<\n",
                  a__c="#include <stdio.h>\nint b(void);\nint main(void) { printf(\"%d\\n\", b()); return 0; }\n", b__c="int b(void) { return 42; }\n")
    r = run(t, w, "make", "-s", "-j2")
    t.expect(r, code=0, out="42\n", err="")


def test_compiling_in_scratch(t):
    t.need("gcc")
    r = run(t, workspace(t), "sh", "-c", "cd /tmp && echo 'int main(void){return 9;}' > a.c && gcc a.c && ./a.out")
    t.expect(r, code=9)


def test_git(t):
    t.need("git")
    w = workspace(t)
    script = ("git init -q . && git config user.name a && git config user.email a@b && echo x > f && git add f && git commit -qm one && "
              "git status --short && git log --format=%s && git gc -q && git fsck && git clone -q . /tmp/c && ls /tmp/c && git stash list")
    r = run(t, w, "sh", "-c", script)
    t.expect(r, code=0, out="one\nf\n")


def test_java(t):
    t.need("java", "javac")
    w = workspace(t, A__java="""
import java.util.concurrent.*;
public class A {
    public static void main(String[] a) throws Exception {
        ExecutorService e = Executors.newFixedThreadPool(4);
        System.out.println(e.submit(() -> 6 * 7).get());
        e.shutdown();
        Process p = new ProcessBuilder("echo", "child").inheritIO().start();
        System.exit(p.waitFor());
    }
}
""")
    r = run(t, w, "sh", "-c", "javac A.java && java A")
    t.expect(r, code=0, out="42\nchild\n")


def test_bash_pipelines_and_substitutions(t):
    script = """
set -euo pipefail
seq 100000 | grep 7 | sort -n | tail -1
diff <(printf 'a\\nb\\n') <(printf 'a\\nc\\n') || echo differ
cat <<X | tr a-z A-Z
here
X
coproc cat; echo hi >&${COPROC[1]}; read -r l <&${COPROC[0]}; echo $l
wait_for() { sleep 0.05 & wait $!; }; time wait_for 2>/dev/null
mapfile -t x < <(find /usr/share/zoneinfo -name UTC | head -1); echo ${#x[@]}
trap 'echo bye' EXIT
"""
    r = run(t, workspace(t), "bash", "-c", script)
    t.expect(r, code=0)
    t.equal([x for x in r.lines if not x.startswith(("<", ">", "1c", "2c", "-"))], ["99997", "differ", "HERE", "hi", "1", "bye"], "stdout")


def test_archives_and_text_tools(t):
    w = workspace(t, a__txt="one\ntwo\n")
    r = run(t, w, "sh", "-c", "tar czf a.tgz a.txt && tar xzOf a.tgz && sed -i s/one/1/ a.txt && awk '{print NR, $0}' a.txt && find . -type f | xargs -n1 basename | sort && "
            "sha256sum a.txt | wc -c && xz -k a.txt && df . > /dev/null && du -s . > /dev/null && date +%Y > /dev/null")
    t.expect(r, code=0, out="one\ntwo\n1 1\n2 two\na.tgz\na.txt\n72\n")


def test_perl(t):
    t.need("perl")
    t.expect(run(t, workspace(t), "perl", "-e", "use Socket; use threads; print threads->create(sub { 42 })->join(), \"\\n\""), code=0, out="42\n")


def test_a_debugger_under_the_debug_profile(t):
    t.need("strace")
    p = {"version": 1, "syscalls": {"profile": "debug"}}
    r = t.run("strace", "-qq", "-o", "/tmp/log", "true", policy=p)
    t.expect(r, code=0)
    r = t.run("strace", "-o", "/tmp/log", "true")
    t.check(r.code != 0, "ptrace works under the default profile")


def test_the_strict_profile_runs_simple_programs(t):
    p = {"version": 1, "syscalls": {"profile": "strict"}}
    for argv, out in ((["echo", "hi"], "hi\n"), ([zw.PYTHON, "-c", "print(sum(range(10)))"], "45\n"), (["sh", "-c", "echo a | tr a b"], "b\n")):
        t.expect(t.run(*argv, policy=p), code=0, out=out)


def test_sudo_and_su_have_no_effect(t):
    if shutil.which("su"):
        r = t.run("su", "-c", "id -u", stdin=b"")
        t.check(r.code != 0 or r.out.strip() != b"0", "su works inside")


def example(t, name):
    """Runs the demo of an example against servers that it starts itself."""
    script = os.path.join(zw.TOP, "examples", name, "demo.sh")
    if not os.path.exists(script):
        script = os.path.join(os.path.dirname(os.path.dirname(zw.ZWINGER)), "examples", name, "demo.sh")
    t.check(os.path.exists(script), f"examples/{name}/demo.sh is not there")
    p = subprocess.run([script, zw.ZWINGER], capture_output=True, text=True, env=zw.caller_environment(), timeout=100, cwd=t.folder("cwd"))
    if p.returncode == 77:
        t.skip(p.stdout.strip())
    t.check(p.returncode == 0, f"the demo ends with {p.returncode}:\n{p.stdout}\n{p.stderr}")


def test_the_demo(t):
    module(t, "matplotlib")
    example(t, "data-analysis")


def test_the_example_of_an_api_with_a_secret(t):
    example(t, "api-with-secret")


def test_the_example_of_pip_install(t):
    example(t, "pip-install")


def test_the_example_of_a_database(t):
    example(t, "database")


if __name__ == "__main__":
    zw.main(globals())
