"""What `mxnet.module.base_module` has for modules that programs write."""

from ..module.arguments import check_input_names as _check_input_names
from ..module.arguments import parse_descs as _parse_data_desc
from .base import _as_list

__all__ = ["_as_list", "_check_input_names", "_parse_data_desc"]
