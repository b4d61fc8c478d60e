"""Samplers, and texts for language models."""

from . import sampler, text
from .sampler import IntervalSampler
from .text import WikiText2, WikiText103

__all__ = [
    "IntervalSampler",
    "WikiText103",
    "WikiText2",
    "sampler",
    "text",
]
