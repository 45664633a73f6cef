# Two commands on a fresh machine (Python >= 3.11 and make): `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: help setup demo test test-slow test-faults test-browser check option-types notebook docs format bench clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/installed  ## create .venv with everything pinned in constraints.txt

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "td7 needs Python 3.11 or newer; say which with make PYTHON=...")'
	@echo "installing into .venv (a few minutes the first time) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup  ## train TD7 on InvertedPendulum-v5, two seeds, a few minutes
	@$(BIN)/td7 train td7 --env InvertedPendulum-v5 --seeds 0-1 --steps 10000 \
	    --set random_steps=1000 hidden_dim=64 embedding_dim=64 batch_size=128 target_every=25 \
	    --evaluate-every 500 --out $(DEMO)

test: check  ## format check, lint, strict types and the whole test suite
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: setup  ## the learning tests that take minutes
	@$(BIN)/python -m pytest -m slow

test-faults: setup  ## kills, failing disks and bad input for up to 90 minutes; docs/guides/resume.md
	@cd tests && ../$(BIN)/python -m faults

test-browser: setup  ## the report's page in chromium, which must be on the PATH
	@$(BIN)/python -m pytest tests/browser/check_page.py

check: setup  ## format check, lint, strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

option-types: setup  ## write src/td7/option_types.py anew, after a change of options or configs
	@cd tests && ../$(BIN)/python write_option_types.py
	@echo "wrote src/td7/option_types.py"

docs: setup  ## build the documentation site into docs/_build/html
	@$(BIN)/sphinx-build -q -W -n -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

format: setup  ## format the code, sort imports
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

notebook: setup  ## execute docs/get-started/notebook.ipynb and write its outputs anew
	@cd tests && ../$(BIN)/python execute_notebook.py

bench: setup  ## measure updates a second on this machine
	@$(BIN)/td7 bench

clean:  ## remove .venv and caches, keep runs/
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache
