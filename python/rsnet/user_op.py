"""User operators: an operator registry, a kernel registry and a gradient registry.

:func:`define` says what an operator is, :func:`kernel` how it computes under which conditions,
:func:`grad` what its gradient is made of. The operator is in ``nd`` and ``sym``, trains through
autograd and executors. OneFlow's names for the same are in ``rsnet.oneflow``.

>>> import numpy as np
>>> from rsnet import nd, op
>>> op.define("doc_relu", inputs="in", outputs="out",
...           infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
<user operator doc_relu: in -> out>
>>> @op.kernel("doc_relu", where=op.device("cpu"))
... def _(ctx):
...     ctx.out("out")[:] = np.maximum(ctx.inp("in").asnumpy(), 0)
>>> nd.doc_relu(nd.array([-1.0, 2.0])).asnumpy().tolist()
[0.0, 2.0]
"""

from __future__ import annotations

from importlib import import_module

from ._operators import publish
from ._operators.registry import deferred, definition
from ._operators.user.attr import Attr
from ._operators.user.condition import attr, device, dtype, ndim
from ._operators.user.contexts import ComputeContext, InferContext
from ._operators.user.definition import UserOpDefinition
from ._operators.user.gradient import GradContext, further_words
from ._operators.user.registration import define, grad, kernel, kernels, why

__all__ = [
    "define", "kernel", "grad", "Attr", "attr", "device", "dtype", "ndim", "kernels", "why",
    "definition", "UserOpDefinition", "InferContext", "ComputeContext", "GradContext",
]  # fmt: skip

publish(__name__, [globals()[name] for name in __all__])

# What programs written for OneFlow use without importing `rsnet.oneflow`, and which of its modules
# defines it: user operators, methods of gradient contexts, a name of this module.
_OPERATORS = ("multiply", "scalar_mul", "cast", "add_n", "reshape")
deferred.update(dict.fromkeys(_OPERATORS, "rsnet.oneflow.builtins"))
_METHODS = ("define", "get", "DefineOp", "GetOp", "FwOp")
further_words.update(dict.fromkeys(_METHODS, "rsnet.oneflow.recipes"))


def __getattr__(name: str) -> object:
    if name != "user_op_builder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return import_module("rsnet.oneflow.builder").user_op_builder
