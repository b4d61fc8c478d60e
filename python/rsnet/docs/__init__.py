"""Documentation from the registry: a page for every operator, and stubs for editors.

``python -m rsnet.docs OUT`` writes Markdown pages, ``--load MODULE`` first imports a module that
registers operators, so that they get pages too, and ``--stubs DIR`` writes the ``.pyi`` files that
lie beside ``rsnet/ndarray`` and ``rsnet/symbol``.

>>> from rsnet import docs
>>> print(docs.page("relu").splitlines()[0])
# relu
"""

from __future__ import annotations

from .pages import page, write_pages
from .stubs import stub, write_stubs

__all__ = ["page", "stub", "write_pages", "write_stubs"]
