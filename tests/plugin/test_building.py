"""Compiling libraries: flags, `build_extension`, and the example's Makefile."""

import graphlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from plugins import SOURCES, compiled
from processes import printed

import rsnet as mx
from rsnet import sysconfig

pytestmark = pytest.mark.process

GOOD = """
#include <rsnet/plugin.h>
#include "mine.h"
const uint32_t rsnet_plugin_abi = RSNET_ABI;
rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  host->refuse(registry, TEXT);
  return RSNET_INVALID;
}
"""


def test_flags_compile_a_library(tmp_path):
    flags = subprocess.run(
        [sys.executable, "-m", "rsnet.sysconfig", "--cflags"], capture_output=True, text=True
    ).stdout.split()
    assert flags == sysconfig.get_compile_flags() == mx.oneflow.sysconfig.get_compile_flags()
    assert sysconfig.get_link_flags() == [] and os.path.isdir(sysconfig.get_lib())
    assert os.path.isfile(os.path.join(sysconfig.get_include(), "rsnet", "plugin.h"))
    bad = subprocess.run([sys.executable, "-m", "rsnet.sysconfig", "--x"], capture_output=True)
    assert bad.returncode != 0 and b"usage" in bad.stderr


@pytest.mark.parametrize("standard", ["c99", "c11", "c17"])
def test_the_header_is_plain_c(standard):
    header = os.path.join(sysconfig.get_include(), "rsnet", "plugin.h")
    command = ["gcc", f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror",
               "-fsyntax-only", "-x", "c", header]  # fmt: skip
    subprocess.run(command, check=True)


@pytest.mark.parametrize("standard", ["c++11", "c++14", "c++17", "c++20"])
def test_the_header_is_plain_cpp(standard):
    header = os.path.join(sysconfig.get_include(), "rsnet", "plugin.h")
    command = ["g++", f"-std={standard}", "-pedantic", "-Wall", "-Wextra", "-Werror",
               "-fsyntax-only", "-x", "c++", header]  # fmt: skip
    subprocess.run(command, check=True)


def test_libraries_are_cached_by_content(tmp_path, capsys):
    source = tmp_path / "mine.c"
    source.write_text(GOOD)
    (tmp_path / "mine.h").write_text('#define TEXT "one"\n')
    build = dict(build_dir=tmp_path / "built", cflags=["-O0"])
    first = mx.build_extension(source, **build)
    shown = capsys.readouterr().out
    assert "-std=c99 -fPIC -O2 -O0" in shown and "-shared" in shown
    assert mx.build_extension([source], **build) == first
    assert capsys.readouterr().out == ""  # nothing ran
    with pytest.raises(mx.MXNetError, match="cannot load '.*': one"):
        mx.load_library(first)
    (tmp_path / "mine.h").write_text('#define TEXT "two"\n')
    second = mx.build_extension(source, **build)
    assert second != first
    with pytest.raises(mx.MXNetError, match="two"):
        mx.load_library(second)
    assert mx.build_extension(source, "named", **build).rpartition("/")[2].startswith("libnamed-")


def test_errors_of_compilers_are_shown(tmp_path, monkeypatch):
    bad = tmp_path / "bad.cpp"
    bad.write_text("int f() { return missing; }\n")
    with pytest.raises(
        mx.build.CompileError, match="(?s)g\\+\\+ .*bad.cpp.*'missing' was not|not declared"
    ):
        mx.build_extension(bad, build_dir=tmp_path, verbose=False)
    assert not list(tmp_path.glob("*.so"))
    for given, text in [
        ([], "expected at least one file"),
        ("absent.cpp", "expected a file that exists"),
        (ROOT / "README.md", "expected a name that ends in"),
    ]:
        with pytest.raises(mx.MXNetError, match=text):
            mx.build_extension(given, build_dir=tmp_path)
    with pytest.raises(mx.MXNetError, match="invalid name 'a/b'"):
        mx.build_extension(bad, "a/b", build_dir=tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        mx.MXNetError, match=r"a compiler for C\+\+, and found none of: no-such-compiler"
    ):
        mx.build_extension(bad, build_dir=tmp_path)
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    (tmp_path / "k.cu").write_text("")
    with pytest.raises(mx.MXNetError, match="a compiler for CUDA, and found none of: no-such-nvcc"):
        mx.build_extension(tmp_path / "k.cu", build_dir=tmp_path)


def test_folders_may_have_any_name(tmp_path):
    """Compilers list the files that they read in the language of make."""
    sources = tmp_path / "a $b#c"
    sources.mkdir()
    (sources / "mine.c").write_text(GOOD)
    (sources / "mine.h").write_text('#define TEXT "one"\n')
    built = tmp_path / "out: x"
    first = mx.build_extension(sources / "mine.c", build_dir=built, verbose=False)
    (sources / "mine.h").write_text('#define TEXT "two"\n')
    assert mx.build_extension(sources / "mine.c", build_dir=built, verbose=False) != first


def includes(header):
    """What a header includes of its own folder."""
    return re.findall(r"#include <(rsnet/[^>]+)>", header.read_text())


def test_headers_include_one_another_in_one_direction():
    root = Path(sysconfig.get_include())
    headers = {str(h.relative_to(root)): includes(h) for h in (root / "rsnet").rglob("*.h*")}
    order = list(graphlib.TopologicalSorter(headers).static_order())
    assert order[0] == "rsnet/plugin.h" and len(order) >= 20


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
@pytest.mark.parametrize("source", ["mxnet_seldom.cc", "oneflow_seldom.cpp"])
def test_libraries_have_their_own_variables(source):
    """The system has one of each unique symbol in a process, which libraries of different versions
    of the headers would share.
    """
    lines = subprocess.run(["nm", "-DC", compiled(source)], capture_output=True, text=True).stdout
    unique = [line for line in lines.splitlines() if re.match(r"\w+ u ", line)]
    shared = r"\b(rsnet|mxnet|nnvm|dmlc|mshadow|oneflow)::"
    assert [line for line in unique if re.search(shared, line)] == []
    assert re.search(r"(?m)^\w+ . rsnet_plugin_abi$", lines)


def test_the_examples_makefile(tmp_path):
    example = ROOT / "examples" / "plugin"
    out = tmp_path / "new"
    make = ["make", "-C", str(example), f"OUT={out}", f"PYTHON={sys.executable}"]
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = f"""
        import numpy as np, rsnet as mx
        print(mx.load_library({str(out / "libswish.so")!r}))
        x = mx.nd.array([-1.0, 0.0, 2.0])
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.swish(x, beta=1.5)
        y.backward()
        print(y.asnumpy().tolist(), x.grad.asnumpy().tolist())
    """
    names, values = printed(code).splitlines()
    assert names == "['swish', 'swish_grad']"
    y, dx = (np.array(part.split(", "), float) for part in values[1:-1].split("] ["))
    x = np.array([-1.0, 0.0, 2.0])
    s = 1 / (1 + np.exp(-1.5 * x))
    assert np.allclose(y, x * s) and np.allclose(dx, s + 1.5 * x * s * (1 - s))


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_the_examples_cmake(tmp_path):
    example = ROOT / "examples" / "plugin"
    configure = ["cmake", "-S", str(example), "-B", str(tmp_path)]
    for command in [
        [*configure, f"-DPython3_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(tmp_path)],
    ]:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    code = f"""
        import rsnet as mx
        print(mx.load_library({str(tmp_path / "libswish.so")!r}))
        print(mx.load_library({str(tmp_path / "libhuber.so")!r}))
        x = mx.nd.array([-3.0, 0.5, 4.0])
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.huber(x, delta=2)
        y.backward()
        print(y.asnumpy().tolist(), x.grad.asnumpy().tolist())
        print(mx.nd.huber(x.astype("float16")).asnumpy().tolist())
    """
    assert printed(code).splitlines() == [
        "['swish', 'swish_grad']",
        "['huber', '_backward_huber']",
        "[4.0, 0.125, 6.0] [-2.0, 0.5, 2.0]",
        "[2.5, 0.125, 3.5]",
    ]


@pytest.mark.skipif(shutil.which("clang++") is None, reason="there is no clang")
@pytest.mark.parametrize(
    ("source", "name", "value"),
    [
        ("scale.c", "c_scale", 6),
        ("oneflow_ops.cpp", "of_ramp", 3),
        ("oneflow_forms.cpp", "form_copy", 3),
        ("mxnet_ops.cc", "mx_poly", 3),
        ("mxnet_users.cc", "user_cubed", 27),
    ],
)
def test_clang_compiles_without_warnings(source, name, value, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "clang")
    monkeypatch.setenv("CXX", "clang++")
    strict = ["-O0", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"]
    path = mx.build_extension(SOURCES / source, cflags=strict, build_dir=tmp_path, verbose=False)
    code = f"""
        import rsnet as mx
        print({name!r} in mx.load_library({path!r}))
        print(mx.nd.{name}(mx.nd.array([3.0])).asscalar())
    """
    assert printed(code).splitlines() == ["True", f"{value}.0"]


def test_sources_are_shipped():
    include = sysconfig.get_include()
    for name in ("rsnet/oneflow.hpp", "rsnet/mxnet.h", "dmlc/parameter.h", "mxnet/operator.h",
                 "oneflow/core/framework/framework.h"):  # fmt: skip
        assert os.path.isfile(os.path.join(include, name)), name
    assert (SOURCES / "scale.c").is_file()
