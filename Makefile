# Every target sets up what it needs; nothing else is required than Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
# Python compiles what it imports, once; compiling every module of every package beforehand takes a minute.
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE
# Small matrices: threads of linear algebra only wait for each other.
export OPENBLAS_NUM_THREADS := 1

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
WHEEL := dist/fedrouter-$(VERSION)-py3-none-any.whl
# Where `make install` puts fedrouter, and with which extras.
PREFIX ?= /opt/fedrouter
EXTRAS ?= serve,learn,postgres,flower

.PHONY: help demo test test-all test-browser screenshot coverage docs docs-serve wheel install bench-quality bench-claims \
	bench-privacy lint format clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedrouter needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[all,dev]'
	@touch $@

$(DOCS_READY): $(READY)
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

demo: $(READY) ## ten clients learn a router together in the simulated world; report in out/demo
	$(BIN)/fedrouter demo --out out/demo

test: lint ## what CI runs: style, types, fast tests, the page in a browser where one is found
	@$(BIN)/python tests/gateway/page/browser.py
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-all: lint ## everything, with the slow tests: real data, load, processes
	@$(BIN)/python tests/gateway/page/browser.py
	$(BIN)/python -m pytest -m '' -n 2 --dist loadfile --no-loadscope-reorder

test-browser: $(READY) ## the page in a real browser: Chromium of the system, or Playwright's own
	@$(BIN)/python tests/gateway/page/browser.py
	$(BIN)/python -m pytest -m '' tests/gateway/page

screenshot: $(READY) ## README's picture of the page, made by its test
	FEDROUTER_SCREENSHOT=$(CURDIR)/docs/images/page.png $(BIN)/python -m pytest tests/gateway/page/test_demo.py

coverage: $(READY) ## the share of lines that the fast tests run, subprocesses included
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term:skip-covered

docs: $(DOCS_READY) ## build the documentation site in out/site; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open out/site/index.html"

docs-serve: $(DOCS_READY) ## the documentation site on localhost, rebuilt when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

wheel: ## build the wheel in dist
	rm -rf build # setuptools would pack modules that are gone from src
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@echo $(WHEEL)

install: wheel ## install the wheel with EXTRAS into a new environment at PREFIX
	$(PYTHON) -m venv $(PREFIX)
	$(PREFIX)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt '$(WHEEL)[$(EXTRAS)]'

bench-quality: $(READY) ## every family on four real data sets, with and without protection; writes README's table
	$(BIN)/python benchmarks/quality.py

bench-claims: $(READY) ## every claim of the paper on four real data sets; some hours, resumable
	$(BIN)/python benchmarks/claims.py

bench-privacy: $(READY) ## attacks with and without each protection; what masks cost
	$(BIN)/python benchmarks/privacy.py
	$(BIN)/python benchmarks/secure.py

lint: $(READY) ## check style, types, and the size of what people read and type
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_size.py

format: $(READY) ## fix the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that was built
	rm -rf $(VENV) out build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
