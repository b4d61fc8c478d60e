"""Compiles the functions of the CUDA sources; as a program, writes the table of registers
of those in single precision.

Arguments are the sources that it is written for; none are all.
"""

import json
import sys
from pathlib import Path

import nvrtc

from rsnet import _core
from rsnet.cuda import _loader

ARCHITECTURES = ["sm_80", "sm_90"]
TABLE = Path(__file__).parent / "cuda" / "registers.json"


def sources():
    return sorted({source for source, _, _ in _core.cuda_functions()})


def table():
    return json.loads(TABLE.read_text())


def compile_all(source, architecture, dtype=None):
    """What every function of a source uses: (registers, bytes spilled, bytes of shared memory).

    With `dtype` (``float``), only those whose first type is that one.
    """
    import emulated_loader

    own = [f for f in _core.cuda_functions() if f[0] == source]
    own = [f for f in own if dtype in (None, *emulated_loader.dtypes(f[2])[:1])]
    definitions = emulated_loader.merged(dict.fromkeys(text for _, text, _ in own))
    text = _loader.program(source, definitions)
    names = [name for _, _, name in own]
    return nvrtc.compile(text, f"{source}.cu", names, architecture, _loader.OPTIONS)


def write(chosen):
    """Brings the table up to date for some sources."""
    for source in chosen:
        for architecture in ARCHITECTURES:
            used = compile_all(source, architecture, "float")
            spilled = [name for name, use in used.items() if use[1]]
            print(source, architecture, len(used), "functions; with spills:", spilled, flush=True)
            found = table() if TABLE.exists() else {}
            of = found.setdefault(architecture, {})
            of[source] = max(use[0] for use in used.values())
            ordered = {name: dict(sorted(of.items())) for name, of in found.items()}
            TABLE.write_text(json.dumps(ordered, indent=2) + "\n")


if __name__ == "__main__":
    write(sys.argv[1:] or sources())
