"""What the host spends on a launch of a CUDA kernel, without a device: the driver does nothing.

    python benches/python/cuda.py

A launch from a ready-made operation is a node of a planned graph: the time of a chain of 1100 nodes
less that of one of 100, the least of several rounds in which the chains take turns. Beside it the
same call of the driver by itself, a call of an operator from Python, and the chains where their
launches are recorded and issued as a whole, as they are from the third pass on. The goals are at
most 150 ns a launch beyond the driver's call, and 100 us for 1,000 launches of a graph.
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
    driver.null_launches.restype = driver.null_replays.restype = ctypes.c_ulong
    driver.null_launch_ns.restype = ctypes.c_double
    driver.null_launch_ns.argtypes = [ctypes.c_ulong]
    return driver


def chain(mx, driver, nodes, recorded):
    """The forward pass of `nodes` operators one after another on a device."""
    os.environ["MXNET_ENABLE_CUDA_GRAPHS"] = str(int(recorded))
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
    for _ in range(3):
        run()
    before = driver.null_replays()
    run()
    assert driver.null_replays() - before == recorded
    return run


def least(runs):
    """The least time of each, in rounds in which they take turns."""
    return [min(times) for times in zip(*([run() for run in runs] for _ in range(ROUNDS)))]


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

        kinds = [(nodes, recorded) for recorded in (False, True) for nodes in (SHORT, LONG)]
        best = least([chain(mx, driver, *kind) for kind in kinds])
        own = min(driver.null_launch_ns(10_000) for _ in range(50)) / 10_000
        launch = (best[1] - best[0]) / (LONG - SHORT) * 1e9
        print(f"a launch of a planned graph    {launch:8.0f} ns (goal: {own + 150:.0f})")
        print(f"the driver's call by itself    {own:8.0f} ns")
        print(f"1,000 launches one by one      {launch:8.0f} us")
        more = (best[3] - best[2]) * 1e6
        print(f"1,000 launches recorded        {more:8.0f} us (goal: 100)")
        print(f"a pass of {SHORT} launches        {best[0] * 1e6:8.0f} us, with its wait")
        print(f"the same recorded              {best[2] * 1e6:8.0f} us")
        call = min(call_seconds(mx) for _ in range(5))
        print(f"a call from Python             {call * 1e9:8.0f} ns")


if __name__ == "__main__":
    sys.exit(main())
