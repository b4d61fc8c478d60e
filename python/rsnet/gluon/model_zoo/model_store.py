"""Trained weights, from local files."""

from __future__ import annotations

import os
import re
from typing import Any

from ..._mxnet_names import module_getattr
from ...base import data_dir

__all__ = ["get_model_file", "load_weights", "purge"]

#: Where weights are looked for.
DEFAULT_ROOT = os.path.join(data_dir(), "models")


def get_model_file(name: str, root: str = DEFAULT_ROOT) -> str:
    """The file of a network's weights: ``<name>.params``, or ``<name>-<digits>.params`` as MXNet
    names it.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    root = os.path.expanduser(root)
    pattern = re.compile(rf"{re.escape(name)}(-[0-9a-f]{{4,}})?\.params")
    found = sorted(f for f in _files(root) if pattern.fullmatch(f))
    if not found:
        raise FileNotFoundError(
            f"invalid root '{root}' for weights of '{name}': expected '{name}.params' in it (rsnet "
            "fetches nothing from a network)"
        )
    return os.path.join(root, found[-1])


def _files(root: str) -> list[str]:
    return os.listdir(root) if os.path.isdir(root) else []


def load_weights(net: Any, name: str, root: str, ctx: Any) -> None:
    """Loads a network's weights from its file."""
    net.load_parameters(get_model_file(name, root), ctx=ctx)


def purge(root: str = DEFAULT_ROOT) -> None:
    """Removes all weights from a folder."""
    root = os.path.expanduser(root)
    for name in _files(root):
        if name.endswith(".params"):
            os.remove(os.path.join(root, name))


__getattr__ = module_getattr(__name__)
