# Two commands matter: `make demo` and `make test`. Both set up everything first, once.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
LOOPS  := $(VENV)/.compiled

# Types are checked while loops are compiled and fast tests run.
MAKEFLAGS += --jobs=2
# Where this is set, every process that tests start compiles all our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fmt lint types fast nightly faults large golden bench results lock clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(STAMP) $(LOOPS)  ## make .venv with the locked packages; does nothing when it is up to date

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Penstock needs Python 3.11 or newer: '$(PYTHON)' was not found. Try: make PYTHON=python3 setup"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

$(LOOPS): $(STAMP) $(wildcard src/penstock/kernels/*.py src/penstock/kernels/*/*.py)
	@echo "compiling loops ..."
	@$(BIN)/python -m penstock.kernels.build
	@touch $(LOOPS)

demo: setup  ## run the campaign-views program, time it beside Spark's own windows, write a page with plots
	@$(BIN)/penstock demo

test: check  ## formatting, lint, types and the tests that every change must pass (about twenty minutes)
	$(BIN)/pytest -n 2 --dist loadgroup -m "slow and not nightly"

nightly: setup  ## what takes too long for every change: deaths on Spark, the whole suite on a cluster, new examples
	$(BIN)/pytest -n 2 --dist loadgroup -m nightly
	$(BIN)/pytest -n 2 --dist loadgroup -m "not nightly" --hypothesis-profile=search

check: lint types fast  ## formatting, lint, types and the fast tests (under two minutes)

fmt: setup  ## format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)  ## formatting, lint, the direction of imports, words and pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/layers.py
	$(BIN)/python tools/words.py
	$(BIN)/python tools/pages.py

types: $(STAMP)  ## strict typing
	$(BIN)/mypy

fast: setup  ## the fast tests
	$(BIN)/pytest -n 2 -m "not slow and not nightly"

faults: setup  ## kill processes of a Spark cluster, and programs, while they run, and compare every row: 134 runs, an hour
	$(BIN)/python -m bench faults

large: setup  ## a hundred million rows on Spark with a driver of one gigabyte; needs 15 GB of disk
	$(BIN)/python -m bench large

golden: setup  ## write the golden files again after an intended change
	$(BIN)/python tools/pictures.py
	$(BIN)/pytest -q tests/golden tests/test_public_names.py --update-golden

bench: setup  ## the benchmarks, quick form
	$(BIN)/python -m bench graphs --quick

results: setup  ## measure all that README and docs/results.md tell, and write both again, with a page of plots
	$(BIN)/python -m bench results --measure

lock: setup  ## choose versions again and write requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra spark --group dev --universal --generate-hashes --upgrade \
	  --no-emit-index-url --no-header --quiet -o requirements.lock

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
