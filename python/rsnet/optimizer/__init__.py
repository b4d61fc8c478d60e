"""Optimizers: rules that change a weight by its gradient.

`get_updater(optimizer)` makes the function `updater(index, grad, weight)` that a training loop
calls for each parameter; it keeps the state (momentum and the like) of every index.

In the formulas below g is `rescale_grad * grad`, clip bounds it by `clip_gradient`, lr and wd are
the rate and the weight decay of that parameter.
"""

from __future__ import annotations

from .._mxnet_names import module_getattr
from . import contrib, large_batch, rules
from .base import Optimizer, create, register
from .large_batch import *  # noqa: F403
from .rules import *  # noqa: F403
from .updater import Updater, get_updater

__all__ = ["Optimizer", "Updater", "get_updater", "create", "register"]
__all__ += rules.__all__ + large_batch.__all__

for _name in __all__:  # pickles and representations name this module
    globals()[_name].__module__ = __name__
del _name
__all__ += ["contrib"]

__getattr__ = module_getattr(__name__)
