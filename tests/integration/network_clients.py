#!/usr/bin/python3 -B
# shards: 2
"""Programs that know nothing of any broker: each reaches the server that a rule allows, as it would without a sandbox."""
import base64
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import network  # noqa: E402
import services  # noqa: E402
import zw  # noqa: E402
from network import PRIVATE, World, connections, requests  # noqa: E402
from servers import git_backend, read_all  # noqa: E402
from network_tls import JAVA  # noqa: E402

HTTP = {"host": "api.test", "protocol": "http"}
TCP = {"host": "echo.test", "ports": [7]}


# ---- Web clients ----------------------------------------------------------------------------------------------------------


def test_curl_over_plain_tls_and_tcp_rules(t):
    t.need("curl")
    w = World(t)
    w.origin(80, "api.test", "raw.test")
    w.origin(443, "tls.test", tls=True)
    rules = [HTTP, {"host": "raw.test", "ports": [80]}, {"host": "tls.test", "protocol": "tls"}]
    ca = w.authority.path
    script = (f"curl -sS http://api.test/ok; curl -sS --http1.0 http://api.test/ok; curl -sS http://raw.test/ok; curl -sS --cacert {ca} https://tls.test/ok\n"
              "curl -sS -d x=1 http://api.test/echo | grep -c x-www-form; curl -sS -T /etc/passwd http://api.test/upload | wc -l; curl -sS http://api.test/ok http://api.test/ok")
    t.expect(w.run("sh", "-c", script, allow=rules, flags=["--ro", ca]), code=0, out="ok\nok\nok\nok\n1\n1\nok\nok\n")


def test_http_2_through_a_tls_rule(t):
    t.need("curl")
    w = World(t)
    w.name("h2.test")
    site = services.folder(t, "www")
    with open(os.path.join(site, "index.html"), "w") as f:
        f.write("over h2\n")
    with open(os.path.join(site, "big"), "wb") as f:
        f.write(b"b" * 3_000_000)
    services.nghttpd(t, site, w.authority.issue("h2.test"))
    ca = w.authority.path
    script = (f"curl -sS --cacert {ca} -w '%{{http_version}}\\n' https://h2.test:8443/index.html; curl -sS --cacert {ca} https://h2.test:8443/big | wc -c\n"
              f"curl -sS --cacert {ca} -Z --parallel-max 20 $(for i in $(seq 50); do echo https://h2.test:8443/index.html; done) | sort | uniq -c | tr -s ' '")
    t.expect(w.run("sh", "-c", script, allow=[{"host": "h2.test", "ports": [8443], "protocol": "tls"}], flags=["--ro", ca]), code=0,
             out="over h2\n2\n3000000\n 50 over h2\n")


def test_wget_with_its_retries_and_resumption(t):
    t.need("wget")
    w = World(t)
    w.origin(80, "api.test")
    t.expect(w.run("sh", "-c", "wget -q -O - http://api.test/ok; wget -q -O - 'http://api.test/until-close?n=100000' | wc -c; wget -q --tries=1 http://evil.test/; echo $?", allow=[HTTP]),
             code=0, out="ok\n100000\n4\n")


def test_pythons_urllib(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import urllib.request, urllib.error\nsay(urllib.request.urlopen('http://api.test/ok').read())\n"
            "try: urllib.request.urlopen('http://evil.test/')\nexcept urllib.error.URLError as e: say(type(e.reason).__name__)\n"
            "say(json.load(urllib.request.urlopen('http://api.test/echo', b'body'))['size'])")
    t.expect(w.python(code, allow=[HTTP]), code=0, out="b'ok\\n'\ngaierror\n4\n")


def test_pythons_asyncio(t):
    w = World(t)
    w.echo(7)
    w.name("echo.test")
    code = ("import asyncio\nasync def one(i):\n    r, w = await asyncio.open_connection('echo.test', 7); w.write(b'%d' % i); w.write_eof(); d = await r.read(); w.close(); return d == b'%d' % i\n"
            "async def all(): say(sum(await asyncio.gather(*[one(i) for i in range(200)])))\nasyncio.run(all())")
    t.expect(w.python(code, allow=[TCP]), code=0, out="200\n")


def test_pythons_requests(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import requests\ns = requests.Session()\nsay(s.get('http://api.test/ok').text.strip(), s.get('http://api.test/ok').status_code)\n"
            "try: s.get('http://evil.test/')\nexcept requests.exceptions.ConnectionError: say('refused')")
    t.expect(w.python(code, allow=[HTTP]), code=0, out="ok 200\nrefused\n")


def test_pythons_aiohttp(t):
    w = World(t)
    w.origin(80, "api.test")
    code = ("import aiohttp, asyncio\nasync def main():\n    async with aiohttp.ClientSession() as s:\n        async def one():\n"
            "            async with s.get('http://api.test/ok') as r: return await r.text()\n"
            "        say(set(await asyncio.gather(*[one() for _ in range(50)])))\n        try: await s.get('http://evil.test/')\n"
            "        except aiohttp.ClientConnectorError: say('refused')\nasyncio.run(main())")
    t.expect(w.python(code, allow=[HTTP]), code=0, out="{'ok\\n'}\nrefused\n")


def test_nodes_fetch_and_http_module(t):
    t.need("node")
    w = World(t)
    w.origin(80, "api.test")
    code = ("fetch('http://api.test/ok').then(r => r.text()).then(x => { process.stdout.write(x); return fetch('http://evil.test/'); })"
            ".catch(e => { console.log(e.cause.code); require('http').get('http://api.test/ok', { agent: new (require('http').Agent)({ keepAlive: true }) }, r => r.pipe(process.stdout).on('end', () => 0)); "
            "setTimeout(() => process.exit(), 200); })")
    t.expect(w.run("node", "-e", code, allow=[HTTP], flags=["--memory", "1G"]), code=0, out="ok\nENOTFOUND\nok\n")


def test_javas_http_client(t):
    t.need("java", "javac")
    w = World(t)
    w.origin(80, "api.test")
    source = t.file(JAVA, "in", "Fetch.java")
    r = w.run("java", "-XX:TieredStopAtLevel=1", source, "http://api.test/ok", allow=[HTTP], flags=["--memory", "1500M", "--ro", os.path.dirname(source)], timeout=90)
    t.expect(r, code=0, out="ok\n")


def test_openssl_s_client(t):
    w = World(t)
    w.origin(443, "tls.test", tls=True)
    script = f"printf 'GET /ok HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -CAfile {w.authority.path} -connect tls.test:443 2>/dev/null | tail -1"
    t.expect(w.run("sh", "-c", script, allow=[{"host": "tls.test"}], flags=["--ro", w.authority.path]), code=0, out="ok\n")


# ---- git ------------------------------------------------------------------------------------------------------------------


def repository(path):
    env = zw.caller_environment({"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"})
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "init.defaultBranch=main"]
    source = path + ".source"
    subprocess.run(["sh", "-ec", f"mkdir -p {source}; cd {source}; {' '.join(git)} init -q; seq 100000 > numbers; {' '.join(git)} add .; {' '.join(git)} commit -q -m first;"
                    f"git clone -q --bare {source} {path}; git -C {path} config http.receivepack true"], env=env, check=True, capture_output=True)


CLONE = "git clone -q {0} /tmp/c && cd /tmp/c && wc -l < numbers && git -c user.name=t -c user.email=t@t.test commit -q --allow-empty -m second && git push -q origin HEAD:refs/heads/topic && git ls-remote {0} | wc -l"


def test_git_over_https(t):
    t.need("git")
    w = World(t)
    base = t.folder("git")
    repository(os.path.join(base, "demo"))
    o = w.origin(443, "git.test", tls=True)
    o.routes["/git/"] = git_backend(base)
    for rule in ({"host": "git.test", "protocol": "https", "methods": ["GET", "POST"], "paths": ["/git/demo/**"]}, {"host": "git.test", "protocol": "tls"}):
        flags = ["--ro", w.authority.path, "--memory", "1G"]
        trust = f"export GIT_SSL_CAINFO={w.authority.path}; " if rule["protocol"] == "tls" else ""
        r = w.run("sh", "-c", trust + CLONE.format("https://git.test/git/demo"), allow=[rule], flags=flags)
        t.expect(r, code=0, out="100000\n3\n")
        subprocess.run(["git", "-C", os.path.join(base, "demo"), "branch", "-q", "-D", "topic"], check=True, capture_output=True,
                       env=zw.caller_environment({"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}))
    r = w.run("git", "ls-remote", "https://git.test/git/other", allow=[{"host": "git.test", "protocol": "https", "paths": ["/git/demo/**"]}])
    t.check(r.code != 0 and "403" in r.errors, f"another repository: {r.errors}")


def test_git_and_commands_over_ssh(t):
    t.need("git", "ssh")
    w = World(t)
    w.name("git.test")
    user, key = services.ssh(t)
    base = services.folder(t, "git")
    repository(os.path.join(base, "demo"))
    if zw.AM_ROOT:
        uid = services.user()[0]["user"]
        for folder, folders, files in os.walk(base):
            for n in [".", *files]:
                os.chown(os.path.join(folder, n), uid, uid)
    keys = os.path.dirname(key)
    script = (f"cp {key} /tmp/id && chmod 600 /tmp/id\n"
              "export GIT_SSH_COMMAND='ssh -F none -i /tmp/id -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR'\n"
              f"$GIT_SSH_COMMAND -p 2222 {user}@git.test 'echo by ssh; cat' < /dev/null; head -c 3000000 /dev/zero | $GIT_SSH_COMMAND -p 2222 {user}@git.test 'wc -c'\n"
              + CLONE.format(f"ssh://{user}@git.test:2222{base}/demo"))
    r = w.run("sh", "-c", script, allow=[{"host": "git.test", "ports": [2222]}], flags=["--ro", key, "--memory", "1G"], timeout=60)
    t.note(keys)
    t.expect(r, code=0, out="by ssh\n3000000\n100000\n3\n")


# ---- Databases ------------------------------------------------------------------------------------------------------------


def test_psql_with_a_real_server(t):
    t.need("psql")
    w = World(t)
    services.postgres(t)
    script = ("psql -h db.internal -U tester -d postgres -Atqc 'select 6 * 7' -c 'create table n as select generate_series(1, 200000) as i' -c 'select sum(i) from n'\n"
              "psql -h db.internal -U tester -d postgres -Atqc 'copy n to stdout' | wc -l\n"
              f"psql -h {PRIVATE} -U tester -d postgres -Atqc 'select 1'; psql -h {PRIVATE} -p 5433 -U tester -d postgres -Atqc 'select 2' 2>&1 | grep -c -i -e refused -e unreachable")
    rules = [{"host": "db.internal", "ports": [5432]}, {"address": f"{PRIVATE}/32", "ports": [5432]}]
    r = w.run("sh", "-c", script, allow=rules, hosts={"db.internal": PRIVATE}, timeout=60)
    t.expect(r, code=0, out="42\n20000100000\n200000\n1\n1\n")
    t.check(connections(r, "db.internal", 5432), f"connections: {r.doc['connections']}")


def test_redis_with_a_real_server(t):
    w = World(t)
    services.redis(t)
    script = ("redis-cli -h cache.internal set a 1; redis-cli -h cache.internal incr a; for i in $(seq 500); do echo rpush l $i; done | redis-cli -h cache.internal | tail -1\n"
              "redis-cli -h cache.internal llen l")
    t.expect(w.run("sh", "-c", script, allow=[{"host": "cache.internal", "ports": [6379]}], hosts={"cache.internal": PRIVATE}), code=0, out="OK\n2\n500\n500\n")


# ---- Packages -------------------------------------------------------------------------------------------------------------


def wheel(name, version, text):
    data, info = io.BytesIO(), f"{name}-{version}.dist-info"
    with zipfile.ZipFile(data, "w") as z:
        z.writestr(f"{name}.py", text)
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return data.getvalue()


def python_index(o):
    data = wheel("demopkg", "1.2", "print('demo')\n")
    link = f"/files/demopkg-1.2-py3-none-any.whl#sha256={hashlib.sha256(data).hexdigest()}"
    o.routes["/simple/demopkg/"] = (200, {"Content-Type": "text/html"}, f'<!DOCTYPE html><html><body><a href="{link}">demopkg-1.2-py3-none-any.whl</a></body></html>'.encode())
    o.routes["/files/demopkg-1.2-py3-none-any.whl"] = (200, {"Content-Type": "application/octet-stream"}, data)


def npm_registry(o, base):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in (("package/package.json", json.dumps({"name": "demopkg", "version": "1.2.0", "main": "index.js"})), ("package/index.js", "console.log('demo')\n")):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    data = data.getvalue()
    dist = {"tarball": f"{base}/demopkg/-/demopkg-1.2.0.tgz", "shasum": hashlib.sha1(data).hexdigest(),
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    o.routes["/demopkg"] = (200, {"Content-Type": "application/json"},
                            json.dumps({"name": "demopkg", "dist-tags": {"latest": "1.2.0"},
                                        "versions": {"1.2.0": {"name": "demopkg", "version": "1.2.0", "dist": dist}}}).encode())
    o.routes["/demopkg/-/demopkg-1.2.0.tgz"] = (200, {"Content-Type": "application/octet-stream"}, data)


PIP = "python3 -m pip install -q --no-cache-dir --target /tmp/lib {0} demopkg 2>&1 && PYTHONPATH=/tmp/lib python3 -m demopkg"


def need_pip(t):
    if subprocess.run([zw.PYTHON, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        t.skip("pip is not installed")


def test_pip_with_a_rule_written_by_hand(t):
    need_pip(t)
    w = World(t)
    o = w.origin(443, "index.test", tls=True)
    python_index(o)
    rules = [{"host": "index.test", "protocol": "https", "methods": ["GET"], "paths": ["/simple/**", "/files/**"]}]
    r = w.run("sh", "-c", PIP.format("--index-url https://index.test/simple/"), allow=rules, flags=["--memory", "1G"], env={"PATH": "/usr/bin:/bin"})
    t.expect(r, code=0, out="demo\n")
    t.check(all(q.method == "GET" for q in o.requests), "methods")


def test_pip_by_its_rule_set(t):
    need_pip(t)
    w = World(t)
    o = w.origin(443, "index.test", tls=True)
    python_index(o)
    home = t.folder("home")
    t.file("[global]\nindex-url = https://index.test/simple/\n", "home", ".config", "pip", "pip.conf")
    for more in ({"allow": ["@pip"]}, {"flags": ["--allow", "@pip"]}):
        flags = [*more.pop("flags", []), "--memory", "1G"]
        r = w.run("sh", "-c", PIP.format(""), flags=flags, env={"HOME": home, "PATH": "/usr/bin:/bin"}, **more)
        t.expect(r, code=0, out="demo\n")
    code = "say(http('index.test', 443, get('/simple/x', 'index.test', 'POST', body=b'data'), ssl.create_default_context())[0], reach('evil.test', 443))"
    t.expect(w.python(code, allow=["@pip"], env={"HOME": home, "PATH": "/usr/bin:/bin"}), code=0, out="403 noname\n")
    r = w.run("sh", "-c", "python3 -m pip download -q -d /tmp/x no-such-package-at-all 2>&1; echo $?", allow=["@pip"], env={"HOME": home, "PATH": "/usr/bin:/bin"},
              flags=["--memory", "1G"])
    t.check(r.lines[-1] == "1" and r.wall < 15, f"a package that is not there: {r.wall} s, {r.text}")


NPM = "mkdir -p /tmp/p && cd /tmp/p && npm install --silent --no-audit --no-fund demopkg {0} && node node_modules/demopkg/index.js"


def test_npm_with_a_rule_written_by_hand(t):
    t.need("npm", "node")
    w = World(t)
    o = w.origin(443, "registry.test", tls=True)
    npm_registry(o, "https://registry.test")
    rules = [{"host": "registry.test", "protocol": "https", "methods": ["GET"], "paths": ["/demopkg", "/demopkg/**"]}]
    r = w.run("sh", "-c", NPM.format("--registry https://registry.test/"), allow=rules, flags=["--memory", "1500M"], timeout=90)
    t.expect(r, code=0, out="demo\n")


def test_npm_by_its_rule_set(t):
    t.need("npm", "node")
    w = World(t)
    o = w.origin(443, "registry.test", tls=True)
    npm_registry(o, "https://registry.test")
    home = t.folder("home")
    t.file("registry=https://registry.test/\n", "home", ".npmrc")
    r = w.run("sh", "-c", NPM.format(""), allow=["@npm"], env={"HOME": home}, flags=["--memory", "1500M"], timeout=90)
    t.expect(r, code=0, out="demo\n")
    t.equal({m for m, _, _ in requests(r, "registry.test")}, {"GET"}, "methods")


def apt_repository(folder):
    """One package, unsigned."""
    package = os.path.join(folder, "package")
    os.makedirs(os.path.join(package, "DEBIAN"))
    with open(os.path.join(package, "DEBIAN/control"), "w") as f:
        f.write("Package: zw-demo\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: a test\n")
    pool, index = os.path.join(folder, "debian/pool"), os.path.join(folder, "debian/dists/stable/main/binary-amd64")
    os.makedirs(pool)
    os.makedirs(index)
    deb = os.path.join(pool, "zw-demo_1.0_all.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", package, deb], check=True, capture_output=True)
    with open(deb, "rb") as f:
        data = f.read()
    with open(os.path.join(index, "Packages"), "w") as f:
        f.write(f"Package: zw-demo\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: a test\nFilename: pool/zw-demo_1.0_all.deb\n"
                f"Size: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n")


def folder_routes(folder, prefix):
    """{path: answer} for every file below the folder."""
    out = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as f:
                out[prefix + os.path.relpath(path, folder)] = (200, {"Content-Type": "application/octet-stream"}, f.read())
    return out


def test_apt_by_its_rule_set(t):
    t.need("apt-get", "dpkg-deb")
    w = World(t)
    folder, sources = t.folder("repository"), t.folder("sources")
    apt_repository(folder)
    with open(os.path.join(sources, "demo.list"), "w") as f:
        f.write("deb [trusted=yes] http://mirror.test/debian stable main\n")
    network._bind(sources, "/etc/apt/sources.list.d")
    if os.path.exists("/etc/apt/sources.list"):
        network._bind(t.file("", "empty.list"), "/etc/apt/sources.list")
    o = w.origin(80, "mirror.test")
    o.routes.update(folder_routes(os.path.join(folder, "debian"), "/debian/"))
    script = "apt-get -q update > log 2>&1 || cat log; apt-get -q download zw-demo > log 2>&1 || cat log; ls *.deb; curl -s -o /dev/null -w '%{http_code}' http://mirror.test/other"
    r = w.run("sh", "-c", script, allow=["@apt"], flags=["--memory", "1G"], timeout=60)
    t.expect(r, code=0, out="zw-demo_1.0_all.deb\n403")
    t.equal({m for m, _, _ in requests(r, "mirror.test")}, {"GET"}, "methods")


def test_git_https_by_its_rule_set(t):
    t.need("git")
    w = World(t)
    base = t.folder("git")
    repository(os.path.join(base, "demo"))
    o = w.origin(443, "git.test", tls=True)
    o.routes["/git/"] = git_backend(base)
    folder = t.folder("clone")
    env = zw.caller_environment({"GIT_CONFIG_GLOBAL": "/dev/null"})
    subprocess.run(["sh", "-ec", "git init -q; git remote add origin https://git.test/git/demo"], cwd=folder, env=env, check=True, capture_output=True)
    script = "git fetch -q origin && git log --oneline origin/main | wc -l; git ls-remote https://git.test/git/other 2>&1 | grep -c 403; git push -q origin origin/main:refs/heads/x 2>&1 | grep -c 403"
    r = w.run("sh", "-c", script, allow=["@git-https"], flags=["--workspace", f"{folder}:/work:rw", "--memory", "1G"])
    t.expect(r, out="1\n1\n1\n")


# ---- Connections as such --------------------------------------------------------------------------------------------------


def test_half_closed_connections_go_on_in_the_other_direction(t):
    w = World(t)

    def late(s):  # speaks only after the end of input
        n = len(read_all(s))
        for i in range(100):
            s.sendall(b"%d " % i + b"p" * 10000)
        return n

    def early(s):  # ends its output at once, and goes on reading
        s.sendall(b"bye")
        s.shutdown(1)
        return len(read_all(s))

    a, b = w.talker(5000, late), w.talker(5001, early)
    w.name("half.test")
    code = ("s = socket.create_connection(('half.test', 5000), 20); s.sendall(b'q' * 300000); s.shutdown(1); say(len(read_all(s)))\n"
            "s = socket.create_connection(('half.test', 5001), 20); say(read_all(s)); time.sleep(0.05); s.sendall(b'r' * 2000000); s.close()")
    t.expect(w.python(code, allow=[{"host": "half.test", "ports": [5000, 5001]}]), code=0, out=f"{100 * 10001 + sum(len(str(i)) for i in range(100))}\nb'bye'\n")
    t.equal(a.result(), 300000, "bytes before the end of input")
    t.equal(b.result(), 2000000, "bytes after the end of output")


def test_a_reset_of_either_side_is_passed_on(t):
    w = World(t)
    linger = "struct.pack('ii', 1, 0)"

    def resets(s):
        s.recv(10)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()

    def is_reset(s):
        try:
            s.sendall(b"x")
            while s.recv(10):
                pass
        except ConnectionResetError:
            return "reset"
        return "closed"

    w.talker(5000, resets)
    b = w.talker(5001, is_reset)
    w.name("reset.test")
    code = ("s = socket.create_connection(('reset.test', 5000), 8); s.send(b'x')\ntry: say('closed' if not s.recv(10) else 'data')\nexcept OSError as e: say(word(e))\n"
            f"s = socket.create_connection(('reset.test', 5001), 8); s.recv(1); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, {linger}); s.close()")
    t.expect(w.python(code, allow=[{"host": "reset.test", "ports": [5000, 5001]}]), code=0, out="ECONNRESET\n")
    t.equal(b.result(), "reset", "what the server saw")


def test_a_server_that_speaks_first(t):
    w = World(t)
    w.talker(5000, lambda s: (s.sendall(b"220 ready\r\n"), read_all(s))[1])
    w.name("smtp.test")
    code = "s = socket.create_connection(('smtp.test', 5000), 8); say(s.recv(100))"
    t.expect(w.python(code, allow=[{"host": "smtp.test", "ports": [5000]}]), code=0, out="b'220 ready\\r\\n'\n")


def test_large_transfers_arrive_byte_by_byte_as_they_were(t):
    w = World(t)
    w.echo(7)
    w.name("echo.test")
    code = ("import hashlib\ns = socket.create_connection(('echo.test', 7), 20); n = 30 << 20; a, b = hashlib.sha256(), hashlib.sha256()\n"
            "def send():\n    left = n\n    while left: d = os.urandom(min(left, 99991)); a.update(d); s.sendall(d); left -= len(d)\n    s.shutdown(1)\n"
            "t = threading.Thread(target=send); t.start(); got = 0\nwhile d := s.recv(1 << 20): b.update(d); got += len(d)\n"
            "t.join(); say(got == n, a.digest() == b.digest())")
    r = t.expect(w.python(code, allow=[TCP], timeout=60), code=0, out="True True\n")
    c = connections(r, "echo.test")[0]
    t.equal((c["sent"], c["received"]), (30 << 20, 30 << 20), "bytes in the record")


MANY = r'''
import selectors
count, each = int(sys.argv[1]), b"0123456789"
a = socket.getaddrinfo("echo.test", 7)[0][4]
sel, done, bad = selectors.DefaultSelector(), 0, 0
ss = []
for i in range(count):
    s = socket.socket(); s.setblocking(False); s.connect_ex(a); ss.append(s)
    sel.register(s, selectors.EVENT_WRITE, "connect")
while done + bad < count:
    ready = sel.select(20)
    if not ready: break
    for k, _ in ready:
        s = k.fileobj
        try:
            if k.data == "connect":
                if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR): raise OSError
                s.send(each); sel.modify(s, selectors.EVENT_READ, "answer")
            else:
                if s.recv(100) != each: raise OSError
                done += 1; sel.unregister(s)
        except OSError: bad += 1; sel.unregister(s)
say(done, bad)
'''


def test_a_thousand_connections_at_once(t):
    w = World(t)
    echo = w.echo(7)
    w.name("echo.test")
    r = w.python(MANY, 1000, allow=[TCP], policy_more={"limits": {"open_files": 4096}})
    t.expect(r, code=0, out="1000 0\n")
    t.equal(echo.most, 1000, "at once at the server")
    t.equal(sum(c.get("count", 1) for c in connections(r, "echo.test")), 1000, "in the record")


@zw.alone
def test_ten_thousand_connections_in_a_run(t):
    w = World(t)
    echo = w.echo(7)
    w.name("echo.test")
    code = ("bad = 0\ndef some():\n    global bad\n    for _ in range(2500):\n        try:\n            with socket.create_connection(('echo.test', 7), 20) as s: s.send(b'x'); bad += s.recv(1) != b'x'\n"
            "        except OSError: bad += 1\n"
            "ts = [threading.Thread(target=some) for _ in range(4)]\nfor x in ts: x.start()\nfor x in ts: x.join()\nsay(bad)")
    run = w.start_python(code + "\nsys.stdin.readline()", allow=[TCP], stdin=subprocess.PIPE, flags=["--time", "60s"])
    t.equal(run.read_line(60), b"0\n", "connections that failed")
    t.equal(echo.accepted, 10000, "at the server")
    pid = network.brokers(run)[0]
    t.until(lambda: echo.open == 0, 10, "the connections to the server are closed again")
    t.check(not zw.AM_ROOT or len(os.listdir(f"/proc/{pid}/fd")) < 100, "the broker keeps descriptors of connections that are over")
    t.check(network.private_bytes(pid) < 12 << 20, f"{network.private_bytes(pid)} bytes of the broker")
    r = t.expect(run.finish(20, b"\n"), code=0)
    t.equal(sum(c.get("count", 1) for c in connections(r, "echo.test")), 10000, "in the record")


def test_a_hundred_idle_connections_cost_little(t):
    w = World(t)
    w.echo(7)
    w.name("echo.test")
    code = "ss = [socket.create_connection(('echo.test', 7)) for _ in range(100)]\nfor s in ss: s.send(b'x'); s.recv(1)\nsay('up'); sys.stdin.readline()"
    run = w.start_python(code, allow=[TCP], stdin=subprocess.PIPE)
    t.equal(run.read_line(), b"up\n", "line")
    t.between(network.private_bytes(network.brokers(run)[0]), 1, 6 << 20, "private bytes of the broker with 100 connections")
    t.expect(run.finish(20, b"\n"), code=0)


if __name__ == "__main__":
    network.main(globals())
