"""User operators: an operator registry, a kernel registry and a gradient registry.

:func:`define` says what an operator is, :func:`kernel` how it computes under which conditions,
:func:`grad` what its gradient is made of. The operator is in ``nd`` and ``sym``, trains through
autograd and executors, and can be called through :func:`user_op_builder` (OneFlow's names).

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

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._door import Definition, KernelSpec, argument_name, free_name, function_name
from ._user_op_compute import ComputeContext, checked_bytes, scratch
from ._user_op_def import (
    ALWAYS,
    Arg,
    Attr,
    Condition,
    Conf,
    Defaults,
    attr,
    check_as_far_as,
    device,
    dtype,
    ndim,
    parse_args,
    refuse,
)
from ._user_op_grad import gradient_rule
from ._user_op_infer import InferContext, Inference
from .base import MXNetError
from .sbp import CheckedInference

__all__ = [
    "define", "kernel", "grad", "Attr", "attr", "device", "dtype", "ndim", "kernels", "why",
    "definition", "user_op_builder", "UserOpDefinition", "InferContext", "ComputeContext",
]  # fmt: skip


#: Keywords of every call, and the parameters that count arrays.
RESERVED = ("name", "out", "ctx", "attr", "num_args", "arg_counts")


class _Kernel(NamedTuple):
    name: str
    where: Condition
    priority: int
    compute: Callable[[Any], Any]
    #: Makes the state or kernel object of one operator instance.
    create: Callable[[Any], Any] | None
    tmp: Any
    inplace: tuple[tuple[str, str], ...]
    always_compute: bool


class UserOpDefinition:
    """A user operator in the registry; ``sbp`` holds its distribution rules as given."""

    def __init__(self, name: str, inputs: Any, outputs: Any, attrs: dict[str, Attr]) -> None:
        self.name = name
        #: The operator's name in ``nd`` and ``sym``.
        self.registered = name
        self.inputs: tuple[Arg, ...] = parse_args(name, "input", inputs)
        self.outputs: tuple[Arg, ...] = parse_args(name, "output", outputs)
        self.attrs = attrs
        self.check: Callable[[Any], Any] | None = None
        self.inference: Inference | CheckedInference
        self.sbp: Any = None
        self.doc = ""
        self.kernels: list[_Kernel] = []
        self.grad: Callable[[Any], Any] | None = None

    def __repr__(self) -> str:
        ins = ", ".join(a.name for a in self.inputs)
        outs = ", ".join(a.name for a in self.outputs)
        return f"<user operator {self.name}: {ins} -> {outs}>"

    # Confs -------------------------------------------------------------------------------------

    def conf(self, counts: dict[str, int], attrs: dict[str, Any]) -> Conf:
        """A complete, checked conf; ``attrs`` in normal form."""
        for arg in (*self.inputs, *self.outputs):
            n = counts.get(arg.name)
            if n is None:
                n = counts[arg.name] = arg.count if arg.fixed else 0
            arg.check(self.name, n)
        for key in attrs:
            if key not in self.attrs:
                known = ", ".join(self.attrs) or "none"
                raise MXNetError(f"{self.name}: unknown attribute '{key}', there is {known}")
        full = {}
        for key, declared in self.attrs.items():
            if key in attrs:
                full[key] = attrs[key]
            elif declared.required:
                raise MXNetError(
                    f"{self.name}: attribute '{key}' of kind {declared.kind} is not set"
                )
            else:
                full[key] = declared.default
            declared.verify(self.name, key, full[key])
        conf = Conf(self, counts, full)
        if self.check is not None:
            refuse(self.name, "the attributes", self.check(conf))
        return conf

    def check_defaults(self) -> None:
        """Runs all checks on the defaults, as far as there are defaults."""
        counts = {a.name: a.count for a in (*self.inputs, *self.outputs)}
        defaults = Defaults((k, a.default) for k, a in self.attrs.items() if not a.required)
        for key, value in defaults.items():
            self.attrs[key].verify(self.name, key, value)
        if self.check is not None:
            answer = check_as_far_as(self.check, Conf(self, counts, defaults))
            refuse(self.name, "the attributes", answer)

    # The core's side ---------------------------------------------------------------------------

    @property
    def _variable(self) -> list[Arg]:
        return [a for a in self.inputs if not a.fixed]

    def install(self, *, replace: bool) -> None:
        specs = [declared.spec(key) for key, declared in self.attrs.items()]
        if self._variable:
            counter = Attr("int32", -1, doc="Number of input arrays.")
            counts = Attr("shape", (), doc="Number of arrays of each input argument.")
            specs += [counter.spec("num_args"), counts.spec("arg_counts")]
        d = Definition(self.registered, _core.Schema(specs))
        d.doc = self.doc
        kind = "NDArray-or-Symbol"
        if self._variable:
            d.key_var_num_args = "num_args"
            d.input_docs = [("data", kind + "[]", "The inputs.")]
        else:
            d.input_docs = [(a.tensor(i), kind, "") for a in self.inputs for i in range(a.count)]
        d.make = self._make
        d.facts = lambda conf: conf.facts
        d.infer_shape = self._infer_shape
        d.infer_type = self._infer_type
        d.infer_both = lambda conf, shapes, types: self.inference.both(conf, shapes, types)
        d.inplace = self._inplace
        outs, ins = {a.name for a in self.outputs}, {a.name for a in self.inputs}
        for k in self.kernels:
            for o, i in k.inplace:
                if o not in outs or i not in ins:
                    raise MXNetError(
                        f"{self.name}: kernel {k.name} proposes ('{o}', '{i}') in place, "
                        f"outputs are {sorted(outs)}, inputs {sorted(ins)}"
                    )
        d.gradient = ("rule", gradient_rule(self))
        if any(k.create for k in self.kernels):
            d.state = lambda conf, ctx, shapes, types: {}
        d.kernels = [
            KernelSpec(
                k.name, k.where.resolved(self._tensor, self._compared), k.priority, self._run(k)
            )
            for k in self.kernels
        ]
        d.install(replace=replace)

    def _tensor(self, arg: str, i: int) -> str:
        for a in (*self.inputs, *self.outputs):
            if a.name == arg:
                return a.tensor(i)
        raise MXNetError(f"{self.name}: a kernel condition names the unknown argument '{arg}'")

    def _compared(self, attribute: str, how: str, value: Any) -> str:
        if attribute not in self.attrs:
            known = ", ".join(self.attrs) or "none"
            raise MXNetError(
                f"{self.name}: a kernel condition names the unknown attribute '{attribute}', "
                f"there is {known}"
            )
        return self.attrs[attribute].compared(self.name, attribute, how, value)

    def _make(self, values: tuple[Any, ...], given: dict[str, Any]) -> Conf:
        attrs = dict(zip(self.attrs, values))
        counts: dict[str, int] = {}
        variable = self._variable
        if variable:
            total, listed = values[-2], values[-1]
            if listed:
                if len(listed) != len(self.inputs):
                    raise MXNetError(
                        f"{self.name}: arg_counts has {len(listed)} counts, "
                        f"expected {len(self.inputs)}"
                    )
                counts = {a.name: n for a, n in zip(self.inputs, listed)}
            elif total >= 0:
                counts = self._share_out(total)
        return self.conf(counts, attrs)

    def _share_out(self, total: int) -> dict[str, int]:
        """Counts from the number of all inputs: it decides them if one argument is variable, or if
        optional ones are filled in order. Of several that take any number none comes first."""
        counts = {a.name: (0 if a.optional else a.count) for a in self.inputs}
        rest = total - sum(counts.values())
        open_ended = [a.name for a in self.inputs if a.at_least and not a.optional]
        if len(open_ended) > 1 and rest > 0:
            raise MXNetError(
                f"{self.name}: {total} arrays can be shared out in several ways, because the inputs "
                f"{' and '.join(open_ended)} take any number each: say how many every input gets, "
                f"in order, by arg_counts=({', '.join(a.name for a in self.inputs)})"
            )
        if rest < 0:
            least = total - rest
            raise MXNetError(
                f"{self.name}: the inputs are {total} arrays, expected at least {least}: "
                + ", ".join(f"{a.name} {a.count}" for a in self.inputs if not a.optional)
            )
        for arg in self.inputs:
            if arg.optional and rest >= arg.count:
                counts[arg.name] = arg.count
                rest -= arg.count
            if arg.at_least and counts[arg.name] and rest > 0:
                counts[arg.name] += rest
                rest = 0
        if rest != 0:
            last = self._variable[-1]
            counts[last.name] += rest
        return counts

    def _infer_shape(self, conf: Conf, ins: list[Any], outs: list[Any], exact: bool) -> Any:
        return (ins, self.inference.shapes(conf, ins)) if exact else None

    def _infer_type(self, conf: Conf, ins: list[Any], outs: list[Any]) -> Any:
        return None if ins and not any(ins) else self.inference.types(conf, ins)

    def _inplace(self, conf: Conf) -> list[tuple[int, int, bool]]:
        if not self.kernels:
            return []
        common = set(self.kernels[0].inplace)
        for k in self.kernels[1:]:
            common &= set(k.inplace)
        return [
            (conf.position(i, 0, self.inputs), conf.position(o, 0, self.outputs), False)
            for o, i in sorted(common)
        ]

    def _run(self, k: _Kernel) -> Callable[..., Any]:
        compute, create = k.compute, k.create

        def run(conf: Conf, state: Any, ctx: Any, ins: Any, req: Any, outs: Any) -> Any:
            if not k.always_compute and outs and not any(o.size for o in outs):
                return None
            context = ComputeContext(conf, ctx, ins, req, outs)
            if k.tmp:
                context.tmp = scratch(k, context)
            if create is None:
                return compute(context)
            if k.name not in state:
                state[k.name] = create(context)
            context.state = state[k.name]
            return compute(context)

        return run


# The registries ---------------------------------------------------------------------------------

_definitions: dict[str, UserOpDefinition] = {}
_waiting_kernels: dict[str, list[_Kernel]] = {}
_waiting_grads: dict[str, Callable[[Any], Any]] = {}


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
    _registered: str = "",
) -> UserOpDefinition:
    """Registers a user operator: ``nd.<name>`` and ``sym.<name>``, as soon as it has a kernel.

    Parameters
    ----------
    inputs, outputs : str
        Arguments separated by commas: ``x`` exactly one array, ``x*5`` five, ``x*2+`` at least two,
        ``x?`` optional, ``x*5?`` none or five, ``x*5+?`` none or at least five. Outputs have fixed
        counts.
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
        gives other dtypes for other shapes.
    sbp : optional
        Distribution rules: a function of an ``rsnet.sbp.SbpContext``, a text such as
        ``"in:S(i) out:S(i) for i in axes(in)"``, or a list of them; see ``rsnet.sbp``.
    doc : str, optional
        What ``help(nd.<name>)`` and the documentation pages say.

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
    function_name("define", name)
    free_name("define", _registered or name)
    if name in _definitions:
        raise MXNetError(f"user operator '{name}' is already registered")
    if infer is None:
        raise MXNetError(f"{name}: an operator needs an infer function")
    for what, function in (("infer", infer), ("infer_dtype", infer_dtype), ("check", check)):
        if not (function is None or callable(function)):
            raise MXNetError(f"{name}: {what} is {function!r}, expected a function")
    if not isinstance(attrs, dict | None):
        raise MXNetError(f"{name}: attrs is {attrs!r}, expected a dict of name to op.Attr")
    if not isinstance(doc, str):
        raise MXNetError(f"{name}: doc is {doc!r}, expected a text")
    d = UserOpDefinition(name, inputs, outputs, dict(attrs or {}))
    if not d.outputs:
        raise MXNetError(f"{name}: an operator has at least one output")
    d.check, d.sbp, d.doc = check, sbp, doc
    d.inference = Inference(name, infer, infer_dtype)
    if sbp is not None:
        d.inference = CheckedInference(d, sbp, d.inference)
    d.registered = _registered or name
    names = [name, *(a.name for a in d.inputs), *(a.name for a in d.outputs), *d.attrs]
    for n in names:
        if names.count(n) > 1 or n == "tmp_buffer":
            raise MXNetError(f"{name}: the name '{n}' is used twice or reserved")
    for key, declared in d.attrs.items():
        argument_name(f"{name}: attrs", key)
        if key in RESERVED:
            raise MXNetError(
                f"{name}: a call has a use of its own for '{key}': rename the attribute"
            )
        if not isinstance(declared, Attr):
            raise MXNetError(f"{name}: attribute '{key}' is {declared!r}, expected an op.Attr")
    if any(not a.fixed for a in d.outputs):
        raise MXNetError(f"{name}: outputs must have fixed counts")
    d.check_defaults()
    d.kernels = list(_waiting_kernels.get(name, ()))
    d.grad = _waiting_grads.get(name)
    d.install(replace=False)
    _definitions[name] = d
    _waiting_kernels.pop(name, None)
    _waiting_grads.pop(name, None)
    return d


def kernel(
    name: str,
    *,
    where: Condition = ALWAYS,
    tmp: int | Callable[[ComputeContext], int] = 0,
    inplace: Sequence[tuple[str, str]] = (),
    state: Callable[[ComputeContext], Any] | None = None,
    priority: int = 0,
    always_compute: bool = False,
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
        Bytes of scratch memory, or a function of the :class:`ComputeContext` that tells: an array
        of uint8 in ``ctx.tmp``, whose contents are undefined.
    inplace : sequence of (str, str)
        Pairs (output, input) that may share memory, a hint: it is taken where nobody else reads the
        input and where every kernel proposes the pair.
    state : callable, optional
        ``state(ctx)`` makes ``ctx.state``, once for every node of an executor or recorded call. A
        class is instantiated as often.
    priority : int
    always_compute : bool
        Run although all outputs are empty.

    Raises
    ------
    rsnet.MXNetError
        The condition names an argument or attribute that the operator does not have, compares an
        attribute with a value of another kind, or `inplace` names what there is not. By a call:
        the function returns anything but None.

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
    function_name("kernel", name)
    if not (state is None or callable(state)):
        raise MXNetError(f"kernel of {name}: state is {state!r}, expected a function")
    if not isinstance(where, Condition):
        raise MXNetError(f"kernel of {name}: where is {where!r}, expected a condition")
    if not callable(tmp):
        checked_bytes(f"kernel of {name}", tmp)
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) >= 2**31:
        raise MXNetError(f"kernel of {name}: priority is {priority!r}, expected an int32")

    def decorate(f: Any) -> Any:
        known = _definitions.get(name)
        others = known.kernels if known else _waiting_kernels.setdefault(name, [])
        create = state
        compute = f
        if isinstance(f, type):
            if not callable(getattr(f, "compute", None)):
                raise MXNetError(f"kernel of {name}: class {f.__name__} has no method compute")

            def create(ctx: Any) -> Any:
                made = f()
                return made, (state(ctx) if state else None)

            def compute(ctx: Any) -> Any:
                made, ctx.state = ctx.state
                return made.compute(ctx)

        elif not callable(f):
            raise MXNetError(f"kernel of {name}: {f!r} is not a function or class")
        label = f"{getattr(f, '__name__', 'kernel')}#{len(others)}"
        try:
            pairs = tuple((str(o), str(i)) for o, i in inplace)
        except (TypeError, ValueError):
            raise MXNetError(
                f"kernel of {name}: inplace is {inplace!r}, expected pairs (output, input)"
            ) from None
        made = _Kernel(label, where, priority, compute, create, tmp, pairs, always_compute)
        others.append(made)
        if known is not None:
            try:
                known.install(replace=True)
            except Exception:
                others.remove(made)
                raise
        return f

    return decorate


def grad(name: str) -> Callable[[Any], Any]:
    """Decorator: the function ``g(ctx)`` binds a gradient to every input that needs one."""
    function_name("grad", name)

    def decorate(g: Any) -> Any:
        if not callable(g):
            raise MXNetError(f"gradient of {name}: {g!r} is not a function")
        known = _definitions.get(name)
        if name in _waiting_grads or (known is not None and known.grad is not None):
            raise MXNetError(f"the gradient of user operator '{name}' is already registered")
        if known is None:
            _waiting_grads[name] = g
        else:
            known.grad = g
            known.install(replace=True)
        return g

    return decorate


def definition(name: str) -> UserOpDefinition:
    """The registered user operator of this name."""
    try:
        return _definitions[name]
    except KeyError:
        known = ", ".join(sorted(_definitions)) or "none"
        raise MXNetError(
            f"user operator '{name}' is not registered (registered are: {known})"
        ) from None


def waits_for_define(name: str) -> str | None:
    """What an operator lacks that has kernels or a gradient, but is not defined; else None."""
    if name in _waiting_kernels or name in _waiting_grads:
        return f"operator '{name}' has a kernel or gradient, but no op.define says what it is"
    return None


def kernels(name: str) -> list[tuple[str, str, int]]:
    """``(name, condition, priority)`` of every kernel of any operator."""
    known = _definitions.get(name)
    return _core.operator_kernels(known.registered if known else name)


def why(name: str, *inputs: Any, ctx: Any = None, **params: Any) -> str:
    """Tells for every kernel of an operator whether it would run on these inputs, and why."""
    known = _definitions.get(name)
    device = ctx or (inputs[0].context if inputs else None)
    kind = device.device_type if device is not None else "cpu"
    specs = [(tuple(x.shape), np.dtype(x.dtype).name) for x in inputs]
    if known is not None and known._variable:
        params.setdefault("num_args", len(inputs))
    return _core.explain_kernels(known.registered if known else name, specs, params, kind)


from . import _user_op_builtin  # noqa: E402, F401
from ._user_op_builder import user_op_builder  # noqa: E402  (it builds on the registries above)
