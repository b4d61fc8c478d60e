"""The files of `HybridBlock.export`."""

from __future__ import annotations

from typing import Any

from .._checkpoint import save_params
from .parameter_dict import ParameterDict

__all__ = ["export_graph"]


def export_graph(
    symbol: Any, params: ParameterDict, path: str, epoch: int, remove_amp_cast: bool
) -> tuple[str, str]:
    """Writes ``<path>-symbol.json`` and ``<path>-<epoch>.params``; returns the names."""
    symbol_file = f"{path}-symbol.json"
    symbol.save(symbol_file, remove_amp_cast=remove_amp_cast)
    arguments, states = (
        {name: param._reduce() for name, param in params.items() if name in names}
        for names in (set(symbol.list_arguments()), set(symbol.list_auxiliary_states()))
    )
    params_file = f"{path}-{epoch:04d}.params"
    save_params(params_file, arguments, states)
    return symbol_file, params_file
