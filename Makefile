# Needs Python 3.11 or newer, make and git; everything else goes into .venv, which each target
# that needs it builds when it is missing, or older than pyproject.toml or constraints.txt.

PYTHON ?= python3
EXTRAS := notebooks,run,solve,test
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

# Notebooks whose stored outputs `make test` compares with what they give now, and those that
# measure: they have to run, and what they print is different every time.
STRICT := $(wildcard notebooks/0[12347]*.ipynb)
MEASURING := $(wildcard notebooks/0[5689]*.ipynb)
NBVAL := --nbval-current-env --nbval-cell-timeout=300

# Two workers; the cells of a notebook, and the tests of a module, stay together on one of them.
# One thread a worker: more would fight over the cores and make timings jump.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest
PYTEST_FLAGS := -n 2 --dist loadscope

.PHONY: help reproduce test browser notebooks pictures lab soak bench lint types clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

reproduce: $(STAMP) ## measure real reshardings beside their predictions; writes out/
	$(BIN)/reshard-lab reproduce

test: $(STAMP) ## run the tests and the notebooks
	$(PYTEST) $(PYTEST_FLAGS) --nbval $(NBVAL) --ignore=tests/browser tests reshard_lab $(STRICT)
	$(PYTEST) $(PYTEST_FLAGS) --nbval-lax $(NBVAL) $(MEASURING)
	$(MAKE) --no-print-directory browser

browser: $(STAMP) ## open the notebooks and views in a headless Chromium; pictures in out/
	$(PYTEST) tests/browser

notebooks: $(STAMP) ## run the notebooks again and store what they give now
	$(BIN)/python tools/notebooks.py $(STRICT) $(MEASURING)

pictures: $(STAMP) ## draw the README's pictures again
	$(BIN)/python tools/readme_pictures.py

lab: $(STAMP) ## open JupyterLab on notebooks/
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/

soak: $(STAMP) ## launch clusters 100 times and kill 20 workers; nothing may be left
	PYTHONPATH=tests $(BIN)/python tests/runtime/soak.py

bench: $(STAMP) ## print the figures of speed and memory
	$(BIN)/python benchmarks/run.py

lint: $(STAMP) ## check the code's style and layout
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP) ## check the types
	$(BIN)/mypy

clean: ## remove .venv, builds and caches; out/ stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build tools come first, at their pins, so that the build of this package is pinned too.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; '$(PYTHON)' is not. Try make PYTHON=python3.12" >&2; \
	  exit 1; }
	@echo "building $(VENV): a few minutes and up to 2 GB"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt \
	  --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $(STAMP)
