#!/usr/bin/python3
"""report.py VAULT STATUS: what the sandboxed job of demo.sh did, from its result document, and whether that is what should be."""
import json
import pathlib
import sys

SYSTEM = ("/etc/", "/usr/", "/var/", "/proc/", "/sys/")


def mebibytes(count):
    return "unknown" if count is None else f"{count / 2**20:.0f} MiB"


def described(denial):
    count = f" ({denial['count']} times)" if denial.get("count", 1) > 1 else ""
    if denial["kind"] == "file":
        return f"open the file {denial['name']}{count}"
    if denial["kind"] == "dns":
        return f"look up the name {denial['host']}{count}" if "host" in denial else f"look up a name{count}"
    if denial["kind"] == "network":
        return f"connect to {denial['host']} port {denial.get('port', '?')}{count}"
    return f"{denial['kind']} {denial.get('name', '')}{count}"


def failures(result, status, stdout, out, credentials):
    denials = result.get("denials", [])
    chart = out / "chart.png"
    if status != 0 or result["status"] != "exited":
        yield f"the job did not end well: {result['reason']}"
    if not chart.exists() or chart.read_bytes()[:8] != b"\x89PNG\r\n\x1a\n":
        yield "there is no chart"
    if not (out / "summary.csv").exists():
        yield "there is no summary"
    if "got through" in stdout or stdout.count("could not") != 3:
        yield "the job got at something that it should not reach"
    if not any(denial["kind"] == "file" and denial.get("name") == str(credentials) for denial in denials):
        yield "the attempt on the credentials file is not in the record"
    if not any(denial["kind"] == "network" and denial.get("host") == "203.0.113.7" for denial in denials):
        yield "the attempt on the network is not in the record"


def main():
    vault, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    out = pathlib.Path(__file__).resolve().parent / "out"
    credentials = vault / ".aws" / "credentials"
    stdout = (vault / "stdout").read_text(encoding="utf-8")
    result = json.loads((vault / "result.json").read_text(encoding="utf-8"))
    usage = result.get("usage") or {}

    print("\nWhat came out:")
    for line in stdout.splitlines():
        print(f"  {line}")
    for file in ("chart.png", "summary.csv"):
        if (out / file).exists():
            print(f"  {out / file} ({(out / file).stat().st_size} bytes)")

    print("\nWhat it used:")
    print(f"  {usage.get('wall_seconds') or 0:.2f} s of 20 s, {usage.get('cpu_seconds') or 0:.2f} s of processor time,"
          f" at most {mebibytes(usage.get('memory_peak_bytes'))} of 512 MiB; {1000 * (result.get('setup_seconds') or 0):.1f} ms to start")

    print("\nWhat it tried and was refused:")
    # Libraries look for caches and settings wherever a system may have them; one line for all of these.
    housekeeping = [denial for denial in result.get("denials", []) if denial["kind"] == "file" and denial["name"].startswith(SYSTEM)]
    for denial in result.get("denials", []):
        if denial not in housekeeping:
            print(f"  {described(denial)}")
    if housekeeping:
        print(f"  and open {len(housekeeping)} files of the system that are not shown inside, such as {housekeeping[0]['name']}")

    wrong = list(failures(result, status, stdout, out, credentials))
    for sentence in wrong:
        print(f"\nThis is wrong: {sentence}.")
    if not wrong:
        print("\nThe sandbox is gone. Nothing is left of it but the folder", out)
    return 1 if wrong else 0


sys.exit(main())
