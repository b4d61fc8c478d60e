"""What programs of examples take from `test_utils`: batches that repeat, files, paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd
from .. import ndarray as nd
from ..io import DataBatch, DataIter
from .compare import assert_almost_equal

__all__ = [
    "DummyIter",
    "check_gluon_hybridize_consistency",
    "create_2d_tensor",
    "create_vector",
    "download",
    "get_im2rec_path",
]


class DummyIter(DataIter):
    """The first batch of an iterator over and over: how fast is training without reading?

    Parameters
    ----------
    real_iter : DataIter
    """

    def __init__(self, real_iter: Any) -> None:
        super().__init__()
        self.real_iter = real_iter
        self.provide_data = real_iter.provide_data
        self.provide_label = real_iter.provide_label
        self.batch_size = real_iter.batch_size
        self.the_batch: DataBatch = next(real_iter)

    def next(self) -> DataBatch:
        return self.the_batch


def create_vector(size: int, dtype: Any = "int64") -> Any:
    """The numbers 0 to `size` - 1."""
    return nd.arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = "int64") -> Any:
    """An array whose rows are filled with their number."""
    column = nd.arange(0, rows, dtype=dtype).reshape((rows, 1))
    return nd.broadcast_to(column, shape=(rows, columns))


def download(
    url: str,
    fname: str | None = None,
    dirname: str | None = None,
    overwrite: bool = False,
    retries: int = 5,
) -> str:
    """The path of a file that a program wants: rsnet fetches nothing from a network.

    Parameters
    ----------
    url : str
        Its last part is the name of the file unless `fname` is given.
    fname : str, optional
    dirname : str, optional
        Folder.
    overwrite, retries
        Accepted for compatibility.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    path = os.path.join(dirname or "", fname or url.split("/")[-1])
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path!r}: put {url} there (rsnet fetches nothing)")
    return path


def get_im2rec_path(home_env: str = "MXNET_HOME") -> str:
    """The path of the program that makes record files of images."""
    from ..tools import im2rec

    return str(im2rec.__file__)


def check_gluon_hybridize_consistency(
    net_builder: Callable[[], Any],
    data_l: Sequence[Any],
    numpy_func: Callable[..., Any] | None = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """Asserts that a block computes the same operator by operator and as a graph.

    Parameters
    ----------
    net_builder : callable
        Makes the block.
    data_l : list of NDArray
        Inputs.
    numpy_func : callable, optional
        What the outputs must be, from NumPy arrays.
    test_grad : bool
        Compare the gradients of inputs and parameters, too?
    rtol, atol : float

    Raises
    ------
    AssertionError
        They differ.
    """
    results, saved = [], None
    for hybridize in (False, True):
        net = net_builder()
        net.initialize()
        inputs = [x.copy() for x in data_l]
        for x in inputs:
            x.attach_grad()
        if hybridize:
            net.hybridize()
        net(*inputs)  # decides the shapes of parameters
        params = list(net.collect_params().values())
        if saved is None:
            saved = [p.data().copy() for p in params]
        for p, value in zip(params, saved, strict=True):
            p.set_data(value)
        with autograd.record(train_mode=test_grad):
            out = net(*inputs)
        found = [out]
        if test_grad:
            out.backward()
            found += [x.grad for x in inputs] + [p.grad() for p in params if p.grad_req != "null"]
        results.append([array.asnumpy() for array in found])
    for plain, hybrid in zip(*results, strict=True):
        assert_almost_equal(plain, hybrid, rtol=rtol, atol=atol)
    if numpy_func is not None:
        expected = numpy_func(*(x.asnumpy() for x in data_l))
        assert_almost_equal(results[0][0], expected, rtol=rtol, atol=atol)
