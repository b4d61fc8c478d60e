"""What `mxnet.module.base_module` has for modules that programs write."""

from ..module.arguments import as_list as _as_list
from ..module.arguments import check_input_names as _check_input_names
from ..module.arguments import parse_descs as _parse_data_desc

__all__ = ["_as_list", "_check_input_names", "_parse_data_desc"]
