"""Texts for language models: `WikiText2` and `WikiText103`, from local files."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np

from .... import ndarray as nd
from ....base import data_dir, file_error
from ....contrib.text.vocab import Vocabulary
from ....ndarray import NDArray
from ...data.dataset import Dataset

__all__ = ["WikiText103", "WikiText2"]

_END_OF_LINE = "<eos>"
#: The file of each part.
_PARTS = {part: f"wiki.{part[:5]}.tokens" for part in ("train", "validation", "test")}


class WikiText2(Dataset):
    r"""Rows of `seq_len` words, and the words that follow each, as numbers.

    Every line of the text ends with the word ``<eos>``; empty lines are left out, and so are words
    at the end that fill no row.

    Parameters
    ----------
    root : str
        Folder of the files ``wiki.train.tokens``, ``wiki.valid.tokens``, ``wiki.test.tokens``.
    segment : str
        'train', 'validation' or 'test'.
    vocab : Vocabulary, optional
        Numbers of the words, such as those of another segment; from this one if None.
    seq_len : int

    Raises
    ------
    ValueError
        There is no such segment.
    FileNotFoundError
        The file is missing: rsnet fetches nothing from a network.
    MXNetError
        The file cannot be read, or is not text in UTF-8.

    Examples
    --------
    >>> import os, tempfile
    >>> from rsnet.gluon.contrib.data.text import WikiText2
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with open(os.path.join(root, "wiki.test.tokens"), "w") as file:
    ...         _ = file.write("a cat sat\n\na dog sat\n")
    ...     text = WikiText2(root, "test", seq_len=3)
    >>> words, following = text[0]
    >>> text.vocabulary.to_tokens(words.asnumpy().astype(int).tolist())
    ['a', 'cat', 'sat']
    >>> text.vocabulary.to_tokens(following.asnumpy().astype(int).tolist())
    ['cat', 'sat', '<eos>']
    """

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "wikitext-2"),
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ) -> None:
        if segment not in _PARTS:
            raise ValueError(f"invalid segment '{segment}': expected one of {', '.join(_PARTS)}")
        self._seq_len = seq_len
        words = self._words(os.path.join(os.path.expanduser(root), _PARTS[segment]))
        self._vocabulary = vocab or Vocabulary(self._counter, reserved_tokens=[_END_OF_LINE])
        numbers = np.asarray(self._vocabulary.to_indices(words), dtype=np.int32)
        rows = max(len(numbers) - 1, 0) // seq_len
        end = rows * seq_len
        self._data = nd.array(numbers[:end].reshape(rows, seq_len), dtype="int32")
        self._label = nd.array(numbers[1 : end + 1].reshape(rows, seq_len), dtype="int32")

    def _words(self, path: str) -> list[str]:
        """The words of a file with the ends of lines; counts the former."""
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{type(self).__name__}: there is no file '{path}': expected it there, as rsnet "
                "fetches nothing from a network, or another root"
            )
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line.split() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise file_error("cannot read", path, error) from error
        self._counter = Counter(word for line in lines for word in line)
        return [word for line in lines if line for word in (*line, _END_OF_LINE)]

    @property
    def vocabulary(self) -> Vocabulary:
        """The numbers of the words."""
        return self._vocabulary

    @property
    def frequencies(self) -> Counter[str]:
        """How often the text has each word."""
        return self._counter

    def __getitem__(self, idx: int) -> tuple[NDArray, NDArray]:
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return int(self._data.shape[0])


class WikiText103(WikiText2):
    """`WikiText2` with the folder of the larger text as default."""

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "wikitext-103"),
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ) -> None:
        super().__init__(root, segment, vocab, seq_len)
