"""Writes `RESULTS.md`: rsnet beside MXNet and PyTorch on this machine (`make bench-peers`).

    python benches/python/results.py [--mxnet PYTHON] [--torch PYTHON] [--rounds 5] [--only REGEX]

Name the interpreters of the environments that have the other packages, here or in the variables
`MXNET_PYTHON` and `TORCH_PYTHON`; a package without one is left out. The packages take turns. What
a case calculates must be the same in all of them, and the median of its times counts. Peak and copy
bandwidth of the machine are those that the bench of kernels measures in this run (with cargo).
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
# The variable that names the interpreter of each of the other packages.
PEERS = {"mxnet": "MXNET_PYTHON", "torch": "TORCH_PYTHON"}


def processor():
    """The name of the processor, as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def machine(threads):
    """What the bench of kernels measures of the machine, on up to this many threads."""
    command = ["cargo", "bench", "--bench", "kernels", "--", "machine"]
    done = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("machine ")]
    measured = [dict(pair.split("=") for pair in line.split()[1:]) for line in lines]
    return [values for values in measured if int(values["threads"]) <= threads][-1]


def run(python, package, args):
    """What `cases.py` writes: the package's version, and seconds and answers of every case."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "times.json")
        command = [python, str(HERE / "cases.py"), "--package", package, "--out", out]
        command += ["--only", args.only, "--threads", str(args.threads)]
        subprocess.run([*command, "--budget", str(args.budget)], check=True)
        return json.loads(Path(out).read_text())


def check(answers):
    """Ends the run if packages disagree: a case that is wrong has no time."""
    for name, sizes in answers.items():
        known = {package: size for package, size in sizes.items() if size is not None}
        if known and max(known.values()) > 1.001 * min(known.values()):
            sys.exit(f"different answers of {name}: {known}")


def table(times, names, packages):
    """The table's lines, and the ratios to the faster other package."""
    heads = [*(f"{p} (ms)" for p in packages), "ratio"]
    lines = ["| case | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    ratios = []
    for name in names:
        values = {p: statistics.median(times[p][name]) for p in packages}
        others = [v for p, v in values.items() if p != "rsnet"]
        cells = [f"{1e3 * v:.3g}" for v in values.values()]
        if others:
            ratios.append(values["rsnet"] / min(others))
            cells.append(f"{ratios[-1]:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines, ratios


def main():
    parser = argparse.ArgumentParser()
    for package, variable in PEERS.items():
        python = os.environ.get(variable)
        parser.add_argument(f"--{package}", default=python, help=f"by default ${variable}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--budget", type=float, default=1.0, help="seconds a case")
    parser.add_argument("--out", default=str(HERE / "RESULTS.md"))
    args = parser.parse_args()
    given = {package: getattr(args, package) for package in PEERS}
    pythons = {"rsnet": sys.executable, **{p: python for p, python in given.items() if python}}
    left_out = [f"{p} ({PEERS[p]} names no interpreter)" for p in given if p not in pythons]
    if left_out:
        print(f"Left out: {', '.join(left_out)}.")
    limits = machine(args.threads)
    times: dict[str, dict[str, list[float]]] = {package: {} for package in pythons}
    versions: dict[str, str] = {}
    answers: dict[str, dict[str, float | None]] = {}
    for _ in range(args.rounds):
        for package, python in pythons.items():
            result = run(python, package, args)
            versions[package] = result["version"]
            for name, seconds in result["seconds"].items():
                times[package].setdefault(name, []).append(seconds)
                answers.setdefault(name, {})[package] = result["answers"][name]
        check(answers)
    lines, ratios = table(times, list(times["rsnet"]), list(pythons))
    packages = ", ".join(f"{package} {version}" for package, version in versions.items())
    where = (
        f"Machine: {processor()}, {os.cpu_count()} cores, {platform.system()}. "
        f"With {limits['threads']} threads it reached {limits['peak_gflops_f32']} GFLOP/s in "
        f"float32 and {limits['peak_gflops_f64']} in float64, and a copy beyond its caches moved "
        f"{limits['copy_gb_per_s']} GB/s (read and written)."
    )
    how = (
        f"{packages}, each with {args.threads} threads. Medians of {args.rounds} rounds in turn; "
        "the ratio is to the faster of the others (below 1: rsnet is faster)."
    )
    if left_out:
        how += f" Left out: {', '.join(left_out)}."
    text = [
        "# Speed beside other packages",
        "",
        "Written by `make bench-peers` (`benches/python/results.py`); edit that instead.",
        "",
        *textwrap.wrap(where, 100),
        "",
        *textwrap.wrap(how, 100),
        "",
        *lines,
    ]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        slower = sum(r > 1 for r in ratios)
        text += ["", f"Geometric mean {mean:.2f}; slower in {slower} of {len(ratios)} cases."]
    Path(args.out).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
