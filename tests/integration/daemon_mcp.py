#!/usr/bin/python3 -B
"""MCP of a daemon: keys, sessions, the stateless revision with its headers, events, clients that leave."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import zw  # noqa: E402
from daemon import Daemon, keys, wait_for  # noqa: E402
from mcp import META, MODERN, Http, message  # noqa: E402


def serve(t, *flags):
    loose = json.dumps({"version": 1, "enforcement": "best-effort"})
    d = Daemon(t, "--ceiling", t.file(loose, "ceiling.yaml"), "--policy", t.file(loose, "policy.yaml"), *flags)
    return d, Http(d)


def live(d):
    return [s["id"] for s in d.ask("GET", "/v1/sandboxes").json["sandboxes"]]


# ---- Who may ---------------------------------------------------------------------------------------------------------------


def test_a_key_of_scope_create_is_needed(t):
    d, c = serve(t)
    small = json.loads(keys(t, d, "add", "--scope", "use", "--json").stdout)["key"]
    t.equal(c.post("ping", key=None)[0].status, 401, "no key")
    t.equal(c.post("ping", key="zwk_" + "0" * 40)[0].status, 401, "a wrong one")
    t.equal(c.post("ping", key=small)[0].status, 403, "a small one")
    t.equal(d.ask("GET", "/mcp", key=None).status, 401, "GET")
    t.equal(c.post("ping", modern=True, headers={"Origin": "https://evil.example"})[0].status, 403, "Origin")
    t.equal(c.post("ping", modern=True, headers={"Host": "evil.example"})[0].status, 421, "Host")
    t.equal(c.post("ping", modern=True, headers={"Origin": f"http://localhost:{d.port}"})[0].status, 200, "its own origin")


# ---- With a session --------------------------------------------------------------------------------------------------------


def test_a_session_has_its_own_sandboxes(t):
    d, c = serve(t)
    t.equal(c.start()["protocolVersion"], "2025-11-25", "revision")
    t.equal(c.ask("ping")["result"], {}, "ping")
    t.check(not c.call("write_file", path="f", content="1").error, "work")
    other = Http(d)
    other.start("2025-03-26")
    t.check(other.call("read_file", path="f").error, "another session, another sandbox")
    t.equal(c.call("run_code", code="open('f').read()").data["text"], "1", "code and files are in the same one")
    t.equal(len(live(d)), 2, "both are to be seen")
    gone = {"Mcp-Session-Id": c.session}
    t.equal(d.ask("DELETE", "/mcp", headers=gone).status, 204, "DELETE")
    t.check(wait_for(lambda: len(live(d)) == 1, 20), "its sandbox has ended")
    t.equal(c.post("ping")[0].status, 404, "the session is unknown now")
    t.equal(d.ask("GET", "/mcp", headers=gone).status, 404, "GET")
    t.equal(other.ask("ping")["result"], {}, "the other one goes on")


def test_what_needs_a_session_is_refused_without(t):
    d, c = serve(t)
    r, found = c.post("tools/list")
    t.equal((r.status, found[0]["error"]["code"]), (400, -32600), "no session")
    t.equal(c.post("tools/list", headers={"Mcp-Session-Id": "0" * 32})[0].status, 404, "an unknown one")
    r = d.ask("GET", "/mcp", headers={"Accept": "text/event-stream"})
    t.equal((r.status, "POST" in r.headers["allow"]), (405, True), "GET")
    t.equal(d.ask("PUT", "/mcp", {}).status, 405, "another method")
    c.start()
    r, found = c.post("ping", headers={"MCP-Protocol-Version": "1999-01-01"})
    t.equal((r.status, found[0]["error"]["code"]), (400, -32022), "an unknown revision")
    t.equal(d.ask("POST", "/mcp", b"{", headers={"Content-Type": "application/json"}).json["error"]["code"], -32700, "no JSON")
    t.equal(d.ask("POST", "/mcp", {"method": "ping"}).json["error"]["code"], -32600, "no message")
    r = d.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers={"Mcp-Session-Id": c.session})
    t.equal((r.status, r.body), (202, b""), "a notification")


def test_any_document_is_judged_as_a_message(t):
    d, c = serve(t)
    for body in ([], [message(1, "ping")], 5, {"jsonrpc": "2.0", "id": None, "method": "ping"}):
        r = d.ask("POST", "/mcp", body)
        t.equal((r.status, r.json["error"]["code"]), (400, -32600), body)
    t.equal(c.call("write_file", modern=True, path="f", content="a\0b").data["size"], 3, "NUL in a file")
    t.equal(c.call("run_command", modern=True, command="wc -c < f; tr '\\0' x < f").data["stdout"], "3\naxb", "is there")
    e = c.ask("tools/call", {"name": "run_command", "arguments": {"command": "a\0b"}}, modern=True)["error"]
    t.equal(e["code"], -32602, "NUL in a command")
    r = c.call("run_command", modern=True, command="true", cwd="/no/such")
    t.equal((r.error, r.data["status"], r.data["exit_code"]), (True, "error", None), "a folder that is not there is no program")


def test_a_session_of_another_key_is_unknown(t):
    d, c = serve(t)
    c.start()
    other = json.loads(keys(t, d, "add", "--scope", "create", "--json").stdout)["key"]
    t.equal(c.post("ping", key=other)[0].status, 404, "another key")
    t.equal(c.post("ping")[0].status, 200, "the session's")


# ---- Without ---------------------------------------------------------------------------------------------------------------


def test_the_stateless_revision_checks_its_headers(t):
    d, c = serve(t)
    r = c.ask("server/discover", modern=True)["result"]
    t.equal((r["supportedVersions"][0], r["resultType"]), (MODERN, "complete"), r)
    for headers in ({"Mcp-Method": None}, {"Mcp-Method": "ping"}, {"MCP-Protocol-Version": None}, {"MCP-Protocol-Version": "2025-11-25"}):
        r, found = c.post("tools/list", modern=True, headers=headers)
        t.equal((r.status, found[0]["error"]["code"]), (400, -32020), headers)
    call = {"name": "run_command", "arguments": {"command": "true"}}
    for headers in ({"Mcp-Name": None}, {"Mcp-Name": "run_code"}, {"Mcp-Name": "=?base64?!?="}):
        r, found = c.post("tools/call", call, modern=True, headers=headers)
        t.equal((r.status, found[0]["error"]["code"]), (400, -32020), headers)
    t.equal(c.post("tools/call", call, modern=True, headers={"Mcp-Name": "=?base64?cnVuX2NvbW1hbmQ=?="})[0].status, 200, "encoded")
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    r, found = c.post("tools/list", {"_meta": meta}, modern=True, headers={"MCP-Protocol-Version": "2031-01-01"})
    t.equal((r.status, found[0]["error"]["code"]), (400, -32022), "an unknown revision")
    r, found = c.post("resources/list", modern=True)
    t.equal((r.status, found[0]["error"]["code"]), (404, -32601), "an unknown method")


def test_the_key_owns_the_sandboxes(t):
    d, c = serve(t)
    c.call("write_file", modern=True, path="f", content="1")
    t.equal(c.call("read_file", modern=True, path="f").data["content"], "1", "the next request finds it")
    other = json.loads(keys(t, d, "add", "--scope", "create", "--json").stdout)["key"]
    m = c.ask("tools/call", {"name": "read_file", "arguments": {"path": "f"}}, modern=True, key=other)
    t.check(m["result"]["isError"], "another key has another one")
    t.equal(len(live(d)), 2, "two")
    s = d.ask("GET", f"/v1/sandboxes/{live(d)[0]}").json
    t.between(s["timeout_seconds"], 1790, 1800, "idle time")
    t.equal((s["name"], s["metadata"]), ("default", {"mcp": "key"}), s)


def test_a_sandbox_that_has_ended_is_made_again(t):
    d, c = serve(t)
    c.call("write_file", modern=True, path="f", content="1")
    d.ask("DELETE", f"/v1/sandboxes/{live(d)[0]}")
    r = c.call("run_command", modern=True, command="ls")
    t.equal((r.data["stdout"], r.error), ("", False), r.all)
    t.contains(r.text, "new one", "and that is said")
    d.ask("POST", f"/v1/sandboxes/{live(d)[0]}/pause")
    r = c.call("run_command", modern=True, command="ls")
    t.check(r.error and "paused" in r.text, r.all)


# ---- Events ----------------------------------------------------------------------------------------------------------------


def test_progress_comes_as_events(t):
    d, c = serve(t)
    call = {"name": "run_command", "arguments": {"command": "echo one; sleep 0.5; echo two"}, "_meta": {"progressToken": "p"}}
    r, found = c.post("tools/call", call, modern=True)
    t.contains(r.headers["content-type"], "text/event-stream", "type")
    t.equal([m["method"] for m in found[:-1]], ["notifications/progress"] * (len(found) - 1), found)
    t.equal(found[0]["params"]["message"], "one\n", found)
    t.equal(found[-1]["result"]["structuredContent"]["stdout"], "one\ntwo\n", found)
    r, found = c.post("tools/call", call, modern=True, headers={"Accept": "application/json"})
    t.equal((r.headers["content-type"], len(found)), ("application/json", 1), "who takes no events gets none")


def test_a_client_that_leaves_stops_its_call(t):
    d, c = serve(t)
    c.call("run_code", modern=True, code="x = 1")
    for name, arguments in (("run_command", {"command": "touch up1; sleep 600"}), ("run_code", {"code": "open('up2', 'w')\nimport time; time.sleep(600)"})):
        body = json.dumps(message(1, "tools/call", {"name": name, "arguments": arguments, "_meta": META})).encode()
        s = d.socket()
        s.sendall((f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {d.key}\r\nContent-Type: application/json\r\n"
                   f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
        mark = "up1" if name == "run_command" else "up2"
        t.check(wait_for(lambda: not c.call("read_file", modern=True, path=mark).error, 30), "it runs")
        s.close()
    t.equal(c.call("run_code", modern=True, code="x").data["text"], "1", "the context is free, and what it was")
    t.check(wait_for(lambda: c.call("run_command", modern=True, command="pgrep -f 'sleep [6]00' || true").data["stdout"] == "", 20), "the command has ended")


def test_a_canceled_request_of_a_session_is_not_answered(t):
    d, c = serve(t)
    c.start()
    c.call("run_command", command="true")
    body = json.dumps(message("slow", "tools/call", {"name": "run_command", "arguments": {"command": "touch up; sleep 600"}})).encode()
    s = d.socket(30)
    s.sendall((f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {d.key}\r\nContent-Type: application/json\r\nConnection: close\r\n"
               f"Mcp-Session-Id: {c.session}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
    t.check(wait_for(lambda: not c.call("read_file", path="up").error, 30), "it runs")
    d.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}, headers={"Mcp-Session-Id": c.session})
    out = b""
    while part := s.recv(65536):
        out += part
    t.check(out.startswith(b"HTTP/1.1 204") and b"jsonrpc" not in out, out)


def test_streams_of_a_session_stay_open(t):
    d, c = serve(t)
    c.start()
    open_ones = []
    for _ in range(2):
        s = d.connection()
        s.request("GET", "/mcp", headers={"Authorization": f"Bearer {d.key}", "Mcp-Session-Id": c.session, "Accept": "text/event-stream"})
        open_ones.append((s, s.getresponse()))
        t.equal(open_ones[-1][1].status, 200, "open")
    t.equal(c.ask("ping")["result"], {}, "beside them")
    d.ask("DELETE", "/mcp", headers={"Mcp-Session-Id": c.session})
    for s, r in open_ones:
        r.read()  # to the end, which comes with that of the session
        s.close()
    t.equal(d.end(), 0, "exit status")


if __name__ == "__main__":
    zw.main(globals())
