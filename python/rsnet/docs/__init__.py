"""Documentation from the registry: a page for every operator, and stubs for editors.

``python -m rsnet.docs OUT`` writes Markdown pages, and ``--stubs DIR`` the ``.pyi`` files that lie
beside ``rsnet/ndarray`` and ``rsnet/symbol``. ``--load NAME`` first imports a module that registers
operators, or loads a library of them by its path: they get pages and stubs, too.

>>> from rsnet import docs
>>> print(docs.page("relu").splitlines()[0])
# relu
"""

from __future__ import annotations

from .pages import page, write_pages
from .stubs import stub, write_stubs

__all__ = ["page", "stub", "write_pages", "write_stubs"]
