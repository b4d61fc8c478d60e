"""`Vocabulary`: numbers for tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["Vocabulary"]


class Vocabulary:
    """Tokens by number, and numbers by token; number 0 is the unknown token.

    Reserved tokens follow it, then those of `counter`, the most frequent first, equally frequent
    ones in the order of their letters.

    Parameters
    ----------
    counter : collections.Counter, optional
        How often each token was seen.
    most_freq_count : int, optional
        Take at most this many tokens of `counter`, the most frequent ones; all if None.
    min_freq : int
        Take only tokens that were seen at least this often.
    unknown_token : str
    reserved_tokens : list of str, optional
        Such as padding and ends of sentences.

    Raises
    ------
    ValueError
        `min_freq` is not positive; reserved tokens contain the unknown one, or one twice.

    Examples
    --------
    >>> words = Vocabulary(Counter("a b b c".split()), reserved_tokens=["<pad>"])
    >>> words.idx_to_token, words.to_indices(["b", "z"])
    (['<unk>', '<pad>', 'b', 'a', 'c'], [2, 0])
    """

    def __init__(
        self,
        counter: Counter[str] | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: str = "<unk>",
        reserved_tokens: Sequence[str] | None = None,
    ) -> None:
        if min_freq < 1:
            raise ValueError(f"invalid min_freq {min_freq}: expected a positive number")
        special = [unknown_token, *(reserved_tokens or ())]
        if len(set(special)) < len(special):
            raise ValueError(
                f"invalid reserved_tokens {reserved_tokens!r}: expected different tokens other "
                f"than {unknown_token!r}"
            )
        self._reserved_tokens = None if reserved_tokens is None else list(reserved_tokens)
        by_frequency = sorted((counter or {}).items(), key=lambda item: (-item[1], item[0]))
        chosen = [t for t, n in by_frequency if n >= min_freq and t not in special]
        self._number(special + chosen[:most_freq_count])

    def _number(self, tokens: list[str]) -> None:
        self._idx_to_token = tokens
        self._token_to_idx = {token: index for index, token in enumerate(tokens)}

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[str, int]:
        """Numbers by token."""
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[str]:
        """Tokens by number."""
        return self._idx_to_token

    @property
    def unknown_token(self) -> str:
        """The token that stands for all others."""
        return self._idx_to_token[0]

    @property
    def reserved_tokens(self) -> list[str] | None:
        """The reserved tokens that were given."""
        return self._reserved_tokens

    def to_indices(self, tokens: str | Sequence[str]) -> int | list[int]:
        """The number of a token, or those of a list; 0 for unknown ones."""
        if isinstance(tokens, str):
            return self._token_to_idx.get(tokens, 0)
        return [self._token_to_idx.get(token, 0) for token in tokens]

    def to_tokens(self, indices: int | Sequence[int]) -> str | list[str]:
        """The token of a number, or those of a list.

        Raises
        ------
        ValueError
            There is no such number.
        """
        single = isinstance(indices, int)
        wanted: Sequence[int] = [indices] if isinstance(indices, int) else indices
        for index in wanted:
            if not (isinstance(index, int) and 0 <= index < len(self)):
                raise ValueError(f"invalid index {index!r}: expected 0 to {len(self) - 1}")
        found = [self._idx_to_token[index] for index in wanted]
        return found[0] if single else found
