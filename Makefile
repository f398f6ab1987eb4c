# `make run` and `make test` do all set-up on a machine that has Python >= 3.11, pip and make.
PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements.lock

.PHONY: run test test-long lint clean

run: .venv/run.stamp
	$(BIN)/python -m experiments.policy_comparison

test: .venv/dev.stamp lint
	$(BIN)/python -m pytest -n 2 -m "not long"

test-long: .venv/dev.stamp
	$(BIN)/python -m pytest -n 2 -m long

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/run.stamp: pyproject.toml $(LOCK) | .venv/python.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e .
	touch $@

.venv/dev.stamp: pyproject.toml $(LOCK) | .venv/python.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK) -e '.[dev]'
	touch $@ .venv/run.stamp

.venv/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: servesim needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

clean:
	rm -rf .venv outputs multirun build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
