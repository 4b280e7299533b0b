# Every target sets up .venv first; nothing else is needed than Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-all bench bench-quality bench-claims bench-poison bench-privacy lint format clean
.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedrouter needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: $(READY) ## ten clients learn a router together in the simulated world; report in out/demo
	$(BIN)/fedrouter demo --out out/demo --overwrite

test: lint ## what CI runs
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: lint ## and the slow checks: real data, load
	$(BIN)/python -m pytest -m ''

bench: $(READY) ## the numbers in docs/results
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/core.py

bench-quality: $(READY) ## every family on four real sets; under half an hour
	$(BIN)/python benchmarks/quality.py

bench-claims: $(READY) ## every claim of the paper on four real sets; an hour, resumable
	$(BIN)/python benchmarks/claims.py

bench-poison: $(READY) ## one lying client of ten, with and without the defence; twenty minutes
	$(BIN)/python benchmarks/poison.py

bench-privacy: $(READY) ## attacks with and without floors, the price of floors, noise and secure sums
	$(BIN)/python benchmarks/privacy.py
	$(BIN)/python benchmarks/privacy_price.py
	$(BIN)/python benchmarks/secure.py

lint: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what was built and made
	rm -rf $(VENV) out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
