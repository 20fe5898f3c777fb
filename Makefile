# make tune   tune a small model on this machine and print a serve script
# make test   run every test that needs no GPU
# Both make .venv first: vLLM's CPU build, or the CUDA build where a driver answers.

PYTHON ?= python3
VARIANT ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(VARIANT)
MODEL ?= smollm2-135m
TRIALS ?= 8

.PHONY: tune install test test-unit test-gpu check fmt clean bench bench-restart bench-kv-limit bench-verdict bench-search bench-loadgen bench-parity

tune: install
	$(BIN)/autotune models fetch $(MODEL)
	$(BIN)/autotune --model $(MODEL) --trials $(TRIALS)

install: $(INSTALLED)

$(INSTALLED): pyproject.toml docker/install.sh docker/cpu-overrides.txt
	PYTHON=$(PYTHON) bash docker/install.sh $(VENV) $(VARIANT) dashboard,dev
	touch $@

test: install
	$(BIN)/python -m pytest -q

test-unit: install
	$(BIN)/python -m pytest -q tests/unit

test-gpu: install
	$(BIN)/python -m pytest -q -m gpu

check: install
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: install
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

# Ratios within one run; never part of the tests.
bench: bench-restart bench-kv-limit bench-verdict bench-search bench-loadgen bench-parity

bench-restart: install
	$(BIN)/python benchmarks/restart.py

bench-parity: install
	$(BIN)/python benchmarks/parity.py

bench-kv-limit: install
	$(BIN)/python benchmarks/kv_limit.py

bench-verdict: install
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/verdict.py

bench-search: install
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/search.py

bench-loadgen: install
	$(BIN)/python benchmarks/loadgen.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
