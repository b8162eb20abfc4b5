#!/usr/bin/python3 -B
"""examples/agent: the loop with the standard library, and the configurations for hosts of MCP, its own and those of docs/mcp.md."""
import json
import os
import re
import subprocess
import sys
import urllib.request

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import tap  # noqa: E402
import zw  # noqa: E402
from daemon import Daemon  # noqa: E402

AGENT = os.path.join(HERE, "..", "..", "examples", "agent")
PAGE = os.path.join(HERE, "..", "..", "docs", "mcp.md")
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
REQUESTS = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "run_command", "arguments": {"command": "echo $((6 * 7))"}}}]


def check_result(t, result, what):
    t.equal((result["isError"], result["structuredContent"]["stdout"]), (False, "42\n"), what)


def run_program(t, server, folder):
    """As a host of MCP starts it: the program and its arguments, from a folder of the host's choice; it ends with its input."""
    path = t.folder("path")
    if not os.path.exists(os.path.join(path, "zwinger")):
        os.symlink(zw.ZWINGER, os.path.join(path, "zwinger"))
    environment = {"PATH": path + ":" + os.environ["PATH"], "TMPDIR": t.folder("tmp")}
    p = subprocess.Popen([server["command"], *server["args"]], cwd=folder, env=zw.caller_environment(environment), stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    t.at_end(p.kill)
    answers = {}
    for request in REQUESTS:
        p.stdin.write(json.dumps(request) + "\n")
        p.stdin.flush()
        while "id" in request and request["id"] not in answers:
            line = p.stdout.readline()
            t.check(line, f"it ended: {'' if line else p.stderr.read()}")
            said = json.loads(line)
            answers[said.get("id")] = said
    check_result(t, answers[2]["result"], answers)
    p.communicate(timeout=30)
    t.equal(p.returncode, 0, "exit status")


def ask_server(t, server):
    session = {}
    for request in REQUESTS:
        headers = {**server["headers"], **session, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        with urllib.request.urlopen(urllib.request.Request(server["url"], json.dumps(request).encode(), headers), timeout=30) as r:
            session = {"Mcp-Session-Id": r.headers["Mcp-Session-Id"], "MCP-Protocol-Version": HANDSHAKE["protocolVersion"]} if not session else session
            body = r.read().decode()
    text = re.search(r"^data: (\{.*\})$", body, re.M).group(1) if body.startswith(("event:", "data:", "id:", ":")) else body
    check_result(t, json.loads(text)["result"], body)


def test_an_agent_with_the_standard_library(t):
    r = subprocess.run([os.path.join(AGENT, "demo.sh"), zw.ZWINGER], env=zw.caller_environment({"TMPDIR": t.folder("tmp")}), cwd=t.folder("cwd"),
                       capture_output=True, text=True, timeout=60)
    t.equal((r.returncode, r.stdout, r.stderr), (0, "The mean of the 3 numbers is 6.0.\n", ""), "the demo")


def test_the_configuration_for_hosts_of_mcp(t):
    with open(os.path.join(AGENT, "mcp.json")) as f:
        run_program(t, json.load(f)["mcpServers"]["zwinger"], AGENT)


def test_the_configurations_of_the_page(t):
    policy = t.file('{"version": 1, "enforcement": "best-effort"}', "policy.yaml")  # this machine may not hold every limit for the caller
    with open(PAGE) as f:
        found = re.findall(r"^```json\n(.*?)^```\n", f.read(), re.M | re.S)
    t.equal(len(found), 4, "configurations")
    kinds = []
    for text in found:
        ((_, servers),) = json.loads(text).items()
        server = servers["zwinger"]
        kinds.append("relay" if "--url" in server.get("args", []) else server.get("type"))
        if kinds[-1] in ("relay", "http"):
            d = Daemon(t, "--policy", policy, "--ceiling", policy, state=t.tmp("state-" + kinds[-1]))
        if kinds[-1] == "relay":
            own = {"http://127.0.0.1:7575": d.url, "/home/me/zwinger-key.json": d.key_file}
            run_program(t, {**server, "args": [own.get(a, a) for a in server["args"]]}, t.folder("cwd"))
        elif kinds[-1] == "http":
            t.equal((server["url"], server["headers"]), ("http://127.0.0.1:7575/mcp", {"Authorization": "Bearer zwk_..."}), "what is to be filled in")
            ask_server(t, {"url": d.url + "/mcp", "headers": {"Authorization": f"Bearer {d.key}"}})
        else:
            args = [policy if a == "/home/me/policy.yaml" else a for a in server["args"]]
            run_program(t, {**server, "args": [*args, "--policy", policy]}, t.folder("cwd"))
        if kinds[-1] in ("relay", "http"):
            t.equal(d.end(), 0, "exit status")
    t.equal(kinds, [None, "stdio", "relay", "http"], "kinds")


tap.main(globals())
