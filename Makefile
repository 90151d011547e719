# One command each. Everything they need is set up at the first call and left alone afterwards.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
BENCH := benchmarks/.envs/chronicle
# On two cores: the tests wait more than they compute. Each worker starts the brokers it needs for itself.
WORKERS ?= 6
# The quick ones wait for one another's clocks, not for brokers, so more of them fit beside each other.
QUICK_WORKERS ?= 9
# Which of the tests, if not all; and where `make matrix` keeps the other Debian.
TESTS ?=
MATRIX ?= .matrix

# What is compiled once, every command that a test starts and every process of pytest would compile anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick style types matrix bench lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## the main job on the embedded queue: acknowledged, dead-lettered, brought back
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh docs/demo.sh

test: style types ## everything: style, types, and all tests against private real brokers
	@sh tests/setup.sh brokers
	@WORKERS="$(WORKERS)" sh tests/run.sh $(TESTS)

quick: style types ## for everyday work, in a minute and a half: style, types, unit tests, conformance of the embedded queue
	$(BIN)/pytest -n $(QUICK_WORKERS) tests/unit tests/conformance -k "unit or local or memory"

style: $(READY) ## lint and format, checked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## type check, strict
	$(BIN)/mypy

matrix: ## all tests once more, on Debian 13 with RabbitMQ 4, Redis 8 and Python 3.13, in a folder (root; MATRIX=folder, TESTS=path)
	@MATRIX="$(MATRIX)" MIRROR="$(MIRROR)" WORKERS="$(WORKERS)" sh tests/matrix.sh run $(TESTS)

# On the distribution's Python, as most people run it, unless another is named: it is built for speed. One that
# was compiled by hand often is not, and takes a quarter more for everything, which Node does not.
bench: PYTHON := $(if $(filter file,$(origin PYTHON)),$(firstword $(wildcard /usr/bin/python3) python3),$(PYTHON))
bench: ## side by side with the peers, everything or CASE=name; figures go to benchmarks/RESULTS.md
	@PYTHON="$(PYTHON)" VENV=$(BENCH) sh tests/setup.sh python
	@sh tests/setup.sh brokers
	$(BENCH)/bin/python -m benchmarks.run $(CASE:%=--case %)

# Under Python 3.11.2, Debian 12's own, redis asks for async-timeout; a newer one would leave it out of the lock.
lock: $(READY) ## pin every dependency with its hashes again
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
		--extra dev --build-deps-for editable \
		--no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--output-file requirements.lock pyproject.toml
	@grep -q '^async-timeout==' requirements.lock || \
		{ echo "Lock again under Python 3.11.2 or older 3.11: make clean lock PYTHON=/usr/bin/python3" >&2; exit 1; }

clean: ## remove what was set up and built
	rm -rf .venv .kafka .kafka.half .failed-tests .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build benchmarks/.envs
	@MATRIX="$(MATRIX)" sh tests/matrix.sh remove

$(READY): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" sh tests/setup.sh python
	@touch $@
