# Two commands on a fresh machine (Python >= 3.11 and make): `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help setup demo test test-slow test-faults test-browser check option-types notebook docs format bench clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/installed  ## create .venv with everything pinned in constraints.txt

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "td7 needs Python 3.11 or newer; say which with make PYTHON=...")'
	@$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing everything into .venv (a few minutes the first time) ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@

# What the demo needs, which is a part of the above. Python compiles the modules that it imports.
.venv/installed-demo: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing td7 and what it needs into .venv (about a minute the first time) ..."
	@$(INSTALL) --no-compile -e '.[video]'
	@touch $@

demo: $(or $(wildcard .venv/installed),.venv/installed-demo)  ## train TD7 on a small task, show a learning curve and a video; about two minutes
	@$(BIN)/td7 train td7 --env InvertedPendulum-v5 --seeds 0-1 --steps 5000 \
	    --set random_steps=500 learning_rate=3e-3 hidden_dim=64 embedding_dim=64 batch_size=128 target_every=25 \
	    --evaluate-every 250 --evaluation-episodes 5 --out $(DEMO)
	@if problem=$$($(BIN)/td7 evaluate $(DEMO) --seed 0 --episodes 1 --video $(DEMO)/video.mp4 --video-seconds 10 2>&1); \
	    then echo "video           $(DEMO)/video.mp4"; \
	    else echo "no video        $$(echo "$$problem" | tail -n 1)"; fi
	@echo
	@echo "Try next:"
	@echo "  $(BIN)/td7 evaluate $(DEMO) --fresh-seeds    # new episodes, not those of training"
	@echo "  $(BIN)/td7 report $(DEMO) --out report    # tables and figures on one page: report/report.html"
	@echo "  $(BIN)/td7 train td7 --env HalfCheetah-v4 --seeds 0-1 --steps 300_000    # a task of the paper"

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
