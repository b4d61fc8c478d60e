"""Checks that comments, docstrings, documents and the texts in code stay within 100 columns; those
of Python's texts are checked by ruff. `--fix` wraps paragraphs of comments and documents.

    python tools/prose.py [--fix] [FILE ...]

rustfmt and the formatter of Python leave prose alone. A paragraph is a run of comment lines with
the same marker, or of docstring lines with the same indentation; lists, tables, headings, examples
and fenced code are never joined.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import textwrap
import tokenize
from pathlib import Path

WIDTH = 100
#: Endings of languages whose comments are `//` and `/* */`, and those of `#`.
SLASHES = (".rs", ".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh")
HASHES = (".yml", ".toml", ".sh", "Makefile", ".ci/run", ".ci/smoke")
PYTHON = (".py", ".pyi")
SLASH_COMMENT = re.compile(r"^(\s*(?://!|///|//) ?)(.*)$")
HASH_COMMENT = re.compile(r"^(\s*#(?!!):? ?)(.*)$")
# A comment, a raw text, a text, a character.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|'(?:[^'\\\n]|\\[^\n]{1,8}?)'(?!\w)""",
    re.DOTALL,
)
EXAMPLE = (">>> ", "... ")
SPECIAL = re.compile(
    r"^(?:[-*+] |\d+[.)] |[|#>]|```|>>> |\.\.\. |\.\.\.$|SAFETY:$|[-=~]{3,}$|:\w+:)"
)


class Paragraphs:
    """Walks lines with a marker, and wraps those paragraphs that hold a long line."""

    def __init__(self, first_prefix: str, prefix: str) -> None:
        self.first_prefix, self.prefix = first_prefix, prefix
        self.lines: list[str] = []

    def wrapped(self) -> list[str]:
        raw = [
            (self.first_prefix if i == 0 else self.prefix) + text
            for i, text in enumerate(self.lines)
        ]
        if all(len(line) <= WIDTH for line in raw):
            return raw
        text = " ".join(line.strip() for line in self.lines)
        return textwrap.wrap(
            text, WIDTH, initial_indent=self.first_prefix, subsequent_indent=self.prefix,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def indent_of(line: str) -> str:
    """The blanks at the beginning of a line."""
    return line[: len(line) - len(line.lstrip())]


def wrap_block(lines: list[tuple[str, str]]) -> list[str]:
    """Wraps the lines of one comment block, given as (prefix, text)."""
    out: list[str] = []
    current: Paragraphs | None = None
    indent = ""
    is_code = False
    for prefix, text in lines:
        stripped = text.strip()
        if stripped.startswith("```"):
            is_code = not is_code
        is_plain = stripped and not is_code and not SPECIAL.match(stripped)
        is_deep = len(text) - len(text.lstrip()) >= 4
        item = re.match(r"(\s*(?:[-*+]|\d+[.)]) )(.*)", text)
        if item and not is_code:
            if current:
                out += current.wrapped()
            current = Paragraphs(prefix + item[1], prefix + " " * len(item[1]))
            current.lines.append(item[2])
            indent = " " * len(item[1])
        elif is_plain and current is not None and indent_of(text) == indent:
            current.lines.append(stripped)
        elif is_plain and not is_deep:
            if current:
                out += current.wrapped()
            indent = indent_of(text)
            current = Paragraphs(prefix + indent, prefix + indent)
            current.lines.append(stripped)
        else:
            if current:
                out += current.wrapped()
                current = None
            out.append((prefix + text).rstrip())
    if current:
        out += current.wrapped()
    return [line.rstrip() for line in out]


def comment_lines(text: str) -> set[int]:
    """Numbers of the lines of a Python text that hold a comment and nothing else."""
    lines = text.split("\n")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    starts = {t.start[0] for t in tokens if t.type == tokenize.COMMENT}
    return {n for n in starts if lines[n - 1].lstrip().startswith("#")}


def fix_comments(text: str, pattern: re.Pattern[str], only: set[int] | None = None) -> str:
    """Wraps comment blocks of whole lines that hold a line that is too long."""
    out: list[str] = []
    block: list[tuple[str, str]] = []

    def end() -> None:
        if block:
            too_long = any(len(p + t) > WIDTH for p, t in block)
            out.extend(wrap_block(block) if too_long else [(p + t).rstrip() for p, t in block])
            block.clear()

    for number, line in enumerate(text.split("\n"), start=1):
        match = pattern.match(line) if only is None or number in only else None
        if match is None or (block and match[1].rstrip() != block[0][0].rstrip()):
            end()
        if match is None:
            out.append(line)
        else:
            prefix = match[1] if match[1].endswith(" ") else match[1] + " "
            block.append((prefix, match[2]) if match[2] else (match[1].rstrip(), ""))
    end()
    return "\n".join(out)


def docstring_lines(text: str) -> set[int]:
    """Numbers of the lines of docstrings, and of other texts that stand alone as statements."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def fix_docstrings(text: str) -> str:
    """Wraps plain paragraphs of Python docstrings that hold a line that is too long."""
    docstrings = docstring_lines(text)
    out: list[str] = []
    run: list[str] = []
    is_inside = False

    def end() -> None:
        if run:
            if any(len(line) > WIDTH for line in run):
                joined = " ".join(line.strip() for line in run)
                rest = indent_of(run[0])
                out.extend(
                    textwrap.wrap(
                        joined,
                        WIDTH,
                        initial_indent=rest,
                        subsequent_indent=rest,
                        break_long_words=False,
                        break_on_hyphens=False,
                    )
                )
            else:
                out.extend(run)
            run.clear()

    for number, line in enumerate(text.split("\n"), start=1):
        if number not in docstrings:
            end()
            is_inside = False
            out.append(line)
            continue
        stripped = line.strip()
        opens = not is_inside and re.match(r'r?"""', stripped) is not None
        quotes = stripped.count('"""')
        if opens and quotes == 2 and len(line) > WIDTH and stripped.endswith('"""'):
            body = stripped[:-3]
            indent = indent_of(line)
            out.extend(
                textwrap.wrap(body, WIDTH, initial_indent=indent, subsequent_indent=indent,
                              break_long_words=False, break_on_hyphens=False)
            )  # fmt: skip
            out.append(indent + '"""')
            continue
        is_text = is_inside and stripped and quotes == 0 and not SPECIAL.match(stripped)
        if is_text and (not run or indent_of(run[0]) == indent_of(line)):
            run.append(line)
        else:
            end()
            if is_text:
                run.append(line)
            else:
                out.append(line)
        if quotes == 1:
            if opens and len(line) > WIDTH:
                out.pop()
                run.append(line)
            is_inside = not is_inside
    end()
    return "\n".join(out)


def is_of(path: Path, endings: tuple[str, ...]) -> bool:
    """Is it a file of these languages?"""
    return path.as_posix().endswith(endings)


def fixed(path: Path, text: str) -> str:
    """The text with its prose wrapped."""
    if path.suffix == ".md":
        return fix_markdown(text)
    if is_of(path, PYTHON):
        return fix_docstrings(fix_comments(text, HASH_COMMENT, comment_lines(text)))
    return fix_comments(text, SLASH_COMMENT if is_of(path, SLASHES) else HASH_COMMENT)


def fix_markdown(text: str) -> str:
    """Wraps paragraphs and items of lists that hold a line that is too long."""
    return "\n".join(wrap_block([("", line) for line in text.split("\n")]))


def markdown_lines(lines: list[str]) -> set[int]:
    """Numbers of the lines of a document outside of code and tables."""
    found, is_code = set(), False
    for number, line in enumerate(lines, start=1):
        if line.strip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith(("|", "    ")):
            found.add(number)
    return found


def prose_lines(path: Path, text: str) -> set[int]:
    """Numbers of the lines that are comments or docstrings, without the code in them."""
    lines = text.split("\n")
    if path.suffix == ".md":
        return markdown_lines(lines)
    if is_of(path, PYTHON):
        found = comment_lines(text) | docstring_lines(text)
        return {n for n in found if not lines[n - 1].lstrip().startswith(EXAMPLE)}
    if is_of(path, HASHES):
        return {n for n, line in enumerate(lines, start=1) if re.search(r"(?:^|\s)#", line)}
    return token_ends(text) - code_in_comments(lines)


def code_in_comments(lines: list[str]) -> set[int]:
    """Numbers of the lines of fenced code in the comments of Rust."""
    found, is_code = set(), False
    for number, line in enumerate(lines, start=1):
        match = SLASH_COMMENT.match(line)
        if match and match[2].strip().startswith("```"):
            is_code = not is_code
        if match and is_code:
            found.add(number)
    return found


def token_ends(text: str) -> set[int]:
    """Numbers of the lines on which a comment or a text reaches beyond the last column."""
    found: set[int] = set()
    for match in TOKEN.finditer(text):
        if match[0].startswith("'"):
            continue
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        first = text.count("\n", 0, match.start()) + 1
        lines = enumerate((before + match[0]).split("\n"), start=first)
        found.update(number for number, line in lines if len(line) > WIDTH)
    return found


def long_lines(path: Path, text: str) -> list[int]:
    """Numbers of the lines of prose that are too long; addresses have the length they have."""
    lines = text.split("\n")
    found = {n for n in prose_lines(path, text) if len(lines[n - 1]) > WIDTH}
    return sorted(n for n in found if "http" not in lines[n - 1])


def sources() -> list[Path]:
    """The sources that git tracks."""
    patterns = [f"*{ending}" for ending in (".md", *PYTHON, *SLASHES, *HASHES)]
    listed = subprocess.run(
        ["git", "ls-files", *patterns], capture_output=True, text=True, check=True
    )
    return [Path(name) for name in listed.stdout.split()]


def main() -> int:
    """Lists, or wraps with `--fix`, what is too long; the exit status is 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fix", action="store_true", help="wrap the paragraphs that are too long")
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    found = 0
    for path in given.files or sources():
        text = path.read_text()
        if given.fix:
            new = fixed(path, text)
            if new != text:
                path.write_text(new)
                text = new
        for number in long_lines(path, text):
            print(f"{path}:{number}: the line is longer than {WIDTH} columns")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
