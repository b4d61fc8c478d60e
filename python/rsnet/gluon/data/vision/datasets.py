"""Data sets of images, read from local files: rsnet fetches nothing from a network."""

from __future__ import annotations

import os
import tarfile
import tokenize
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....base import data_dir
from ....io.files import read_idx
from ..dataset import Dataset, RecordFileDataset

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageRecordDataset",
]


def _folder(name: str) -> str:
    return os.path.join(data_dir(), "datasets", name)


class _LocalDataset(Dataset):
    """Base of data sets that are read at once: images (N, H, W, C) and labels (N,)."""

    def __init__(self, root: str, transform: Callable[..., Any] | None) -> None:
        self._root = os.path.expanduser(root)
        self._transform = transform
        self._data: Any = None
        self._label: Any = None
        self._get_data()

    def _get_data(self) -> None:
        images, labels = self._read()
        self._data = nd.array(images, dtype=images.dtype)
        self._label = labels.astype(np.int32)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def _find(self, *names: str) -> str:
        """The first of these files that is there."""
        for name in names:
            path = os.path.join(self._root, name)
            if os.path.exists(path):
                return path
        raise FileNotFoundError(
            f"{type(self).__name__}: invalid root '{self._root}': expected the file "
            f"{' or '.join(map(repr, names))} in it (rsnet fetches nothing from a network)"
        )

    def __getitem__(self, idx: int) -> Any:
        if self._transform is not None:
            return self._transform(self._data[idx], self._label[idx])
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return len(self._label)


class MNIST(_LocalDataset):
    """Handwritten digits: images (28, 28, 1) of uint8, labels 0 to 9.

    Parameters
    ----------
    root : str
        Folder of the files ``train-images-idx3-ubyte`` and so on, also with ``.gz``.
    train : bool
        Training or test set?
    transform : callable, optional
        ``transform(image, label)``.

    Raises
    ------
    FileNotFoundError
        A file is not there.
    MXNetError
        A file is no idx file, or is not whole.
    ValueError
        The files are not of images and of as many labels.
    """

    def __init__(
        self,
        root: str = _folder("mnist"),
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self._train = train
        super().__init__(root, transform)

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        which = "train" if self._train else "t10k"
        images, labels = (
            read_idx(self._find(f"{name}.gz", name))
            for name in (f"{which}-images-idx3-ubyte", f"{which}-labels-idx1-ubyte")
        )
        if images.ndim != 3 or labels.ndim != 1:
            raise ValueError(
                f"{type(self).__name__}: '{self._root}' has images of shape {images.shape} and "
                f"labels of shape {labels.shape}, expected (N, H, W) and (N,)"
            )
        if len(images) != len(labels):
            raise ValueError(
                f"{type(self).__name__}: '{self._root}' has {len(images)} images and "
                f"{len(labels)} labels, expected as many of both"
            )
        return images[..., np.newaxis], labels


class FashionMNIST(MNIST):
    """Pictures of clothes: images (28, 28, 1) of uint8, labels 0 to 9; files as for `MNIST`."""

    def __init__(
        self,
        root: str = _folder("fashion-mnist"),
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(root, train, transform)


def _unpacked(path: str, name: str) -> bytes | None:
    """The bytes of the file `name` in an archive; None if it has no such file."""
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            # A link may lead to itself, and a sparse file may have any size.
            is_plain = member.isreg() and not member.issparse()
            if is_plain and os.path.basename(member.name) == name:
                file = archive.extractfile(member)
                return None if file is None else file.read()
    return None


class CIFAR10(_LocalDataset):
    """Small photographs: images (32, 32, 3) of uint8, labels 0 to 9.

    Parameters
    ----------
    root : str
        Folder of ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``, or of the
        archive ``cifar-10-binary.tar.gz``.
    train : bool
        Training or test set?
    transform : callable, optional
        ``transform(image, label)``.

    Raises
    ------
    FileNotFoundError
        A file is not there.
    ValueError
        A file is not whole.
    """

    _archive = "cifar-10-binary.tar.gz"
    _label_bytes = 1
    _label_at = 0

    def __init__(
        self,
        root: str = _folder("cifar10"),
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self._train = train
        super().__init__(root, transform)

    def _names(self) -> list[str]:
        return [f"data_batch_{i}.bin" for i in range(1, 6)] if self._train else ["test_batch.bin"]

    def _bytes_of(self, name: str) -> bytes:
        path = self._find(name, self._archive)
        if not path.endswith(".tar.gz"):
            with open(path, "rb") as file:
                return file.read()
        try:
            found = _unpacked(path, name)
        except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
            raise ValueError(
                f"{type(self).__name__}: invalid archive '{path}': expected a whole one: {error}"
            ) from error
        if found is None:
            raise ValueError(
                f"{type(self).__name__}: invalid archive '{path}': expected a file '{name}' in it"
            )
        return found

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        width = 3072 + self._label_bytes
        found = []
        for name in self._names():
            data = np.frombuffer(self._bytes_of(name), dtype=np.uint8)
            if not data.size or data.size % width:
                raise ValueError(
                    f"{type(self).__name__}: '{name}' has {data.size} bytes, expected a multiple "
                    f"of {width}"
                )
            found.append(data.reshape(-1, width))
        rows = np.concatenate(found)
        images = rows[:, self._label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), rows[:, self._label_at]


class CIFAR100(CIFAR10):
    """Small photographs: images (32, 32, 3) of uint8, labels 0 to 19, or 0 to 99.

    Parameters
    ----------
    root : str
        Folder of ``train.bin`` and ``test.bin``, or of ``cifar-100-binary.tar.gz``.
    fine_label : bool
        100 classes instead of 20?
    train : bool
    transform : callable, optional
    """

    _archive = "cifar-100-binary.tar.gz"
    _label_bytes = 2

    def __init__(
        self,
        root: str = _folder("cifar100"),
        fine_label: bool = False,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self._label_at = 1 if fine_label else 0
        super().__init__(root, train, transform)

    def _names(self) -> list[str]:
        return ["train.bin"] if self._train else ["test.bin"]


class ImageRecordDataset(RecordFileDataset):
    """Images and labels of a RecordIO file that `im2rec` wrote.

    Parameters
    ----------
    filename : str
        Path of the ``.rec`` file; its index is beside it.
    flag : int
        0: grey images, 1: colour.
    transform : callable, optional
        ``transform(image, label)``.
    """

    def __init__(
        self, filename: str, flag: int = 1, transform: Callable[..., Any] | None = None
    ) -> None:
        super().__init__(filename)
        self._flag = flag
        self._transform = transform

    def __getitem__(self, idx: int) -> Any:
        from .... import image, recordio

        header, content = recordio.unpack(super().__getitem__(idx))
        decoded = image.imdecode(content, self._flag)
        label = header.label
        return (decoded, label) if self._transform is None else self._transform(decoded, label)


class ImageFolderDataset(Dataset):
    """Images in a folder for each class: ``root/class/name.jpg``.

    Parameters
    ----------
    root : str
    flag : int
        0: grey images, 1: colour.
    transform : callable, optional
        ``transform(image, label)``.

    Attributes
    ----------
    synsets : list of str
        The names of the classes: label 0 is the first.
    items : list of (str, int)
        File and label of each sample.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    """

    _endings = (".jpg", ".jpeg", ".png", ".npy")

    def __init__(
        self, root: str, flag: int = 1, transform: Callable[..., Any] | None = None
    ) -> None:
        self._root = os.path.expanduser(root)
        self._flag = flag
        self._transform = transform
        if not os.path.isdir(self._root):
            raise FileNotFoundError(
                f"ImageFolderDataset: invalid root '{self._root}': expected a folder that exists"
            )
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        for name in sorted(os.listdir(self._root)):
            folder = os.path.join(self._root, name)
            if not os.path.isdir(folder):
                _ignore(folder, "which is not a directory")
                continue
            label = len(self.synsets)
            self.synsets.append(name)
            for file in sorted(os.listdir(folder)):
                path = os.path.join(folder, file)
                if path.lower().endswith(self._endings):
                    self.items.append((path, label))
                else:
                    _ignore(
                        path, f"of type {os.path.splitext(file)[1]}. Only supports {self._endings}"
                    )

    def __getitem__(self, idx: int) -> Any:
        path, label = self.items[idx]
        if path.lower().endswith(".npy"):
            picture = _array_in(path)
        else:
            from .... import image

            picture = image.imread(path, self._flag)
        return (picture, label) if self._transform is None else self._transform(picture, label)

    def __len__(self) -> int:
        return len(self.items)


# NumPy reads the header as an expression of Python's.
_OF_DAMAGED_ARRAYS = (
    ValueError, TypeError, OverflowError, SyntaxError, RecursionError, tokenize.TokenError,
)  # fmt: skip


def _array_in(path: str) -> nd.NDArray:
    """The array of a file of NumPy's; its header is held against the size of the file first."""
    try:
        found = np.lib.format.open_memmap(path, mode="r")
        return nd.array(found, dtype=found.dtype)
    except _OF_DAMAGED_ARRAYS as error:
        raise ValueError(f"invalid file '{path}': expected an array of NumPy's: {error}") from error


def _ignore(path: str, why: str) -> None:
    warnings.warn(f"Ignoring {path}, {why}", stacklevel=4)
