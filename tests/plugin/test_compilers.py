"""Which compilers `build_extension` calls, and how: wrapped ones, flags, CUDA's."""

import ctypes
import os
import shutil
import stat

import numpy as np
import pytest
from places import ROOT

import rsnet as mx

pytestmark = pytest.mark.process

C_PART = "int answer(void);\nint answer(void) { return 42; }\n"
CPP_PART = 'extern "C" int answer() { return MORE; }\n'
CUDA_PART = """
#include <rsnet/mxnet.h>
namespace mxnet { namespace op {
struct add_one {
  template <typename DType>
  MSHADOW_XINLINE static void Map(int i, DType* y, const DType* x) { y[i] = x[i] + 1; }
};
template <typename xpu>
void AddOne(const nvm_attrs& attrs, const OpContext& ctx, const std::vector<TBlob>& in,
            const std::vector<OpReqType>& req, const std::vector<TBlob>& out) {
  mxnet_op::Kernel<add_one, xpu>::Launch(ctx.get_stream<xpu>(), out[0].Size(),
                                         out[0].dptr<float>(), in[0].dptr<float>());
}
NNVM_REGISTER_OP(cu_add_one)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", AddOne<cpu>)
    .set_attr<FCompute>("FCompute<gpu>", AddOne<gpu>);
} }
""".replace("nvm_attrs", "nnvm::NodeAttrs")


def fake_nvcc(folder):
    """A compiler that takes nvcc's flags and shows how it was called."""
    script = folder / "nvcc"
    script.write_text(
        '#!/bin/sh\nfor a in "$@"; do shift; case "$a" in\n'
        '-Xcompiler) ;; *.cu) set -- "$@" -x c++ "$a" ;; *) set -- "$@" "$a" ;; esac; done\n'
        'exec g++ "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_a_library_with_cuda_is_linked_by_nvcc(tmp_path, monkeypatch, capsys):
    """Only nvcc adds CUDA's runtime, without which such a library cannot be loaded."""
    nvcc = fake_nvcc(tmp_path)
    monkeypatch.setenv("NVCC", str(nvcc))
    for name, text in [("a.c", C_PART), ("b.cpp", "int f() { return 1; }\n"), ("k.cu", "")]:
        (tmp_path / name).write_text(text)
    link = {}
    for names in (["a.c"], ["a.c", "b.cpp"], ["k.cu"], ["a.c", "k.cu", "b.cpp"]):
        mx.build_extension([tmp_path / n for n in names], build_dir=tmp_path / "built")
        link[tuple(names)] = capsys.readouterr().out.splitlines()[-1].split()
    assert [os.path.basename(command[0]) for command in link.values()] == [
        "cc", "g++", "nvcc", "nvcc"
    ]  # fmt: skip
    assert all(command[1] == "-shared" for command in link.values())


def test_the_runtime_of_wheels_is_found(tmp_path, monkeypatch, capsys):
    home = tmp_path / "cu13"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "libcudart_static.a").write_text("")
    monkeypatch.setenv("NVCC", str(fake_nvcc(home / "bin")))
    (tmp_path / "k.cu").write_text("")
    mx.build_extension(tmp_path / "k.cu", build_dir=tmp_path)
    assert f"-L{home / 'lib'}" in capsys.readouterr().out.splitlines()[-1].split()


@pytest.mark.skipif(not (os.environ.get("NVCC") or shutil.which("nvcc")), reason="there is no nvcc")
def test_nvcc_makes_a_library_with_kernels_of_both_devices(tmp_path):
    source = tmp_path / "k.cu"
    source.write_text(CUDA_PART)
    path = mx.build_extension(source, build_dir=tmp_path, verbose=False)
    assert mx.load_library(path) == ["cu_add_one"]
    assert mx.nd.cu_add_one(mx.nd.array([1.0, 2.0])).asnumpy().tolist() == [2, 3]
    assert [name for name, *_ in mx.op.kernels("cu_add_one")] == ["cpu", "gpu"]


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", ["env g++", "'/usr/bin/env' g++ -DMORE=1"])
def test_compilers_may_be_wrapped(wrapped, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", wrapped)
    example = ROOT / "examples" / "plugin" / "swish.cpp"
    path = mx.build_extension(example, build_dir=tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert all(" g++ " in line and "env" in line.split()[0] for line in shown), shown
    assert mx.load_library(path) == ["swish", "swish_grad"]
    got = mx.nd.swish(mx.nd.array([2.0])).asnumpy()
    assert np.allclose(got, 2 / (1 + np.exp(-2)))


@pytest.mark.parametrize(
    ("wrapped", "answer"), [("env g++", 0), ("'/usr/bin/env' g++ -DMORE=1", 1)]
)
def test_flags_behind_a_wrapped_compiler_count(wrapped, answer, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", wrapped)
    source = tmp_path / "a.cpp"
    source.write_text("#ifndef MORE\n#define MORE 0\n#endif\n" + CPP_PART)
    path = mx.build_extension(source, build_dir=tmp_path)
    shown = capsys.readouterr().out.splitlines()
    assert all(" g++ " in line and "env" in line.split()[0] for line in shown), shown
    assert ctypes.CDLL(path).answer() == answer


def test_a_compiler_may_lie_in_a_folder_with_blanks(tmp_path, monkeypatch):
    folder = tmp_path / "my tools"
    folder.mkdir()
    (folder / "cc").symlink_to(shutil.which("cc"))
    monkeypatch.setenv("CC", str(folder / "cc"))
    (tmp_path / "a.c").write_text(C_PART)
    path = mx.build_extension(tmp_path / "a.c", build_dir=tmp_path, verbose=False)
    assert os.path.isfile(path)


def test_errors_in_any_encoding_are_shown(tmp_path):
    (tmp_path / "a.c").write_bytes(b'#error "\xe8\xff is wrong"\n')
    with pytest.raises(mx.build.CompileError, match="is wrong"):
        mx.build_extension(tmp_path / "a.c", build_dir=tmp_path, verbose=False)


def test_a_text_is_no_list_of_flags(tmp_path):
    (tmp_path / "a.c").write_text(C_PART)
    for name in ("cflags", "ldflags"):
        with pytest.raises(
            mx.MXNetError, match=rf"invalid {name} '-O3 -DX': expected a list, \['-O3', '-DX'\]"
        ):
            mx.build_extension(tmp_path / "a.c", build_dir=tmp_path, **{name: "-O3 -DX"})
