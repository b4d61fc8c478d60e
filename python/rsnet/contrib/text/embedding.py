"""Vectors of tokens, read from local files: a line has a token and its vector.

`GloVe` and `FastText` look for their files in a folder; rsnet fetches nothing from a network.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...base import data_dir
from ...ndarray import NDArray
from ...registry import get_create_func, get_register_func
from .vocab import Vocabulary

__all__ = [
    "CompositeEmbedding",
    "CustomEmbedding",
    "FastText",
    "GloVe",
    "create",
    "get_pretrained_file_names",
    "register",
]

Init = Callable[..., NDArray]


class _TokenEmbedding(Vocabulary):
    """A vocabulary whose tokens have vectors; the base class of embeddings."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._idx_to_vec = nd.zeros((1, 1))

    @property
    def vec_len(self) -> int:
        """The length of the vectors."""
        return int(self._idx_to_vec.shape[1])

    @property
    def idx_to_vec(self) -> NDArray:
        """The vectors, (number of tokens, `vec_len`)."""
        return self._idx_to_vec

    def _read(
        self, path: str, delim: str, init_unknown: Init, encoding: str, vocabulary: Any
    ) -> None:
        """Takes tokens and vectors from a file, for a vocabulary only its own."""
        path = os.path.expanduser(path)
        if not os.path.isfile(path):
            raise ValueError(f"invalid path {path!r}: expected a file with vectors of tokens")
        try:
            vectors = _vectors_of(path, delim, encoding)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected text in {encoding}: {error}") from error
        if not vectors:
            raise ValueError(f"{path}: expected lines of a token and its vector")
        unknown = vectors.pop(self.unknown_token, None)
        if unknown is None:
            unknown = init_unknown(shape=len(next(iter(vectors.values())))).asnumpy()
        if vocabulary is None:
            self._number([*self.idx_to_token, *(t for t in vectors if t not in self.token_to_idx)])
        else:
            self._reserved_tokens = vocabulary.reserved_tokens
            self._number(list(vocabulary.idx_to_token))
        rows = [unknown, *(vectors.get(token, unknown) for token in self.idx_to_token[1:])]
        self._idx_to_vec = nd.array(np.stack(rows), dtype="float32")

    def get_vecs_by_tokens(
        self, tokens: str | Sequence[str], lower_case_backup: bool = False
    ) -> NDArray:
        """The vector (vec_len,) of a token, or those of a list, (number, vec_len).

        Parameters
        ----------
        tokens : str or list of str
            Unknown ones have the vector of the unknown token.
        lower_case_backup : bool
            Look for an unknown token in lower case, too?
        """
        wanted = [tokens] if isinstance(tokens, str) else list(tokens)
        known = self.token_to_idx
        if lower_case_backup:
            wanted = [token if token in known else token.lower() for token in wanted]
        rows = nd.take(self._idx_to_vec, nd.array([known.get(token, 0) for token in wanted]))
        return rows[0] if isinstance(tokens, str) else rows

    def update_token_vectors(self, tokens: str | Sequence[str], new_vectors: NDArray) -> None:
        """Gives known tokens other vectors, (vec_len,) or (number of tokens, vec_len).

        Raises
        ------
        ValueError
            A token is unknown, or the shape of `new_vectors` is another.
        """
        wanted = [tokens] if isinstance(tokens, str) else list(tokens)
        for token in wanted:
            if token not in self.token_to_idx:
                raise ValueError(
                    f"invalid token {token!r}: expected a known one, or {self.unknown_token!r} "
                    f"for the vector of all others"
                )
        expected = (len(wanted), self.vec_len)
        if new_vectors.shape not in (expected, expected[1:] if len(wanted) == 1 else expected):
            raise ValueError(
                f"invalid new_vectors of shape {new_vectors.shape}: expected {expected}"
            )
        places = nd.array([self.token_to_idx[token] for token in wanted])
        self._idx_to_vec[places] = new_vectors.reshape(expected)


def _vectors_of(path: str, delim: str, encoding: str) -> dict[str, Any]:
    """Vectors by token in the order of the file; headers and repeated tokens are left out."""
    vectors: dict[str, Any] = {}
    length = 0
    with open(path, encoding=encoding) as lines:
        for number, line in enumerate(lines, start=1):
            token, *elements = line.rstrip().split(delim)
            try:
                vector = np.array([float(element) for element in elements], dtype="float32")
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: expected numbers: {error}") from None
            if not elements:
                raise ValueError(f"{path}, line {number}: expected a token and its vector")
            if token in vectors:
                warnings.warn(f"{path}, line {number}: {token!r} has a vector", stacklevel=4)
            elif len(vector) == 1:
                warnings.warn(f"{path}, line {number}: taken for a header", stacklevel=4)
            elif length and len(vector) != length:
                raise ValueError(
                    f"{path}, line {number}: {token!r} has {len(vector)} numbers, expected {length}"
                )
            else:
                vectors[token] = vector
                length = len(vector)
    return vectors


register = get_register_func(_TokenEmbedding, "token embedding")
create = get_create_func(_TokenEmbedding, "token embedding")


class CustomEmbedding(_TokenEmbedding):
    """Vectors from a file of one's own.

    Parameters
    ----------
    pretrained_file_path : str
    elem_delim : str
        What separates token and numbers.
    encoding : str
        Of the file.
    init_unknown_vec : callable
        Makes the vector of the unknown token, called with `shape`, if the file has none.
    vocabulary : Vocabulary, optional
        Its tokens get vectors, and no others; all tokens of the file if None.
    **kwargs
        Of `Vocabulary`.

    Raises
    ------
    ValueError
        The file does not exist, or a line is not a token and as many numbers as in the others.
    """

    def __init__(
        self,
        pretrained_file_path: str,
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Init = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._read(pretrained_file_path, elem_delim, init_unknown_vec, encoding, vocabulary)


class _Pretrained(_TokenEmbedding):
    """Vectors that others have published, from a folder."""

    #: Names of well-known files; others are taken, too.
    pretrained_file_names: tuple[str, ...] = ()

    def __init__(
        self,
        pretrained_file_name: str,
        embedding_root: str,
        init_unknown_vec: Init = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ) -> None:
        kind = type(self).__name__.lower()
        folder = os.path.join(os.path.expanduser(embedding_root), kind)
        path = os.path.join(folder, pretrained_file_name)
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"there is no file '{path}': expected the vectors {pretrained_file_name!r} there"
            )
        super().__init__(**kwargs)
        self._read(path, " ", init_unknown_vec, "utf8", vocabulary)


_ROOT = os.path.join(data_dir(), "embeddings")


@register
class GloVe(_Pretrained):
    """Vectors of GloVe from ``embedding_root/glove/pretrained_file_name``."""

    pretrained_file_names = (
        "glove.42B.300d.txt",
        *(f"glove.6B.{length}d.txt" for length in (50, 100, 200, 300)),
        "glove.840B.300d.txt",
        *(f"glove.twitter.27B.{length}d.txt" for length in (25, 50, 100, 200)),
    )

    def __init__(
        self,
        pretrained_file_name: str = "glove.840B.300d.txt",
        embedding_root: str = _ROOT,
        **kwargs: Any,
    ) -> None:
        super().__init__(pretrained_file_name, embedding_root, **kwargs)


@register
class FastText(_Pretrained):
    """Vectors of fastText from ``embedding_root/fasttext/pretrained_file_name``."""

    pretrained_file_names = (
        "crawl-300d-2M.vec",
        "wiki.simple.vec",
        *(f"wiki.{language}.vec" for language in "de en es fr it ja pt ru zh".split()),
    )

    def __init__(
        self,
        pretrained_file_name: str = "wiki.simple.vec",
        embedding_root: str = _ROOT,
        **kwargs: Any,
    ) -> None:
        super().__init__(pretrained_file_name, embedding_root, **kwargs)


class CompositeEmbedding(_TokenEmbedding):
    """The vectors of several embeddings, one after another, for the tokens of a vocabulary."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        token_embeddings: _TokenEmbedding | Sequence[_TokenEmbedding],
    ) -> None:
        super().__init__(unknown_token=vocabulary.unknown_token)
        self._reserved_tokens = vocabulary.reserved_tokens
        self._number(list(vocabulary.idx_to_token))
        if isinstance(token_embeddings, _TokenEmbedding):
            token_embeddings = [token_embeddings]
        parts = [one.get_vecs_by_tokens(self.idx_to_token) for one in token_embeddings]
        self._idx_to_vec = nd.concat(*parts, dim=1)


def get_pretrained_file_names(
    embedding_name: str | None = None,
) -> dict[str, list[str]] | list[str]:
    """Names of well-known files of one kind, or of all by kind.

    >>> get_pretrained_file_names("glove")[1]
    'glove.6B.50d.txt'
    """
    kinds = {kind.__name__.lower(): list(kind.pretrained_file_names) for kind in (GloVe, FastText)}
    if embedding_name is None:
        return kinds
    if embedding_name not in kinds:
        raise KeyError(f"invalid embedding_name {embedding_name!r}: expected {', '.join(kinds)}")
    return kinds[embedding_name]
