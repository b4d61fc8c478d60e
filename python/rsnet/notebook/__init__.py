"""Progress of training as tables and live charts in a notebook: `mx.notebook.callback`."""

from __future__ import annotations

from . import callback

__all__ = ["callback"]
