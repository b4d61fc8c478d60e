"""Every CUDA function compiles for the architectures that are supported, and spills no register.

NVRTC comes from its wheel (`pip install rsnet[kernel-check]`); no device is needed. The registers
of functions in single precision are compared with a table, `tests/support/cuda/registers.json`:
the most of a source, for each architecture. `python tests/support/kernel_check.py` writes it.
"""

import kernel_check
import nvrtc
import pytest

pytestmark = pytest.mark.skipif(
    nvrtc.folder() is None, reason="needs NVRTC: pip install rsnet[kernel-check]"
)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", kernel_check.ARCHITECTURES)
@pytest.mark.parametrize("source", kernel_check.sources())
def test_every_function_compiles_without_spills(source, architecture):
    used = kernel_check.compile_all(source, architecture)
    assert {name: use for name, use in used.items() if use[1]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", kernel_check.ARCHITECTURES)
@pytest.mark.parametrize("source", kernel_check.sources())
def test_functions_use_no_more_registers_than_the_table_says(source, architecture):
    used = kernel_check.compile_all(source, architecture, "float")
    most = max(registers for registers, _, _ in used.values())
    assert most <= kernel_check.table()[architecture][source]


def test_a_source_that_does_not_compile_is_reported():
    with pytest.raises(RuntimeError, match='identifier "y" is undefined'):
        nvrtc.compile("__global__ void f(float *x) { x[0] = y; }", "bad.cu", [], "sm_90")
