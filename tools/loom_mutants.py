"""Weakens the memory orders of the engine one at a time and runs the loom models on each.

    python tools/loom_mutants.py [FILE[:LINE] ...]

Works on a copy of the tree. Prints one line per mutant, `caught` or `SURVIVED`, and exits with 1 if
one survives that `ALLOWED` does not explain. A model that hangs counts as caught: this is how a
lost wake-up shows.
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
FILES = [
    f"rust/engine/{f}.rs"
    for f in (
        "data/inline_slot data/slot data/task_slab data/run_queue data/parking data/waiters "
        "threaded/worker threaded/completion threaded/wait"
    ).split()
]
FILES += ["rust/fork_join.rs", "rust/ndarray/access_latch.rs"]
ORDER = re.compile(r"\b(?:Acquire|Release|AcqRel)\b|fence\(Ordering::SeqCst\)")
LIMIT_S = 600

# Text of a line that may be weakened without failing a model, with the reason.
ALLOWED = {
    "let (ok, err) = (Ordering::Acquire, Ordering::Relaxed);": "of the thread that takes a slot: keeps "
    "its reads of the previous job from seeing the next one, which no load of loom does (the "
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
    "woken.": "loom's unpark orders everything that the flag orders",
    "self.is_set.": "as above: loom has no step between the flag of a waiter and its unpark",
}


def sites(wanted: list[str]) -> Iterator[tuple[str, int, str, str]]:
    """Yields (file, line number, line, weakened line) for each memory order outside of tests."""
    for file in FILES:
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
            weak = re.sub(r"\b(?:Acquire|Release|AcqRel)\b", "Relaxed", line)
            weak = re.sub(r"(?:\w+::)*fence\(Ordering::SeqCst\)", "()", weak)
            yield file, at, line, weak


def main() -> None:
    """Weakens one order at a time and runs the models; prints which changes no model noticed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        for name in ("Cargo.toml", "Cargo.lock", "build.rs", "rust", "benches"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            tree.mkdir(exist_ok=True)
            copy(ROOT / name, tree / name)
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
