"""Kernels of CUDA that are compiled while a program runs. They need a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import MXNetError

__all__ = ["CudaKernel", "CudaModule", "Rtc"]

_ABSENT = "expected a build of rsnet with CUDA and a GPU; mx.num_gpus() tells whether there is one"


class CudaModule:
    """Source code with kernels.

    Parameters
    ----------
    source : str
        CUDA C.
    options : str or tuple of str
        Of the compiler.
    exports : str or tuple of str
        Names of kernels that are templates.

    Raises
    ------
    MXNetError
        There is no GPU that rsnet can use.
    """

    def __init__(
        self, source: str, options: str | Sequence[str] = (), exports: str | Sequence[str] = ()
    ) -> None:
        raise MXNetError(f"CudaModule: {_ABSENT}")

    def get_kernel(self, name: str, signature: str) -> CudaKernel:
        """The kernel `name`; its `signature` is as ``const float *x, float *y, int n``."""
        raise MXNetError(f"CudaModule.get_kernel: {_ABSENT}")


class CudaKernel:
    """A compiled kernel; `CudaModule.get_kernel` makes it."""

    def __init__(self, handle: Any, name: str, is_ndarray: Any, dtypes: Any) -> None:
        raise MXNetError(f"CudaKernel: {_ABSENT}")

    def launch(
        self,
        args: Sequence[Any],
        ctx: Any,
        grid_dims: tuple[int, int, int],
        block_dims: tuple[int, int, int],
        shared_mem: int = 0,
    ) -> None:
        """Runs the kernel over a grid of blocks."""
        raise MXNetError(f"CudaKernel.launch: {_ABSENT}")


class Rtc:
    """The interface of MXNet 0.12 and before: a kernel over named arrays.

    Raises
    ------
    MXNetError
        There is no GPU that rsnet can use.
    """

    def __init__(self, name: str, inputs: Any, outputs: Any, kernel: str) -> None:
        raise MXNetError(f"Rtc: {_ABSENT}")
