"""Functions of ``nd.contrib`` that hand the arrays of AdamW and LAMB to their operators, one weight
or many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._core import NDArray
from ._creation import full
from ._register import call

__all__ = [
    "adamw_update",
    "mp_adamw_update",
    "multi_adamw_update",
    "multi_lamb_update",
    "multi_mp_adamw_update",
    "multi_mp_lamb_update",
]


def _factor(rescale_grad: Any, weight: NDArray) -> NDArray:
    """The factor of the gradients as an array of one element."""
    if isinstance(rescale_grad, NDArray):
        return rescale_grad
    return full((1,), rescale_grad, ctx=weight.context)


def _turns(*lists: Sequence[NDArray]) -> list[NDArray]:
    """The first of every list, the second of every list, and so on.

    Raises
    ------
    ValueError
        The lists differ in length.
    """
    if len({len(arrays) for arrays in lists}) != 1:
        lengths = ", ".join(str(len(arrays)) for arrays in lists)
        raise ValueError(f"invalid lists of lengths {lengths}: expected one length")
    return [array for group in zip(*lists, strict=True) for array in group]


def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    rescale_grad: Any,
    lr: float,
    eta: float,
    **kwargs: Any,
) -> Any:
    """One step of AdamW; see the operator ``_adamw_update``.

    Parameters
    ----------
    rescale_grad : NDArray of shape (1,), or float
        Factor of the gradient; nothing changes if it is 0, infinite or NaN.
    **kwargs
        Other parameters of the operator, and `out`.

    Examples
    --------
    >>> from rsnet import nd
    >>> w, g = nd.ones((2,)), nd.ones((2,))
    >>> _ = nd.contrib.adamw_update(w, g, nd.zeros((2,)), nd.zeros((2,)), 1, 0.1, 1, out=w)
    >>> bool((w.asnumpy() < 1).all())
    True
    """
    factor = _factor(rescale_grad, weight)
    return call("_adamw_update", weight, grad, mean, var, factor, lr=lr, eta=eta, **kwargs)


def mp_adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    weight32: NDArray,
    rescale_grad: Any,
    lr: float,
    eta: float,
    **kwargs: Any,
) -> Any:
    """`adamw_update` of a weight with a copy in float32; see ``_mp_adamw_update``.

    Examples
    --------
    >>> from rsnet import nd
    >>> w, copy = nd.ones((2,), dtype="float16"), nd.ones((2,))
    >>> grad, mean, var = nd.ones((2,), dtype="float16"), nd.zeros((2,)), nd.zeros((2,))
    >>> _ = nd.contrib.mp_adamw_update(w, grad, mean, var, copy, 1, 0.1, 1, out=w)
    >>> bool((copy.asnumpy() < 1).all())
    True
    """
    arrays = (weight, grad, mean, var, weight32, _factor(rescale_grad, weight))
    return call("_mp_adamw_update", *arrays, lr=lr, eta=eta, **kwargs)


def multi_adamw_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    rescale_grad: Any,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    size: int = 0,
    **kwargs: Any,
) -> Any:
    """`adamw_update` of a list of weights by one operator; see ``_multi_adamw_update``.

    Examples
    --------
    >>> from rsnet import nd
    >>> w, g, m, v = [nd.ones((2,))], [nd.ones((2,))], [nd.zeros((2,))], [nd.zeros((2,))]
    >>> _ = nd.contrib.multi_adamw_update(w, g, m, v, 1, (0.1,), (0,), (1,), out=w)
    >>> bool((w[0].asnumpy() < 1).all())
    True
    """
    operator, lists = "_multi_adamw_update", (weights, grads, mean, var)
    return _multi_adamw(operator, lists, rescale_grad, (lrs, wds, etas), size, kwargs)


def multi_mp_adamw_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    weights32: Sequence[NDArray],
    rescale_grad: Any,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    size: int = 0,
    **kwargs: Any,
) -> Any:
    """`multi_adamw_update` of weights with copies in float32.

    Examples
    --------
    >>> from rsnet import nd
    >>> w, copy = nd.ones((2,), dtype="float16"), nd.ones((2,))
    >>> grad, mean, var = nd.ones((2,), dtype="float16"), nd.zeros((2,)), nd.zeros((2,))
    >>> _ = nd.contrib.multi_mp_adamw_update(
    ...     [w], [grad], [mean], [var], [copy], 1, lrs=[0.1], etas=[1], wds=[0], out=[w]
    ... )
    >>> bool((copy.asnumpy() < 1).all())
    True
    """
    operator, lists = "_multi_mp_adamw_update", (weights, grads, mean, var, weights32)
    return _multi_adamw(operator, lists, rescale_grad, (lrs, wds, etas), size, kwargs)


def _multi_adamw(
    operator: str,
    lists: Sequence[Sequence[NDArray]],
    rescale_grad: Any,
    rates: Sequence[Sequence[float]],
    size: int,
    kwargs: dict[str, Any],
) -> Any:
    lrs, wds, etas = map(tuple, rates)
    weights = lists[0]
    arrays = [*_turns(*lists), _factor(rescale_grad, weights[0])]
    count = size or len(weights)
    return call(operator, *arrays, num_weights=count, lrs=lrs, wds=wds, etas=etas, **kwargs)


def multi_lamb_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """One step of LAMB for a list of weights by one operator; see ``_multi_lamb_update``.

    Examples
    --------
    >>> from rsnet import nd
    >>> w, g, m, v = [nd.ones((2,))], [nd.ones((2,))], [nd.zeros((2,))], [nd.zeros((2,))]
    >>> _ = nd.contrib.multi_lamb_update(w, g, m, v, (1,), (0.5,), (0,), out=w)
    >>> w[0].asnumpy().round(3).tolist()
    [0.5, 0.5]
    """
    return call(
        "_multi_lamb_update",
        *_turns(weights, grads, mean, var),
        learning_rates=tuple(lrs),
        wds=tuple(wds),
        step_count=tuple(step_count),
        num_tensors=num_tensors or len(weights),
        **kwargs,
    )


def multi_mp_lamb_update(
    weights: Sequence[NDArray],
    grads: Sequence[NDArray],
    mean: Sequence[NDArray],
    var: Sequence[NDArray],
    weights32: Sequence[NDArray],
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    num_tensors: int = 0,
    **kwargs: Any,
) -> Any:
    """`multi_lamb_update` of weights with copies in float32.

    Examples
    --------
    >>> from rsnet import nd
    >>> w, copy = nd.ones((2,), dtype="float16"), nd.ones((2,))
    >>> grad, mean, var = nd.ones((2,), dtype="float16"), nd.zeros((2,)), nd.zeros((2,))
    >>> _ = nd.contrib.multi_mp_lamb_update(
    ...     [w], [grad], [mean], [var], [copy], [1], lrs=[0.1], wds=[0], out=[w]
    ... )
    >>> bool((copy.asnumpy() < 1).all())
    True
    """
    return call(
        "_multi_mp_lamb_update",
        *_turns(weights, grads, mean, var, weights32),
        learning_rates=tuple(lrs),
        wds=tuple(wds),
        step_count=tuple(step_count),
        num_tensors=num_tensors or len(weights),
        **kwargs,
    )
