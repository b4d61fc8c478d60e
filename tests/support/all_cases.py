"""Imports the cases and the oracles of every family, which add their rows to the tables."""

import cases_image  # noqa: F401
import cases_linalg  # noqa: F401
import cases_nn  # noqa: F401
import cases_numpy  # noqa: F401
import cases_numpy_arrays  # noqa: F401
import cases_quantized  # noqa: F401
import cases_small  # noqa: F401
import cases_updates  # noqa: F401
import cases_vision  # noqa: F401
import reference_image  # noqa: F401
import reference_linalg  # noqa: F401
import reference_losses  # noqa: F401
import reference_nn  # noqa: F401
import reference_numpy  # noqa: F401
import reference_numpy_arrays  # noqa: F401
import reference_quantized  # noqa: F401
import reference_regions  # noqa: F401
import reference_sequences  # noqa: F401
import reference_shapes  # noqa: F401
import reference_small  # noqa: F401
import reference_updates  # noqa: F401
import reference_vision  # noqa: F401
