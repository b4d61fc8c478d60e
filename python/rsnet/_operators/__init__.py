"""Operators written in Python: three public interfaces over one definition.

``rsnet.operator``, ``rsnet.op`` and ``rsnet.user_op`` re-export what is implemented here, which
knows nothing of them. Imports go one way, from the interfaces (``property``, ``custom_op``,
``legacy``, ``attributes``, ``decorator``, ``user``) over what they share (``operands``,
``gradient``, ``checks``) to ``definition`` and ``registry``. The namespaces ``nd`` and ``sym``
import ``registry`` alone.
"""

from __future__ import annotations

from collections.abc import Iterable


def publish(module: str, objects: Iterable[object]) -> None:
    """Makes ``module`` the home of functions and classes that are implemented in private modules.

    Representations, documentation and pickles then name the public module.
    """
    for thing in objects:
        if getattr(thing, "__module__", "").startswith("rsnet._"):
            thing.__module__ = module
