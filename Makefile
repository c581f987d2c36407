# Everything a newcomer needs: each target sets up what it uses. Only Python >= 3.11, pip and make are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Compiled once and kept, not anew in every process: imports are a good part of the tests' time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test check docs release bench mutants clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt uv
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)  ## train flat, multihead, lht and lht with unknown labels filled in on the drawn birds, and compare them
	$(BIN)/lht compare demo --methods flat,multihead,lht,lht:semi=both --mask 0.9 --seeds 3 --epochs 18 --out runs/demo --resume

test: check  ## everything CI runs
	$(BIN)/pytest -q -n 2 tests/doors
	$(BIN)/pytest -q -n 2 tests/integration

check: $(READY)  ## ruff, mypy --strict and the unit tests: under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 tests/unit

docs: $(READY)  ## the site, in build/site; its gallery is executed, and warnings are errors
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -W --keep-going -c docs . build/site

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
	rm -rf $(VENV) runs build docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis
