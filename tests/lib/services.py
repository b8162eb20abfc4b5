"""Servers that are programs of the system, started for one test as a user without rights."""
import glob
import os
import socket
import subprocess
import time

import network
import zw


def _environment(home):
    return {"PATH": zw.PATH, "HOME": home, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


def user():
    uid, home = network._Place.server_user
    return {"user": uid, "group": uid, "extra_groups": []} if zw.AM_ROOT else {}, home


def folder(t, name):
    """A folder of the test that belongs to the user of the servers."""
    path = t.folder(name)
    os.chmod(os.path.dirname(path), 0o711)
    if zw.AM_ROOT:
        os.chown(path, network._Place.server_user[0], network._Place.server_user[0])
    return path


def start(t, argv, address, port, **more):
    """Starts a server and waits until it takes connections."""
    who, home = user()
    log = open(t.tmp(f"log-{port}"), "wb")
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(home), cwd="/", **who, **more)

    def stop():
        p.terminate()
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        log.close()

    t.at_end(stop)
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((address, port), 1).close()
            return p
        except OSError:
            if p.poll() is not None or time.monotonic() > end:
                with open(log.name, "rb") as f:
                    raise zw.Failure(f"{argv[0]} does not serve: {f.read()[-2000:]!r}") from None
            time.sleep(0.005)


def postgres(t, address=network.PRIVATE, port=5432):
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    if not programs:
        t.skip("postgresql is not installed")
    place, data = os.path.dirname(programs[-1]), folder(t, "postgres")
    who, home = user()
    p = subprocess.run([f"{place}/initdb", "-D", data, "-U", "tester", "--auth=trust", "--no-sync", "--no-instructions", "-E", "UTF8"], env=_environment(home),
                       capture_output=True, text=True, cwd="/", **who)
    if p.returncode != 0:
        raise zw.Failure(f"initdb: {p.stderr}")
    with open(os.path.join(data, "pg_hba.conf"), "a") as f:
        f.write("host all all 0.0.0.0/0 trust\n")
    return start(t, [f"{place}/postgres", "-D", data, "-h", address, "-p", str(port), "-k", "", "-F", "-c", "shared_buffers=2MB", "-c", "autovacuum=off"],
                 address, port)


def redis(t, address=network.PRIVATE, port=6379):
    """Debian's redis-tools has the server in it, under the name of its checker; redis-server would also start one for the machine."""
    t.need("redis-cli", "redis-check-rdb")
    return start(t, ["redis-server", "--bind", address, "--port", str(port), "--save", "", "--appendonly", "no", "--protected-mode", "no"], address, port,
                 executable="/usr/bin/redis-check-rdb")


def nghttpd(t, folder_to_serve, certificate, port=8443):
    t.need("nghttpd")
    if zw.AM_ROOT:
        os.chown(certificate[1], network._Place.server_user[0], -1)
    return start(t, ["nghttpd", "-a", network.PUBLIC, "-d", folder_to_serve, str(port), certificate[1], certificate[0]], network.PUBLIC, port)


def ssh(t, port=2222):
    """A server that takes one key, and (the name of the user, the key's file)."""
    t.need("dropbear", "dropbearkey", "ssh-keygen")
    who, home = user()
    place = folder(t, "ssh")

    def make(*argv):
        p = subprocess.run(argv, capture_output=True, text=True, env=_environment(home), cwd="/", **who)
        if p.returncode != 0:
            raise zw.Failure(f"{argv}: {p.stderr}")

    make("dropbearkey", "-t", "ed25519", "-f", f"{place}/host")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", t.tmp("id")], check=True, capture_output=True)
    make("mkdir", "-m", "700", "-p", f"{home}/.ssh")
    with open(t.tmp("id.pub")) as key, open(f"{home}/.ssh/authorized_keys", "w") as f:
        f.write(key.read())
    os.chmod(f"{home}/.ssh/authorized_keys", 0o600)
    if zw.AM_ROOT:
        os.chown(f"{home}/.ssh/authorized_keys", network._Place.server_user[0], network._Place.server_user[0])
    start(t, ["dropbear", "-F", "-E", "-s", "-e", "-r", f"{place}/host", "-p", f"{network.PUBLIC}:{port}", "-P", f"{place}/pid"], network.PUBLIC, port)
    return "tester", t.tmp("id")
