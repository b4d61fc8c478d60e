"""Operators written in Python: three public interfaces over one definition.

``rsnet.operator``, ``rsnet.op`` and ``rsnet.user_op`` re-export what is implemented here, which
knows nothing of them. Imports go one way. The lowest is ``registry``, which the namespaces ``nd``
and ``sym`` import alone; above it are ``checks``, then ``definition``, which the core takes, and
what functions of authors use: ``gradient`` and ``operands``. On these stand the ways to write an
operator: classes (``property``, ``custom_op`` and ``legacy``, which ``property_register`` enters),
attributes (``attributes`` and ``decorator``) and user operators (``user``). ``decorator`` takes the
form of arguments from ``user``, and ``library`` describes compiled operators as user operators;
their rules of distribution are those of ``rsnet._sbp``.
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
