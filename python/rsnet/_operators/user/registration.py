"""The functions that register user operators: ``define``, ``kernel``, ``grad``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import _core
from .. import registry
from ..checks import (
    argument_name,
    checked_bytes,
    checked_docs,
    fail,
    free_name,
    function_name,
    invalid,
    is_integer,
)
from .arguments import Attr, parse_args
from .condition import ALWAYS, Condition
from .contexts import ComputeContext, InferContext
from .definition import Kernel, UserOpDefinition
from .gradient import Gradient, RuleContext
from .inference import Inference
from .signatures import Signatures

#: Keywords of every call, and the parameters that count arrays.
RESERVED = ("name", "out", "ctx", "attr", "num_args", "arg_counts", "out_counts")


def define(
    name: str,
    *,
    inputs: str | Sequence[str],
    outputs: str | Sequence[str] = "out",
    attrs: dict[str, Attr] | None = None,
    check: Callable[[Any], Any] | None = None,
    infer: Callable[[InferContext], Any] | None = None,
    infer_dtype: Callable[[InferContext], Any] | None = None,
    sbp: Any = None,
    doc: str = "",
    argument_docs: Mapping[str, str] | None = None,
    _registered: str = "",
) -> UserOpDefinition:
    """Registers a user operator: ``nd.<name>`` and ``sym.<name>``, as soon as it has a kernel.

    Parameters
    ----------
    inputs, outputs : str
        Arguments separated by commas: ``x`` exactly one array, ``x*5`` five, ``x*2+`` at least two,
        ``x?`` optional, ``x*5?`` none or five, ``x*5+?`` none or at least five. Outputs that vary
        are as many as the call's ``out_counts`` lists, one number for each output argument, or
        as few as possible.
    attrs : dict of str to Attr
    check : callable, optional
        ``check(conf)`` refuses a complete conf (``conf.attr(name)``) by returning False or a text,
        or by raising. Defaults are checked at registration.
    infer : callable
        ``infer(ctx)`` sets shape and dtype of every output (:class:`InferContext`):
        ``ctx.out("out").like(ctx.inp("in"))``. It may look at the shapes and dtypes of inputs.
    infer_dtype : callable, optional
        ``infer_dtype(ctx)`` sets the dtypes from the inputs' dtypes alone, and ``infer`` only has
        to set the shapes. Needed only where a graph is asked for its types alone, and ``infer``
        reads shapes.
    sbp : optional
        Distribution rules: a function of an ``rsnet.sbp.SbpContext``, a text such as
        ``"in:S(i) out:S(i) for i in axes(in)"``, or a list of them; see ``rsnet.sbp``.
    doc : str, optional
        What ``help(nd.<name>)`` and the documentation pages say.
    argument_docs : dict of str to str, optional
        What they say of the inputs, by name.

    Raises
    ------
    rsnet.MXNetError
        A name is taken or occurs twice, there is no ``infer``, or a default is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from rsnet import nd, op
    >>> def shape(ctx):
    ...     ctx.out("out").shape = ctx.inp("in").shape[:-1]
    >>> def dtype(ctx):
    ...     ctx.out("out").dtype = np.int32
    >>> op.define("doc_last_max", inputs="in", infer=shape, infer_dtype=dtype,
    ...           doc="Where the largest element of the last axis is.")
    <user operator doc_last_max: in -> out>
    >>> @op.kernel("doc_last_max")
    ... def _(ctx):
    ...     ctx.out("out")[:] = ctx.inp("in").asnumpy().argmax(-1)
    >>> nd.doc_last_max(nd.array([[1, 5, 2]])).asnumpy()
    array([1], dtype=int32)
    """
    free_name("define", _registered or name)
    if name in registry.user_operators:
        raise fail(f"user operator '{name}'", "already registered")
    if infer is None:
        raise invalid(name, "infer", infer, "a function")
    for what, function in (("infer", infer), ("infer_dtype", infer_dtype), ("check", check)):
        if not (function is None or callable(function)):
            raise invalid(name, what, function, "a function")
    if not isinstance(attrs, dict | None):
        raise invalid(name, "attrs", attrs, "a dict of name to op.Attr")
    if not isinstance(doc, str):
        raise invalid(name, "doc", doc, "a string")
    operands = parse_args(name, "input", inputs), parse_args(name, "output", outputs)
    d = UserOpDefinition(name, *operands, dict(attrs or {}))
    d.check, d.sbp, d.doc = check, sbp, doc
    d.docs = checked_docs(name, argument_docs, [a.name for a in d.inputs])
    d.inference = Inference(name, infer, infer_dtype)
    if sbp is not None:
        d.signatures = Signatures(d, sbp)
    d.registered = _registered or name
    _check_names(d)
    d.check_defaults()
    d.kernels = list(registry.waiting_kernels.get(name, ()))
    d.grad = registry.waiting_gradients.get(name)
    d.install(replace=False)
    registry.user_operators[name] = d
    registry.waiting_kernels.pop(name, None)
    registry.waiting_gradients.pop(name, None)
    return d


def _check_names(d: UserOpDefinition) -> None:
    """Refuses names that occur twice, or that every call has for other things."""
    names = [d.name, *(a.name for a in d.inputs), *(a.name for a in d.outputs), *d.attrs]
    for n in names:
        if names.count(n) > 1 or n == "tmp_buffer":
            raise fail(d.name, f"invalid name '{n}': expected every name once, and not tmp_buffer")
    for arg in d.inputs:
        if d.variable and arg.name in ("num_args", "arg_counts"):
            another = "another, as it counts the arrays of every input"
            raise fail(d.name, f"invalid name '{arg.name}' of an input: expected {another}")
    for key, declared in d.attrs.items():
        argument_name(f"{d.name}: attrs", key)
        if key in RESERVED:
            another = "another, as every call has a keyword of this name"
            raise fail(d.name, f"invalid name '{key}' of an attribute: expected {another}")
        if not isinstance(declared, Attr):
            raise invalid(d.name, f"attribute '{key}'", declared, "an op.Attr")


def kernel(
    name: str,
    *,
    where: Condition = ALWAYS,
    tmp: int | Callable[[ComputeContext], int] = 0,
    inplace: Sequence[tuple[str, str]] = (),
    state: Callable[[ComputeContext], Any] | None = None,
    priority: int = 0,
    always_compute: bool = False,
    accumulates: bool = False,
) -> Callable[[Any], Any]:
    """Decorator: the function ``f(ctx)``, or class with ``compute(ctx)``, computes the operator.

    Of the kernels whose condition holds, the one at the highest priority runs; none or several
    there is an error that prints every condition with its truth.

    Parameters
    ----------
    name : str
        The operator; it may be defined later.
    where : Condition
        Built of :func:`device`, :func:`dtype`, :func:`ndim` and :func:`attr` with ``&``, ``|`` and
        ``~``. Default: always.
    tmp : int or callable
        Bytes of scratch memory, or a function of the :class:`ComputeContext` that returns them:
        ``ctx.tmp`` is an array of uint8, whose contents are undefined.
    inplace : sequence of (str, str)
        Pairs (output, input) that may share memory. A hint: it is taken where nothing else reads
        the input and where every kernel proposes the pair.
    state : callable, optional
        ``state(ctx)`` makes ``ctx.state``, once for every node of an executor or recorded call. A
        class is instantiated as often.
    priority : int
    always_compute : bool
        Run although all outputs are empty.
    accumulates : bool
        The function handles the request ``add`` itself: ``ctx.assign("out", value)`` does, and
        ``ctx.request("out")`` is the request. Otherwise it writes to a temporary array, which is
        then added to the output.

    Raises
    ------
    rsnet.MXNetError
        The condition names an argument or attribute that the operator does not have, compares an
        attribute with a value of another kind, or `inplace` names an argument that does not exist.
        By a call: the function returns anything but None.

    Examples
    --------
    >>> import numpy as np
    >>> from rsnet import nd, op
    >>> _ = op.define("doc_sum", inputs="a, b", attrs={"times": op.Attr(int, 1)},
    ...               infer=lambda ctx: ctx.out("out").like(ctx.inp("a")))
    >>> @op.kernel("doc_sum", where=op.device("cpu") & op.dtype("out").is_in("float32", "float64"),
    ...            inplace=[("out", "a")])
    ... def _(ctx):
    ...     ctx.out("out")[:] = (ctx.inp("a") + ctx.inp("b")) * ctx.attr("times")
    >>> @op.kernel("doc_sum", where=op.attr("times") == 0, priority=10)
    ... class Nothing:
    ...     def compute(self, ctx):
    ...         ctx.out("out")[:] = 0
    >>> nd.doc_sum(nd.ones((2,)), nd.ones((2,)), times=3).asnumpy()
    array([6., 6.], dtype=float32)
    """
    operator = f"kernel of {function_name('kernel', name)}"
    if not (state is None or callable(state)):
        raise invalid(operator, "state", state, "a function")
    if not isinstance(where, Condition):
        raise invalid(operator, "where", where, "a condition")
    if not callable(tmp):
        checked_bytes(operator, "tmp", tmp)
    if not is_integer(priority, -(2**31), 2**31 - 1):
        raise invalid(operator, "priority", priority, "an int32")

    def decorate(f: Any) -> Any:
        known = registry.user_operators.get(name)
        others = known.kernels if known else registry.waiting_kernels.setdefault(name, [])
        create = state
        compute = f
        if isinstance(f, type):
            if not callable(getattr(f, "compute", None)):
                raise invalid(operator, "class", f, "one with a method compute")

            def create(ctx: Any) -> Any:
                return f(), (state(ctx) if state else None)

            def compute(ctx: Any) -> Any:
                made, ctx.state = ctx.state
                return made.compute(ctx)

        elif not callable(f):
            raise invalid(operator, "kernel", f, "a function or class")
        called = getattr(f, "__name__", "_")
        label = f"{name if called in ('_', '<lambda>') else called}#{len(others)}"
        try:
            pairs = tuple((str(o), str(i)) for o, i in inplace)
        except (TypeError, ValueError):
            raise invalid(operator, "inplace", inplace, "pairs (output, input)") from None
        made = Kernel(
            label, where, priority, compute, create, tmp, pairs, always_compute, bool(accumulates)
        )
        others.append(made)
        if known is not None:
            try:
                known.install(replace=True)
            except Exception:
                others.remove(made)
                raise
        return f

    return decorate


def grad(name: str, context: type[RuleContext] = RuleContext) -> Callable[[Any], Any]:
    """Decorator: the function ``g(ctx)`` binds a gradient to every input that needs one."""
    function_name("grad", name)

    def decorate(g: Any) -> Any:
        if not callable(g):
            raise invalid(f"gradient of {name}", "gradient", g, "a function")
        known = registry.user_operators.get(name)
        if name in registry.waiting_gradients or (known is not None and known.grad is not None):
            raise fail(f"gradient of user operator '{name}'", "already registered")
        if known is None:
            registry.waiting_gradients[name] = Gradient(g, context)
        else:
            known.grad = Gradient(g, context)
            known.install(replace=True)
        return g

    return decorate


def _registered_name(name: str) -> str:
    """The name in ``nd`` of a user operator, or of any other; KeyError if there is none."""
    known = registry.user_operators.get(name)
    registered: str = name if known is None else known.registered
    if registry.version(registered) is None:
        raise KeyError(registry.absent(name, f"operator '{name}' is not registered"))
    return registered


def kernels(name: str) -> list[tuple[str, str, int]]:
    """``(name, condition, priority)`` of every kernel of any operator."""
    found: list[tuple[str, str, int]] = _core.operator_kernels(_registered_name(name))
    return found


def why(name: str, *inputs: Any, ctx: Any = None, **params: Any) -> str:
    """Whether each kernel of an operator would run on these inputs, and why; also names a similar
    operator that has kernels and no definition.
    """
    registered = _registered_name(name)
    device = ctx or (inputs[0].context if inputs else None)
    kind = device.device_type if device is not None else "cpu"
    specs = [(tuple(x.shape), np.dtype(x.dtype).name) for x in inputs]
    waiting = registry.close(name, {*registry.waiting_kernels, *registry.waiting_gradients}, 0.8)
    more = [f"kernels or gradients wait for the definition of '{other}'" for other in waiting]
    return "\n".join([str(_core.explain_kernels(registered, specs, params, kind)), *more])
