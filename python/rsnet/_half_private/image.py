"""What `mxnet.image` has for transformations that programs write."""

from __future__ import annotations

from collections.abc import Sequence

from ..image.functions import choose_interp

__all__ = ["_get_interp_method"]


def _get_interp_method(interp: int, sizes: Sequence[int] = ()) -> int:
    """The interpolation of a number: 9 chooses by (old h, old w, new h, new w), 10 at random."""
    return choose_interp(interp, sizes)
