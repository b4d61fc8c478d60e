"""Weakens the memory orders of the engine one at a time and runs the loom models on each.

    python tools/loom_mutants.py [FILE[:LINE] ...]

Every order of the engine, of `fork_join` and of `access_latch.rs` is made relaxed, and every
fence is removed. Works on a copy of the tree. Prints one line per mutant, `caught` or `SURVIVED`,
and exits with 1 if one survives that `ALLOWED` does not explain. Files of `UNMODELLED` are listed,
not run. A model that hangs counts as caught: this is how a lost wake-up shows.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"(?:\w+::)*(?:compiler_)?fence\(Ordering::\w+\)")
ORDER = re.compile(r"\b(?:Acquire|Release|AcqRel|SeqCst)\b")
LIMIT_S = 600

# Files whose orders no model can judge, with the reason.
UNMODELLED = {
    "rust/engine/naive/variables.rs": "the naive engine has no threads: the models leave it out",
    "rust/engine/operation.rs": "the flag of a deleted operation is one of the standard library",
    "rust/engine/threaded/fork.rs": "no model forks",
    "rust/engine/threaded/lifecycle.rs": "the models bring their own worker: its flags are "
    "those of the standard library",
    "rust/engine/threaded/pool.rs": "as above",
}

# Text of a line that may be weakened without failing a model, with the reason.
ALLOWED = {
    "let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);": "of the thread that takes a slot: "
    "keeps its reads of the previous job from seeing the next one, which no load of loom does (the "
    "exchange of a helper is caught)",
    "slot.state.store(0": "as above",
    "self.recovered.": "no model forks",
    "let word = self.word.load": "keeps this load before the next one; loom never reorders the two",
    "compiler_fence": "for processors on which the exchange of the lock is a fence already",
    "let head = self.head.0.load": "keeps a read before a later write, which no load of loom sees",
    "Ordering::AcqRel,": "the exchange of the ring's head: as above (that of an edge is caught)",
    "self.len.": "a hint: a consumer checks again, and a worker that parks has fenced",
    "== self.tail.0.load": "a hint, as above",
    "self.used.": "as above: lanes are enlisted before they hold anything",
    "self.count.store": "the lock of the sleepers, and the fence after it, order the count",
    "helping_waiters": "a hint: without the order a kernel may run without a helper",
    "self.open.fetch_or": "as above",
    "if self.open.load": "as above",
    "self.lowest.": "the lock of the waiters, and the fence after it, order the number",
    "woken.": "loom's unpark orders everything that the flag orders",
    "self.is_set.": "as above: loom has no step between the flag of a waiter and its unpark",
}


def files() -> list[str]:
    """The files of the engine and of fork-join, without tests and models, and the latch."""
    rust = ROOT / "rust"
    paths = [*sorted((rust / "engine").rglob("*.rs")), rust / "fork_join.rs"]
    paths += [*sorted((rust / "fork_join").rglob("*.rs")), rust / "ndarray" / "access_latch.rs"]
    found = [path.relative_to(ROOT).as_posix() for path in paths]
    return [file for file in found if "/loom_models/" not in file and "/tests.rs" not in file]


def sites(wanted: list[str]) -> Iterator[tuple[str, int, str, str]]:
    """Yields (file, line number, line, weakened line) for each memory order outside of tests."""
    for file in files():
        if wanted and not any(file.endswith(w.partition(":")[0]) for w in wanted):
            continue
        for at, line in enumerate((ROOT / file).read_text().splitlines(), 1):
            if line.startswith("#[cfg(") and "test" in line:
                break
            if line.lstrip().startswith("//") or not ORDER.search(line):
                continue
            if wanted and not any(w.partition(":")[2] in ("", str(at)) for w in wanted):
                continue
            # A fence cannot be relaxed, so it is removed.
            yield file, at, line, ORDER.sub("Relaxed", FENCE.sub("()", line))


def copy_to(tree: pathlib.Path) -> None:
    """Copies what git tracks, as it stands in the working tree."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in tracked.stdout.decode().rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)


def main() -> None:
    """Weakens one order at a time and runs the models; prints which changes no model noticed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        copy_to(tree)
        env = {
            **os.environ,
            "RUSTFLAGS": "--cfg loom -A warnings",
            "CARGO_TARGET_DIR": str(ROOT / "target" / "loom-mutants"),
        }
        command = "cargo test --profile loom --lib --no-default-features --quiet loom_".split()
        clean = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
        if clean.returncode:
            sys.exit(f"the models fail as they are:\n{clean.stdout}{clean.stderr}")
        survivors = 0
        for file, at, line, weak in sites(sys.argv[1:]):
            if file in UNMODELLED:
                print(f"{file}:{at}: not run: {UNMODELLED[file]}: {line.strip()}", flush=True)
                continue
            path = tree / file
            good = path.read_text()
            lines = good.splitlines(keepends=True)
            lines[at - 1] = weak + "\n"
            path.write_text("".join(lines))
            try:
                done = subprocess.run(
                    command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S
                )
                caught = done.returncode != 0
                if "could not compile" in done.stderr:
                    sys.exit(f"{file}:{at} does not compile weakened:\n{done.stderr}")
            except subprocess.TimeoutExpired:
                caught = True
            path.write_text(good)
            why = next((reason for text, reason in ALLOWED.items() if text in line), None)
            survivors += not caught and why is None
            verdict = "caught" if caught else f"allowed: {why}" if why else "SURVIVED"
            print(f"{file}:{at}: {verdict}: {line.strip()}", flush=True)
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
