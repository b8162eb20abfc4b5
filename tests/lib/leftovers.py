"""What a run could leave behind, looked at from outside: processes, control groups, mounts, namespaces, temporary files."""
import glob
import os
import time

CGROUP_ROOT = "/sys/fs/cgroup"


def groups():
    """Control groups of sandboxes, in every hierarchy: those named zwinger..., and what is below."""
    found = set()
    for folder, folders, _ in os.walk(CGROUP_ROOT):
        inside = any(part.startswith("zwinger") for part in folder.split("/"))
        found.update(os.path.join(folder, d) for d in folders if inside or d.startswith("zwinger"))
    return found


def populated(group):
    for name in ("cgroup.procs", "tasks"):
        try:
            with open(os.path.join(group, name)) as f:
                if f.read(1):
                    return True
        except OSError:
            pass
    return False


def owner_lives(group):
    """zwinger-PID-... belongs to a supervisor: one that is still there may be somebody else's, and about to fill or to remove it."""
    for part in reversed(group.split("/")):
        name = part.split("-")
        if name[0] == "zwinger" and len(name) == 3 and name[1].isdigit():
            try:
                with open(f"/proc/{name[1]}/comm") as f:
                    return f.read().startswith("zwinger")
            except OSError:
                return False
    return False


def mounts():
    with open("/proc/self/mountinfo") as f:
        return {line.split(" ", 1)[1] for line in f}


def temporary_files():
    found = set()
    for folder in {"/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", os.environ.get("TMPDIR", "/tmp")}:
        for pattern in ("zwinger-zw-*", ".zwinger-*", "zw-????????????????????"):
            found.update(glob.glob(os.path.join(folder, pattern)))
    return found


def interfaces():
    with open("/proc/self/net/dev") as f:
        return {line.split(":")[0].strip() for line in f if ":" in line}


class Snapshot:
    """The state before; `news` tells what has come since and is nobody's any more. Groups with processes in them belong to runs that are
    still going on, of this test or of somebody else."""

    def __init__(self):
        self.groups, self.mounts, self.files, self.interfaces = groups(), mounts(), temporary_files(), interfaces()

    def _once(self):
        out = [f"cgroup {g}" for g in sorted(groups() - self.groups) if not populated(g) and not owner_lives(g) and os.path.isdir(g)]
        out += [f"mount {m}" for m in sorted(mounts() - self.mounts)]
        out += [f"file {f}" for f in sorted(temporary_files() - self.files)]
        out += [f"interface {i}" for i in sorted(interfaces() - self.interfaces)]
        return out

    def news(self, patience=8):
        """A run that is just beginning or ending has groups without processes for a moment, a long one where it is traced: only what stays
        counts."""
        found, end = self._once(), time.monotonic() + patience
        while found and time.monotonic() < end:
            time.sleep(0.2)
            still = set(self._once())
            found = [f for f in found if f in still]
        return found
