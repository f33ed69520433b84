# solo: `make` lists the targets.

PYTHON ?= python3
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
DESTDIR ?=

VENV = .venv
GROUP = test
VENV_PYTHON = $(VENV)/bin/python
MADE = $(VENV)/made
PIP = $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check
# With a pip that knows dependency groups: 25.1 or newer.
MAKE_VENV = $(PYTHON) -m venv $(VENV) && $(PIP) --upgrade pip
DEB = build/deb/solo-run
# On two cores: tests wait for processes about as long as they compute. Those of `make quick` mostly compute.
WORKERS ?= 4
# In test-full the tests of a file run in one worker: they share servers and services of the machine.
PYTEST = $(VENV_PYTHON) -m pytest -q -n $(WORKERS) --dist worksteal
DEB_TOOLS = gcc libc6-dev dpkg-dev debhelper dh-python pybuild-plugin-pyproject python3-hatchling

.PHONY: help install uninstall dist pyz deb rpm rpm-tools venv quick test test-full test-deps test-debian test-all lint weight torture simulation fuzz bench lab records man clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install uninstall: export PREFIX := $(PREFIX)
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export PYTHON := $(if $(filter file,$(origin PYTHON)),,$(PYTHON))

install: ## install under PREFIX (root: /usr/local, else ~/.local), staged in DESTDIR
	@sh packaging/install.sh install

uninstall: ## remove exactly the files that install wrote
	@sh packaging/install.sh uninstall

$(VENV)/dist:
	@$(MAKE_VENV)
	@$(PIP) --group dist
	@touch $@

dist: $(VENV)/dist ## build the wheel and the sdist, dist/solo_run-VERSION
	@$(VENV_PYTHON) -m hatchling build -d dist

pyz: ## build dist/solo.pyz, one file for any Python, with help and views
	@$(PYTHON) packaging/pyz.py dist/solo.pyz
	@echo "built dist/solo.pyz"

deb: ## build dist/solo-run_VERSION_ARCH.deb with Debian's tools
	@missing=; for package in $(DEB_TOOLS); do \
	    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null)" = installed ] || missing="$$missing $$package"; \
	done; [ -z "$$missing" ] || { echo "solo: make deb lacks tools of Debian: apt install$$missing" >&2; exit 1; }
	@rm -rf build/deb && mkdir -p $(DEB) dist
	@cp -r solo man docs examples packaging packaging/debian README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE pyproject.toml $(DEB)/
	@cd $(DEB) && PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >../log 2>&1 \
	    || { cat ../log >&2; exit 1; }
	@rm -f dist/*.deb && cp build/deb/solo-run_*.deb build/deb/solo-is-solo-run_*.deb dist/
	@echo "built $$(echo dist/*.deb)"

rpm-tools:
	@missing=; for tool in rpmbuild $(CC); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; [ -z "$$missing" ] \
	    || { echo "solo: make rpm lacks$$missing (Fedora: dnf install rpm-build gcc; Debian: apt install rpm gcc)" >&2; exit 1; }

rpm: rpm-tools dist ## build the RPM packages in build/rpm, from the sdist, with rpmbuild
	@rm -rf build/rpm && mkdir -p build
	@rpmbuild -ba --nodeps --quiet --define '_topdir $(CURDIR)/build/rpm' --define '_sourcedir $(CURDIR)/dist' packaging/rpm/solo-run.spec \
	    >build/rpm.log 2>&1 || { cat build/rpm.log >&2; exit 1; }

# Libraries as an installation has them: CI tests the views with the newest ones too.
PINS = packaging/requirements.txt
$(MADE): pyproject.toml $(PINS)
	@$(MAKE_VENV)
	@sed -n 's/^\([a-z-]*==.*[^ ]\) *\\$$/\1/p' $(PINS) >$(VENV)/pins
	@$(PIP) -e . --group $(GROUP) --constraint $(VENV)/pins
	@touch $@

$(VENV)/lint $(VENV)/bench $(VENV)/deploy: $(MADE)
	@$(PIP) --group $(@F)
	@touch $@

venv: $(MADE) ## make the development environment in .venv

quick: $(MADE) ## run the fast tests, in at most 10 seconds on two idle cores
	@$(PYTEST) -n 2 --loop=quick $(ARGS)

test: $(MADE) ## test every promise of one machine in at most 3 minutes; installs nothing outside this directory
	@$(PYTEST) --loop=test $(ARGS)

test-full: $(VENV)/bench $(VENV)/deploy ## run all tests except the long torture: with servers, packages, systemd and cron
	@$(PYTEST) -n 6 --dist loadfile --no-loadscope-reorder --loop=full $(ARGS)

test-deps: ## install the programs that the tests need, by one apt-get call; starts and enables no service
	@$(PYTHON) tests/tools/needed.py --install

test-debian: ## run `make test` in a minimal Debian, as root and as a user; SUITES='bookworm trixie', forky for Python 3.14 (root)
	@tests/tools/debian.sh $(SUITES)

lint: $(VENV)/lint ## find mistakes in source and prose, by ruff, mypy, codespell and the words of tests/tools/idiom.txt
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet . || { echo 'solo: format with: $(VENV)/bin/ruff format' >&2; exit 1; }
	@$(VENV_PYTHON) -m mypy --no-error-summary
	@$(VENV)/bin/codespell
	@$(VENV_PYTHON) tests/tools/idiom.py
	@$(VENV_PYTHON) packaging/publisher.py

weight: ## count the tokens of solo/ and tests/ by folder, against the last release; ARGS='--record VERSION'
	@$(PYTHON) tests/tools/weight.py $(ARGS)

test-all: ## run `make test` on every CPython >= 3.9 of this machine, except WITHOUT='3.X ...'
	@failed=; for found in $$($(PYTHON) tests/tools/pythons.py $(WITHOUT)); do \
	    version=$${found%%:*}; \
	    if $(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON="$${found#*:}"; then outcome=passed; \
	    else outcome=FAILED; failed="$$failed $$version"; fi; \
	    echo "Python $$version: $$outcome"; \
	done; [ -z "$$failed" ] || { echo "failed on$$failed" >&2; exit 1; }

torture: $(MADE) ## inject kills and faults for MINUTES=60, from one seed; SEED=n replays; ARGS=--record
	@$(PYTHON) tests/tools/needed.py
	@$(VENV_PYTHON) tests/tools/torture.py --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulation: $(MADE) ## run solo's files in a simulated kernel, in random schedules, for SECONDS=60 of CPU; SEED=n replays; ARGS=--exhaustive, --record
	@cd tests && PYTHONPATH=tools nice ../$(VENV_PYTHON) -m simulation --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: $(VENV)/bench ## measure speed beside a floor and peers; ARGS='launch queue', ARGS=--record
	@$(PYTHON) tests/tools/needed.py
	@PYTHONPATH=tests/tools:tests $(VENV_PYTHON) -m bench $(ARGS)

lab: ## measure how Debian's lock wrappers and solo fail, in one set of scenes; ARGS=--record
	@$(PYTHON) tests/tools/needed.py
	@install -d -m 700 build build/lab # private, so that any Python is accepted
	@$(MAKE) -s install PREFIX=$(CURDIR)/build/lab DESTDIR= >&2
	@cd tests/tools && PATH="$(CURDIR)/build/lab/bin:$$PATH" $(PYTHON) -m lab $(ARGS)

fuzz: $(MADE) ## feed ten million inputs to the readers of outside data; SEED=n COUNT=n TARGETS='stat words' ARGS=--record
	@nice $(VENV_PYTHON) tests/tools/fuzz.py $(TARGETS) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

records: ## do all of these with --record, in two hours: results in build/records, tables in docs/evidence.md
	@$(MAKE) --no-print-directory lab fuzz bench torture ARGS=--record

man: $(MADE) ## renew the tables of the manual, the completions and the schema of --json, check and show the manual
	@$(VENV_PYTHON) tests/tools/schema.py
	@$(VENV_PYTHON) packaging/tables.py man/solo.1 man/solo-hold.1 packaging/completions/*
	@mandoc -T lint -W warning man/*.[0-9]
	@mandoc man/*.[0-9] | $${PAGER:-cat}

clean: ## remove all build results
	@rm -rf $(VENV) .venv-3.* dist build .pytest_cache .hypothesis .mypy_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
