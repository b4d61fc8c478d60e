"""rsnet: tensor programs on a threaded dependency engine, with MXNet's Python names."""

from __future__ import annotations

from . import _core, base
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
from . import autograd
from . import ndarray
from . import ndarray as nd
from . import random
from . import random as rnd

__version__ = _core.__version__
