# Each target sets up what it needs by itself. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything runs from the project's own environment; --inexact keeps what another target installed.
SYNC := tools/uv sync --locked --quiet --inexact
RUN := .venv/bin
DEMO_DIR ?= out/demo
EXAMPLES_DIR ?= out/examples
# Threads of numerical libraries in tests: the machine's cores are shared by parallel tests.
export OMP_NUM_THREADS ?= 1
# Many processes start, sandboxed ones cannot write: without compiled modules each of them spends seconds on its imports.
export UV_COMPILE_BYTECODE := 1
export PYTHONDONTWRITEBYTECODE :=

E2E_TESTS ?= tests/integration/kubernetes tests/integration/chart tests/e2e/kubernetes
E2E = $(SYNC) --group dev && tools/system-packages prometheus && \
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/pytest -n 0 -v -o timeout=2400 --durations 30

.PHONY: help install demo examples test test-slow images e2e e2e-full lint format proto bench docs clean

help: ## This list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: ## The virtual environment with everything one machine needs
	@$(SYNC) --no-default-groups --extra local
	@tools/system-packages egl

demo: install ## "run forward fast" on HalfCheetah-v5: a policy, its scores and a video, in about 3 minutes
	@PATH="$(CURDIR)/$(RUN):$$PATH" tools/demo "$(DEMO_DIR)"

examples: install ## Every recorded behaviour again, trained and judged anew (about half an hour on 2 cores)
	@PATH="$(CURDIR)/$(RUN):$$PATH" tools/examples "$(EXAMPLES_DIR)"

test: ## Unit and integration tests (at most 15 minutes on 2 cores)
	@$(SYNC) --group dev --group reference
	@tools/system-packages egl
	@tools/system-packages prometheus
	@tools/system-packages postgresql
	$(RUN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --maxprocesses 2 --durations 15

test-slow: ## Long proofs; their results are recorded under docs/
	@$(SYNC) --group dev --group reference
	@tools/system-packages postgresql
	$(RUN)/pytest -m "slow and not cluster"

images: ## The five services' container images, with docker, podman or buildah; NAMES="…" for others
	@tools/images $(NAMES)

e2e: ## End-to-end tests on the Kubernetes cluster of KUBECONFIG (docs/kubernetes.md); 25 minutes at most on 2 cores, with images
	@$(E2E) -m "cluster and not slow" $(E2E_TESTS)

e2e-full: ## The same and the long ones: every fault in the middle of a training, an upgrade, 200 Jobs
	@$(E2E) -m cluster $(E2E_TESTS)

lint: ## Style, types, layers, protos, freshness of generated files
	@$(SYNC) --group dev --group reference
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy libs services tools/generate_api.py tools/chart_readme.py tools/dashboards tests/unit/python/typed_sample.py
	$(RUN)/lint-imports
	$(RUN)/python tools/generate_api.py --image build/api.binpb
	$(RUN)/buf lint build/api.binpb --config buf.yaml
	$(RUN)/python tools/api_reference.py --check --image build/api.binpb
	$(RUN)/python tools/generate_api.py --check
	$(RUN)/python tools/chart_readme.py --check
	$(RUN)/python -m tools.dashboards --check

format: ## Formats the code
	@$(SYNC) --group dev
	$(RUN)/ruff check --fix --quiet . || true
	$(RUN)/ruff format .

proto: ## Generates dressage.api from protos/
	@$(SYNC) --group dev
	$(RUN)/python tools/generate_api.py

bench: ## Speed beside a peer's, into docs/performance.md
	@$(SYNC) --group dev --group reference
	$(RUN)/python tools/bench.py

docs: ## Regenerates what is generated of docs/ and the chart
	@$(SYNC) --group dev
	$(RUN)/python tools/api_reference.py
	$(RUN)/python tools/chart_readme.py
	$(RUN)/python -m tools.dashboards

clean: ## Removes what was built, not what was trained
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
