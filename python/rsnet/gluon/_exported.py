"""The files of `HybridBlock.export`."""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from .parameter_dict import ParameterDict

__all__ = ["export_graph"]


def export_graph(
    symbol: Any, params: ParameterDict, path: str, epoch: int, remove_amp_cast: bool
) -> tuple[str, str]:
    """Writes ``<path>-symbol.json`` and ``<path>-<epoch>.params``; returns the names."""
    symbol_file = f"{path}-symbol.json"
    symbol.save(symbol_file, remove_amp_cast=remove_amp_cast)
    arguments = set(symbol.list_arguments())
    states = set(symbol.list_auxiliary_states())
    arrays = {}
    for name, param in params.items():
        if name in arguments or name in states:
            kind = "arg" if name in arguments else "aux"
            arrays[f"{kind}:{name}"] = param._reduce()
    params_file = f"{path}-{epoch:04d}.params"
    nd.save(params_file, arrays)
    return symbol_file, params_file
