"""What this build can do, under MXNet's names of features."""

from __future__ import annotations

from .context import num_gpus

__all__ = ["Feature", "Features", "feature_list"]

#: What every build offers: linear algebra, decoding of images, extents beyond 2**31. The other
#: names are of libraries that rsnet does not use, or of instruction sets, which it chooses when it
#: runs.
_ALWAYS = frozenset({"LAPACK", "OPENCV", "INT64_TENSOR_SIZE"})
#: Features that need a device.
_OF_CUDA = frozenset({"CUDA"})
_NAMES = """
    CUDA CUDNN NCCL CUDA_RTC TENSORRT CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4_1 CPU_SSE4_2 CPU_SSE4A
    CPU_AVX CPU_AVX2 OPENMP SSE F16C JEMALLOC BLAS_OPEN BLAS_ATLAS BLAS_MKL BLAS_APPLE LAPACK MKLDNN
    OPENCV CAFFE PROFILER DIST_KVSTORE CXX14 INT64_TENSOR_SIZE SIGNAL_HANDLER DEBUG TVM_OP
""".split()


class Feature:
    """A feature: its `name`, and whether it is `enabled`."""

    def __init__(self, name: str, enabled: bool) -> None:
        self.name = name
        self.enabled = enabled

    def __repr__(self) -> str:
        return f"{'✔' if self.enabled else '✖'} {self.name}"


def feature_list() -> list[Feature]:
    """All features, in MXNet's order."""
    cuda = num_gpus() > 0
    return [Feature(name, name in _ALWAYS or (cuda and name in _OF_CUDA)) for name in _NAMES]


class Features(dict[str, Feature]):
    """Features by name.

    Examples
    --------
    >>> Features().is_enabled("opencv")  # images can be decoded
    True
    """

    def __init__(self) -> None:
        super().__init__((feature.name, feature) for feature in feature_list())

    def __repr__(self) -> str:
        return str(list(self.values()))

    def is_enabled(self, feature_name: str) -> bool:
        """Whether a feature is enabled, in any case of letters.

        Raises
        ------
        RuntimeError
            There is no such feature.
        """
        name = feature_name.upper()
        if name not in self:
            raise RuntimeError(f"unknown feature {name!r}: expected one of {', '.join(self)}")
        return self[name].enabled
