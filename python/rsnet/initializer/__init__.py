"""Initial values of parameters, chosen by a parameter's name.

`init(desc, array)` fills `array`. A variable's attribute `__init__` decides first; then the end
of the name selects a method: `weight` selects `_init_weight`, the initializer's own rule, `bias`
and `beta` the methods that fill with zeros, `gamma` the one that fills with ones. A subclass can
override each of them.
"""

from __future__ import annotations

from .._mxnet_names import module_getattr
from .base import InitDesc, Initializer, alias, create, register
from .composed import FusedRNN, Load, Mixed
from .rules import (
    Bilinear,
    Constant,
    LSTMBias,
    MSRAPrelu,
    Normal,
    One,
    Orthogonal,
    Uniform,
    Xavier,
    Zero,
)

__all__ = [
    "InitDesc",
    "Initializer",
    "register",
    "alias",
    "create",
    "Zero",
    "One",
    "Constant",
    "Uniform",
    "Normal",
    "Orthogonal",
    "Xavier",
    "MSRAPrelu",
    "Bilinear",
    "LSTMBias",
    "FusedRNN",
    "Load",
    "Mixed",
]

__getattr__ = module_getattr(__name__)
