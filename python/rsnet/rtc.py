"""Kernels of CUDA that are compiled while a program runs. They need a GPU and CuPy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from .context import Context
from .ndarray import NDArray

__all__ = ["CudaKernel", "CudaModule", "Rtc"]

#: Types of CUDA C++ that parameters of kernels may have, as dtypes of NumPy.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "__half": "float16",
    "half": "float16",
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "int8_t": "int8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "int": "int32",
    "int32_t": "int32",
    "long long": "int64",
    "int64_t": "int64",
}

_PARAMETER = re.compile(
    r"(?P<const>const\s+)?(?P<type>\w+(?:\s+(?:char|long))?)\s*(?P<const_after>\bconst\b\s*)?"
    r"(?P<array>\*)?\s*(?:__restrict__|__restrict)?\s*(?P<name>\w+)?"
)

#: Bounds of the driver on the blocks of a grid along each axis, and on the threads of a block.
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
_MOST_THREADS_OF_A_BLOCK = 1024


@dataclass(frozen=True)
class _Parameter:
    """A parameter of a kernel."""

    name: str
    dtype: np.dtype[Any]
    is_array: bool
    is_read: bool

    @property
    def size(self) -> int:
        return 8 if self.is_array else self.dtype.itemsize


def _parameters(kernel: str, signature: str) -> list[_Parameter]:
    """The parameters that a signature lists."""
    found = []
    for i, text in enumerate(signature.split(",") if signature.strip() else []):
        match = _PARAMETER.fullmatch(text.strip())
        dtype = match and _DTYPES.get(" ".join(match["type"].split()))
        if not match or dtype is None:
            raise ValueError(
                f"{kernel}: invalid parameter {i} {text.strip()!r} of the signature: expected "
                f"[const] type [*] [name], where type is one of {', '.join(_DTYPES)}"
            )
        is_read = bool(match["const"] or match["const_after"])
        name = match["name"] or f"argument {i}"
        found.append(_Parameter(name, np.dtype(dtype), bool(match["array"]), is_read))
    return found


def _texts(what: str, given: str | Sequence[str]) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"CudaModule: invalid {what} '{text}': expected texts")
    return texts


def _refusal(kernel: str, what: str, got: Any, expected: str) -> ValueError:
    shown = f"of type {type(got).__name__}" if isinstance(got, NDArray) else f"'{got}'"
    return ValueError(f"{kernel}: invalid {what} {shown}: {expected}")


class CudaModule:
    r"""Source of kernels, compiled by NVRTC (through CuPy) for each device that runs them.

    Parameters
    ----------
    source : str
        CUDA C++. Kernels that are not templates are declared ``extern "C"``, or are exported.
    options : str or sequence of str
        Options of the compiler, such as ``--use_fast_math``.
    exports : str or sequence of str
        Kernels by their names in C++, with template arguments: ``axpy<float>``.

    Raises
    ------
    MXNetError
        If there is no driver or no device, or if the source does not compile; with the compiler's
        log.
    ImportError
        If CuPy is not installed.

    Examples
    --------
    >>> import rsnet as mx
    >>> source = r'''
    ... extern "C" __global__ void axpy(const float *x, float *y, float alpha) {
    ...   int i = threadIdx.x + blockIdx.x * blockDim.x;
    ...   y[i] += alpha * x[i];
    ... }'''
    >>> if mx.num_gpus():
    ...     axpy = mx.rtc.CudaModule(source).get_kernel(
    ...         "axpy", "const float *x, float *y, float alpha"
    ...     )
    ...     x, y = mx.nd.ones((10,), mx.gpu(0)), mx.nd.zeros((10,), mx.gpu(0))
    ...     axpy.launch([x, y, 3.0], mx.gpu(0), (1, 1, 1), (10, 1, 1))
    """

    def __init__(
        self, source: str, options: str | Sequence[str] = (), exports: str | Sequence[str] = ()
    ) -> None:
        from .cuda import _loader

        if not isinstance(source, str):
            raise TypeError(f"CudaModule: invalid source '{source}': expected a str of CUDA C++")
        self._source = _loader.Source(
            source, _texts("exports", exports), _texts("options", options)
        )
        _core.cuda_device(0)
        _loader.compile_source(0, self._source)

    def get_kernel(self, name: str, signature: str) -> CudaKernel:
        """The kernel `name` of the module.

        Parameters
        ----------
        name : str
            As in the source, or as exported.
        signature : str
            The parameters in order: ``"const float *x, float *y, int n"``. A ``*`` says that the
            argument is an array, and ``const`` that the kernel only reads it. An array that is not
            ``const`` counts as written; a launch waits for all that uses it.

        Raises
        ------
        MXNetError
            If there is no such kernel.
        ValueError
            If the signature does not fit the kernel (as far as the driver knows: from CUDA 12.4
            on), or if a type in it is unknown.
        """
        kernel = CudaKernel(self._source, name, _parameters(name, signature))
        kernel._handle(0)
        return kernel


class CudaKernel:
    """A compiled kernel; `CudaModule.get_kernel` makes it."""

    def __init__(self, source: Any, name: str, parameters: list[_Parameter]) -> None:
        self._source = source
        self._name = name
        self._parameters = parameters
        self._checked: set[int] = set()  # devices

    def __repr__(self) -> str:
        return f"<CudaKernel {self._name}>"

    def launch(
        self,
        args: Sequence[Any],
        ctx: Context,
        grid_dims: Sequence[int],
        block_dims: Sequence[int],
        shared_mem: int = 0,
    ) -> None:
        """Runs the kernel over a grid of blocks: returns at once, like every operation.

        Parameters
        ----------
        args : sequence
            Arrays on `ctx` for parameters with a ``*``, of the same dtype; numbers for the others.
        ctx : Context
            The device.
        grid_dims : three int
            Blocks along x (1 to 2**31 - 1), y and z (1 to 65535).
        block_dims : three int
            Threads of a block along x, y (1 to 1024) and z (1 to 64), 1024 at most in all.
        shared_mem : int
            Bytes of dynamic shared memory of each block.

        Raises
        ------
        ValueError
            If a number of arguments, a dtype, a device or an extent is not as expected. A refusal
            of the driver, and a fault of the kernel, are raised by the next wait.
        """
        if not isinstance(ctx, Context) or ctx.device_type != "gpu":
            raise _refusal(self._name, "ctx", ctx, "expected a gpu context")
        if len(args) != len(self._parameters):
            raise _refusal(
                self._name, "number of arguments", len(args), f"expected {len(self._parameters)}"
            )
        given = [self._argument(p, a, ctx) for p, a in zip(self._parameters, args, strict=True)]
        blocks = self._extents("grid_dims", grid_dims, _MOST_BLOCKS)
        threads = self._extents("block_dims", block_dims, _MOST_THREADS)
        if threads[0] * threads[1] * threads[2] > _MOST_THREADS_OF_A_BLOCK:
            raise _refusal(
                self._name,
                "block_dims",
                threads,
                f"expected {_MOST_THREADS_OF_A_BLOCK} threads at most",
            )
        if not 0 <= shared_mem < 2**31:
            raise _refusal(
                self._name, "shared_mem", shared_mem, "expected bytes from 0 to 2**31 - 1"
            )
        number = ctx.device_id
        _core.cuda_launch(
            number, self._handle(number), self._name, given, blocks, threads, int(shared_mem)
        )

    def _handle(self, device: int) -> int:
        """The driver's handle of the kernel on a device, where it is loaded now if it is not."""
        from .cuda import _loader

        is_new = device not in self._checked
        if is_new:
            _core.cuda_device(device)
        handle = _loader.load_from_source(device, self._source, self._name)
        if is_new:
            sizes = [parameter.size for parameter in self._parameters]
            _core.cuda_check_parameters(device, handle, self._name, sizes)
            self._checked.add(device)
        return handle

    def _argument(
        self, parameter: _Parameter, given: Any, ctx: Context
    ) -> tuple[NDArray, bool] | bytes:
        if not parameter.is_array:
            return self._number(parameter, given)
        if not isinstance(given, NDArray):
            raise _refusal(
                self._name, parameter.name, given, f"expected an array of {parameter.dtype}"
            )
        if given.context != ctx:
            raise _refusal(
                self._name, f"device of {parameter.name}", given.context, f"expected {ctx}"
            )
        if np.dtype(given.dtype) != parameter.dtype:
            raise _refusal(
                self._name, f"dtype of {parameter.name}", given.dtype, f"expected {parameter.dtype}"
            )
        return given, parameter.is_read

    def _number(self, parameter: _Parameter, given: Any) -> bytes:
        expected = f"expected a number that fits {parameter.dtype}"
        value = given.item() if isinstance(given, np.generic) else given
        if not isinstance(value, (int, float)):
            raise _refusal(self._name, parameter.name, given, expected)
        if parameter.dtype.kind in "iu":
            limits = np.iinfo(parameter.dtype)
            if value % 1 != 0 or not limits.min <= value <= limits.max:
                raise _refusal(self._name, parameter.name, given, expected)
        return np.array(value).astype(parameter.dtype).tobytes()

    def _extents(
        self, what: str, given: Sequence[int], most: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        extents = tuple(int(extent) for extent in given)
        if len(extents) != 3 or not all(1 <= e <= m for e, m in zip(extents, most, strict=True)):
            raise _refusal(self._name, what, extents, f"expected three numbers from 1 to {most}")
        return extents[0], extents[1], extents[2]


class Rtc:
    """A kernel over named arrays: the interface of MXNet 0.12 and before.

    The source that is compiled declares the arrays as parameters, and for each array ``x`` the
    constants ``x_ndim`` and ``x_dims[]``.

    Parameters
    ----------
    name : str
        Of the kernel.
    inputs, outputs : list of (str, NDArray)
        Names of the parameters with arrays that have their shapes and dtypes.
    kernel : str
        The body of the function, without the braces.

    Raises
    ------
    MXNetError, ImportError
        As `CudaModule`.

    Examples
    --------
    >>> import rsnet as mx
    >>> if mx.num_gpus():
    ...     x, y = mx.nd.ones((10,), mx.gpu(0)), mx.nd.zeros((10,), mx.gpu(0))
    ...     body = "y[threadIdx.x] = 2 * x[threadIdx.x];"
    ...     scale = mx.rtc.Rtc("scale", [("x", x)], [("y", y)], body)
    ...     scale.push([x], [y], (1, 1, 1), (10, 1, 1))
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[tuple[str, NDArray]],
        outputs: Sequence[tuple[str, NDArray]],
        kernel: str,
    ) -> None:
        types = {dtype: c_type for c_type, dtype in reversed(_DTYPES.items())}
        listed = [*inputs, *outputs]
        signature = ", ".join(
            f"{'const ' if i < len(inputs) else ''}{types[str(np.dtype(array.dtype))]} *{label}"
            for i, (label, array) in enumerate(listed)
        )
        constants = "".join(
            f"  const int {label}_ndim = {array.ndim};\n"
            f"  const int {label}_dims[] = {{{', '.join(map(str, array.shape))}}};\n"
            for label, array in listed
        )
        source = f'extern "C" __global__ void {name}({signature}) {{\n{constants}{kernel}\n}}\n'
        if any(np.dtype(array.dtype) == np.float16 for _, array in listed):
            source = f"#include <cuda_fp16.h>\n{source}"
        self._name = name
        self._shapes = [tuple(array.shape) for _, array in listed]
        self._kernel = CudaModule(source).get_kernel(name, signature)

    def push(
        self,
        ins: Sequence[NDArray],
        outs: Sequence[NDArray],
        grid_dims: Sequence[int],
        block_dims: Sequence[int],
    ) -> None:
        """Runs the kernel on arrays of the shapes that it was made for.

        Parameters
        ----------
        ins, outs : list of NDArray
            On one device.
        grid_dims, block_dims : three int
            As those of `CudaKernel.launch`.
        """
        arrays = [*ins, *outs]
        for array, shape in zip(arrays, self._shapes, strict=False):
            if tuple(array.shape) != shape:
                raise _refusal(self._name, "shape", tuple(array.shape), f"expected {shape}")
        if not arrays:
            raise _refusal(self._name, "number of arrays", 0, "expected at least one")
        self._kernel.launch(arrays, arrays[0].context, grid_dims, block_dims)
