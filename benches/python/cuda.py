"""What the host spends on a launch of a CUDA kernel, without a device: the driver does nothing.

    python benches/python/cuda.py

A launch from a ready-made operation is a node of a planned graph: the time of a chain of 1100 nodes
less that of one of 100, the least of several rounds in which the chains take turns. Beside it the
same call of the driver by itself, and a call of an operator from Python. The goals are at most
150 ns a launch beyond the driver's call, and 100 us for the 1,000 launches.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, SHORT, LONG, CALLS = 200, 100, 1100, 2000
SOURCE = Path(__file__).with_name("null_driver.c")
#: All functions are this one: the driver that does nothing takes any handle.
LOADER = """
class Loader:
    def load(self, device, source, definitions, function):
        return 1, None
"""


def prepare(folder):
    """Compiles the driver and names it and the loader to rsnet, before that is imported."""
    library, loader = Path(folder) / "libcuda.so", Path(folder) / "loader.py"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library)], check=True)
    loader.write_text(LOADER)
    os.environ.update(RSNET_LIBCUDA=str(library), RSNET_CUDA_LOADER=str(loader))
    driver = ctypes.CDLL(str(library))
    driver.null_launches.restype = ctypes.c_ulong
    driver.null_launch_ns.restype = ctypes.c_double
    driver.null_launch_ns.argtypes = [ctypes.c_ulong]
    return driver


def chain(mx, driver, nodes):
    """The forward pass of `nodes` operators one after another on a device."""
    y = mx.sym.var("x")
    for _ in range(nodes):
        y = mx.sym.clip(y, a_min=-9, a_max=9)
    exe = y.simple_bind(mx.gpu(0), x=(4,), grad_req="null")

    def run():
        start = time.perf_counter()
        exe.forward()
        exe.outputs[0].wait_to_read()
        return time.perf_counter() - start

    before = driver.null_launches()
    run()
    assert driver.null_launches() - before == nodes, "a launch for each node"
    return run


def call_seconds(mx):
    x = mx.nd.zeros((4,), ctx=mx.gpu(0))
    out = mx.nd.zeros((4,), ctx=mx.gpu(0))
    start = time.perf_counter()
    for _ in range(CALLS):
        mx.nd.clip(x, a_min=-9, a_max=9, out=out)
    mx.nd.waitall()
    return (time.perf_counter() - start) / CALLS


def main():
    with tempfile.TemporaryDirectory() as folder:
        driver = prepare(folder)
        import rsnet as mx

        runs = [chain(mx, driver, nodes) for nodes in (SHORT, LONG)]
        best = [min(times) for times in zip(*([run() for run in runs] for _ in range(ROUNDS)))]
        own = min(driver.null_launch_ns(10_000) for _ in range(50)) / 10_000
        launch = (best[1] - best[0]) / (LONG - SHORT) * 1e9
        print(f"a launch of a planned graph    {launch:8.0f} ns (goal: {own + 150:.0f})")
        print(f"the driver's call by itself    {own:8.0f} ns")
        print(f"1,000 launches of a graph      {launch:8.0f} us (goal: 100)")
        print(f"a pass of {SHORT} launches        {best[0] * 1e6:8.0f} us, with its wait")
        print(
            f"a call from Python             {min(call_seconds(mx) for _ in range(5)) * 1e9:8.0f} ns"
        )


if __name__ == "__main__":
    sys.exit(main())
