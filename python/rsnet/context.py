"""Devices: which one arrays live on and operators run on."""

from __future__ import annotations

from typing import Any

from . import _core
from ._mxnet_names import module_getattr
from ._scopes import OfThread
from .base import shown


class _HasDefault(type):
    """Type of `Context`: its attribute `default_ctx` belongs to the thread."""

    @property
    def default_ctx(cls) -> Context:
        """The thread's default context."""
        return _core.current_context()

    @default_ctx.setter
    def default_ctx(cls, ctx: Context) -> None:
        _core.set_current_context(ctx)

    @property
    def _default_ctx(cls) -> OfThread:
        return OfThread(_core.current_context, _core.set_current_context)


class Context(metaclass=_HasDefault):
    """A device: its type (``'cpu'``, ``'gpu'``, ``'cpu_pinned'``, ``'cpu_shared'``) and number.

    ``with ctx:`` makes it the thread's default for arrays that are created inside.

    Parameters
    ----------
    device_type : str or Context
        Name of the device type, alone or with a number (``'gpu(1)'``, ``'gpu:1'``), or a context to
        copy.
    device_id : int, default 0
        Number of the device. CPU numbers are logical only.

    Raises
    ------
    KeyError
        If the device type is unknown.
    ValueError
        If the number is none, or is given twice.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.Context("gpu", 1) == mx.Context("gpu(1)") == mx.Context("gpu:1")
    True
    """

    device_typeid: int
    device_id: int

    devtype2str = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            self.device_typeid = device_type.device_typeid
            self.device_id = device_type.device_id
        else:
            if device_type not in Context.devstr2type:
                device_type, device_id = _parsed(device_type, device_id)
            self.device_typeid = Context.devstr2type[device_type]
            self.device_id = _number(device_id)
        self._before: list[Context] = []

    @property
    def device_type(self) -> str:
        """Name of the device type."""
        return Context.devtype2str[self.device_typeid]

    def __hash__(self) -> int:
        return hash((self.device_typeid, self.device_id))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.device_typeid == other.device_typeid
            and self.device_id == other.device_id
        )

    def __str__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self.device_type, self.device_id)

    def __enter__(self) -> Context:
        self._before.append(_core.set_current_context(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _core.set_current_context(self._before.pop())

    def empty_cache(self) -> None:
        """Returns the device's cached memory to the system."""
        _core.empty_cache(self)


def _number(device_id: Any) -> int:
    try:
        return int(device_id)
    except (TypeError, ValueError):
        raise ValueError(f"invalid device_id {shown(device_id)}: expected an int") from None


def _parsed(text: Any, device_id: int) -> tuple[str, int]:
    """Type and number from a text such as ``gpu(1)`` or ``gpu:1``."""
    if isinstance(text, str):
        kind, mark, number = text.removesuffix(")").partition("(" if text.endswith(")") else ":")
        if kind in Context.devstr2type and mark and number.isdecimal():
            if device_id != 0:
                raise ValueError(
                    f"invalid device_id {device_id}: expected none beside {shown(text)}"
                )
            return kind, int(number)
    known = ", ".join(Context.devstr2type)
    raise KeyError(f"invalid device type {shown(text)}: expected one of: {known}")


def as_context(ctx: Any, what: str = "ctx") -> Context:
    """A context as programs write it: a `Context`, or a text that `Context` takes.

    Raises
    ------
    TypeError
        It is something else; the message names the argument, `what`.
    ValueError
        The text names no device.
    """
    if isinstance(ctx, Context):
        return ctx
    if isinstance(ctx, str):
        try:
            return Context(ctx)
        except KeyError as error:
            raise ValueError(f"invalid {what}: {error.args[0]}") from None
    raise TypeError(
        f"invalid {what} {shown(ctx)}: expected a Context, or a text such as 'cpu' or 'gpu(1)'"
    )


def cpu(device_id: int = 0) -> Context:
    """The CPU as a context."""
    return Context("cpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Page-locked host memory as a context."""
    return Context("cpu_pinned", device_id)


def gpu(device_id: int = 0) -> Context:
    """A GPU as a context. Creating an array on a missing GPU raises an error."""
    return Context("gpu", device_id)


def _load_function(device: int, source: str, definitions: str, function: str) -> int:
    """Loads a CUDA function for the core, which asks when an operator first needs it."""
    from .cuda import _loader

    return _loader.load(device, source, definitions, function)


def _find_library(name: str) -> str | None:
    """Finds a library of CUDA for the core."""
    from .cuda import _loader

    return _loader.library(name)


_core.cuda_bind_loader(_load_function, _find_library)


def num_gpus() -> int:
    """Number of GPUs that rsnet can use; 0 without a CUDA driver."""
    try:
        return _core.cuda_device_count()
    except RuntimeError:
        return 0


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Free and total bytes of a GPU.

    Raises
    ------
    MXNetError
        If there is no such device.
    """
    _, _, free, total, _ = _core.cuda_device(device_id)
    return free, total


def current_context() -> Context:
    """The thread's default context."""
    return _core.current_context()


__getattr__ = module_getattr(__name__)
