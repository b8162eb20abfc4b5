"""Loaded when needed: classes that wrap what is to be shown (as IPython.display has them, where IPython is missing), and the lines with
! and % that notebooks know."""
import os
import re
import sys

display = driver.display  # noqa: F821  (given by the loader)


class DisplayObject:
    mime, binary = "text/plain", False

    def __init__(self, data=None, url=None, filename=None, metadata=None, **_):
        if data is not None and not self.binary and isinstance(data, (str, os.PathLike)) and filename is None and url is None:
            self.data = data
        else:
            self.data, self.filename, self.url = data, filename, url
        if filename is not None:
            with open(filename, "rb") as f:
                self.data = f.read()
            if not self.binary:
                self.data = self.data.decode()

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data, "text/plain": f"<IPython.core.display.{type(self).__name__} object>"}


class HTML(DisplayObject):
    mime = "text/html"


class Markdown(DisplayObject):
    mime = "text/markdown"


class SVG(DisplayObject):
    mime = "image/svg+xml"


class Latex(DisplayObject):
    mime = "text/latex"


class Math(Latex):
    def __init__(self, data=None, **more):
        super().__init__(f"$\\displaystyle {str(data).strip('$')}$", **more)


class Javascript(DisplayObject):
    mime = "application/javascript"


class JSON(DisplayObject):
    mime = "application/json"


class Pretty(DisplayObject):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": self.data}


class Image(DisplayObject):
    binary = True

    def __init__(self, data=None, url=None, filename=None, format=None, **more):
        if isinstance(data, str) and os.path.exists(data):
            data, filename = None, data
        super().__init__(data, url, filename, **more)
        self.mime = "image/jpeg" if isinstance(self.data, bytes) and self.data[:2] == b"\xff\xd8" else "image/png"

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = super()._repr_mimebundle_()
        if self.data is None and self.url:
            return {"text/html": f'<img src="{self.url}"/>', "text/plain": bundle["text/plain"]}
        return bundle


def clear_output(wait=False):
    """There is nothing to clear: what was printed has been sent."""


def update_display(value, **_):
    display(value)


# ---- Lines that are not Python. ----

def without_magic(code):
    whole = re.match(r"\s*%%(\w+)[ \t]*(.*)\n?", code)
    if whole:
        return cell_magic(whole.group(1), whole.group(2), code[whole.end():])
    return "\n".join(line_magic(line) for line in code.split("\n"))


def line_magic(line):
    m = re.match(r"(\s*)(?:([\w, ]+?)\s*=\s*)?([!%])(.*)$", line)
    if not m or m.group(3) == "%" and not re.match(r"[a-z_]\w*", m.group(4)):
        return line
    indent, target, sign, text = m.groups()
    call = "__import__('zwinger_driver').magic("
    if sign == "!":
        call += f"'!', {text!r}, {target is not None}, globals())"
    else:
        name, _, rest = text.partition(" ")
        if name == "time":
            return f"{indent}with __import__('zwinger_driver').magic('timer', '', False, None): {rest.strip() or 'pass'}"
        call += f"{name!r}, {rest.strip()!r}, {target is not None}, globals())"
    return indent + (f"{target} = " if target else "") + call


def cell_magic(name, rest, body):
    if name in ("bash", "sh", "script"):
        return f"__import__('zwinger_driver').magic('shell', {body!r}, {name if name != 'script' else rest!r}, None)".replace(
            f", {name},", f", {name!r},")
    if name in ("time", "timeit"):
        lines = "\n".join("    " + line for line in without_magic(body).split("\n"))
        return f"with __import__('zwinger_driver').magic('timer', '', False, None):\n    pass\n{lines}"
    if name in ("html", "HTML", "markdown", "latex", "svg", "javascript", "js"):
        kind = {"html": "HTML", "markdown": "Markdown", "latex": "Latex", "svg": "SVG", "javascript": "Javascript", "js": "Javascript"}
        return f"display(__import__('zwinger_driver').module('shown').{kind.get(name, name)}({body!r}))"
    if name == "writefile":
        return f"with open({rest.strip()!r}, 'w') as _f: _f.write({body!r})"
    if name == "capture":
        return without_magic(body)
    raise SyntaxError(f"the cell magic %%{name} is not known here")


class Timer:
    def __enter__(self):
        import time
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def __exit__(self, *_):
        import time
        print(f"CPU times: total: {time.process_time() - self.cpu:.3g} s\nWall time: {time.monotonic() - self.wall:.3g} s")


class Lines(list):
    @property
    def s(self):
        return " ".join(self)

    @property
    def n(self):
        return "\n".join(self)


def command(text, captured, names):
    import subprocess
    text = re.sub(r"\{([^{}]*)\}", lambda m: str(eval(m.group(1), names)), text) if names else text
    text = re.sub(r"\$\$|\$(\w+)", lambda m: "$" if m.group() == "$$" else str(names[m.group(1)]) if m.group(1) in names else m.group(), text)
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    driver.flush_streams()  # noqa: F821
    done = subprocess.run([shell, "-c", text], stdout=subprocess.PIPE if captured else None)
    names["_exit_code"] = done.returncode
    return Lines(done.stdout.decode(errors="replace").splitlines()) if captured else None


def magic(name, rest, captured, names):
    if name == "!":
        return command(rest.lstrip("!"), captured, names)
    if name == "timer":
        return Timer()
    if name == "shell":
        import subprocess
        driver.flush_streams()  # noqa: F821
        subprocess.run([captured, "-c", rest], check=True)
        return None
    if name in ("pip", "conda"):
        return command(f"'{sys.executable}' -m pip {rest}" if name == "pip" else f"conda {rest}", captured, names)
    if name == "cd":
        os.chdir(os.path.expanduser(rest or "~"))
        return os.getcwd()
    if name == "pwd":
        return os.getcwd()
    if name in ("ls", "cat", "mkdir", "rm", "cp", "mv"):
        return command(f"{name} {rest}", captured, names)
    if name in ("env", "set_env"):
        key, _, value = rest.replace("=", " ", 1).partition(" ")
        if value:
            os.environ[key] = value.strip()
        return os.environ.get(key) if rest else dict(os.environ)
    if name in ("matplotlib", "config", "load_ext", "autoreload", "precision", "pylab"):
        return None
    raise NameError(f"the magic %{name} is not known here")
