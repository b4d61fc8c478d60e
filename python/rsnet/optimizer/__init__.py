"""Optimizers: rules that change a weight by its gradient.

`get_updater(optimizer)` makes the function `updater(index, grad, weight)` that a training loop
calls for each parameter; it keeps the state (momentum and the like) of every index.

In the formulas below g is `rescale_grad * grad`, clip bounds it by `clip_gradient`, lr and wd are
the rate and the weight decay of that parameter.
"""

from __future__ import annotations

from .._mxnet_names import module_getattr
from . import contrib
from .base import Optimizer, create, register
from .large_batch import LAMB, LARS, LBSGD
from .rules import (
    DCASGD,
    FTML,
    NAG,
    SGD,
    SGLD,
    AdaDelta,
    AdaGrad,
    Adam,
    Adamax,
    Ftrl,
    Nadam,
    RMSProp,
    Signum,
    Test,
    ccSGD,
)
from .updater import Updater, get_updater

__all__ = [
    "Optimizer",
    "SGD",
    "NAG",
    "Adam",
    "AdaGrad",
    "RMSProp",
    "AdaDelta",
    "Ftrl",
    "Adamax",
    "Nadam",
    "Signum",
    "FTML",
    "DCASGD",
    "LAMB",
    "LARS",
    "LBSGD",
    "SGLD",
    "ccSGD",
    "Test",
    "Updater",
    "get_updater",
    "create",
    "register",
]

for _name in __all__:  # pickles and representations name this module
    globals()[_name].__module__ = __name__
del _name
__all__ += ["contrib"]

__getattr__ = module_getattr(__name__)
