"""Automatic differentiation of imperative code.

Inside ``record()`` every operator call on an array that is marked (``attach_grad``) or was
computed from
one is kept on a tape; ``backward`` walks it back. Recording and training are flags of the thread.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import NDArray
from ._mxnet_names import module_getattr
from ._trees import listed
from .base import MXTypeError, shown

if TYPE_CHECKING:
    from .symbol import Symbol

__all__ = [
    "Function",
    "backward",
    "get_symbol",
    "grad",
    "is_recording",
    "is_training",
    "mark_variables",
    "pause",
    "predict_mode",
    "record",
    "set_recording",
    "set_training",
    "train_mode",
]

is_recording = _core.is_recording
is_training = _core.is_training


def set_recording(is_recording: bool) -> bool:
    """Sets the thread's recording flag; returns the one before."""
    return _core.set_recording(bool(is_recording))


def set_training(train_mode: bool) -> bool:
    """Sets the thread's training flag; returns the one before."""
    return _core.set_training(bool(train_mode))


class _Scope:
    """Sets flags on entry and restores them on exit. May be entered again."""

    __slots__ = ("_recording", "_training", "_before")

    def __init__(self, recording: bool | None, training: bool | None) -> None:
        self._recording = recording
        self._training = training
        self._before: list[tuple[bool | None, bool | None]] = []

    def __enter__(self) -> None:
        recording, training = self._recording, self._training
        self._before.append(
            (
                None if recording is None else _core.set_recording(recording),
                None if training is None else _core.set_training(training),
            )
        )

    def __exit__(self, *exc: object) -> None:
        recording, training = self._before.pop()
        if recording is not None:
            _core.set_recording(recording)
        if training is not None:
            _core.set_training(training)


def record(train_mode: bool = True) -> _Scope:
    """A scope in which operator calls are recorded, in training mode by default."""
    return _Scope(True, bool(train_mode))


def pause(train_mode: bool = False) -> _Scope:
    """A scope in which nothing is recorded."""
    return _Scope(False, bool(train_mode))


def train_mode() -> _Scope:
    """A scope in training mode (dropout drops, batch norm uses the batch)."""
    return _Scope(None, True)


def predict_mode() -> _Scope:
    """A scope in inference mode."""
    return _Scope(None, False)


def _shown(value: Any) -> str:
    """What a function returned, for an error: its value if that is short."""
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


def _arrays(what: str, values: list[Any]) -> list[Any]:
    for value in values:
        if not isinstance(value, NDArray):
            raise MXTypeError(f"invalid {what} {shown(value)}: expected an NDArray")
    return values


def mark_variables(
    variables: Any, gradients: Any, grad_reqs: str | Sequence[str] = "write"
) -> None:
    """Makes arrays leaves of the tape, with buffers for their gradients.

    Parameters
    ----------
    variables : NDArray or list of NDArray
    gradients : NDArray or list of NDArray
        One buffer a variable, of its shape and dtype; it is ``variable.grad`` from now on.
    grad_reqs : str or list of str
        ``'write'``: backward overwrites the buffer; ``'add'``: it adds to it; ``'null'``: the
        variable gets no gradient.

    Raises
    ------
    TypeError
        An argument is not an NDArray.
    ValueError
        The lists are not equally long, or a request is another one.
    rsnet.MXNetError
        A buffer has not its variable's shape, dtype and context. No variable is marked then.

    Examples
    --------
    >>> from rsnet import autograd, nd
    >>> x, g = nd.array([1, 2]), nd.array([10, 10])
    >>> autograd.mark_variables(x, g, "add")
    >>> with autograd.record():
    ...     y = x * x
    >>> y.backward()
    >>> g.asnumpy().tolist()
    [12.0, 14.0]
    """
    variables, gradients = listed(variables), listed(gradients)
    reqs = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(variables) == len(gradients) == len(reqs):
        raise ValueError(
            f"invalid numbers of gradients and requests {(len(gradients), len(reqs))}: "
            f"expected {len(variables)}, one for each variable"
        )
    for i, pair in enumerate(zip(variables, gradients)):
        for what, array in zip(("variables", "gradients"), pair):
            if not isinstance(array, NDArray):
                raise TypeError(f"invalid item {i} of {what} {shown(array)}: expected an NDArray")
    _core.mark_variables(variables, gradients, reqs)


def _heads(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    heads = _arrays("head", listed(heads))
    grads = [None] * len(heads) if head_grads is None else listed(head_grads)
    if len(heads) != len(grads):
        raise ValueError(f"invalid number of head gradients {len(grads)}: expected {len(heads)}")
    _arrays("head gradient", [grad for grad in grads if grad is not None])
    return heads, grads


def backward(
    heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Writes the gradients of `heads` into the buffers of the leaves they depend on.

    With heads h and head gradients g, a leaf x gets Σ gᵢ·∂hᵢ/∂x, as its request says.

    Parameters
    ----------
    heads : NDArray or list of NDArray
        Results of recorded calls.
    head_grads : NDArray or list of NDArray or None
        Gradients with respect to the heads, of their shapes; ones where None.
    retain_graph : bool
        Keep the tape, to go back through it again.
    train_mode : bool
        Whether the gradients are those of training mode.

    Raises
    ------
    rsnet.MXNetError
        A head was not recorded, or its tape is used up; a head gradient has another shape; an
        operator on the way has no gradient.
    ValueError
        There are not as many head gradients as heads.

    Examples
    --------
    >>> from rsnet import autograd, nd
    >>> x = nd.array([1, 2, 3])
    >>> x.attach_grad()
    >>> with autograd.record():
    ...     y = x * x
    >>> autograd.backward([y], [nd.array([1, 1, 10])])
    >>> x.grad.asnumpy().tolist()
    [2.0, 4.0, 60.0]
    """
    heads, grads = _heads(heads, head_grads)
    _core.backward(heads, grads, bool(retain_graph), bool(train_mode))


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> Any:
    """Gradients of `heads` with respect to `variables`, as new arrays.

    With heads h and head gradients g, Σ gᵢ·∂hᵢ/∂x for every variable x. The buffers of the
    variables are left alone.

    Parameters
    ----------
    heads : NDArray or list of NDArray
        Results of recorded calls.
    variables : NDArray or list of NDArray
        Leaves, that is arrays with ``attach_grad`` or `mark_variables`.
    head_grads : NDArray or list of NDArray or None
        Gradients with respect to the heads, of their shapes; ones where None.
    retain_graph : bool, optional
        Keep the tape, to go back through it again; default: as `create_graph`.
    create_graph : bool
        Record the computation of the gradients itself, so that they can be differentiated again.
    train_mode : bool
        Whether the gradients are those of training mode.

    Returns
    -------
    list of NDArray
        One a variable, of its shape and dtype.

    Raises
    ------
    rsnet.MXNetError
        A head was not recorded, or its tape is used up; a variable is not a leaf; a head gradient
        has another shape; an operator on the way has no gradient.
    ValueError
        There are no variables, or the numbers of heads and of head gradients differ.

    Examples
    --------
    >>> from rsnet import autograd, nd
    >>> x = nd.array([1, 2, 3])
    >>> x.attach_grad()
    >>> with autograd.record():
    ...     y = x * x * x
    ...     (dy,) = autograd.grad(y, x, create_graph=True)
    >>> dy.asnumpy().tolist()
    [3.0, 12.0, 27.0]
    >>> dy.backward()
    >>> x.grad.asnumpy().tolist()
    [6.0, 12.0, 18.0]
    """
    heads, grads = _heads(heads, head_grads)
    variables = _arrays("variable", listed(variables))
    if not variables:
        raise ValueError("grad: invalid variables []: expected one array at least")
    retain = create_graph if retain_graph is None else retain_graph
    return _core.grad(heads, grads, variables, bool(retain), bool(create_graph), bool(train_mode))


def get_symbol(x: NDArray) -> Symbol:
    """The recorded history of `x` as a Symbol. Leaves are named ``var<N>``, calls ``node_<N>``."""
    from ._history import symbol_of

    return symbol_of(x)


class Function:
    """A function with a gradient of its own.

    Subclass and implement ``forward(self, *inputs)`` and ``backward(self, *output_grads)``, which
    returns as many arrays as there are inputs. Call an instance once while recording.

    With ``grad(..., create_graph=True)`` what ``backward`` computes is recorded, so it can be
    differentiated again: through its arguments, the inputs and what `save_for_backward` kept of
    inputs and outputs. Anything else that it uses counts as a constant.

    Examples
    --------
    >>> class Sigmoid(Function):
    ...     def forward(self, x):
    ...         y = 1 / (1 + mx.nd.exp(-x))
    ...         self.save_for_backward(y)
    ...         return y
    ...     def backward(self, dy):
    ...         (y,) = self.saved_tensors
    ...         return dy * y * (1 - y)
    """

    def __init__(self) -> None:
        self._used = False
        self.saved_tensors: tuple[NDArray, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Keeps arrays for `backward`, where they are ``self.saved_tensors``."""
        self.saved_tensors = args

    def __call__(self, *inputs: NDArray) -> Any:
        if getattr(self, "_used", False):
            raise AssertionError(
                f"{type(self).__name__}: invalid call of an object that was called before: "
                "expected one for each call"
            )
        with pause(train_mode=is_training()):
            outputs = self.forward(*inputs)
        single = not isinstance(outputs, (list, tuple))
        results = [outputs] if single else list(outputs)
        for i, result in enumerate(results):
            if not isinstance(result, NDArray):
                which = "" if single else f" as output {i}"
                raise MXTypeError(
                    f"{type(self).__name__}.forward returned {_shown(result)}{which}, "
                    "expected an NDArray or a list of NDArrays"
                )
        if not is_recording():
            return outputs
        self._used = True
        # An output may be an input itself, or kept by `forward`: the recorded one is a handle of
        # its own.
        saved = [
            next((i for i, r in enumerate(results) if r is s), None) for s in self.saved_tensors
        ]
        kept = [i in saved for i in range(len(results))]
        results = [r.detach() for r in results]
        if any(x._is_tracked for x in inputs):
            run = self._backward(len(inputs), saved)
            _core.record_function(type(self).__name__, run, list(inputs), results, kept)
        return results[0] if single else type(outputs)(results)

    def _backward(self, count: int, saved: list[int | None]) -> Callable[..., Any]:
        """The gradient as the tape calls it; ``saved`` has the output that each saved tensor is, or
        None.
        """

        def run(output_grads: Sequence[NDArray], outputs: Sequence[NDArray]) -> list[Any]:
            tensors = self.saved_tensors
            # Outputs with their history, which the function itself may not keep: it is part of it.
            self.saved_tensors = tuple(
                t if i is None else outputs[i] for t, i in zip(tensors, saved, strict=True)
            )
            try:
                grads = self.backward(*output_grads)
            finally:
                self.saved_tensors = tensors
            grads = [grads] if not isinstance(grads, (list, tuple)) else list(grads)
            if len(grads) != count:
                raise AssertionError(
                    f"{type(self).__name__}.backward must return exactly the same number of "
                    f"NDArrays as the number of inputs of forward: "
                    f"expected {count}, got {len(grads)}"
                )
            return grads

        return run

    def forward(self, *inputs: NDArray) -> Any:
        """Outputs from inputs."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def backward(self, *output_grads: NDArray) -> Any:
        """Gradients of the inputs from those of the outputs."""
        raise NotImplementedError(f"{type(self).__name__} does not define backward")


__getattr__ = module_getattr(__name__)

# A history that several arrays share is seen by the collector only after its owners were counted.
gc.callbacks.append(_core.before_collection)
