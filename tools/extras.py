"""Prints an extra's requirements and the package's own, one word each, for `pip install`.

The Makefile installs the tools before the package can be built, so pip cannot be asked for
`rsnet[dev]`. Usage: python tools/extras.py dev
"""

import re
import sys
from pathlib import Path


def requirements(extra: str) -> list[str]:
    """The requirements in pyproject.toml: `dependencies` and the optional group `extra`.

    tomllib arrives with Python 3.11, so the two plain lists are read by pattern.
    """
    text = Path(__file__).parent.parent.joinpath("pyproject.toml").read_text()
    found: list[str] = []
    for key in ("dependencies", extra):
        match = re.search(rf"^{key} = \[(.*?)\]\n", text, re.MULTILINE | re.DOTALL)
        if match is None:
            raise SystemExit(f"pyproject.toml has no list '{key}'")
        found += re.findall(r'"([^"]+)"', match.group(1))
    return found


if __name__ == "__main__":
    print(" ".join(requirements(sys.argv[1])))
