# Two commands are enough: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
export VENV
BIN := $(VENV)/bin
NOT_MARKED := not live and not crash and not ui
WORKERS ?= 2
# a worker that ended is not replaced: xdist 3.8 may wait for ever for the new one when few tests are left
PARALLEL := -n $(WORKERS) --max-worker-restart=0
TESTED := test dg docker

.PHONY: demo demo-live test test-live test-crash test-ui lint ui clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo:  ## set up and run the main job on two contract servers
	@$(PYTHON) scripts/bootstrap.py
	@$(BIN)/tasc demo

demo-live:  ## the same on real llama.cpp servers, then a chat window against MLX-LM (needs a C++ compiler and cmake)
	@$(PYTHON) scripts/bootstrap.py live mlx
	@$(BIN)/tasc demo --live

test:  ## set up and run the tests
	@$(PYTHON) scripts/bootstrap.py $(TESTED)
	$(BIN)/python -m pytest $(PARALLEL) -m "$(NOT_MARKED)"

test-live:  ## tests against real engines
	@$(PYTHON) scripts/bootstrap.py test live mlx
	$(BIN)/python -m pytest -m live

test-crash:  ## crash and fault suites; FULL=1 for all kill points
	@$(PYTHON) scripts/bootstrap.py test crash
	TASC_CRASH_FULL=$(FULL) $(BIN)/python -m pytest $(PARALLEL) $(if $(FULL),-o faulthandler_timeout=0) -m crash tests/crash tests/compute tests/pipeline

test-ui:  ## a real browser against the Dagster UI (needs Debian's chromium)
	@$(PYTHON) scripts/bootstrap.py test ui
	$(BIN)/python -m pytest -m ui tests/ui

lint:  ## style, types, and the rules of the house
	@$(PYTHON) scripts/bootstrap.py $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

ui:  ## Dagster's UI on the state folder of the demo
	@$(PYTHON) scripts/bootstrap.py
	@$(BIN)/tasc ui

clean:  ## remove the environment and caches; the state folder stays
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .import_linter_cache
