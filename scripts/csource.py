"""Reading C for the lints: code without its comments and strings, line by line, and the arguments of calls."""
import pathlib
import re

LINT_COMMENT = re.compile(r"/\*\s*lint: ([\w-]+)")
# In the order of precedence that a scanner from left to right needs: whichever begins first hides the others.
HIDDEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)


class Source:
    """One file: `text` as it is, `code` of the same length with comments blanked and strings emptied."""

    def __init__(self, path, root):
        self.path = path
        self.name = str(path.relative_to(root))
        self.text = path.read_text(encoding="utf-8")
        self.code = HIDDEN.sub(self._blank, self.text)
        self.exempt = {}
        for number, line in enumerate(self.text.split("\n"), 1):
            for match in LINT_COMMENT.finditer(line):
                self.exempt.setdefault(number, set()).add(match.group(1))

    @staticmethod
    def _blank(match):
        text = match.group(0)
        inner = re.sub(r"[^\n]", " ", text)
        return text[0] + inner[1:-1] + text[-1] if text[0] in "\"'" else inner

    def line_of(self, offset):
        return self.code.count("\n", 0, offset) + 1

    def is_exempt(self, line, word):
        return word in self.exempt.get(line, ())

    def calls(self, names):
        """Yields (name, line, arguments) of each call or declaration of a function of one of these names."""
        for name, start, end in self.spans(names):
            yield name, self.line_of(start), self.code[start:end]

    def spans(self, names):
        """Likewise (name, start, end), the offsets of the arguments; in `text` they hold strings as well."""
        for match in re.finditer(r"(?<![\w.])(?<!->)(" + "|".join(map(re.escape, names)) + r")\s*\(", self.code):
            yield match.group(1), match.end(), self._end_of_arguments(match.end())

    def _end_of_arguments(self, start):
        depth = 1
        for end in range(start, len(self.code)):
            depth += {"(": 1, ")": -1}.get(self.code[end], 0)
            if depth == 0:
                return end
        return len(self.code)


def sources(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*.[ch]")):
            if path.is_file():
                yield Source(path, root)


def project_root(argv):
    """The tree to look at: the first argument, or the one that this script lies in."""
    return pathlib.Path(argv[1]).resolve() if len(argv) > 1 else pathlib.Path(__file__).resolve().parent.parent


def report(findings):
    for name, line, message in findings:
        print(f"{name}:{line}: {message}")
    return 1 if findings else 0
