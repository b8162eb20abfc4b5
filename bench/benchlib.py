"""What the benchmarks share: figures with targets and verdicts, programs that take turns, and the document that is saved."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess


class Unmeasured(Exception):
    """A figure that this machine cannot give, with the reason."""


def median(values):
    return statistics.median(values)


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


def milliseconds(values):
    return f"{median(values) / 1000:.2f} ms"


def summary(times):
    return {name: {"median_us": median(values), "p90_us": percentile(values, 90), "runs": len(values)} for name, values in times.items()}


def family(pid):
    """A process and all below it."""
    yield pid
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def program_name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def memory_of(pid, *fields):
    """Bytes: the sum of these fields of smaps_rollup."""
    kibibytes = 0
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(tuple(f"{field}:" for field in fields)):
                kibibytes += int(line.split()[1])
    except PermissionError as error:
        raise Unmeasured(f"{error.filename}: only root may look at its memory") from error
    return kibibytes * 1024


class Bench:
    def __init__(self, build, quick):
        self.build = pathlib.Path(build).resolve()
        self.zwinger = str(self.build / "bin" / "zwinger")
        self.spawn_loop = self.tool("spawn-loop")
        self.quick = quick
        self.figures = []

    def tool(self, name):
        return str(self.build / "bench" / name)

    def rounds(self, usual):
        return max(usual // 5, 5) if self.quick else usual

    def sandboxed(self, *command):
        return [self.zwinger, "run", "--", *command]

    def in_turn(self, rounds, **commands):
        """Microseconds from start to exit of each command, by name; the first runs, which fill caches, do not count."""
        warm = 3
        words = []
        for command in commands.values():
            words += [*command, ";;"]
        done = subprocess.run([self.spawn_loop, str(rounds + warm), *words[:-1]], capture_output=True, text=True, check=True)
        times = {name: [] for name in commands}
        names = list(commands)
        for line in done.stdout.splitlines():
            index, microseconds, status = line.split()
            if status != "0":
                raise Unmeasured(f"{' '.join(commands[names[int(index)]])} ended with wait status {status}")
            times[names[int(index)]].append(float(microseconds))
        return {name: values[warm:] for name, values in times.items()}

    def figure(self, name, value, target, shown, below=True, **details):
        """With a target of None the figure is only shown."""
        good = target is None or (value <= target if below else value >= target)
        self.figures.append({"name": name, "value": value, "target": target, "below": below, "met": good, "shown": shown, **details})
        wanted = f"{'at most' if below else 'at least'} {target:<8g} {'met' if good else 'MISSED'}" if target is not None else ""
        print(f"{name:<46} {shown:<54} {wanted}".rstrip(), flush=True)

    def unmeasured(self, name, reason, optional=False):
        """Optional is a comparison with what need not be there."""
        self.figures.append({"name": name, "value": None, "why": str(reason), "optional": optional})
        print(f"{name:<46} not measured: {reason}", flush=True)

    def measure(self, name, function):
        try:
            function(self)
        except (Unmeasured, subprocess.CalledProcessError) as error:
            self.unmeasured(name, error)

    def save(self, file, **more):
        version = subprocess.run([self.zwinger, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        document = {"schema": "zwinger.bench/1", "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "version": version,
                    "kernel": platform.release(), "processors": os.cpu_count(), "root": os.geteuid() == 0, "quick": self.quick,
                    "figures": self.figures, **more}
        file = self.build / file
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"\nsaved in {file}")

    def status(self, strict):
        """The exit status: 1 when a figure could not be measured, or (strict) when a target is missed."""
        if any(figure["value"] is None and not figure["optional"] for figure in self.figures):
            return 1
        return 1 if strict and not all(figure.get("met", True) for figure in self.figures) else 0


def print_header():
    print(f"{'figure':<46} {'value':<54} {'target':<16} verdict")


def parse_options(text, names):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a rough answer")
    parser.add_argument("--strict", action="store_true", help="fail when a target is missed")
    parser.add_argument("--only", action="append", choices=names)
    return parser.parse_args()
