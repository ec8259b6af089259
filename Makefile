# Each target installs what it needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Everything runs in the project's environment; --inexact keeps packages that another target installed.
SYNC := tools/uv sync --locked --quiet --inexact
RUN := .venv/bin
DEMO_DIR ?= out/demo
EXAMPLES_DIR ?= out/examples
# Threads of numerical libraries in tests: parallel tests share the machine's cores.
export OMP_NUM_THREADS ?= 1
# Environment packs that tests play.
export DRESSAGE_PACKS ?= $(CURDIR)/.tools/packs
# Sandboxed processes cannot write compiled modules. Without them each process spends seconds on its imports.
export UV_COMPILE_BYTECODE := 1
export PYTHONDONTWRITEBYTECODE :=

# Seeds of `make chaos`, kills in each session, and the file that it continues.
SEEDS ?= 0-47
KILLS ?= 12
RESULTS ?= build/chaos.jsonl

E2E_TESTS ?= tests/integration/kubernetes tests/integration/chart tests/e2e/kubernetes
E2E = $(SYNC) --group dev && tools/system-packages prometheus && \
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/pytest -n 0 -v -o timeout=2400 --durations 30

# 75: npm's registry cannot be reached, or there is no Chromium; a line above says so, and the rest of the target is done.
CONSOLE = code=0; tools/console $(1) || code=$$?; [ $$code = 0 ] || [ $$code = 75 ]

.PHONY: help console wheel release test-console test-console-quick install demo examples test test-all test-slow chaos images push-images e2e e2e-full lint format proto bench programs intents docs clean

help: ## Show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

install: ## Install everything for one machine into .venv
	@$(SYNC) --no-default-groups --extra local
	@tools/system-packages egl

console: ## Build the console's page, with Node from PyPI
	@$(SYNC) --group dev --group console
	@tools/console build

test-console: console ## Check the console's page: types, lint, unit tests, and all tests in a browser (Chromium)
	@tools/system-packages prometheus
	@tools/console lint
	@tools/console unit
	@tools/console browser

test-console-quick: ## Build the page and run the quick tests in a browser (at most 3 minutes on 2 cores); a line says so if there is no Chromium
	@$(SYNC) --group dev --group console
	@$(call CONSOLE,build)
	@$(call CONSOLE,browser --grep @quick --global-timeout 300000)

wheel: console ## Build the wheel of a release, with the console's page
	DRESSAGE_RELEASE=1 tools/uv build --wheel

release: ## Make a release of the tag at this commit into build/release; OPTIONS="--dry-run", or "--registry … --key …" (CONTRIBUTING.md)
	@$(SYNC) --group dev --group console
	$(RUN)/python -m tools.release $(OPTIONS)

demo: install ## Train "run forward fast" on HalfCheetah-v5: a policy, its scores and a video, in about 2 minutes
	@PATH="$(CURDIR)/$(RUN):$$PATH" tools/demo "$(DEMO_DIR)"

examples: install ## Replay every recorded behaviour (about half an hour on 2 cores)
	@PATH="$(CURDIR)/$(RUN):$$PATH" tools/examples "$(EXAMPLES_DIR)"

test: ## Run the tests of every change (at most 10 minutes on 2 cores); `make test-all` runs all of them
	@$(SYNC) --group dev --group reference --group console
	@for part in egl prometheus nginx postgresql; do tools/system-packages $$part; done
	@$(call CONSOLE,unit)
	$(RUN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --maxprocesses 2 --durations 15

test-all: ## Run all tests but the long proofs, with MuJoCo Warp, an environment pack and a few seeds of `make chaos` (about an hour on 2 cores)
	@$(SYNC) --group dev --group reference --group console --extra warp
	@for part in egl prometheus nginx postgresql faketime; do tools/system-packages $$part; done
	@PATH="$(CURDIR)/.tools/bin:$$PATH" $(RUN)/dressage envs install robotics
	@$(call CONSOLE,unit)
	$(RUN)/pytest -m "not slow and not cluster" -n 2 --dist loadfile --no-loadscope-reorder --maxprocesses 2 --durations-table build/durations.tsv
	$(MAKE) chaos SEEDS=0-2 RESULTS=build/chaos-of-test-all.jsonl

test-slow: ## Run long proofs; docs/ records their results
	@$(SYNC) --group dev --group reference --extra warp
	@tools/system-packages postgresql
	$(RUN)/pytest -m "slow and not cluster"

chaos: ## Kill and disturb sessions, compare them with undisturbed ones; SEEDS=0-47 KILLS=12 RESULTS=FILE (docs/reliability.md)
	@$(SYNC) --group dev
	@for part in egl postgresql faketime; do tools/system-packages $$part; done
	$(RUN)/python -m tests.chaos.runner --seeds $(SEEDS) --kills $(KILLS) --results $(RESULTS)

images: ## Build the services' container images with docker, podman or buildah; NAMES="…" selects others
	@tools/images $(NAMES)

push-images: ## Build the images and push them to the registry; REGISTRY=registry.example.org/dressage
	@tools/images --push $(NAMES)

e2e: ## Run the end-to-end tests of every change on the cluster of KUBECONFIG (docs/kubernetes.md; about 8 minutes on 2 cores)
	@$(E2E) -m "cluster and not slow and not extended" $(E2E_TESTS)

e2e-full: ## Run all end-to-end tests: also every fault during a training, an upgrade, 200 Jobs
	@$(E2E) -m cluster $(E2E_TESTS)

lint: ## Check style, types, layers, words, protos, the console's page, and that generated files are current
	@$(SYNC) --group dev --group reference --group console
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy libs services tools/generate_api.py tools/generate_arguments.py tools/chart_readme.py tools/dashboards tools/release tests/unit/python/typed_sample.py
	$(RUN)/lint-imports
	$(RUN)/python tools/words.py
	$(RUN)/python tools/generate_api.py --image build/api.binpb
	$(RUN)/buf lint build/api.binpb --config buf.yaml
	$(RUN)/python tools/api_reference.py --check --image build/api.binpb
	$(RUN)/python tools/generate_api.py --check
	$(RUN)/python tools/chart_readme.py --check
	$(RUN)/python -m tools.dashboards --check
	@$(call CONSOLE,lint)

format: ## Format the code
	@$(SYNC) --group dev
	$(RUN)/ruff check --fix --quiet . || true
	$(RUN)/ruff format .

proto: ## Generate dressage.api from protos/
	@$(SYNC) --group dev
	$(RUN)/python tools/generate_api.py

bench: ## Measure the speed compared with peers, into docs/performance.md
	@$(SYNC) --group dev --group reference
	$(RUN)/python tools/bench.py

programs: install ## Run or continue the experiment of docs/evidence/programs.md and write the page (hours)
	DRESSAGE_ORCHESTRATOR_MAX_PARALLEL_RUNS=2 $(RUN)/dressage bench experiments/programs.yaml --parallel 3
	$(RUN)/python -m research.page experiments/results/programs --reference scheduled --published experiments/paper/llmgs.json \
		--page docs/evidence/programs.md

intents: install ## Run or continue the experiment of docs/evidence/intents.md and write the page (about a day)
	$(RUN)/dressage bench experiments/intents.yaml --parallel 1
	$(RUN)/python -m research.page experiments/results/intents --page docs/evidence/intents.md --videos
	$(RUN)/python tools/measured_sessions.py experiments/results/intents

docs: ## Generate docs/api.md, the chart's README and the dashboards
	@$(SYNC) --group dev
	$(RUN)/python tools/api_reference.py
	$(RUN)/python tools/chart_readme.py
	$(RUN)/python -m tools.dashboards

audit: ## Compare the locked packages with known vulnerabilities (at most two minutes)
	@$(SYNC) --group dev
	@$(RUN)/python tools/audit.py

sbom: ## Write bills of materials (CycloneDX) of the product, its six images and the console's page below build/sbom
	@$(SYNC) --group dev --group console
	@for extra in local orchestrator llm-agent judge renderer trainer console page; do tools/sbom $$extra build/sbom/dressage-$$extra.cdx.json; done

clean: ## Remove build results; keep trained policies
	rm -rf .venv build dist services/console/web/node_modules services/console/web/src/gen services/console/dressage_console/static .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
