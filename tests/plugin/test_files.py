"""Files of libraries: damaged ones, one that is replaced while it is in use, large ones, and C++
without its guard.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from plugins import compiled, compiled_text
from processes import printed

import rsnet as mx

pytestmark = pytest.mark.process


def test_damage_is_seen_before_the_file_is_opened(tmp_path):
    """Numbers in tables that the system's loader believes: where they lead depends on where it maps
    the file, so that a trial in another process tells nothing.
    """
    content = Path(compiled("scale.c")).read_bytes()
    sections = int.from_bytes(content[40:48], "little")
    headers = [content[at : at + 64] for at in range(sections, len(content) - 63, 64)]
    places = {int.from_bytes(h[4:8], "little"): int.from_bytes(h[24:32], "little") for h in headers}
    hashes, needed, relocations = 0x6FFFFFF6, 0x6FFFFFFE, 4
    cases = [
        (places[hashes] + 2, "buckets"),
        (places[hashes] + 6, "the first symbol"),
        (places[hashes] + 8, "the size of the filter"),
        (places[needed] + 6, "the name of a file"),
        (places[relocations] + 6, "a place"),
        (places[relocations] + 15, "a symbol"),
    ]
    for at, what in cases:
        bad = bytearray(content)
        bad[at] ^= 0x55
        path = tmp_path / f"{at}.so"
        path.write_bytes(bad)
        with pytest.raises(OSError, match="it is damaged or cut short"):
            mx.load_library(path)
            pytest.fail(f"{what} was believed")


def test_a_library_outlives_its_file(tmp_path):
    path = str(tmp_path / "libmine.so")
    other = compiled("registration.c", "MODE=GOOD")
    shutil.copy(compiled("scale.c"), path)
    code = f"""
        import rsnet as mx
        import os
        import shutil
        path = {path!r}
        mx.load_library(path)
        shutil.copy({other!r}, path + ".new")
        os.replace(path + ".new", path)
        x = mx.nd.arange(3)
        x.attach_grad()
        with mx.autograd.record():
            y = mx.nd.c_scale(x, by=3)
        y.backward()
        print(y.asnumpy().tolist(), x.grad.asnumpy().tolist())
        try:
            mx.load_library(path)
        except mx.MXNetError as error:
            print("the file has changed since it was loaded" in str(error))
        os.remove(path)
        print(mx.nd.c_scale(x, by=2).asnumpy().tolist())
    """
    expected = ["[0.0, 3.0, 6.0] [3.0, 3.0, 3.0]", "True", "[0.0, 2.0, 4.0]"]
    assert printed(code).splitlines() == expected


def test_of_a_file_that_is_no_library_only_the_beginning_is_read(tmp_path):
    path = tmp_path / "huge.so"
    with open(path, "wb") as file:
        file.truncate(2**36)
    with pytest.raises(OSError, match="it is not an ELF file"):
        mx.load_library(path)


CPP = """
#include <rsnet/plugin.h>
#include <vector>
extern "C" const uint32_t rsnet_plugin_abi = RSNET_ABI;
extern "C" rsnet_status rsnet_plugin_register(const rsnet_host*, rsnet_registry*) {
  return std::vector<int>(3).at(4);
}
"""


def test_a_library_in_cpp_exports_its_guard(tmp_path):
    with pytest.raises(mx.MXNetError, match="(?s)no function rsnet_plugin_guard.*export it"):
        mx.load_library(compiled_text(CPP, cflags=["-fno-exceptions"]))
    with pytest.raises(mx.MXNetError, match=r"C\+\+ exception: vector"):
        mx.load_library(compiled_text(CPP))


def test_a_library_is_not_taken_for_one_that_it_is_linked_with(tmp_path):
    ours = Path(shutil.copy(compiled("scale.c"), tmp_path / "libours.so"))
    (tmp_path / "more.c").write_text("int more(void) { return 3; }\n")
    other = tmp_path / "libother.so"
    command = ["gcc", "-shared", "-fPIC", tmp_path / "more.c", "-Wl,--no-as-needed", ours]
    subprocess.run([*command, "-o", other], check=True)
    code = f"""
        import rsnet as mx
        try:
            mx.load_library({str(other)!r})
        except mx.MXNetError as error:
            print("it is not a library of rsnet operators" in str(error))
        print(mx.load_library({str(ours)!r}))
        print(mx.nd.c_scale(mx.nd.ones(1), by=3).asscalar())
    """
    assert printed(code).splitlines() == ["True", "['c_scale', 'c_scaled']", "3.0"]


COUNTED = """
#include <rsnet/plugin.h>
const uint32_t rsnet_plugin_abi = RSNET_ABI;
static rsnet_status infer(const rsnet_host *host, rsnet_ctx *ctx, void *user) {
  const rsnet_tensor *x = host->tensor(ctx, RSNET_INPUT, 0);
  (void)user;
  host->set_dtype(ctx, RSNET_OUTPUT, 0, x->dtype);
  return host->set_shape(ctx, RSNET_OUTPUT, 0, x->ndim, x->shape);
}
static rsnet_status compute(const rsnet_args *a) {
  int32_t i;
  float *y = (float *)rsnet_data(&a->out[0]);
  for (y[0] = 0, i = 0; i < a->n_in; ++i) y[0] += ((float *)rsnet_data(&a->in[i]))[0];
  y[0] += 1000 * (float)a->host->attr(a->ctx, 0)->v.i;
  return RSNET_OK;
}
rsnet_status rsnet_plugin_register(const rsnet_host *host, rsnet_registry *registry) {
  rsnet_arg x = {sizeof x, RSNET_AT_LEAST, "x", 0, 1}, y = {sizeof y, 0, "y", 0, 1};
  rsnet_attr v = {sizeof v, RSNET_I32, "v"};
  rsnet_op op = {sizeof op};
  rsnet_kernel kernel = {sizeof kernel};
  op.name = kernel.op = "pf_counted";
  op.inputs = &x;
  op.outputs = &y;
  op.attrs = &v;
  op.n_inputs = op.n_outputs = op.n_attrs = 1;
  op.count_attr = "v";
  op.infer = infer;
  kernel.compute = compute;
  if (host->register_op(registry, &op)) return RSNET_INVALID;
  return host->register_kernel(registry, &kernel);
}
"""


def test_the_attribute_that_counts_inputs():
    mx.load_library(compiled_text(COUNTED, "case.c"))
    a, b = mx.nd.ones(1), mx.nd.full(1, 10)
    assert mx.nd.pf_counted(a).asscalar() == 1001
    assert mx.nd.pf_counted(a, b).asscalar() == 2011
    assert mx.nd.pf_counted(a, b, b, v=3).asscalar() == 3021
    with pytest.raises(mx.MXNetError, match="(?s)pf_counted.*expected 9"):
        mx.nd.pf_counted(a, v=9)
    net = mx.sym.pf_counted(mx.sym.var("a"), mx.sym.var("b"), name="n")
    assert net.eval(a=a, b=b)[0].asscalar() == 2011
