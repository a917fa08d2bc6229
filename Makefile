# One environment per interpreter: `.venv` for python3, `.venv-python3.12` for `make test PYTHON=python3.12`.
PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(subst /,_,$(PYTHON)))
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet --quiet
# Twice quiet: errors only. Build environments (jieba has no wheel) are pinned through the variables: old pips read the first, new ones the second.
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(PIP) install --progress-bar off
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo serve site screenshots test test-slow test-lowest fuzz audit-deps lint format types layers bench soak turns lock dist clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.installed ## run the demo: four turns on real parts, no key and no network needed
	@$(RUN) examples/demo.py $(ARGS)

test: $(VENV)/.installed-dev ## run the tests; `make test ARGS="-k tenant"` picks some
	@$(RUN) -m pytest $(ARGS)

serve: $(VENV)/.installed-serve ## run the chat service: two tenants, a page, no key and no network needed
	@$(RUN) examples/chat_service/serve.py $(ARGS)

site: $(VENV)/.installed-docs ## write the site of the documents to build/site
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet

screenshots: $(VENV)/.installed-browser ## take the pictures of the documents anew (needs Chromium)
	@$(RUN) tools/screenshots.py build/pictures
	@mkdir -p docs/pictures
	@for name in desktop-light-source desktop-dark-timeline phone-light-zh-answer; do cp build/pictures/$$name.png docs/pictures/; done

test-slow: $(VENV)/.installed-browser $(VENV)/.installed-docs ## run the tests that take long: the page in a browser, fuzzing, a thousand cancelled turns
	@$(RUN) -m pytest -m slow $(ARGS)

test-lowest: $(VENV)/.installed-dev ## run some of the tests on the lowest versions that pyproject.toml allows (needs a package index)
	@$(PIP) install uv
	@$(RUN) tools/lowest.py $(VENV)-lowest
	@$(VENV)-lowest/bin/python -m pytest $(or $(ARGS),tests/test_end_to_end.py tests/test_agents.py tests/test_milvus_search.py tests/test_knowledge_open.py tests/test_chat_model.py)

fuzz: $(VENV)/.installed-dev ## feed every reader of outside data with what coverage suggests, some seconds each; ARGS="60 citations" for longer
	@$(PIP) install atheris
	@$(RUN) fuzz/run.py $(ARGS)

audit-deps: $(VENV)/.installed-dev ## look the pinned versions up in the public advisories (needs the network)
	@$(PIP) install pip-audit
	@$(RUN) -m pip_audit --requirement constraints.txt --no-deps --disable-pip

lint: $(VENV)/.installed-dev ## check style and format
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

format: $(VENV)/.installed-dev ## mend style and format
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

types: $(VENV)/.installed-dev ## check types
	@$(RUN) -m mypy

layers: $(VENV)/.installed-dev ## check that imports go down only
	@$(VENV)/bin/lint-imports --no-logo --no-cache

bench: $(VENV)/.installed-dev ## measure what the middleware adds to a model call, and what refining, offline grading and checking a stream cost
	@$(RUN) benchmarks/overhead.py
	@$(RUN) benchmarks/refine.py
	@$(RUN) benchmarks/grading.py
	@$(RUN) benchmarks/streaming.py

soak: $(VENV)/.installed-dev ## 10,000 turns of 20 tenants, 200 at a time, with faults: about 10 minutes
	@$(RUN) benchmarks/soak.py $(ARGS)

turns: $(VENV)/.installed-dev ## what a grounded turn takes beside other ways, and how much of a request prompt caches can keep: about 6 minutes
	@$(RUN) benchmarks/turns.py --check
	@$(RUN) benchmarks/prompt_cache.py

lock: $(VENV)/.installed-dev ## write constraints.txt anew from pyproject.toml
	@$(RUN) tools/lock.py

dist: $(VENV)/.installed-dev ## build wheel and source archive into dist/
	@$(RUN) -m hatchling build

clean: ## remove the environments, caches and the demo's data
	rm -rf .venv .venv-* .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.made:
	@sh tools/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing crag-middleware and what it runs on into $(VENV) (a minute or so)"
	@$(INSTALL) --upgrade pip
	@$(INSTALL) --editable ".[local]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the test tools into $(VENV)"
	@$(INSTALL) --group dev
	@touch $@

$(VENV)/.installed-serve: $(VENV)/.installed
	@$(INSTALL) --editable ".[local,files,serve]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	@$(INSTALL) --group docs
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	@$(INSTALL) --group browser
	@touch $@
