# Everything a newcomer needs: each target sets up what it uses. Only Python >= 3.11, pip and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := .venv-lowest
# Two tests run at a time, so each keeps to one thread; so do the commands that it starts.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2
# Old libraries warn of what is newer than they; in ours, tests count every warning as an error.
THEIRS := -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning -W ignore::FutureWarning

# Compiled once and kept, not anew in every process: imports are a good part of the tests' time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test check test-lowest docs release bench mutants clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)  ## train flat, multihead, lht and lht with unknown labels filled in on the drawn birds, and compare them
	$(BIN)/lht compare demo --methods flat,multihead,lht,lht:semi=both --mask 0.9 --seeds 3 --epochs 18 --out runs/demo --resume

test: check  ## ruff, mypy and every test; CI also runs `make docs`
	$(PYTEST) tests/doors
	$(PYTEST) tests/integration

check: $(READY)  ## ruff, mypy --strict and the unit tests: a good minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) tests/unit

test-lowest:  ## the unit tests with the oldest Python and the oldest direct dependencies that pyproject.toml allows, in .venv-lowest
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -c 'import sys; assert sys.version_info[:2] == (3, 11), "pass PYTHON=python3.11"'
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints.txt uv
	VIRTUAL_ENV=$(abspath $(LOWEST)) $(LOWEST)/bin/uv pip install --quiet --resolution lowest-direct --editable '.[test]'
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -n 2 $(THEIRS) tests/unit

docs: $(READY)  ## the site, in build/site: its gallery is executed, warnings are errors, and every link is followed
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -W --keep-going -c docs . build/site
	$(PYTEST) tests/site

release: $(READY)  ## wheel and sdist in dist/, checked as the index would
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --constraint constraints.txt build twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*

bench: $(READY)  ## speed and memory as ratios against a named rival, in one run
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/scale.py --growth
	$(BIN)/python benchmarks/pipeline.py

mutants: $(READY)  ## faults put into the code one by one: how many do tests notice? An hour on one core
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --constraint constraints.txt 'mutmut>=3.8'
	$(BIN)/python benchmarks/mutants.py

clean:
	rm -rf $(VENV) $(LOWEST) runs build docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis
