"""Compiles the functions of the CUDA sources; as a program, writes the table of their registers."""

import json
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


def compile_all(source, architecture):
    """What every function of a source uses: (registers, bytes spilled, bytes of shared memory)."""
    import emulated_loader

    own = [f for f in _core.cuda_functions() if f[0] == source]
    definitions = emulated_loader.merged(dict.fromkeys(text for _, text, _ in own))
    text = _loader.program(source, definitions)
    names = [name for _, _, name in own]
    return nvrtc.compile(text, f"{source}.cu", names, architecture, _loader.OPTIONS)


def main():
    found = {
        architecture: {
            source: max(use[0] for use in compile_all(source, architecture).values())
            for source in sources()
        }
        for architecture in ARCHITECTURES
    }
    TABLE.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
