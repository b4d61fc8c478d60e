"""Types of the binding. `make types` compares them with the built module.

What the package itself adds to `NDArray` when it is imported (`rsnet.ndarray._methods`) is here
too, because mypy sees the class here only. The members of the modules `engine` and `profiler` stand
in the classes `_Engine` and `_Profiler`: they are attributes of the binding and cannot be imported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, final, type_check_only

import numpy as np
from typing_extensions import Self, disjoint_base

from .context import Context

__version__: str

_Shape: TypeAlias = Sequence[int] | None
_Found: TypeAlias = tuple[int, ...] | None
_Facts: TypeAlias = tuple[
    Mapping[str, _Shape], Mapping[str, str], Context | None, Mapping[str, Context] | None, bool
]
_Wanted: TypeAlias = tuple[tuple[int, ...], type, Context]
_Pair: TypeAlias = tuple[int, int]
_Fields: TypeAlias = tuple[
    str,
    str,
    list[_Pair],
    dict[str, str],
    int | None,
    int | None,
    list[tuple[int, _Pair]],
    list[int],
]
_Call: TypeAlias = tuple[str | None, list[tuple[str, str]], list[_Pair | None]]

@disjoint_base
class NDArray:
    """An array; see `rsnet.ndarray`."""

    __array_priority__: ClassVar[float]
    stype: str
    _fresh_grad: bool
    @property
    def T(self) -> NDArray: ...
    @property
    def context(self) -> Context: ...
    @property
    def ctx(self) -> Context: ...
    @property
    def dtype(self) -> type: ...
    @property
    def grad(self) -> NDArray | None: ...
    @property
    def grad_req(self) -> str: ...
    @property
    def handle(self) -> int: ...
    @property
    def ndim(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def size(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def writable(self) -> bool: ...
    @property
    def _is_tracked(self) -> bool: ...
    def __add__(self, value: Any, /) -> NDArray: ...
    def __radd__(self, value: Any, /) -> NDArray: ...
    def __iadd__(self, value: Any, /) -> Self: ...
    def __sub__(self, value: Any, /) -> NDArray: ...
    def __rsub__(self, value: Any, /) -> NDArray: ...
    def __isub__(self, value: Any, /) -> Self: ...
    def __mul__(self, value: Any, /) -> NDArray: ...
    def __rmul__(self, value: Any, /) -> NDArray: ...
    def __imul__(self, value: Any, /) -> Self: ...
    def __truediv__(self, value: Any, /) -> NDArray: ...
    def __rtruediv__(self, value: Any, /) -> NDArray: ...
    def __itruediv__(self, value: Any, /) -> Self: ...
    def __mod__(self, value: Any, /) -> NDArray: ...
    def __rmod__(self, value: Any, /) -> NDArray: ...
    def __imod__(self, value: Any, /) -> Self: ...
    def __pow__(self, value: Any, mod: Any = None, /) -> NDArray: ...
    def __rpow__(self, value: Any, mod: Any = None, /) -> NDArray: ...
    def __neg__(self) -> NDArray: ...
    def __abs__(self) -> NDArray: ...
    def __eq__(self, value: Any, /) -> NDArray: ...  # type: ignore[override]
    def __ne__(self, value: Any, /) -> NDArray: ...  # type: ignore[override]
    def __lt__(self, value: Any, /) -> NDArray: ...
    def __le__(self, value: Any, /) -> NDArray: ...
    def __gt__(self, value: Any, /) -> NDArray: ...
    def __ge__(self, value: Any, /) -> NDArray: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[NDArray]: ...
    def __getitem__(self, key: Any, /) -> NDArray: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __delitem__(self, key: Any, /) -> None: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...
    def __copy__(self) -> NDArray: ...
    def __deepcopy__(self, memo: Any) -> NDArray: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __reduce__(self) -> Any: ...
    def _at(self, i: int) -> NDArray: ...
    def _copy_from(self, source: NDArray) -> None: ...
    def _copy_from_numpy(self, source: np.ndarray) -> None: ...
    def _copy_region(
        self,
        offset: int,
        extents: Sequence[int],
        steps: Sequence[int],
        source: NDArray,
        source_offset: int,
        source_steps: Sequence[int],
    ) -> None: ...
    def _fill(self, value: float) -> None: ...
    def _forget(self) -> None: ...
    def _gather(self, source: NDArray, positions: np.ndarray) -> None: ...
    def _part(self, offset: int, shape: Any) -> NDArray: ...
    def _reshaped(self, shape: Any) -> NDArray: ...
    def _same_memory(self, other: NDArray) -> bool: ...
    def _scatter(self, source: NDArray, positions: np.ndarray) -> None: ...
    def _slice(self, begin: int, end: int) -> NDArray: ...
    def abs(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def arccos(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def arccosh(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def arcsin(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def arcsinh(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def arctan(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def arctanh(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def argmax(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def argmax_channel(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def argmin(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def argsort(
        data: NDArray | None = None,
        axis: Any = ...,
        is_ascend: Any = ...,
        dtype: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def as_in_context(self, context: Any) -> NDArray: ...
    def as_in_ctx(self, context: Any) -> NDArray: ...
    def asnumpy(self) -> np.ndarray: ...
    def asscalar(self) -> float: ...
    def astype(self, dtype: Any, copy: Any = True) -> NDArray: ...
    def attach_grad(self, grad_req: Any = "write", stype: Any = None) -> None: ...
    def backward(
        self, out_grad: Any = None, retain_graph: Any = False, train_mode: Any = True
    ) -> None: ...
    def broadcast_axes(
        data: NDArray | None = None,
        axis: Any = ...,
        size: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def broadcast_like(self, other: Any) -> NDArray: ...
    def broadcast_to(self, shape: Any) -> NDArray: ...
    def cbrt(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def ceil(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def clip(
        data: NDArray | None = None,
        a_min: Any = ...,
        a_max: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def copy(self) -> NDArray: ...
    def copyto(self, other: Any) -> NDArray: ...
    def cos(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def cosh(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def degrees(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def depth_to_space(
        data: NDArray | None = None,
        block_size: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def detach(self) -> NDArray: ...
    def diag(
        data: NDArray | None = None,
        k: Any = ...,
        axis1: Any = ...,
        axis2: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def dot(
        lhs: NDArray | None = None,
        rhs: Any = None,
        transpose_a: Any = ...,
        transpose_b: Any = ...,
        forward_stype: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def exp(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def expand_dims(self, axis: Any, inplace: Any = False) -> NDArray: ...
    def expm1(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def fix(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def flatten(self, inplace: Any = False) -> NDArray: ...
    def flip(
        data: NDArray | None = None,
        axis: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def floor(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def gamma(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def gammaln(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def item(self) -> float: ...
    def log(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def log10(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def log1p(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def log2(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def log_softmax(
        data: NDArray | None = None,
        axis: Any = ...,
        temperature: Any = ...,
        dtype: Any = ...,
        use_length: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def max(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def mean(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def min(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def nanprod(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def nansum(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def norm(
        data: NDArray | None = None,
        ord: Any = ...,
        axis: Any = ...,
        out_dtype: Any = ...,
        keepdims: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def one_hot(
        indices: NDArray | None = None,
        depth: Any = ...,
        on_value: Any = ...,
        off_value: Any = ...,
        dtype: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def ones_like(
        data, out: NDArray | None = None, name: str | None = None, **kwargs: Any
    ) -> NDArray: ...
    def pad(
        data: NDArray | None = None,
        mode: Any = ...,
        pad_width: Any = ...,
        constant_value: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def pick(
        data: NDArray | None = None,
        index: Any = None,
        axis: Any = ...,
        keepdims: Any = ...,
        mode: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def prod(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def radians(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def rcbrt(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def reciprocal(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def relu(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def repeat(
        data: NDArray | None = None,
        repeats: Any = ...,
        axis: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray: ...
    def reshape_like(self, other: Any, **kwargs: Any) -> NDArray: ...
    def rint(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def round(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def rsqrt(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def shape_array(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def sigmoid(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def sign(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def sin(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def sinh(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def size_array(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def slice(
        data: NDArray | None = None,
        begin: Any = ...,
        end: Any = ...,
        step: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def slice_assign(self, rhs: Any, begin: Any, end: Any, step: Any) -> NDArray: ...
    def slice_assign_scalar(self, rhs: Any, begin: Any, end: Any, step: Any) -> NDArray: ...
    def slice_axis(
        data: NDArray | None = None,
        axis: Any = ...,
        begin: Any = ...,
        end: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def slice_like(
        data: NDArray | None = None,
        shape_like: Any = None,
        axes: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def softmax(
        data: NDArray | None = None,
        length: Any = None,
        axis: Any = ...,
        temperature: Any = ...,
        dtype: Any = ...,
        use_length: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def softmin(
        data: NDArray | None = None,
        axis: Any = ...,
        temperature: Any = ...,
        dtype: Any = ...,
        use_length: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def sort(
        data: NDArray | None = None,
        axis: Any = ...,
        is_ascend: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def space_to_depth(
        data: NDArray | None = None,
        block_size: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def split(
        data: NDArray | None = None,
        num_outputs: Any = ...,
        axis: Any = ...,
        squeeze_axis: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def split_v2(
        ary, indices_or_sections: Any, axis: Any = 0, squeeze_axis: Any = False
    ) -> Any: ...
    def sqrt(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def square(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def squeeze(self, axis: Any = None, inplace: Any = False) -> NDArray: ...
    def sum(
        data: NDArray | None = None,
        axis: Any = ...,
        keepdims: Any = ...,
        exclude: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def swapaxes(
        data: NDArray | None = None,
        dim1: Any = ...,
        dim2: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def take(
        a: NDArray | None = None,
        indices: Any = None,
        axis: Any = ...,
        mode: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def tan(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def tanh(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def tile(
        data: NDArray | None = None,
        reps: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def topk(
        data: NDArray | None = None,
        axis: Any = ...,
        k: Any = ...,
        ret_typ: Any = ...,
        is_ascend: Any = ...,
        dtype: Any = ...,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def tostype(self, stype: Any) -> NDArray: ...
    def transpose(self, *axes: Any, **kwargs: Any) -> NDArray: ...
    def trunc(
        data: NDArray | None = None,
        out: NDArray | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> NDArray: ...
    def wait_to_read(self) -> None: ...
    def wait_to_write(self) -> None: ...
    def zeros_like(
        data, out: NDArray | None = None, name: str | None = None, **kwargs: Any
    ) -> NDArray: ...

@final
class SymbolHandle:
    """A symbol of the core."""

    @staticmethod
    def variable(name: str, attrs: Mapping[str, str]) -> SymbolHandle: ...
    @staticmethod
    def create(
        op: str,
        name: str,
        params: Mapping[str, str],
        attrs: Mapping[str, str],
        args: Sequence[SymbolHandle],
        kwargs: Mapping[str, SymbolHandle],
    ) -> SymbolHandle: ...
    @staticmethod
    def group(symbols: Sequence[SymbolHandle]) -> SymbolHandle: ...
    @staticmethod
    def from_json(text: str, np_shape: bool) -> tuple[SymbolHandle, int, bool, bool]: ...
    @property
    def name(self) -> str | None: ...
    @property
    def num_outputs(self) -> int: ...
    def compose(
        self, args: Sequence[SymbolHandle], kwargs: Mapping[str, SymbolHandle], name: str | None
    ) -> SymbolHandle: ...
    def output(self, index: int) -> SymbolHandle: ...
    def list_arguments(self) -> list[str]: ...
    def list_auxiliary_states(self) -> list[str]: ...
    def list_inputs(self) -> list[str]: ...
    def list_outputs(self) -> list[str]: ...
    def internals(self) -> SymbolHandle: ...
    def children(self) -> SymbolHandle | None: ...
    def attr(self, key: str) -> str | None: ...
    def list_attr(self) -> dict[str, str]: ...
    def attr_dict(self) -> dict[str, dict[str, str]]: ...
    def set_attr(self, attrs: Mapping[str, str]) -> None: ...
    def copy(self) -> SymbolHandle: ...
    def tojson(self, np_shape: bool, remove_amp_cast: bool) -> str: ...
    def debug_str(self) -> str: ...
    def graph(self) -> GraphHandle: ...
    def grad(self, wrt: Sequence[str]) -> SymbolHandle: ...
    def memory_plan(
        self, facts: _Facts, reqs: Sequence[str], memory_limit: int | None, dump: bool
    ) -> PlanHandle: ...
    def arrays_to_bind(self, facts: _Facts) -> tuple[list[_Wanted], list[_Wanted]]: ...
    def infer_shape(
        self, names: Sequence[str], shapes: Sequence[_Shape], np_shape: bool
    ) -> tuple[list[_Found], list[_Found], list[_Found], bool]: ...
    def infer_type(
        self, names: Sequence[str], types: Sequence[str | None]
    ) -> tuple[list[str | None], list[str | None], list[str | None], bool]: ...

@final
class GraphHandle:
    """A graph of the core."""

    @staticmethod
    def from_json(text: str) -> GraphHandle: ...
    def nodes(self) -> list[_Fields]: ...
    def heads(self) -> list[_Pair]: ...
    def make_backward_pass(self) -> tuple[GraphHandle, list[int], list[_Pair | None]]: ...
    def to_symbol(self) -> SymbolHandle: ...
    def to_json(self) -> str: ...

@final
class ExecutorHandle:
    """An executor of the core."""

    @staticmethod
    def bind(
        symbol: SymbolHandle,
        ctx: Context | None,
        group2ctx: Mapping[str, Context] | None,
        args: Sequence[NDArray],
        grads: Sequence[NDArray | None],
        reqs: Sequence[str],
        aux: Sequence[NDArray],
        shared: ExecutorHandle | None,
        memory_limit: int | None,
    ) -> ExecutorHandle: ...
    def forward(
        self,
        is_train: bool,
        indices: Sequence[int] | None = None,
        values: Sequence[NDArray] | None = None,
    ) -> list[NDArray]: ...
    def backward(
        self, is_train: bool, head_grads: Sequence[NDArray | None] | None = None
    ) -> None: ...
    def partial_forward(self, is_train: bool, step: int) -> int: ...
    def outputs(self) -> list[NDArray]: ...
    def set_monitor(self, callback: Callable[..., Any] | None, all: bool) -> None: ...
    def memory_plan(self) -> PlanHandle: ...
    def debug_str(self) -> str: ...
    def optimized_symbol(self) -> SymbolHandle: ...

@final
class PlanHandle:
    """A memory plan as data."""

    @property
    def arena_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def temp_bytes(self) -> int: ...
    @property
    def lower_bound_bytes(self) -> int: ...
    @property
    def no_sharing_bytes(self) -> int: ...
    @property
    def recomputed_nodes(self) -> int: ...
    @property
    def num_forward(self) -> int: ...
    def entries(self) -> list[dict[str, Any]]: ...
    def dumps(self) -> list[tuple[str, str]]: ...

@final
class Schema:
    """A parsed and checked list of parameter fields."""

    def __new__(cls, fields: Sequence[dict[str, Any]], open: bool = False) -> Schema: ...
    def parse(self, given: dict[str, Any]) -> tuple[Any, ...]: ...
    def info(self) -> list[tuple[str, str, str]]: ...

@final
class OpContext:
    """The circumstances of a call of a Python operator."""

    @property
    def is_train(self) -> bool: ...
    @property
    def need_grad(self) -> bool: ...
    @property
    def run_ctx(self) -> OpContext: ...
    @property
    def ctx(self) -> Context: ...
    @property
    def stream(self) -> int | None: ...
    @property
    def requested(self) -> Any: ...
    def request(self, requests: Sequence[tuple[str, int]]) -> None: ...

@final
class OpFunction:
    """The operator behind a function of `nd` or `sym`: its `__self__`."""

def empty(shape: Any, ctx: Any = None, dtype: Any = None) -> NDArray: ...
def copy_numpy(source: np.ndarray, ctx: Any = None) -> NDArray: ...
def share_numpy(source: np.ndarray, writable: bool) -> NDArray: ...
def numpy_over(array: NDArray, writable: bool = True) -> np.ndarray: ...
def to_dlpack(array: NDArray, write: bool) -> Any: ...
def from_dlpack(source: Any) -> NDArray: ...
def waitall() -> None: ...
def memory_usage() -> tuple[int, int, int]: ...
def empty_cache() -> None: ...
def is_np_shape() -> bool: ...
def set_np_shape(active: bool) -> bool: ...
def seed(seed: int, ctx: Any = None) -> None: ...
def dtype_flag(name: str) -> int: ...
def make_function(
    name: str, function_name: str, module: str, symbol: bool = False
) -> Callable[..., Any]: ...
def invoke(
    name: str,
    inputs: Sequence[NDArray],
    params: Sequence[tuple[str, Any]],
    out: Sequence[NDArray] | None = None,
) -> Any: ...
def binary_operators(symbol: bool) -> dict[str, tuple[str, str, str, str]]: ...
def bind_python(
    *,
    errors: Mapping[str, type[BaseException]],
    op_req: Any,
    make_resources: Callable[..., Any],
    context: Callable[..., Any],
    null: Any,
    twin: Callable[..., Any],
    detach: Callable[..., Any],
    is_of_a_signal: Callable[..., Any],
    getitem: Callable[..., Any],
    setitem: Callable[..., Any],
    symbol: type,
    create_symbol: Callable[..., Any],
) -> None: ...
def define_operator(definition: Any, replace: bool) -> None: ...
def operator_names() -> list[str]: ...
def operator_aliases() -> dict[str, list[str]]: ...
def registry_version(name: str) -> int | None: ...
def is_builtin_operator(name: str) -> bool: ...
def operator_info(name: str) -> dict[str, Any]: ...
def operator_kernels(name: str) -> list[tuple[str, str, int]]: ...
def explain_kernels(
    name: str,
    inputs: Sequence[tuple[Sequence[int], str]],
    params: dict[str, Any],
    device: str,
) -> str: ...
def infer_outputs(
    name: str, inputs: Sequence[tuple[Sequence[int], str]], params: dict[str, Any]
) -> list[tuple[list[int], str]]: ...
def load_library(
    path: str | PathLike[str], checked: bool, admit: Callable[[str], object]
) -> tuple[bool, list[str], list[str]]: ...
def library_operator(name: str) -> dict[str, Any] | None: ...
def library_signatures(
    name: str,
    inputs: Sequence[tuple[Sequence[int], str]],
    outputs: Sequence[tuple[Sequence[int], str]],
    params: dict[str, Any],
) -> list[str]: ...
def set_recording(on: bool) -> bool: ...
def set_training(on: bool) -> bool: ...
def is_recording() -> bool: ...
def is_training() -> bool: ...
def set_current_context(ctx: Any) -> Context: ...
def current_context() -> Context: ...
def mark_variables(
    variables: Sequence[NDArray], grads: Sequence[NDArray], reqs: Sequence[str]
) -> None: ...
def backward(
    heads: Sequence[NDArray],
    grads: Sequence[NDArray | None],
    retain_graph: bool,
    is_train: bool,
) -> None: ...
def grad(
    heads: Sequence[NDArray],
    grads: Sequence[NDArray | None],
    variables: Sequence[NDArray],
    retain_graph: bool,
    create_graph: bool,
    is_train: bool,
) -> list[NDArray]: ...
def record_function(
    name: str,
    backward: Callable[..., Any],
    inputs: Sequence[NDArray],
    outputs: Sequence[NDArray],
    kept: Sequence[bool],
) -> None: ...
def history(array: NDArray) -> tuple[list[_Call], _Pair] | None: ...

@final
@type_check_only
class _Variable:
    @property
    def version(self) -> int: ...
    def __copy__(self) -> _Variable: ...
    def __deepcopy__(self, _memo: Any) -> _Variable: ...

@final
@type_check_only
class _RunContext:
    @property
    def ctx(self) -> Context: ...
    @property
    def stream(self) -> int | None: ...

@final
@type_check_only
class _OnComplete:
    def __call__(self, error: BaseException | None = None) -> None: ...

@final
@type_check_only
class _Operator: ...

_Variables: TypeAlias = Iterable[_Variable] | None

@type_check_only
class _Engine(Protocol):
    """The module `engine`; `rsnet.engine` documents it."""

    Variable: type[_Variable]
    RunContext: type[_RunContext]
    OnComplete: type[_OnComplete]
    Operator: type[_Operator]
    def new_variable(self) -> _Variable: ...
    def push_sync(
        self,
        fn: Callable[..., object] | None,
        ctx: Context | None = None,
        const_vars: _Variables = None,
        mutate_vars: _Variables = None,
        prop: str | None = None,
        priority: int = 0,
        name: str | None = None,
    ) -> None: ...
    def push_async(
        self,
        fn: Callable[..., object],
        ctx: Context | None = None,
        const_vars: _Variables = None,
        mutate_vars: _Variables = None,
        prop: str | None = None,
        priority: int = 0,
        name: str | None = None,
    ) -> None: ...
    def new_operator(
        self,
        fn: Callable[..., object] | None,
        const_vars: _Variables = None,
        mutate_vars: _Variables = None,
        prop: str | None = None,
        name: str | None = None,
    ) -> _Operator: ...
    def push(self, op: _Operator, ctx: Context | None = None, priority: int = 0) -> None: ...
    def delete_operator(self, op: _Operator) -> None: ...
    def delete_variable(self, v: _Variable, fn: Callable[[], object] | None = None) -> None: ...
    def wait_for_var(self, v: _Variable) -> None: ...
    def wait_for_all(self) -> None: ...
    def set_bulk_size(self, size: int) -> int: ...
    def num_threads(self) -> int: ...
    def set_num_threads(self, n: int) -> None: ...
    def stop(self) -> None: ...
    def start(self) -> None: ...
    def set_wait_timeout(self, seconds: float | None = None) -> None: ...
    def set_hook(self, fn: Callable[..., object] | None = None) -> None: ...
    def set_raise_in_push(self, on: bool) -> bool: ...
    def _shutdown(self) -> None: ...

engine: Final[_Engine]

@final
@type_check_only
class _Beginning: ...

@final
@type_check_only
class _Count:
    @property
    def value(self) -> int: ...
    def change(self, category: str, name: str, value: int, relative: bool) -> None: ...

@type_check_only
class _Profiler(Protocol):
    """The module `profiler`; `rsnet.profiler` uses it."""

    Count: type[_Count]
    def configure(self, path: str | PathLike[str], mode: int, aggregates: bool) -> None: ...
    def set_running(self, run: bool) -> None: ...
    def set_paused(self, pause: bool) -> None: ...
    def state(self) -> Literal["stop", "run", "pause"]: ...
    def dump(self, finished: bool) -> int: ...
    def dump_unless_stopped(self) -> None: ...
    def summary(self, reset: bool, format: str, sort_by: str, ascending: bool) -> str | None: ...
    def begin(self) -> _Beginning | None: ...
    def end(self, begun: _Beginning, category: str, name: str) -> None: ...
    def mark(self, category: str, name: str, scope: str) -> None: ...
    def memory_scope(self) -> str: ...
    def set_memory_scope(self, name: str) -> None: ...

profiler: Final[_Profiler]
