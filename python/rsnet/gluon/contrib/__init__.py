"""What MXNet kept in `gluon.contrib`."""

from __future__ import annotations

from ..._on_demand import import_on_demand
from . import cnn, data, nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]


def __getattr__(name: str) -> object:
    if name == "estimator":
        return import_on_demand(f"{__name__}.estimator")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
