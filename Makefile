# `make demo` and `make test` do all the set-up; Python 3.11 or later and make are enough.
PYTHON ?= python3
BIN := .venv/bin
PEERS := .venv-peers

.PHONY: demo test test-slow test-all wheel-check fuzz faults kills soak bench ground peers clean

demo: .venv/installed
	$(BIN)/coframe demo --output demo

# Idle workers take over tests of busy ones.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal

# Twenty to twenty-five minutes on two cores.
test: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow and not exhaustive"

test-slow: .venv/installed-dev
	$(PYTEST) -m slow

test-all: test-slow test

# The wheel in an empty environment and an empty folder: the source tree cannot stand in for it.
wheel-check: .venv/bin/python
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@set -ex; unset PYTHONPATH; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/venv"; \
	"$$folder/venv/bin/python" -m pip install --quiet dist/*.whl; \
	cd "$$folder"; \
	venv/bin/coframe --version; \
	venv/bin/coframe demo --output demo

# Damaged files for every reader and odd problems for register: hours, or less with RUNS=1000
# PROBLEMS=100.
# Counts are kept in fuzz/counts.json: `python -m fuzz --resume --seconds 60` runs a slice of what is missing.
RUNS ?= 100000
PROBLEMS ?= 10000
fuzz: .venv/installed-dev
	@$(BIN)/python -m pip install --quiet atheris || echo "no atheris for this Python: changes are blind to what they reach"
	$(BIN)/python -m fuzz --runs $(RUNS) --problems $(PROBLEMS)

# Every command that writes, stopped at every file operation in every way: over an hour. CI tries the
# main ones.
faults: .venv/installed-dev
	$(PYTEST) -m "slow or exhaustive" tests/test_faults.py

# kill -9 at random moments of every command that writes results: about half an hour, or less with
# TRIALS=20. Counts are kept in fuzz/kills.json: `python -m fuzz.kills --resume --seconds 500` runs a
# slice of what is missing.
TRIALS ?= 200
kills: .venv/installed-dev
	$(BIN)/python -m fuzz.kills --trials $(TRIALS)

# Two processes with random commands on one folder. Counts are kept in fuzz/soak.json, and slices
# add up in the same way.
MINUTES ?= 30
soak: .venv/installed-dev
	$(BIN)/python -m fuzz.soak --minutes $(MINUTES)

bench: .venv/installed-bench
	$(BIN)/python -m benchmarks.estep
	$(BIN)/python -m benchmarks.io
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.command
	@if [ -e $(PEERS)/installed ]; then $(BIN)/python -m benchmarks.multiview; \
	else echo; echo "For the side-by-side run with Open3D and MeshLib: make peers (over 1 GB), then make bench again."; fi

# All problems of the proving ground, then its page: half an hour on two cores. What is done is kept
# in build/proving: `python -m proving --slice 500` runs a part of what is missing.
ground: .venv/installed-dev
	$(BIN)/python -m proving --label now
	$(BIN)/python -m proving page

# The peers are large and bring dependencies of their own, so they live apart from coframe. MeshLib
# is free for non-commercial use.
peers: $(PEERS)/installed

clean:
	rm -rf .venv $(PEERS) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: docs figures

# The site, in build/site. Strict: a broken link or an unknown name is an error.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The tables of the pages, from benchmarks/results/*.json.
figures: .venv/installed
	$(BIN)/python -m benchmarks.report

.venv/installed-docs: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch .venv/installed $@

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch .venv/installed $@

.venv/installed-bench: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch .venv/installed $@

# The inner .gitignore keeps Git and Ruff out of it.
$(PEERS)/installed:
	$(PYTHON) -m venv $(PEERS)
	echo '*' > $(PEERS)/.gitignore
	$(PEERS)/bin/python -m pip install --quiet open3d-cpu meshlib numpy scipy kiss-icp small_gicp
	touch $@
