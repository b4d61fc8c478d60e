"""What MXNet kept in `gluon.contrib`."""

from __future__ import annotations

from . import cnn, data, nn, rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]


def __getattr__(name: str) -> object:
    if name == "estimator":
        from importlib import import_module

        return import_module(f"{__name__}.estimator")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
