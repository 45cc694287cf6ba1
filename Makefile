# `make run`: the default experiment, up to runs/digits/report/report.html.
# `make test`: lint, types, import contract, tests.
# `make attack`: hostile files, folders and options, and one table of what got through: nothing.
# `make bench`: speed, as ratios against named rivals.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test attack bench clean

run: $(READY)
	$(BIN)/calmoe run digits
	$(BIN)/calmoe report runs/digits

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope  # each worker has one core

attack: $(READY)
	PYTHONPATH=tests $(BIN)/python -m attack $(ATTACK)  # such as ATTACK='--only csv --scale 0.1'

bench: $(READY)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv
