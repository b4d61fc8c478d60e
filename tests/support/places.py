"""Where the tests find the rest of the repository."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SUPPORT = ROOT / "tests" / "support"
EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"
