"""Compiles the CUDA driver without a device that tests use; prints its path.

The library is kept between runs, under the hash of its source.
"""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "cuda" / "emulated_driver.cpp"
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]


def library():
    """The path of the compiled library; compiles it if need be."""
    mark = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"rsnet-test-cuda-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"libcuda-{mark}.so"
    if not made.exists():
        fresh = folder / f"{mark}-{os.getpid()}.so"
        subprocess.run(["g++", *FLAGS, str(SOURCE), "-o", str(fresh)], check=True)
        fresh.replace(made)  # another process may have made it meanwhile
    return made


if __name__ == "__main__":
    print(library())
