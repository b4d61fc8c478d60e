"""Pooling layers."""

from __future__ import annotations

from typing import Any

from ..hybrid_block import HybridBlock
from .layouts import checked_layout, per_axis


class _Pooling(HybridBlock):
    """Base of pooling layers.

    Parameters
    ----------
    pool_size, strides, padding : int or tuple of int
        By axis; strides are the pool's size if None.
    layout : str
        Order of batch, channels and axes of the input.
    ceil_mode : bool
        Round the output's size up?
    global_pool : bool
        Is the window the whole input?
    pool_type : {'max', 'avg', 'sum', 'lp'}
    count_include_pad : bool, optional
        Does padding count in a mean?
    """

    _axes = 0
    _pool_type = "max"
    _global = False

    def __init__(
        self,
        pool_size: tuple[int, ...] | None = None,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        global_pool: bool = False,
        pool_type: str = "max",
        layout: str | None = None,
        count_include_pad: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        more = (strides, padding, ceil_mode, global_pool, pool_type, layout, count_include_pad)
        if pool_size is not None:  # for classes of programs; those below call `_set`
            self._axes, self._global, self._pool_type = len(pool_size), global_pool, pool_type
            self._set(pool_size, strides, padding, ceil_mode, layout, count_include_pad)
        elif more != (None, 0, False, False, "max", None, None):
            raise TypeError(
                f"{type(self).__name__}: invalid pool_size None: expected extents, as another "
                "argument of windows is given"
            )

    def _set(
        self,
        pool_size: Any,
        strides: Any,
        padding: Any,
        ceil_mode: bool,
        layout: str | None,
        count_include_pad: bool | None = None,
    ) -> None:
        layout = checked_layout(type(self).__name__, layout, self._axes)
        size = per_axis(pool_size, self._axes, "pool_size")
        self._kwargs: dict[str, Any] = {
            "kernel": size,
            "stride": size if strides is None else per_axis(strides, self._axes, "strides"),
            "pad": per_axis(padding, self._axes, "padding"),
            "global_pool": self._global,
            "pool_type": self._pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        ceil = kwargs["pooling_convention"] == "full"
        return (
            f"{type(self).__name__}(size={kwargs['kernel']}, stride={kwargs['stride']}, "
            f"padding={kwargs['pad']}, ceil_mode={ceil}, global_pool={kwargs['global_pool']}, "
            f"pool_type={kwargs['pool_type']}, layout={kwargs['layout']})"
        )


class MaxPool1D(_Pooling):
    """The greatest of each window of one axis."""

    _axes = 1

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set(pool_size, strides, padding, ceil_mode, layout)


class MaxPool2D(_Pooling):
    """The greatest of each window of two axes.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.gluon.nn.MaxPool2D()(mx.nd.ones((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    _axes = 2

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set(pool_size, strides, padding, ceil_mode, layout)


class MaxPool3D(MaxPool2D):
    """The greatest of each window of three axes."""

    _axes = 3

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, layout, ceil_mode, **kwargs)


class AvgPool1D(_Pooling):
    """The mean of each window of one axis; with `count_include_pad` padding counts as zeros."""

    _axes = 1
    _pool_type = "avg"

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set(pool_size, strides, padding, ceil_mode, layout, count_include_pad)


class AvgPool2D(_Pooling):
    """The mean of each window of two axes; with `count_include_pad` padding counts as zeros."""

    _axes = 2
    _pool_type = "avg"

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        layout: str | None = None,
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set(pool_size, strides, padding, ceil_mode, layout, count_include_pad)


class AvgPool3D(AvgPool2D):
    """The mean of each window of three axes; with `count_include_pad` padding counts as zeros."""

    _axes = 3


class _GlobalPool(_Pooling):
    _global = True

    def __init__(self, layout: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._set(1, None, 0, True, layout)


class GlobalMaxPool1D(_GlobalPool):
    """The greatest of one axis."""

    _axes = 1


class GlobalMaxPool2D(_GlobalPool):
    """The greatest of two axes."""

    _axes = 2


class GlobalMaxPool3D(_GlobalPool):
    """The greatest of three axes."""

    _axes = 3


class GlobalAvgPool1D(_GlobalPool):
    """The mean of one axis."""

    _axes = 1
    _pool_type = "avg"


class GlobalAvgPool2D(_GlobalPool):
    """The mean of two axes."""

    _axes = 2
    _pool_type = "avg"


class GlobalAvgPool3D(_GlobalPool):
    """The mean of three axes."""

    _axes = 3
    _pool_type = "avg"
