# Every target works on a fresh machine with make and Python 3.11 or newer; `make` alone lists them.
# Another Python: make quickstart PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help install quickstart rehearse unit test test-all coverage operators lint site report clean clean-runs

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(VENV)/.installed ## what jobs and tools need, in .venv; trains nothing, so a login node may do it too
	@echo 'done; in each new shell: source .venv/bin/activate'

quickstart: $(VENV)/.installed ## a tiny model learns to answer questions on this machine, about a minute after the installation
	bash -c 'source quickstart.env && bash baseline/baseline.slurm && python -m tools fill baseline --tiny'

rehearse: $(VENV)/.installed ## every exercise tiny, on SLURM if there is one, with its tables and plot; one report at the end
	bash instructor/rehearse.sh

# A file's tests, which share trainings, run in one process; the long ones come first (tests/conftest.py). Three on two
# processors: the tests of SLURM wait for its timers, others for a process that ends.
PYTEST := python -m pytest -n 3 --dist=loadfile --no-loadscope-reorder

unit: lint ## lint and the tests of the tools' readers and tables, which train nothing: a minute or two
	$(PYTEST) -m 'not slow' tests/tools/logs tests/tools/tables tests/workshop/record tests/workshop/settings tests/test_imports.py

test: lint operators ## lint and the tests but the slow ones; those that need SLURM or a GPU are skipped without one
	$(PYTEST) -m 'not slow'

test-all: lint operators ## the same with the slow ones: the quickstart, a browser, the site
	$(PYTEST)

coverage: lint operators ## how much of each module the tests run, also in the processes that they start
	coverage run -m pytest -m 'not slow'
	coverage combine --quiet
	coverage report --sort=cover

operators: $(VENV)/.installed ## compile DeepSpeed's optimizers for this machine: some minutes, once
	python -m workshop.kernels.operators

lint: $(VENV)/.installed-dev ## style and format
	ruff check .
	ruff format --check .

# Tables and code scroll inside their boxes, also by keyboard; a heading has a level.
KEYBOARD := s/<div class="table-wrapper /<div tabindex="0" role="region" aria-label="table" class="table-wrapper /; \
  s/<pre>/<pre tabindex="0">/; s/role="heading"/role="heading" aria-level="2"/g

site: $(VENV)/.installed-dev ## the documents as a web site in site/html, with every link checked; ANSWERS=1: with the answer keys
	rm -rf site && mkdir -p site/documents
	git ls-files -z '*.md' '*.svg' '*.png' 'workshop/sample/*.py' ':!.github' ':!documents/site' ':!logs/reference/*/*' | xargs -0 cp --parents -t site/documents
	sed -i -E 's/<a id="([^"]+)"><\/a>/[]{#\1}/g' site/documents/documents/GLOSSARY.md
	cat documents/site/nav.md >> site/documents/README.md
ifdef ANSWERS
	sed -i '1i ---\nnosearch: true\n---' site/documents/instructor/answers/*.md
else
	rm -r site/documents/instructor/answers
	sed -i '/^instructor\/answers/d' site/documents/README.md
	grep -rlZ '](.*answers/' site/documents | xargs -0 sed -i -E ':a; s/\[([^]]*)\]\([^)]*answers\/[^)]*\)/\1/; ta'
endif
	sphinx-build -q -W --keep-going -c documents/site site/documents site/html
	find site/html -name '*.html' -exec sed -i '$(KEYBOARD)' {} +
	cp site/html/README.html site/html/index.html

report: $(VENV)/.installed ## the documents' tables and quoted figures, again from the logs
	python -m tools report

clean: ## remove .venv and caches; logs/ stays
	rm -rf $(VENV) site .pytest_cache .ruff_cache .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment's Python finds workshop/ and tools/ from any folder: `python train.py` then says how a training is started.
FIND_REPOSITORY := $(VENV)/bin/python -c 'import pathlib, site, sys; \
  pathlib.Path(site.getsitepackages()[0], "shardlab.pth").write_text(sys.argv[1] + "\n")' '$(CURDIR)'

clean-runs: ## delete the runs in logs/ with their checkpoints, after asking; logs/reference stays
	@runs=$$(find logs -mindepth 1 -maxdepth 1 -type d ! -name reference); \
	if [ -z "$$runs" ]; then echo "no runs in logs/"; exit; fi; \
	du -sh $$runs; printf 'delete these folders? [y/N] '; read -r answer; \
	if [ "$$answer" = y ]; then rm -rf $$runs; else echo "nothing deleted"; fi

# The stamps: pip runs again only when a requirements file has changed.
$(VENV)/.installed: requirements.txt | $(VENV)/.created
	$(PIP) install -r requirements.txt
	@$(FIND_REPOSITORY)
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt | $(VENV)/.created
	$(PIP) install -r requirements-dev.txt
	@$(FIND_REPOSITORY)
	@touch $(VENV)/.installed $@

# Debian's python3 comes without ensurepip, which venv needs: virtualenv will do where somebody has installed it.
$(VENV)/.created:
	@command -v '$(PYTHON)' >/dev/null || { \
	  echo 'error: no $(PYTHON) on PATH; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("error: PYTHON=$(PYTHON) is " \
	  f"Python {v[0]}.{v[1]}; expected 3.11 or newer, for example: make PYTHON=python3.12")'
	@if '$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null; then '$(PYTHON)' -m venv $(VENV); \
	elif command -v virtualenv >/dev/null; then virtualenv -q -p '$(PYTHON)' $(VENV); \
	else echo 'error: $(PYTHON) cannot make virtual environments; as root: apt-get install python3-venv' >&2; exit 1; fi
	@touch $@
