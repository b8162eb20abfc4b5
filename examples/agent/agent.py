"""The loop of an agent with the standard library alone: a model writes code, a sandbox runs it, and the model sees what came of it, until it answers."""
import json
import os
import re
import sys
import urllib.request


def call(method, url, key, body=None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or b"null")


def ask(messages):
    answer = call("POST", os.environ["MODEL_URL"] + "/chat/completions", os.environ.get("MODEL_KEY", ""), {"model": os.environ.get("MODEL", "default"), "messages": messages})
    return answer["choices"][0]["message"]["content"]


HOW = "Write Python in a block that begins with ```python to learn what you need: you get what it prints, and its last value. A text without a block is your answer."
sandboxes, key = os.environ["ZWINGER_URL"] + "/v1/sandboxes", os.environ["ZWINGER_KEY"]
messages = [{"role": "system", "content": HOW}, {"role": "user", "content": sys.argv[1]}]
sandbox = f'{sandboxes}/{call("POST", sandboxes, key, {})["id"]}'
try:
    for turn in range(20):
        said = ask(messages)
        code = re.search(r"```python\n(.*?)```", said, re.S)
        if not code:
            print(said)
            break
        r = call("POST", sandbox + "/contexts/python/execute", key, {"code": code.group(1)})
        came = r["stdout"] + r["stderr"] + (r["text"] or "") + (r["error"]["traceback"] if r["error"] else "")
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": came or "(nothing)"}]
finally:
    call("DELETE", sandbox, key)
