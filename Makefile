# Every target makes its own environment in .venv; only python3, pip and make need to be there.

PYTHON ?= python3
WORKERS ?= 2
SHARE ?= 1
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-all soak check bench calibrate docs dist wheels clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.runtime ## fit a real nanopore recording, decode it, and write a page
	@echo "Fitting a tenth of a second of a real recording, and checking the fit: about half a minute."
	$(BIN)/longhmm fit example:nanopore-tenth --states 2 --noise ma:4,lags=7 --response 0.29,0.73,1 --out runs/nanopore --overwrite
	@echo "Decoding it: some seconds."
	$(BIN)/longhmm decode runs/nanopore --out runs/nanopore/events.csv
	@echo "Writing the page: about 20 seconds."
	$(BIN)/longhmm report runs/nanopore

test: $(VENV)/.dev ## run the fast tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: $(VENV)/.dev ## run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

soak: $(VENV)/.dev ## kill runs, feed them odd input, fit more than memory holds; prints what survived (about an hour; SHARE=0.1 for less)
	$(BIN)/python tests/soak/run.py --share $(SHARE)

check: $(VENV)/.dev ## lint, formatting, types, and the rules of the source
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_import_flow.py tests/test_decisions.py tests/test_mirror.py tests/test_size.py

bench: $(VENV)/.dev ## measure speed, after checking that the answers agree
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/aims.py
	$(BIN)/python benchmarks/speed_page.py

calibrate: $(VENV)/.dev ## compare every method with exact posteriors, in full (hours, on two cores)
	$(BIN)/python benchmarks/sbc.py --workers $(WORKERS) --out docs/calibration
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/calibration.py --workers $(WORKERS) --out docs/calibration
	$(BIN)/python benchmarks/methods.py --workers $(WORKERS) --out docs/calibration
	$(BIN)/python benchmarks/report.py

docs: $(VENV)/.docs ## build the pages into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: $(VENV)/.dev ## build the wheel and the source archive into dist/
	rm -rf build dist
	$(BIN)/python -m build --no-isolation

wheels: | $(VENV)/.made ## build a wheel with the kernel for each platform into dist/ (ten minutes or more)
	$(BIN)/python -m venv $(VENV)/wheels
	$(VENV)/wheels/bin/python -m pip --disable-pip-version-check install --quiet auditwheel build jaxlib 'setuptools>=77' ziglang
	$(VENV)/wheels/bin/python tools/wheels.py

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info reproduction/*.egg-info
	find src reproduction tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamps below say which installation .venv holds; a change of what they are made from makes them stale.

INSTALLED := pyproject.toml src/longhmm/version.py

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "longhmm needs Python 3.11 or later, and there is no '$(PYTHON)' here: install it or name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "longhmm needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1): name a newer one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments: install its venv package (python3-venv on Debian and Ubuntu)." >&2; exit 1; }
	@echo "Making the environment $(VENV); the first installation takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	@touch $@

# What builds the kernel is installed once, not a second time for the build alone; files are compiled when they are used.
$(VENV)/.runtime: $(INSTALLED) | $(VENV)/.made
	@echo "Installing JAX and what builds the kernel."
	$(PIP) --no-compile jax 'setuptools>=77'
	@echo "Compiling the kernel, and installing everything else: a minute or two."
	$(PIP) --no-compile --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(INSTALLED) | $(VENV)/.made
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(INSTALLED) | $(VENV)/.made
	$(PIP) --editable '.[docs]'
	@touch $@
