#!/usr/bin/python3 -B
"""Keys of the HTTP interface: by the API, by `zwinger keys` beside a running daemon and without one, and when they end."""
import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import tap  # noqa: E402
from daemon import HOST, Daemon, keys, read_until_closed, split_answers  # noqa: E402

FORM = re.compile(r"zwk_[0-9a-f]{40}")


def holds(d, key):
    return d.ask("GET", "/v1/info", key=key).status == 200


def test_nothing_is_served_without_a_key(t):
    d = Daemon(t)
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/v1/info", "/v1/keys", "/metrics", "/", "/nowhere", "/v1/sandboxes/x/files", "/v1/../health", "/%"):
            a = d.ask(method, path, b"" if method in ("POST", "PUT", "PATCH") else None, key=None)
            t.equal((a.status, a.headers.get("www-authenticate"), a.code), (401, "Bearer", "unauthorized"), f"{method} {path}")
    for path in ("/health", "/ready"):
        t.equal(d.ask("GET", path, key=None).status, 200, path)
        t.equal(d.ask("GET", path, key="zwk_" + "0" * 40).status, 200, f"{path} with a wrong key")


def test_the_ways_to_send_a_key(t):
    d = Daemon(t)
    e2b = "e2b_" + d.key[4:]
    for headers in ({"Authorization": f"Bearer {d.key}"}, {"authorization": f"bearer  {d.key}"}, {"X-API-KEY": d.key}, {"x-api-key": e2b}, {"Authorization": f"Bearer {e2b}"},
                    {"X-API-KEY": d.key, "Authorization": f"Bearer {d.key}"}, {"X-API-KEY": d.key, "Authorization": "Basic dXNlcjo="}):
        t.equal(d.ask("GET", "/v1/info", key=None, headers=headers).status, 200, headers)
    other = d.ask("POST", "/v1/keys", {"scope": "use"}).json["key"]
    for headers in ({"Authorization": d.key}, {"Authorization": f"Basic {d.key}"}, {"Authorization": f"Bearer {d.key[:-1]}"}, {"Authorization": f"Bearer {d.key}0"}, {"X-API-KEY": d.key[4:]},
                    {"X-API-KEY": "zwk_" + "z" * 40}, {"X-API-KEY": ""}, {"X-API-KEY": d.key.replace("zwk_", "ZWK_")}, {"X-API-KEY": other, "Authorization": f"Bearer {d.key}"}):
        t.equal(d.ask("GET", "/v1/info", key=None, headers=headers).status, 401, headers)
    t.equal(d.ask("GET", f"/v1/info?key={d.key}&api_key={d.key}&access_token={d.key}", key=None).status, 401, "in the URL")
    data, _ = d.raw(f"GET /v1/info HTTP/1.1\r\n{HOST}X-API-KEY: {d.key}\r\nX-API-KEY: {d.key}\r\nConnection: close\r\n\r\n")
    t.equal(split_answers(data)[0][0], 401, "twice")


def test_the_api_makes_lists_and_ends_keys(t):
    d = Daemon(t)
    a = d.ask("POST", "/v1/keys", {"name": "b\u00fcro", "scope": "create", "expires_in": "1h"})
    t.equal(a.status, 201, a.body)
    made = a.json
    t.check(FORM.fullmatch(made["key"]), made)
    t.equal(sorted(made), ["created_at", "expires_at", "id", "key", "name", "scope"], "members")
    t.equal((a.headers["location"], a.headers["cache-control"]), (f"/v1/keys/{made['id']}", "no-store"), "headers")
    listed = d.ask("GET", "/v1/keys").json
    t.equal([(k["name"], k["scope"]) for k in listed["keys"]], [("first", "admin"), ("b\u00fcro", "create")], "the list")
    t.check(all("key" not in k for k in listed["keys"]) and listed["next_cursor"] is None, listed)
    t.check(holds(d, made["key"]), "it works")
    t.equal(d.ask("DELETE", f"/v1/keys/{made['id']}").status, 204, "revoked")
    t.check(not holds(d, made["key"]), "it works no more")
    a = d.ask("DELETE", f"/v1/keys/{made['id']}")
    t.equal((a.status, a.code), (404, "not_found"), "again")


def test_the_list_has_pages(t):
    d = Daemon(t)
    for i in range(7):
        d.ask("POST", "/v1/keys", {"scope": "use", "name": str(i)})
    names, cursor = [], None
    while True:
        page = d.ask("GET", "/v1/keys?limit=3" + (f"&cursor={cursor}" if cursor else "")).json
        names += [k["name"] for k in page["keys"]]
        t.check(len(page["keys"]) <= 3, page)
        cursor = page["next_cursor"]
        if not cursor:
            break
    t.equal(names, ["first"] + [str(i) for i in range(7)], "all, once, in order")
    for query in ("limit=0", "limit=1001", "limit=x", "limit=-1", "cursor=x"):
        t.equal(d.ask("GET", f"/v1/keys?{query}").status, 400, query)


def test_keys_of_the_command_hold_at_once_and_end_within_a_second(t):
    d = Daemon(t)
    made = json.loads(keys(t, d, "add", "--name", "n", "--scope", "admin", "--json").stdout)
    t.check(holds(d, made["key"]), "a key that another process has made")
    t.equal([k["name"] for k in json.loads(keys(t, d, "list", "--json").stdout)["keys"]], ["first", "n"], "the list")
    keys(t, d, "revoke", made["id"])
    revoked = time.monotonic()
    t.until(lambda: not holds(d, made["key"]), 1, "the revocation holds")
    t.note(f"after {time.monotonic() - revoked:.3f} s")
    t.equal(keys(t, d, "revoke", made["id"], code=1).returncode, 1, "again")


def test_the_command_prints_the_key_alone(t):
    d = Daemon(t)
    r = keys(t, d, "add")
    t.check(FORM.fullmatch(r.stdout.strip()), r.stdout)
    t.contains(r.stderr, "only time", "what is said about it")
    t.equal(d.ask("GET", "/v1/keys", key=r.stdout.strip()).status, 403, "its scope is create")


def test_a_revocation_ends_what_is_under_way(t):
    d = Daemon(t)
    made = json.loads(keys(t, d, "add", "--scope", "admin", "--json").stdout)
    s = d.socket(10)
    s.sendall(f"POST /v1/keys HTTP/1.1\r\n{HOST}X-API-KEY: {made['key']}\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{{".encode())
    time.sleep(0.2)
    idle = d.socket(2)
    keys(t, d, "revoke", made["id"])
    start = time.monotonic()
    data, how = read_until_closed(s)
    t.equal((data, how), (b"", "reset"), "the request of that key")
    t.check(time.monotonic() - start < 1, "within a second")
    t.equal(read_until_closed(idle)[1], "open", "another connection")


def test_an_expired_key_holds_no_more_and_ends_what_is_under_way(t):
    d = Daemon(t)
    made = d.ask("POST", "/v1/keys", {"scope": "admin", "expires_in": 2}).json
    t.check(holds(d, made["key"]), "before")
    s = d.socket(10)
    s.sendall(f"POST /v1/keys HTTP/1.1\r\n{HOST}X-API-KEY: {made['key']}\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{{".encode())
    t.equal(read_until_closed(s), (b"", "reset"), "what is under way")
    t.check(not holds(d, made["key"]), "after")


def test_keys_without_a_daemon(t):
    state = t.tmp("fresh")
    made = json.loads(keys(t, state, "add", "--scope", "admin", "--json").stdout)
    t.equal(os.stat(state).st_mode & 0o777, 0o700, "mode of the directory")
    d = Daemon(t, state=state)
    t.equal(d.key, None, "there is a key already, so none is made")
    t.check(holds(d, made["key"]), "it holds")
    d.end()
    keys(t, d, "revoke", made["id"])
    t.equal(json.loads(keys(t, d, "list", "--json").stdout), {"keys": []}, "none is left")


def test_restarts_keep_keys(t):
    d = Daemon(t)
    made = d.ask("POST", "/v1/keys", {"scope": "use", "name": "kept"}).json
    gone = d.ask("POST", "/v1/keys", {"scope": "use"}).json
    d.ask("DELETE", f"/v1/keys/{gone['id']}")
    first = d.key
    for end in (d.end, lambda: (d.process.kill(), d.process.wait())):
        end()
        d = Daemon(t, state=d.state)
        t.equal((holds(d, first), holds(d, made["key"]), holds(d, gone["key"])), (True, True, False), "first, kept, revoked")


def test_no_key_is_in_the_state(t):
    d = Daemon(t)
    digits = d.key[4:]
    d.end()
    for folder, _, names in os.walk(d.state):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                data = f.read()
            t.check(digits.encode() not in data and bytes.fromhex(digits) not in data, f"the key is in {name}")


def test_wrong_commands_are_named(t):
    state = t.tmp("s")
    for words, part in (((), "add, list or revoke"), (("ad",), "add, list or revoke"), (("add", "--scope", "root"), "--scope"), (("add", "--expires", "never"), "--expires"), 
                        (("list", "--name", "x"), "--name"), (("revoke",), "ID"), (("revoke", "a", "b"), "b"), (("add", "--name", "a\nb"), "control character")):
        r = keys(t, state, *words, code=None)
        t.equal((r.returncode, r.stdout), (125, ""), f"{words}: {r.stderr}")
        t.contains(r.stderr, part, f"{words}")


def test_many_at_once(t):
    """Requests, additions and revocations by several processes at the same time."""
    d = Daemon(t)
    wrong = []

    def work(i):
        for n in range(4):
            made = json.loads(keys(t, d, "add", "--name", f"{i}-{n}", "--scope", "use", "--json").stdout)
            if not holds(d, made["key"]):
                wrong.append(f"{i}-{n} does not hold")
            a = d.ask("DELETE", f"/v1/keys/{made['id']}")
            if a.status != 204 or holds(d, made["key"]):
                wrong.append(f"{i}-{n} was not revoked: {a.status}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    t.equal(wrong, [], "what went wrong")
    t.equal(len(d.ask("GET", "/v1/keys").json["keys"]), 1, "keys that are left")


tap.main(globals())
