"""Words as numbers: counting tokens, vocabularies, and embeddings from local files."""

from . import embedding, utils, vocab

__all__ = ["embedding", "utils", "vocab"]
