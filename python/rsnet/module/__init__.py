"""Modules: a symbol with its parameters, optimizer and training loop.

`Module` is the usual one; `BucketingModule` keeps one for each input length over shared parameters,
`SequentialModule` chains several, `PythonModule` is written in Python.
"""

from .._mxnet_names import module_getattr
from . import base_module, executor_group
from .base_module import BaseModule
from .bucketing_module import BucketingModule
from .executor_group import DataParallelExecutorGroup
from .feedforward import FeedForward
from .module import Module
from .python_module import PythonLossModule, PythonModule
from .sequential_module import SequentialModule

__all__ = [
    "BaseModule",
    "Module",
    "BucketingModule",
    "SequentialModule",
    "PythonModule",
    "PythonLossModule",
    "DataParallelExecutorGroup",
    "FeedForward",
]

for _module in (base_module, executor_group):
    vars(_module)["__getattr__"] = module_getattr(_module.__name__)
del _module
