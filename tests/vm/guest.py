"""A small guest: Debian's kernel, busybox and Zwinger in an initial ramdisk, under QEMU without hardware help. Runs shell scripts in it."""
import os
import pathlib
import re
import shutil
import stat
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
APPLETS = """awk basename cat chmod chown cp cut date dd dmesg echo env expr false find grep head hostname id ip kill ln ls mkdir mount mv nproc
od poweroff printf ps pwd readlink reboot rm rmdir sed seq sh sleep sort stat su tail tee test time timeout touch tr true umount uname uniq usleep
wc which xargs yes""".split()
BOOT = ("console=ttyS0 quiet panic=-1 reboot=t rdinit=/init tsc_early_khz=2000000 nokaslr mitigations=off cryptomgr.notests random.trust_cpu=on")


class Archive:
    """A ramdisk image in cpio's newc format."""

    def __init__(self):
        self.parts = []
        self.count = 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self.count += 1
        fields = [self.count, mode, 0, 0, 1, 0, len(data), 0, 0, device[0], device[1], len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.parts += [self._padded(head), self._padded(data)]

    @staticmethod
    def _padded(data):
        return data + b"\0" * (-len(data) % 4)

    def folder(self, name, mode=0o755):
        self.add(name, stat.S_IFDIR | mode)

    def link(self, name, target):
        self.add(name, stat.S_IFLNK | 0o777, target.encode())

    def file(self, name, data, mode=0o644):
        self.add(name, stat.S_IFREG | mode, data if isinstance(data, bytes) else data.encode())

    def program(self, name, path):
        self.file(name, pathlib.Path(path).read_bytes(), 0o755)

    def image(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self.parts)


def ramdisk(zwinger, helper, cases):
    """`cases` maps a name, whose suffix says as whom it runs (root, user, bare), to a shell script."""
    archive = Archive()
    for name in ("usr", "usr/bin", "usr/lib", "usr/lib64", "etc", "cases", "new", "proc", "sys", "dev", "root"):
        archive.folder(name)
    archive.folder("tmp", 0o1777)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("dev/null", stat.S_IFCHR | 0o666, device=(1, 3))
    archive.link("bin", "usr/bin")
    archive.link("lib", "usr/lib")
    archive.link("lib64", "usr/lib64")
    archive.program("usr/bin/busybox", shutil.which("busybox"))
    archive.program("usr/bin/zwinger", zwinger)
    archive.program("usr/bin/inside", helper)
    for applet in APPLETS:
        archive.link(f"usr/bin/{applet}", "busybox")
    archive.file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n")
    archive.file("etc/group", "root:x:0:\nuser:x:1000:\n")
    archive.file("init", (HERE / "guest-init").read_bytes(), 0o755)
    for name, script in cases.items():
        archive.file(f"cases/{name}", script)
    return archive.image()


class Output:
    def __init__(self, text):
        self.text = text
        greeting = re.search(r"^@@GUEST (\S+) (.*)$", text, re.MULTILINE)
        self.kernel, self.controllers = (greeting.group(1), greeting.group(2).split()) if greeting else (None, [])
        self.complete = "@@DONE" in text
        self.cases = {match.group(1): match.group(2) for match in re.finditer(r"^@@BEGIN (\S+)\n(.*?)^@@END \1 ", text, re.MULTILINE | re.DOTALL)}


def run(kernel, image, folder, timeout, memory=384):
    """Boots, waits for the guest to switch itself off, and returns what came by its console."""
    path = os.path.join(folder, "ramdisk")
    pathlib.Path(path).write_bytes(image)
    command = ["qemu-system-x86_64", "-accel", "tcg", "-M", "microvm", "-m", str(memory), "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
               "-kernel", str(kernel), "-initrd", path, "-append", BOOT]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as guest:
        try:
            output, _ = guest.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            guest.kill()
            output, _ = guest.communicate()
            output += f"\nthe guest was not done after {timeout} s\n".encode()
    return Output(output.decode(errors="replace").replace("\r", ""))
