"""Refuses sub-interpreters when imported: where NumPy is imported first, no other interpreter can
import it.
"""

from importlib import import_module


def _refuse_sub_interpreters() -> None:
    for name in ("_interpreters", "_xxsubinterpreters"):  # the latter before Python 3.13
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            text = "rsnet cannot be used in a sub-interpreter: import it in the main interpreter"
            raise ImportError(text, name="rsnet")
        return


_refuse_sub_interpreters()
