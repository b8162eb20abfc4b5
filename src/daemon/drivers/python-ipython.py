"""Cells by IPython's own shell, without a kernel: same messages, its formatters, magics and tracebacks.

What it imports takes most of the time until the first answer, and half of that is for what no cell here has a use for, or hardly one: a terminal,
completion, a few libraries of single magics. Those come when somebody asks for them.
"""
import importlib
import importlib.util
import sys

LATE = {"logging.config": ("dictConfig",), "urllib.request": ("Request", "urlopen")}


def late_function(module, name):
    def call(*arguments, **named):
        return getattr(importlib.import_module(module), name)(*arguments, **named)
    return call


def stand_in(name, functions):
    module = type(sys)(name)
    module.driver_stand_in = True
    for function in functions:
        setattr(module, function, late_function(name, function))
    return module


def package_without_terminal():
    """The package as it is before its own first line; that is run when a name is missing."""
    spec = importlib.util.find_spec("IPython")
    package = importlib.util.module_from_spec(spec)
    sys.modules["IPython"] = package

    def the_rest(name):
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        del package.__getattr__
        spec.loader.exec_module(package)
        return getattr(package, name)
    package.__getattr__ = the_rest
    from IPython.core.getipython import get_ipython
    package.get_ipython = get_ipython


package_without_terminal()
stand_ins = {name: stand_in(name, functions) for name, functions in LATE.items() if name not in sys.modules}
stand_ins["jedi"] = None
sys.modules.update(stand_ins)
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
import IPython.core.completer  # noqa: F401
import IPython.core.magics  # noqa: F401
from traitlets import Type

for stand_in_name in stand_ins:
    del sys.modules[stand_in_name]
own = driver  # noqa: F821  (given by the loader)


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, **_):
        own.send_bundle(dict(data))

    def clear_output(self, wait=False):
        pass


class Hook(DisplayHook):
    def __call__(self, result=None):
        self.check_for_underscore()
        if result is None or self.quiet():
            return
        bundle, _ = self.compute_format_data(result)
        self.update_user_ns(result)
        self.fill_exec_result(result)
        if bundle:
            own.send_bundle(bundle, main=True)
            own.forget_figure(result)


class Interactive(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        return "inline", "agg"

    def ask_exit(self):
        raise SystemExit

    def system(self, cmd):
        own.flush_streams()
        self.system_raw(cmd)  # no terminal between us and what runs


class Raised(Exception):
    """A fault of a cell, told already in IPython's words."""


class Shell:
    def __init__(self):
        from traitlets.config import Config
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "NoColor"
        self.shell = Interactive.instance(config=config, user_module=own.main, user_ns=own.main.__dict__)
        self.shell.showtraceback = self.keep
        self.shell.showsyntaxerror = self.keep
        formats = self.shell.display_formatter
        formats.ipython_display_formatter.enabled = True
        formats.active_types = formats.format_types
        formats.mimebundle_formatter.for_type_by_name("pandas.core.frame", "DataFrame", self.frame)
        formats.mimebundle_formatter.for_type_by_name("matplotlib.figure", "Figure", self.figure)
        import warnings
        warnings.filterwarnings("ignore", "To exit: use")

    @staticmethod
    def frame(value, include=None, exclude=None):
        data = own.frame_data(value)
        return {"e2b/data": data} if data else {}

    @staticmethod
    def figure(value, include=None, exclude=None):
        return own.figure_bundle(value)

    @staticmethod
    def keep(exc_tuple=None, *_, running_compiled_code=False, **__):
        """The error of a cell goes out as a message; one in a method that shows a value does not end the cell."""
        if exc_tuple and not running_compiled_code:
            own.complain(exc_tuple[1])

    def run(self, code, _name):
        outcome = self.shell.run_cell(own.dedent(code), store_history=True)
        fault = outcome.error_before_exec or outcome.error_in_exec
        if fault is None:
            return
        own.prune(fault)
        raised = fault if isinstance(fault, KeyboardInterrupt) else Raised()
        try:
            lines = self.shell.InteractiveTB.structured_traceback(type(fault), fault, fault.__traceback__, tb_offset=1)
            if isinstance(fault, SyntaxError):
                lines = self.shell.SyntaxTB.structured_traceback(type(fault), fault, [])
            text = self.shell.InteractiveTB.stb2text(lines)
            raised.driver_error = {"name": type(fault).__name__, "value": str(fault), "traceback": text[:own.TEXT_MAX]}
        except Exception:
            raised.driver_error = own.describe(fault)
        raise raised
