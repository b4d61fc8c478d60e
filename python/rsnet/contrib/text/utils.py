"""Counting tokens."""

from __future__ import annotations

import re
from collections import Counter

__all__ = ["count_tokens_from_str"]


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter[str] | None = None,
) -> Counter[str]:
    r"""Counts the tokens of a text.

    Parameters
    ----------
    source_str : str
    token_delim, seq_delim : str
        Regular expressions for what separates tokens, and sequences of tokens.
    to_lower : bool
        Count words in lower case?
    counter_to_update : collections.Counter, optional
        Counts are added to it; a new one if None.

    Examples
    --------
    >>> count_tokens_from_str("Life is great !\nlife is good .\n", to_lower=True)["life"]
    2
    """
    text = source_str.lower() if to_lower else source_str
    counter = Counter[str]() if counter_to_update is None else counter_to_update
    counter.update(token for token in re.split(f"{token_delim}|{seq_delim}", text) if token)
    return counter
