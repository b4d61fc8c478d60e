"""Operands of Python operators as arrays of CuPy: over the same memory, on the stream of the call.

This is all that rsnet knows of CuPy's arrays. CuPy is imported when an operator that asked for its
arrays (``views="cupy"``) is first called on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _core

__all__ = ["on_cupy"]


class _Stream:
    """A stream of the driver as CuPy takes over those of others."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _import(operator: str) -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"operator '{operator}' takes arrays of CuPy (views='cupy') on a device, expected it "
            f"to be installed: pip install rsnet[cuda13] (or rsnet[cuda12]): {error}"
        ) from error
    return cupy


def _array(cupy: Any, operand: Any) -> Any:
    """An array of CuPy over the memory of an NDArray on a device, which it keeps. Other objects
    stay as they are.
    """
    if not isinstance(operand, _core.NDArray):
        return operand
    dtype = np.dtype(operand.dtype)
    if not operand.size:
        return cupy.empty(operand.shape, dtype=dtype)
    address, _ = _core.cuda_address(operand) or (0, 0)  # one on the host has none
    device, size = operand.context.device_id, operand.size * dtype.itemsize
    memory = cupy.cuda.UnownedMemory(address, size, operand, device)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray(operand.shape, dtype=dtype, memptr=pointer)


def on_cupy(operator: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's function for operands on a device from one that takes arrays of CuPy.

    While it runs, the device and the stream of the call are CuPy's current ones, so that what it
    computes comes after what writes its inputs, and before what reads its outputs.
    """

    def converted(payload: Any, state: Any, ctx: Any, *operands: Any) -> Any:
        *lists, req, outputs = operands
        cupy = _import(operator)
        with (
            cupy.cuda.Device(ctx.ctx.device_id),
            cupy.cuda.Stream.from_external(_Stream(ctx.stream)),
        ):
            ins = [[_array(cupy, operand) for operand in inputs] for inputs in lists]
            outs = [_array(cupy, operand) for operand in outputs]
            given = list(outs)
            answer = run(payload, state, ctx, *ins, req, outs)
        for i, (before, now) in enumerate(zip(given, outs, strict=False)):
            if now is not before:  # the core says that this has no effect
                outputs[i] = now
        return answer

    return converted
