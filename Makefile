# The commands of the book. `make help` lists them; each works twice in a row.
# Works with GNU make 3.81 (macOS). tools/ holds what the commands call.

PY := .venv/bin/python
BUNDLE ?= _build/gpu-bundle.json
PYTHON ?=

# pip does not compile the packages; Python does when it first needs one, and must be allowed to.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup book run refresh lab serve test lint gpu import-records compare clean
.NOTPARALLEL:

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup:
	@PYTHON="$(PYTHON)" sh tools/setup.sh

book: setup ## install into .venv, build the site from the committed outputs, say how to open it
	@$(PY) -m tools.build

run: setup ## execute every chapter on this machine, then build the site from these results
	@$(PY) -m tools.execute --into _build/run --records _build/records
	@$(PY) -m tools.build --source _build/run

refresh: setup ## for authors: execute every chapter in place and renew the committed records
	@$(PY) -m tools.execute --in-place --records book/records
	@$(PY) -m tools.pages

lab: setup ## open JupyterLab on the book
	@LSDL_RECORDS="$(CURDIR)/_build/records" $(PY) -m jupyterlab --ServerApp.root_dir=book \
		--LabApp.news_url=None $$([ "$$(id -u)" != 0 ] || echo --allow-root)

serve: setup ## serve the built site on localhost
	@$(PY) -m tools.serve

test: lint book ## unit tests, every chapter with its outputs compared, the site's tests
	@$(PY) -m pytest tests --nbval $$($(PY) -m tools.toc)

lint: setup ## ruff and the import contract
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@.venv/bin/lint-imports --no-cache --no-logo

gpu: setup ## run the GPU tests and every chapter on all GPUs, write one JSON bundle
	@$(PY) -m tools.gpu "$(BUNDLE)"

import-records: setup ## merge such a bundle into the book's records: make import-records BUNDLE=file.json
	@[ -f "$(BUNDLE)" ] || { echo "There is no $(BUNDLE). Name one: make import-records BUNDLE=file.json" >&2; exit 1; }
	@$(PY) -m lsdl_lib.claims import "$(BUNDLE)"
	@$(PY) -m tools.pages

compare: setup ## show the book's run beside yours (after make run)
	@$(PY) -m lsdl_lib.claims compare

clean: ## remove what was built and measured here; .venv stays
	rm -rf _build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
