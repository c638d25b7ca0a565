# `make help` lists the targets. Everything happens inside $(VENV); nothing else on the machine changes.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
TYPED := sparktop stage tests scripts benchmarks
PARALLEL := -n auto --maxprocesses 4
# Most other tests wait for half of their time, whole programs for two thirds.
CORES := $(shell nproc)
CROWDED := -n $(shell echo $$((2 * $(CORES)))) --maxprocesses 8
PROCESSES := -n $(shell echo $$(($(CORES) + 2))) --maxprocesses 4
# The files with tests of whole programs, a sixteenth of all: the others are not read again for them.
PROCESS_TESTS = $(shell grep -rl --include='test_*.py' 'mark\.process' tests)
# Python files are compiled once, not by every worker and every program that a test starts.
export PYTHONDONTWRITEBYTECODE :=
# Ends what hangs. So long that load alone cannot reach it: a check of five minutes may take an hour on a busy machine.
UNHUNG := timeout 3600

.DEFAULT_GOAL := help
.PHONY: help venv install uninstall bundle release fuzz demo test unit all-tests inside processes lint rules types pictures compiled wheel sbom aarch64 live prometheus soak bench truth screenshots readme site lock clean FORCE

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# make_venv compares contents, not times, so a fresh checkout of the same tree installs nothing again.
$(VENV)/.%: FORCE
	@scripts/make_venv $(VENV) $*
FORCE:

venv: $(VENV)/.dev ## the virtual environment with all that development needs

install: ## sparktop for this user: its own environment, and a link in ~/.local/bin
	@scripts/install

uninstall: ## remove what make install made
	@scripts/install --remove

bundle: $(VENV)/.dev ## one executable file in dist/, for this machine or ARCH=aarch64, Python FOR=3.12
	$(UNHUNG) $(BIN)/python scripts/bundle.py $(if $(ARCH),--arch $(ARCH)) $(if $(FOR),--python $(FOR))

release: $(VENV)/.dev ## for both architectures in dist/: the executable file and the .deb for Ubuntu 24.04
	for arch in x86_64 aarch64; do $(UNHUNG) $(BIN)/python scripts/bundle.py --arch $$arch --python 3.12 --deb || exit; done

fuzz: $(VENV)/.dev ## random keys, clicks and resizes on the demo for SECONDS=60, from SEED=1
	$(BIN)/python -m tests.ui.fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

demo: $(VENV)/.run ## two simulated Sparks behind a router that oscillates, and the monitor on them
	@$(BIN)/sparktop demo

# The tests run last: their count is the last line of a log. Three at a time: the wheel waits for packages.
test: $(VENV)/.dev ## everything a change must pass (about ten minutes on two cores)
	@$(MAKE) --no-print-directory -j 3 --output-sync=target wheel pictures types compiled aarch64 rules
	@$(MAKE) --no-print-directory all-tests

unit: $(VENV)/.dev ## every short pure test: no screens, servers, processes, real time or long simulations (half a minute on two cores)
	$(UNHUNG) $(BIN)/pytest -m "not outside and not process and not long and not live and not prometheus" $(PARALLEL) --dist loadfile --hypothesis-profile=quick

# Whole programs are held to what a less busy machine would let them do: at most four at a time, while the tests
# beside them wait for a core. The longest checks start first.
all-tests: $(VENV)/.dev ## every test that needs no outside server
	@echo "tests, inside and of whole programs: the results of each come when it ends (about five minutes on two cores)"
	@$(MAKE) --no-print-directory -j 2 --output-sync=target inside processes

inside: $(VENV)/.dev
	$(UNHUNG) nice -n 3 $(BIN)/pytest -m "not live and not prometheus and not process" $(CROWDED) --dist loadfile --durations=30 --durations-min=4

processes: $(VENV)/.dev
	$(UNHUNG) $(BIN)/pytest -m "process and not live and not prometheus" $(PROCESSES) --dist loadfile --durations=30 --durations-min=4 $(PROCESS_TESTS)

# Otherwise each worker would compile all test files for itself.
compiled: $(VENV)/.dev
	@found=$$($(UNHUNG) $(BIN)/pytest --collect-only -q 2>&1) || { tail -50 <<<"$$found"; false; }

lint: rules types pictures ## rules, format, layers, types, pictures

rules: $(VENV)/.dev
	$(UNHUNG) $(BIN)/ruff check
	$(UNHUNG) $(BIN)/ruff format --check
	$(UNHUNG) $(BIN)/lint-imports
	$(UNHUNG) $(BIN)/python scripts/build_readme.py --check

types: $(VENV)/.dev
	$(UNHUNG) $(BIN)/mypy $(TYPED)

# Drawn again only where something that they are drawn from has changed since they were last right.
pictures: $(VENV)/.dev $(VENV)/.pictures
$(VENV)/.pictures: $(shell find sparktop stage themes screenshots -type f -not -name '*.pyc') locks/run.txt scripts/screenshots.py | $(VENV)/.dev
	$(UNHUNG) $(BIN)/python scripts/screenshots.py --check
	@touch $@

wheel: $(VENV)/.dev ## the wheel, built and tried in a clean environment
	$(UNHUNG) $(BIN)/python scripts/check_wheel.py

sbom: $(VENV)/.dev ## what the wheel brings, as CycloneDX in dist/sparktop.cdx.json
	$(UNHUNG) $(BIN)/python scripts/check_wheel.py --sbom dist/sparktop.cdx.json

aarch64: $(VENV)/.dev ## every dependency installs from wheels on a Spark
	$(UNHUNG) $(BIN)/python scripts/bundle.py --arch aarch64 --check

live: $(VENV)/.dev ## sweeps and balance of two real vLLM servers behind a real LiteLLM (scripts/real_stack.sh install first)
	timeout -s INT -k 60 600 $(BIN)/pytest -m live tests/live -rs -s

prometheus: $(VENV)/.dev ## our figures of simulated and real servers beside a real Prometheus' (apt install prometheus); eight minutes
	timeout -s INT -k 60 1200 $(BIN)/pytest -m prometheus tests/prometheus tests/export -rs -s

soak: $(VENV)/.dev ## the node agent under 10 questions a second for ten minutes: flat memory, no leak
	timeout -s INT -k 60 900 $(BIN)/python scripts/soak.py --seconds 600 --hz 10

bench: $(VENV)/.dev ## what watching costs, beside other monitors
	$(BIN)/python benchmarks/watching.py

truth: $(VENV)/.dev ## every figure beside an independent truth, into benchmarks/README.md (make test runs a short form)
	timeout 5000 $(BIN)/python benchmarks/truth_table.py --write

screenshots: $(VENV)/.dev ## draw screenshots/*.svg again
	$(BIN)/python scripts/screenshots.py

readme: $(VENV)/.dev ## write the generated parts of docs/ again
	$(BIN)/python scripts/build_readme.py
	$(BIN)/python scripts/build_schemas.py

site: $(VENV)/.dev ## README.md and docs/ as a web site with a search box, in dist/site
	$(UNHUNG) $(BIN)/python scripts/build_site.py

# Every version and hash that make installs. --universal: one file for all platforms and versions of Python.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock: $(VENV)/.dev ## the newest versions of all packages, with hashes, into locks/
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) --upgrade pyproject.toml -o locks/run.txt
	$(LOCK) --upgrade -c locks/run.txt --group build -o locks/build.txt
	$(LOCK) --upgrade -c locks/run.txt -c locks/build.txt pyproject.toml --group dev -o locks/dev.txt

clean: ## remove everything that make made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
