"""What modules are given: names, descriptions of arrays, batches and callbacks, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._numbers import check_number
from .._warnings import warn
from ..base import shown
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray

Callbacks = Callable[..., Any] | Sequence[Callable[..., Any]] | None
PARAMETER_ENDINGS = ("_weight", "_bias", "_gamma", "_beta")


def as_list(value: Any) -> list[Any]:
    """`value` as a list: itself, or a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def call_all(callbacks: Callbacks, *args: Any) -> None:
    """Calls one callback, several, or none."""
    if callbacks is not None:
        for callback in as_list(callbacks):
            if not callable(callback):
                raise TypeError(f"invalid callback {callback!r}: expected a callable")
            callback(*args)


def next_batch(batches: Iterator[DataBatch]) -> DataBatch | None:
    """The next batch; `None` after the last one, which an iterator cannot mean by returning it."""
    for batch in batches:
        if not isinstance(batch, list) and not hasattr(batch, "label"):
            raise TypeError(
                f"the data iterator returned {shown(batch)}, expected a DataBatch or StopIteration"
            )
        return batch
    return None


def check_batches(name: str, given: Any, method: str) -> None:
    """Raises a TypeError where an argument does not iterate over batches."""
    if not hasattr(given, method):
        raise TypeError(
            f"invalid {name} {shown(given)}: expected a DataIter (NDArrayIter makes one of arrays)"
        )


def epochs_of_fit(
    begin: int,
    end: int | None,
    *,
    train_data: Any,
    eval_data: Any,
    monitor: Any,
    sparse_row_id_fn: Any,
) -> range:
    """The epochs that `fit` runs, once its other arguments were found to be usable."""
    if end is None:
        raise AssertionError("fit: invalid num_epoch None: expected the number of epochs")
    for name, value in (("begin_epoch", begin), ("num_epoch", end)):
        if not hasattr(value, "__index__"):
            raise TypeError(f"fit: invalid {name} {shown(value)}: expected an integer")
    check_batches("train_data", train_data, "provide_data")
    if eval_data is not None:
        check_batches("eval_data", eval_data, "reset")
    if monitor is not None and not hasattr(monitor, "install"):
        raise TypeError(f"invalid monitor {monitor!r}: expected a Monitor")
    refuse_sparse(sparse_row_id_fn)
    return range(begin, end)


def check_params(name: str, given: Any) -> None:
    """Raises a TypeError where parameters are not a dict of arrays by name."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise TypeError(f"invalid {name} {shown(given)}: expected a dict of str to NDArray")
    for key, value in given.items():
        if value is not None and not hasattr(value, "shape"):
            kind = type(value).__name__
            raise TypeError(f"{name}: '{key}' is a {kind}, expected an NDArray")


def check_input_names(symbol: Any, names: Sequence[str], kind: str, throw: bool) -> None:
    """Raises (or warns, if not `throw`) where a name is not an argument of the symbol.

    Raises
    ------
    ValueError
        A name is not among the arguments.
    """
    arguments = symbol.list_arguments()
    for name in names:
        if name in arguments:
            continue
        of_params = kind == "fixed_param"
        candidates = [a for a in arguments if a.endswith(PARAMETER_ENDINGS) == of_params]
        message = (
            f"You created Module with Module(..., {kind}_names={list(names)}) "
            f"but input with name '{name}' is not found in symbol.list_arguments(). "
            "Did you mean one of:\n\t" + "\n\t".join(candidates)
        )
        if throw:
            raise ValueError(message)
        warn(message)


def as_descs(shapes: Any) -> list[DataDesc]:
    """Descriptions of arrays from `DataDesc`s or (name, shape) pairs."""
    if not isinstance(shapes, Iterable):
        expected = "a list of DataDescs, or of pairs of name and shape"
        raise TypeError(f"invalid shapes {shown(shapes)}: expected {expected}")
    found = []
    for item in shapes:
        if isinstance(item, DataDesc):
            found.append(item)
        elif isinstance(item, (list, tuple)) and len(item) >= 2 and isinstance(item[0], str):
            found.append(DataDesc(*item))
        else:
            raise TypeError(
                f"invalid shape {shown(item)}: expected a DataDesc or a pair of name and shape"
            )
    return found


def parse_descs(
    data_names: Sequence[str],
    label_names: Sequence[str],
    data_shapes: Any,
    label_shapes: Any,
    arguments: Sequence[str] = (),
) -> tuple[list[DataDesc], list[DataDesc] | None]:
    """The descriptions of data and labels; data must have the names that the module expects.

    Labels of other names are a warning, but an error in the place of one that is among the
    `arguments` of a symbol: it would be trained on zeros.

    Raises
    ------
    ValueError
        Other names.
    """
    data = as_descs(data_shapes)
    if sorted(d.name for d in data) != sorted(data_names):
        raise ValueError(
            f"Data provided by data_shapes don't match names specified by data_names "
            f"({[tuple(d) for d in data]} vs. {list(data_names)})"
        )
    labels = as_descs(label_shapes or [])
    names = [d.name for d in labels]
    unknown = [name for name in names if name not in label_names]
    missing = [name for name in label_names if name in arguments and name not in names]
    if unknown and missing:
        raise ValueError(
            f"invalid names of labels {names}: expected {missing}, which the module's symbol takes "
            "(label_name of an iterator, label_names of a Module)"
        )
    if sorted(names) != sorted(label_names):
        warn(
            f"Data provided by label_shapes don't match names specified by label_names "
            f"({[tuple(d) for d in labels]} vs. {list(label_names)})"
        )
    return data, labels or None


def refuse_input_gradients(for_training: bool, inputs_need_grad: bool) -> None:
    """Refuses gradients of inputs of a module that is not bound for training."""
    if inputs_need_grad and not for_training:
        raise AssertionError(
            "bind: invalid inputs_need_grad True: expected False, as for_training is False"
        )


def check_num_batch(num_batch: Any) -> None:
    """Raises where it is neither a number of batches nor None, which means all."""
    if num_batch is not None:
        check_number("num_batch", num_batch)


def refuse_sparse(sparse_row_id_fn: Any) -> None:
    """Raises where a function for sparse rows is given."""
    if sparse_row_id_fn is not None:
        raise NotImplementedError("sparse_row_id_fn: sparse parameters are not supported")


def descs_of_batch(
    batch: Any, data_descs: Sequence[DataDesc], label_descs: Sequence[DataDesc] | None
) -> tuple[list[DataDesc], list[DataDesc] | None] | None:
    """The descriptions of a batch whose shapes differ from `data_descs`; `None` if they do not.

    Labels that the batch lacks are described as `label_descs`, with the rows of the data.

    Raises
    ------
    ValueError
        The batch has another number of data arrays.
    TypeError
        It is not a batch.
    """
    if isinstance(batch, (NDArray, np.ndarray)) or not hasattr(batch, "data"):
        kind = type(batch).__name__
        raise TypeError(f"invalid data_batch: expected a DataBatch([array]), got one {kind}")
    if not isinstance(batch.data, (list, tuple)):
        given = shown(batch.data)
        raise TypeError(f"invalid data of the batch {given}: expected a list of arrays")
    shapes = [tuple(a.shape) for a in batch.data]
    if shapes == [tuple(d.shape) for d in data_descs]:
        return None
    if len(shapes) != len(data_descs):
        raise ValueError(
            f"the batch has {len(shapes)} data arrays, "
            f"expected {len(data_descs)}: {[d.name for d in data_descs]}"
        )
    data = getattr(batch, "provide_data", None) or _resized(data_descs, shapes)
    labels = getattr(batch, "provide_label", None)
    if not labels and batch.label:
        labels = _resized(label_descs or [], [tuple(a.shape) for a in batch.label])
    elif not labels and label_descs is not None:
        rows = shapes[0][0] if shapes[0] else 0
        labels = _resized(label_descs, [(rows, *d.shape[1:]) for d in label_descs])
    return data, labels or None


def _resized(descs: Sequence[DataDesc], shapes: Sequence[tuple[int, ...]]) -> list[DataDesc]:
    return [DataDesc(d.name, s, d.dtype, d.layout) for d, s in zip(descs, shapes, strict=False)]
