"""Modules: a computation with parameters that `fit` trains.

Examples
--------
>>> import rsnet as mx
>>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
>>> module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
>>> module.bind([("data", (4, 3))], [("softmax_label", (4,))])
>>> module.init_params(mx.init.Zero())
>>> module.forward(mx.io.DataBatch([mx.nd.ones((4, 3))], [mx.nd.zeros((4,))]))
>>> module.get_outputs()[0][0].asnumpy()
array([0.5, 0.5], dtype=float32)
"""

from __future__ import annotations

from .base import BaseModule
from .bucketing import BucketingModule
from .module import Module
from .python_module import PythonLossModule, PythonModule
from .sequential import SequentialModule

__all__ = [
    "BaseModule",
    "BucketingModule",
    "Module",
    "PythonLossModule",
    "PythonModule",
    "SequentialModule",
]
