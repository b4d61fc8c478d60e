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

from collections.abc import Callable
from functools import cached_property
from typing import Any

from ._on_demand import import_on_demand
from ._operators import publish
from ._operators.registry import definition as _definition
from ._operators.user.arguments import Attr
from ._operators.user.condition import attr, device, dtype, ndim
from ._operators.user.contexts import ComputeContext, InferContext
from ._operators.user.definition import UserOpDefinition
from ._operators.user.gradient import RuleContext as _RuleContext
from ._operators.user.registration import define, kernel, kernels, why
from ._operators.user.registration import grad as _grad

__all__ = [
    "define", "kernel", "grad", "Attr", "attr", "device", "dtype", "ndim", "kernels", "why",
    "definition", "UserOpDefinition", "InferContext", "ComputeContext", "GradContext",
]  # fmt: skip

# What programs written for OneFlow use without importing `rsnet.oneflow`: user operators, methods
# of gradient contexts, a name of this module.
_OPERATORS = ("multiply", "scalar_mul", "cast", "add_n", "reshape")
_METHODS = ("define", "get", "DefineOp", "GetOp", "FwOp")


class GradContext(_RuleContext):
    """What a gradient function sees.

    ``inp``, ``out`` and ``grad`` are entries for arithmetic; ``bind(input, function)`` calls the
    function at once, and only if that input needs a gradient. OneFlow's words for these, and its
    recipes, are methods of ``oneflow`` and of the context itself.
    """

    @cached_property
    def oneflow(self) -> Any:
        """``define``, ``get`` and ``FwOp``, as OneFlow's gradient functions use them."""
        return import_on_demand("rsnet.oneflow.builder").Recipes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.oneflow, name) if name in _METHODS else super().__getattr__(name)


def grad(name: str) -> Callable[[Any], Any]:
    """Decorator: the function ``g(ctx)`` binds a gradient to every input that needs one."""
    return _grad(name, GradContext)


def definition(name: str) -> Any:
    """The registered user operator of this name, one of OneFlow's tutorials included.

    Raises
    ------
    rsnet.MXNetError
        There is none.
    """
    if name in _OPERATORS:
        import_on_demand("rsnet.oneflow.builtins")
    return _definition(name)


def __getattr__(name: str) -> object:
    if name != "user_op_builder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return import_on_demand("rsnet.oneflow.builder").user_op_builder


publish(__name__, [globals()[name] for name in __all__])
