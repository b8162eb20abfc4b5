"""job.py PSQL: what an agent's code does: ask a database, then try to reach what lies beside it."""
import json
import os
import socket
import subprocess
import sys


def tell(**what):
    print(json.dumps(what), flush=True)


def sql(query):
    p = subprocess.run([sys.argv[1], "--no-psqlrc", "--no-password", "-h", "db.example", "-U", "reader", "-d", "shop", "-At", "-c", query],
                       capture_output=True, text=True, env={**os.environ, "PGCONNECT_TIMEOUT": "10"})
    return p.returncode, (p.stdout + p.stderr).strip()


code, out = sql("select sum(price) from orders")
tell(step="ask", ok=code == 0, says=out)
code, out = sql("delete from orders")
tell(step="delete", refused=code != 0, says=out)
for step, host, port in (("other port", "db.example", 22), ("other name", "backup.example", 5432), ("loopback", "127.0.0.1", 5432)):
    try:
        socket.create_connection((host, port), timeout=5).close()
        tell(step=step, refused=False)
    except OSError as e:
        tell(step=step, refused=True, says=str(e))
