"""Compiles the CUDA driver without a device that tests use; prints its path.

The library is kept between runs, under the hash of its source.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "cuda" / "emulated_driver.cpp"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]


def library(sanitized=False):
    """The path of the compiled library; compiles it if need be."""
    flags = FLAGS + (SANITIZERS if sanitized else [])
    text = SOURCE.read_bytes() + SOURCE.with_name("emulated_launch.h").read_bytes()
    mark = hashlib.sha256(text + " ".join(flags).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rsnet-test-cuda-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"libcuda-{mark}.so"
    if not made.exists():
        fresh = folder / f"{mark}-{os.getpid()}.so"
        subprocess.run(["g++", *flags, str(SOURCE), "-o", str(fresh), "-ldl"], check=True)
        fresh.replace(made)  # another process may have made it meanwhile
    return made


def environment(sanitized=False):
    """The variables of the environment with which a process uses the emulated driver.

    With `sanitized`, driver and kernels are compiled with the sanitizers of addresses and of
    undefined behaviour, whose library must come before any other; there is no cuBLAS then, so that
    products are those of the kernels.
    """
    loader = Path(__file__).with_name("emulated_loader.py")
    driver = str(library(sanitized))
    found = {
        "RSNET_LIBCUDA": driver,
        "RSNET_LIBCUBLAS": "" if sanitized else driver,
        "RSNET_CUDA_LOADER": str(loader),
    }
    if not sanitized:
        return found
    ask = ["g++", "-print-file-name=libasan.so"]
    first = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    options = "detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0"
    return {
        **found,
        "RSNET_EMULATED_SANITIZE": "1",
        "LD_PRELOAD": first,
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


if __name__ == "__main__":
    print(*(f"{name}={value}" for name, value in environment().items()))
