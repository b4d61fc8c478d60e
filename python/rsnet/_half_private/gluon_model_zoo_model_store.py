"""What `mxnet.gluon.model_zoo.model_store` has for zoos that programs add to it."""

from __future__ import annotations

__all__ = ["_model_sha1"]

#: Digests of files of weights by the names of networks. Zoos enter theirs; rsnet, which fetches
#: nothing, has none of its own.
_model_sha1: dict[str, str] = {}
