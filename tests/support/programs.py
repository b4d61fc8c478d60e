"""The programs of `tools/`, as modules for their tests."""

import importlib.util
from types import ModuleType

from places import ROOT


def tool(name: str) -> ModuleType:
    """The program `tools/<name>.py`, not run."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
