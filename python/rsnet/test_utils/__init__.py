"""Helpers for tests of operators and models: comparison, gradient checks, random data."""

import errno
import gzip
import json
import logging
import numbers
import os
import platform
import struct
import sys
import time
import traceback
from collections import OrderedDict
from contextlib import contextmanager

import numpy as np
import numpy.random as rnd
import numpy.testing as npt

import rsnet as mx

from .. import ndarray as nd
from .._mxnet_names import module_getattr
from ..base import MXNetError
from ..context import Context, current_context
from ..ndarray import array
from ..runtime import Features
from ..symbol import Symbol
from ..util import getenv, setenv
from .check import (
    check_consistency,
    check_numeric_gradient,
    check_speed,
    check_symbolic_backward,
    check_symbolic_forward,
    compare_ndarray_tuple,
    compare_optimizer,
    numeric_grad,
    simple_forward,
)
from .compare import (
    almost_equal,
    almost_equal_ignore_nan,
    assert_allclose,
    assert_almost_equal,
    assert_almost_equal_ignore_nan,
    assert_almost_equal_with_err,
    assert_exception,
    checkShapes,
    default_atols,
    default_context,
    default_dtype,
    default_numeric_eps,
    default_rtols,
    locationError,
    reldiff,
    same,
    same_array,
    same_symbol_structure,
    set_default_context,
)
from .data import (
    assign_each,
    assign_each2,
    chi_square_check,
    collapse_sum_like,
    gen_buckets_probs_with_ppf,
    list_gpus,
    mean_check,
    np_reduce,
    rand_ndarray,
    rand_shape_2d,
    rand_shape_3d,
    rand_shape_nd,
    random_arrays,
    random_sample,
    random_uniform_arrays,
    var_check,
    verify_generator,
)
from .digits import get_mnist, get_mnist_iterator, get_mnist_ubyte
from .matrices import (
    get_identity_mat,
    get_identity_mat_batch,
    new_matrix_with_real_eigvals_2d,
    new_matrix_with_real_eigvals_nd,
    new_orthonormal_matrix_2d,
    new_sym_matrix_with_real_eigvals_2d,
    new_sym_matrix_with_real_eigvals_nd,
    rand_coord_2d,
)
from .programs import (
    DummyIter,
    check_gluon_hybridize_consistency,
    create_2d_tensor,
    create_vector,
    download,
    get_im2rec_path,
)
from .surroundings import (
    discard_stderr,
    environment,
    has_tvm_ops,
    is_aarch64_run,
    is_cd_run,
    is_op_runnable,
    retry,
)
from .tolerances import effective_dtype, get_atol, get_etol, get_rtol, get_tolerance, get_tols

# Test suites import all of this by a star: besides the helpers, the modules and classes that they
# use without importing them.
__all__ = [
    "Context",
    "Features",
    "MXNetError",
    "OrderedDict",
    "Symbol",
    "array",
    "contextmanager",
    "current_context",
    "errno",
    "getenv",
    "gzip",
    "json",
    "logging",
    "mx",
    "nd",
    "np",
    "npt",
    "numbers",
    "os",
    "platform",
    "rnd",
    "setenv",
    "struct",
    "sys",
    "time",
    "traceback",
    "get_identity_mat",
    "get_identity_mat_batch",
    "new_matrix_with_real_eigvals_2d",
    "new_matrix_with_real_eigvals_nd",
    "new_orthonormal_matrix_2d",
    "new_sym_matrix_with_real_eigvals_2d",
    "new_sym_matrix_with_real_eigvals_nd",
    "rand_coord_2d",
    "get_mnist",
    "get_mnist_iterator",
    "get_mnist_ubyte",
    "almost_equal",
    "almost_equal_ignore_nan",
    "assert_allclose",
    "assert_almost_equal",
    "assert_almost_equal_ignore_nan",
    "assert_almost_equal_with_err",
    "assert_exception",
    "checkShapes",
    "default_atols",
    "default_context",
    "default_dtype",
    "default_numeric_eps",
    "default_rtols",
    "locationError",
    "reldiff",
    "same",
    "same_array",
    "same_symbol_structure",
    "set_default_context",
    "check_consistency",
    "check_numeric_gradient",
    "check_speed",
    "check_symbolic_backward",
    "check_symbolic_forward",
    "compare_ndarray_tuple",
    "compare_optimizer",
    "numeric_grad",
    "simple_forward",
    "assign_each",
    "assign_each2",
    "chi_square_check",
    "collapse_sum_like",
    "gen_buckets_probs_with_ppf",
    "list_gpus",
    "mean_check",
    "np_reduce",
    "rand_ndarray",
    "rand_shape_2d",
    "rand_shape_3d",
    "rand_shape_nd",
    "random_arrays",
    "random_sample",
    "random_uniform_arrays",
    "var_check",
    "verify_generator",
    "discard_stderr",
    "environment",
    "has_tvm_ops",
    "is_aarch64_run",
    "is_cd_run",
    "is_op_runnable",
    "retry",
    "effective_dtype",
    "get_atol",
    "get_etol",
    "get_rtol",
    "get_tolerance",
    "get_tols",
    "DummyIter",
    "check_gluon_hybridize_consistency",
    "create_2d_tensor",
    "create_vector",
    "download",
    "get_im2rec_path",
]

__getattr__ = module_getattr(__name__)
