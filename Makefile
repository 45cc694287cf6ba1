# `make run`: the default experiment, up to runs/digits/report/report.html.
# `make test`: lint, types, import contract, and all tests with small simulations; 5 minutes on two cores, setup included.
# `make test-slow`: the same with simulations at full size; longer.
# `make attack`: hostile files, folders and options, and one table of what got through: nothing.
# `make docs`: the site, docs/_build/html/index.html; a warning or a dead link is an error.
# `make bench`: speed, as ratios against named rivals.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

# pip compiles nothing: without this, where the environment forbids bytecode, each process compiles torch anew.
unexport PYTHONDONTWRITEBYTECODE

# Each worker has one thread. Three for two cores: tests of killed and stopped processes mostly wait.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal

.PHONY: run test test-slow lint attack docs bench clean

run: $(READY)
	$(BIN)/calmoe run digits
	$(BIN)/calmoe report runs/digits

test: lint
	@$(call beside_mypy,$(PYTEST))

test-slow: lint
	@$(call beside_mypy,$(PYTEST) --slow)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

# The types are checked while the tests run, and shown after them.
define beside_mypy
said=$$(mktemp); $(BIN)/mypy >$$said 2>&1 & types=$$!; \
echo '$(1)'; $(1); tests=$$?; \
wait $$types; types=$$?; echo $(BIN)/mypy; cat $$said; rm $$said; \
exit $$((tests || types))
endef

attack: $(READY)
	PYTHONPATH=tests $(BIN)/python -m attack $(ATTACK)  # such as ATTACK='--only csv --scale 0.1'

docs: $(DOCS_READY)
	rm -rf docs/_build/html
	$(BIN)/python -m sphinx -b html -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/_ext/built_links.py docs/_build/html

bench: $(READY)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[dev]'
	@touch $@

$(DOCS_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv docs/_build docs/repository
