"""What an agent's code does: use an API, then look for the credential and for other ways to use it."""
import glob
import json
import os
import urllib.error
import urllib.request

API = "https://api.example"


def tell(**what):
    print(json.dumps(what), flush=True)


def ask(path, **more):
    try:
        with urllib.request.urlopen(urllib.request.Request(API + path, **more), timeout=10) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode().strip()


status, body = ask("/v1/me")
tell(step="use", status=status, body=body)
# The API says what it was sent: the credential comes back as [redacted].
status, body = ask("/v1/echo")
tell(step="echo", status=status, body=body)
# A header of its own is replaced, not added to.
status, body = ask("/v1/me", headers={"Authorization": "Bearer guess"})
tell(step="own header", status=status)
for step, path, more in (("other method", "/v1/me", {"data": b"x", "method": "POST"}), ("other path", "/admin/keys", {}),
                         ("hidden path", "/v1/%2e%2e/admin/keys", {})):
    status, body = ask(path, **more)
    tell(step=step, status=status, body=body)

found = [name for name, value in os.environ.items() if "TOKEN" in name.upper()]
for path in glob.glob("/proc/*/environ"):
    try:
        with open(path, "rb") as f:
            found += [path] if b"EXAMPLE_TOKEN" in f.read() else []
    except OSError:
        pass
tell(step="search", found=found)
