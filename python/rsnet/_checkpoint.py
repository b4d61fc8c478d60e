"""Checkpoints: a symbol and its parameters in files that MXNet reads and writes too."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from . import ndarray, symbol
from ._numbers import check_number, integer


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: dict[str, Any],
    aux_params: dict[str, Any],
    remove_amp_cast: bool = True,
) -> None:
    """Writes `prefix-symbol.json` and `prefix-0001.params` (the epoch in four digits).

    Parameters
    ----------
    prefix : str
        Path and stem of both files.
    epoch : int
        Number in the parameter file's name.
    symbol : Symbol or None
        The network; `None` writes no symbol file.
    arg_params, aux_params : dict of str to NDArray
        Parameters and auxiliary states, stored as `arg:name` and `aux:name`.
    remove_amp_cast : bool
        Leave the casts of mixed precision out of the symbol file.
    """
    name = _params_file(prefix, epoch)
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
    save_params(name, arg_params, aux_params)
    logging.info('Saved checkpoint to "%s"', name)


def _params_file(prefix: str, epoch: int) -> str:
    return f"{prefix}-{integer('epoch', epoch):04d}.params"


def save_params(name: str, arg_params: dict[str, Any], aux_params: dict[str, Any]) -> None:
    """Writes parameters (`arg:name`) and auxiliary states (`aux:name`) to a file."""
    arrays = {f"arg:{k}": v for k, v in arg_params.items()}
    ndarray.save(name, arrays | {f"aux:{k}": v for k, v in aux_params.items()})


def without_marks(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays by name, without the marks `arg:` and `aux:`."""
    return {re.sub("^(arg:|aux:)", "", name): array for name, array in arrays.items()}


def after_epochs(period: int, save: Callable[..., Any]) -> Callable[..., None]:
    """Epoch-end callback that calls `save(epochs, symbol, arg_params, aux_params)` after every
    `period` epochs, which are counted from 1.
    """
    check_number("period", period)
    period = max(1, int(period))

    def end_of_epoch(epoch: int, symbol: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (epoch + 1) % period == 0:
            save(epoch + 1, symbol, arg, aux)

    return end_of_epoch


def load_params(prefix: str, epoch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and auxiliary states that `save_checkpoint` wrote.

    Raises
    ------
    ValueError
        The file's arrays are not named `arg:` or `aux:`.
    """
    return params_of_file(_params_file(prefix, epoch))


def params_of_file(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a file by kind: parameters (`arg:name`) and auxiliary states (`aux:name`).

    Raises
    ------
    ValueError
        The file's arrays are not named `arg:` or `aux:`.
    """
    arg_params: dict[str, Any] = {}
    aux_params: dict[str, Any] = {}
    loaded = ndarray.load(name)
    if not loaded:
        logging.warning("Params file '%s' is empty", name)
        return arg_params, aux_params
    if not isinstance(loaded, dict):
        raise ValueError(f"invalid parameter file '{name}': expected arrays with names")
    for key, value in loaded.items():
        kind, _, short = key.partition(":")
        if kind not in ("arg", "aux") or not short:
            raise ValueError(
                f"{name}: invalid name '{key}': expected one that begins with 'arg:' or 'aux:'"
            )
        (arg_params if kind == "arg" else aux_params)[short] = value
    return arg_params, aux_params


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The symbol, parameters and auxiliary states that `save_checkpoint` wrote."""
    net = symbol.load(f"{prefix}-symbol.json")
    return net, *load_params(prefix, epoch)
