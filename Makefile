PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo quick test browser soak bench check format clean

demo: .venv/core
	$(BIN)/glass demo
	$(BIN)/glass train --config recipes/demo.toml --minutes 1 --run runs/demo --overwrite
	$(BIN)/glass translate runs/demo 三百二十一 二零一九年三月五日 --alignment
	$(BIN)/glass evaluate runs/demo
	@echo "to see inside this model, open the explorer: $(BIN)/glass look runs/demo"

quick: check
	$(BIN)/pytest -n 2 -m "not slow"

test: check browser
	$(BIN)/pytest -n 2

# for the tests of the explorer's page, which are skipped without it
browser:
	@command -v chromium > /dev/null || \
	if test "$$(id -u)" = 0 && command -v apt-get > /dev/null; \
	then apt-get -qq update && apt-get -qq install --yes chromium > /dev/null; \
	else echo "no chromium: the tests of the explorer's page will be skipped"; fi

soak: .venv/dev
	$(BIN)/python bench/soak.py

# under 15 minutes, so not comparable with bench/README.md; DATA: a folder with tinyshakespeare/input.txt
bench: .venv/core
	$(BIN)/python bench/quality.py $(DATA) $(or $(RESULTS),bench-short.jsonl) --short

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/dev: .venv/core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
