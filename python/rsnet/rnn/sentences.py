"""Batches of sentences of about equal length, for bucketing language models."""

from __future__ import annotations

import bisect
import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .._numbers import integer
from ..base import listed, shown
from ..io import DataBatch, DataDesc, DataIter
from ..ndarray import NDArray, array

__all__ = ["BucketSentenceIter", "encode_sentences"]


def encode_sentences(
    sentences: Sequence[Sequence[str]],
    vocab: dict[str, int] | None = None,
    invalid_label: int = -1,
    invalid_key: str = "\n",
    start_label: int = 0,
    unknown_token: str | None = None,
) -> tuple[list[list[int]], dict[str, int]]:
    r"""Replaces words by numbers.

    Parameters
    ----------
    sentences : list of list of str
    vocab : dict of str to int, optional
        Known words; if None, each new word gets the next number.
    invalid_label, invalid_key : int, str
        Number and word for padding; no other word gets this number.
    start_label : int
        First number given to a word.
    unknown_token : str, optional
        Word that stands for those that are not in `vocab`; it gets the first number from
        `start_label` on that no word has, if it is not in it itself.

    Returns
    -------
    list of list of int, dict of str to int
        The encoded sentences, and the vocabulary.

    Raises
    ------
    ValueError
        A word is not in the given vocabulary, and there is no `unknown_token`.

    Examples
    --------
    >>> encode_sentences([["a", "b"], ["b", "c"]], invalid_label=0, start_label=1)
    ([[1, 2], [2, 3]], {'\n': 0, 'a': 1, 'b': 2, 'c': 3})
    """
    known = {invalid_key: invalid_label} if vocab is None else vocab
    taken, number = {invalid_label, *known.values()}, start_label
    encoded = []
    for sentence in listed(sentences, "sentences", "a list of lists of words"):
        coded = []
        for word in sentence:
            if word not in known:
                if vocab is not None and unknown_token is None:
                    raise ValueError(f"invalid word {word!r}: expected one of the given vocabulary")
                if unknown_token is not None:
                    word = unknown_token
                if word not in known:
                    while number in taken:
                        number += 1
                    known[word] = number
                    number += 1
            coded.append(known[word])
        encoded.append(coded)
    return encoded, known


class BucketSentenceIter(DataIter):
    """Batches of sentences by length; the label of each word is the next word.

    Parameters
    ----------
    sentences : list of list of int
    batch_size : int
    buckets : list of int, optional
        Lengths to which sentences are padded; if None, those that at least `batch_size` sentences
        have.
    invalid_label : int
        Number of the padding.
    data_name, label_name : str
    dtype : str or type
    layout : {'NT', 'TN'}

    Raises
    ------
    ValueError
        No buckets are given, or the layout is unknown.

    Examples
    --------
    >>> sentences = [[1, 2, 3], [2, 3], [4, 5, 6], [1, 2]]
    >>> batches = BucketSentenceIter(sentences, 2, buckets=[2, 3], invalid_label=0)
    >>> sorted((b.bucket_key, b.data[0].shape) for b in batches)
    [(2, (2, 2)), (3, (2, 3))]
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Sequence[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        layout: str = "NT",
    ) -> None:
        batch_size = integer("batch_size", batch_size, least=1)
        super().__init__(batch_size)
        if not isinstance(sentences, Iterable):
            raise TypeError(f"invalid sentences {shown(sentences)}: expected lists of integers")
        if layout not in ("NT", "TN"):
            raise ValueError(
                f"invalid layout {layout!r}: expected 'NT' (batch major) or 'TN' (time major)"
            )
        if not buckets:
            counts = np.bincount([len(s) for s in sentences])
            buckets = [n for n, count in enumerate(counts) if n > 0 and count >= batch_size]
        if not buckets:
            raise ValueError(
                f"invalid buckets None: expected some, as no length has {batch_size} sentences"
            )
        if not isinstance(buckets, Iterable):
            raise TypeError(f"invalid buckets {shown(buckets)}: expected a list of lengths")
        self.buckets = sorted(integer("buckets", length, least=1) for length in buckets)
        self.data_name, self.label_name = data_name, label_name
        self.dtype, self.layout = dtype, layout
        self.major_axis = layout.find("N")
        self.invalid_label = invalid_label
        self.data = self._padded(sentences)
        self.default_bucket_key = max(self.buckets)
        self.provide_data = [self._desc(data_name, self.default_bucket_key)]
        self.provide_label = [self._desc(label_name, self.default_bucket_key)]
        self.idx = [
            (i, start)
            for i, rows in enumerate(self.data)
            for start in range(0, len(rows) - batch_size + 1, batch_size)
        ]
        self.curr_idx = 0
        self.reset()

    def _padded(self, sentences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The sentences of each bucket, padded to its length."""
        rows: list[list[np.ndarray]] = [[] for _ in self.buckets]
        too_long = 0
        for sentence in sentences:
            bucket = bisect.bisect_left(self.buckets, len(sentence))
            if bucket == len(self.buckets):
                too_long += 1
                continue
            row = np.full((self.buckets[bucket],), self.invalid_label, dtype=self.dtype)
            row[: len(sentence)] = sentence
            rows[bucket].append(row)
        if too_long:
            logging.warning("discarded %d sentences longer than the largest bucket.", too_long)
        return [
            np.asarray(r, dtype=self.dtype).reshape((-1, length))
            for r, length in zip(rows, self.buckets, strict=True)
        ]

    def _desc(self, name: str, length: int) -> DataDesc:
        shape = (self.batch_size, length)
        return DataDesc(name, shape if self.major_axis == 0 else shape[::-1], layout=self.layout)

    def reset(self) -> None:
        """Shuffles batches and sentences, and begins again."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        for rows in self.data:
            np.random.shuffle(rows)
        self.labels = []
        for rows in self.data:
            label = np.full_like(rows, self.invalid_label)
            label[:, :-1] = rows[:, 1:]
            self.labels.append(label)

    @property
    def nddata(self) -> list[NDArray]:
        """Copies of the rows of each bucket, in the order of this epoch."""
        return [array(rows, dtype=self.dtype) for rows in self.data]

    @property
    def ndlabel(self) -> list[NDArray]:
        """The labels of `nddata`."""
        return [array(rows, dtype=self.dtype) for rows in self.labels]

    def next(self) -> DataBatch:
        """The next batch, with its length as `bucket_key`.

        Raises
        ------
        StopIteration
            At the end of the epoch.
        """
        if self.curr_idx == len(self.idx):
            raise StopIteration
        i, start = self.idx[self.curr_idx]
        self.curr_idx += 1
        own = slice(start, start + self.batch_size)
        data, label = self.data[i][own], self.labels[i][own]
        if self.major_axis == 1:
            data, label = data.T, label.T
        length = self.buckets[i]
        return DataBatch(
            [array(data, dtype=self.dtype)], [array(label, dtype=self.dtype)], pad=0,
            bucket_key=length, provide_data=[self._desc(self.data_name, length)],
            provide_label=[self._desc(self.label_name, length)],
        )  # fmt: skip
