"""Stochastic variance-reduced gradients: `svrg_module.SVRGModule`."""

from . import svrg_module
from .svrg_module import SVRGModule

__all__ = ["SVRGModule", "svrg_module"]
