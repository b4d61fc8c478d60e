"""Cases of linear algebra; see `cases.py`."""

from dataclasses import dataclass

import numpy as np
from cases import FLOATS, In, case

REAL = FLOATS[:2]


@dataclass(frozen=True)
class Positive(In):
    """Symmetric positive definite matrices with eigenvalues from 1 on."""

    def draw(self, rng, dtype):
        a = rng.uniform(-1, 1, self.shape)
        return (a @ np.swapaxes(a, -1, -2) + np.eye(self.shape[-1])).astype(dtype)


@dataclass(frozen=True)
class Dominant(In):
    """Matrices with a diagonal of 1 and more."""

    def draw(self, rng, dtype):
        a = rng.uniform(-0.5, 0.5, self.shape)
        return (a + np.eye(self.shape[-1]) * rng.uniform(1.5, 2.5, self.shape[-1])).astype(dtype)


for op, rest in (("_linalg_gemm2", {}), ("_linalg_gemm", {"beta": 0.5})):
    c = [(2, 3, 5)] if rest else []
    case(op, (2, 3, 4), (2, 4, 5), *c, **rest)
    case(op, (2, 4, 3), (2, 4, 5), *c, transpose_a=True, alpha=2.0, **rest)
    case(op, (2, 3, 4), (2, 5, 4), *c, transpose_b=True, alpha=-1.0, **rest)
    case(op, (2, 4, 3), (2, 5, 4), *c, transpose_a=True, transpose_b=True, **rest)
    case(op, (3, 2, 4), (4, 2, 5), *([(3, 2, 5)] if rest else []), axis=-3, alpha=0.5, **rest)
case("_linalg_gemm2", (3, 4), (4, 2))
for transpose in (False, True):
    case("_linalg_syrk", (2, 3, 4), transpose=transpose, alpha=0.5)
    for right in (False, True):
        for lower in (False, True):
            options = {"transpose": transpose, "rightside": right, "lower": lower, "alpha": 1.5}
            b = (2, 2, 3) if right else (2, 3, 2)
            case("_linalg_trmm", (2, 3, 3), b, **options)
            case("_linalg_trsm", Dominant((2, 3, 3)), b, **options)
case("khatri_rao", (2, 3), (4, 3), num_args=2)
case("khatri_rao", (2, 2), (3, 2), (2, 2), num_args=3)
for lower in (True, False):
    case("_linalg_potrf", Positive((2, 3, 3)), lower=lower, dtypes=REAL)
    case("_linalg_potri", Dominant((2, 3, 3)), lower=lower, dtypes=REAL)
case("_linalg_potrf", Positive((5, 5)), dtypes=REAL)
case("_npi_cholesky", Positive((2, 3, 3)), dtypes=REAL)
case("_linalg_inverse", Dominant((2, 4, 4)), dtypes=REAL)
case("_linalg_inverse", (3, 3), dtypes=("float64",))
case("_linalg_det", (2, 3, 3), dtypes=REAL)
case("_linalg_det", (4, 4), dtypes=REAL)
case("_linalg_slogdet", (2, 3, 3), dtypes=REAL)
case("_linalg_gelqf", (2, 3, 4), dtypes=REAL)
case("_linalg_gelqf", (3, 3), dtypes=REAL)
case("_linalg_syevd", Positive((2, 4, 4)), dtypes=REAL)
case("_linalg_sumlogdiag", Dominant((2, 3, 3)))
case("_linalg_sumlogdiag", Dominant((3, 3)))
for offset in (0, 1, -1):
    case("_linalg_extractdiag", (2, 3, 3), offset=offset)
    case("_linalg_makediag", (2, 3), offset=offset)
    for lower in (True, False):
        case("_linalg_extracttrian", (2, 3, 3), offset=offset, lower=lower)
        case("_linalg_maketrian", (2, 6), offset=offset, lower=lower)
