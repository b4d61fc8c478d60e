"""MXNet's name for loading compiled operators: ``mx.library.load(path)``."""

from __future__ import annotations

import os

from ._operators.library import load_library


def load(path: str | os.PathLike[str], verbose: bool = True) -> None:
    """Loads a library of operators that were compiled with rsnet's headers.

    Parameters
    ----------
    path : str or os.PathLike
    verbose : bool
        Print the names that it registers.

    Raises
    ------
    rsnet.MXNetError
        See :func:`rsnet.load_library`. A library that was compiled with MXNet's headers has to be
        compiled with rsnet's, from the same sources.

    Examples
    --------
    >>> import rsnet as mx
    >>> mx.library.load("libabsent.so")
    Traceback (most recent call last):
        ...
    rsnet.base.MXOSError: cannot load 'libabsent.so': No such file or directory (os error 2)
    """
    names = load_library(path)
    if verbose:
        print(f"loaded library {os.fspath(path)}: {', '.join(names)}")
