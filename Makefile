# Everything happens in .venv, made from the lock file on first use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# A file at a time on every core: each worker has engines of its own (ARGS="-n 0" for none).
PYTEST := $(BIN)/pytest -n logical --maxprocesses 8 --dist loadscope
# The tests start hundreds of processes: none of them compiles again what another one has compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all test-long test-endpoint test-cdk client-tools smoke-aws simulate explore mutate endurance bench check docs docs-site format lock bundle release dynoxide clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("countledger needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.13 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## Count this repository's history on the embedded engine (ARGS="--repo PATH")
	@$(BIN)/countledger demo $(ARGS)

test: $(READY) ## The tests, in some minutes (ARGS="-k watermark" for a part)
	$(PYTEST) -m "not thorough and not long" $(ARGS)

test-all: test ## The tests, and then what they leave out: more engines, every command, every region
	$(PYTEST) -m "thorough and not long" $(ARGS)
	COUNTLEDGER_TRANSPORT=fast $(PYTEST) -m "not long" -k ministack tests/faults tests/engines $(ARGS)
	COUNTLEDGER_TRANSPORT=fast $(PYTEST) -m "not thorough and not long" tests/e2e $(ARGS)

test-endpoint: $(READY) ## The contract suite on any DynamoDB API (ENDPOINT=https://... CA=file DIFFERENCES=...)
	@test -n "$(ENDPOINT)" || { echo "test-endpoint needs ENDPOINT=https://host:port, or ENDPOINT=aws"; exit 1; }
	@COUNTLEDGER_TEST_ENDPOINT="$(ENDPOINT)" COUNTLEDGER_TEST_DIFFERENCES="$(DIFFERENCES)" \
		$(if $(CA),AWS_CA_BUNDLE="$(abspath $(CA))") $(PYTEST) --no-showlocals tests/engines $(ARGS)

test-long: $(READY) ## The whole suite, and what takes minutes
	$(PYTEST) $(ARGS)

smoke-aws: $(READY) ## Try the main paths in your AWS account, on a stack of its own (ARGS="--region R")
	@$(BIN)/python -m tools.smoke $(ARGS)

bench: $(READY) ## Benchmarks against peers in the same run (ARGS="--rounds 9 --page")
	@$(BIN)/python -m tools.bench $(ARGS)

simulate: $(READY) ## The whole system in a simulated world, from many seeds (SEEDS=1000)
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) $(ARGS)

explore: $(READY) ## Every schedule of small worlds, with faults (ARGS="sequences --faults 1")
	@$(BIN)/python -m tests.exploring $(ARGS)

mutate: $(READY) ## Change 100 conditions, one at a time; fail if no test notices (ARGS="--seed 7")
	@$(BIN)/python -m tools.mutation $(ARGS)

endurance: $(READY) ## Long runs on the embedded engine, with kills (ARGS="--scale 0.01")
	@$(BIN)/python -m tools.endurance $(ARGS)

check: $(READY) docs-site ## Format, lint, types, imports, template, documentation site
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cfn-lint infra/template.yaml

docs: $(READY) ## Write the tables of docs/ from what the tests expect
	@$(BIN)/python -m tools.guide

docs-site: $(READY) ## The documentation as a website in build/site; strict, and built offline
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/site

format: $(READY) ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-cdk: $(READY) ## Synthesise the CDK construct (needs node; installs 460 MB beside .venv)
	$(PYTHON) -m venv .cache/cdk
	.cache/cdk/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-cdk.lock
	$(BIN)/pytest tests/unit/infra/test_wrappers.py $(ARGS)

client-tools: $(READY) ## The generator of typed clients, for the test of docs/http.md (beside .venv)
	$(PYTHON) -m venv .cache/client
	.cache/client/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-client.lock

lock: $(READY) ## Resolve the dependencies: the newest stable ones that fit
	$(BIN)/uv pip compile $(LOCK) --all-extras --group dev pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile $(LOCK) --extra functions -c requirements.lock pyproject.toml -o requirements-functions.lock
	echo aws-cdk-lib | $(BIN)/uv pip compile $(LOCK) - -o requirements-cdk.lock
	echo openapi-python-client | $(BIN)/uv pip compile $(LOCK) - -o requirements-client.lock

# Hashes and no addresses: it installs from whatever index the user's own configuration names.
LOCK := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url

# The entry of the changelog; a version without one is no release.
release: $(READY) ## What a release publishes, in build/release: wheel, source, SBOM, notes (VERSION=0.2.0)
	@mkdir -p $(OUT)
	@awk '/^## /{on=($$2=="$(VERSION)")} on{found=1; print} END{exit !found}' CHANGELOG.md > $(OUT)/notes.md \
		|| { echo "CHANGELOG.md has no section '## $(VERSION)': give VERSION=, or write it"; exit 1; }
	$(BIN)/python -m hatchling build -d $(OUT)
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements-functions.lock \
		--pyproject pyproject.toml --output-reproducible -o $(OUT)/functions.cdx.json
OUT ?= build/release

bundle: $(READY) ## The zip of the Lambda functions: build/bundle.zip
	$(BIN)/python -m countledger.infra.deploy.bundle --out build/bundle.zip $(ARGS)

dynoxide: ## One more engine for the contract suite (needs npm)
	npm install --no-save --no-audit --no-fund --loglevel=error --prefix .cache/dynoxide @dynoxide/linux-x64@1.2.1

clean: ## Remove what was built; the next make installs anew
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
