"""Samplers."""

from . import sampler
from .sampler import IntervalSampler
