# solo: `make` lists what can be made.

PYTHON ?= python3
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
DESTDIR ?=

LIB = $(PREFIX)/lib/solo
SHARE = $(PREFIX)/share
STAGED = $(DESTDIR)$(LIB)
PAGES = $(foreach page,$(notdir $(wildcard man/*.[0-9])),$(SHARE)/man/man$(subst .,,$(suffix $(page)))/$(page))
FILES = $(PREFIX)/bin/solo $(PAGES) $(SHARE)/bash-completion/completions/solo \
	$(SHARE)/zsh/site-functions/_solo $(SHARE)/fish/vendor_completions.d/solo.fish
VENV = .venv
VENV_PYTHON = $(VENV)/bin/python
MADE = $(VENV)/made
PIP = $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check
DEB = build/deb/solo-run
WORKERS ?= 2
PYTEST = $(VENV_PYTHON) -m pytest -q -n $(WORKERS) --dist loadfile
DEB_TOOLS = dpkg-dev debhelper dh-python pybuild-plugin-pyproject python3-hatchling

.PHONY: help install uninstall dist pyz deb venv quick test test-full test-deps test-debian test-all lint torture coverage fuzz bench lab man captures clean

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: ## install under PREFIX (/usr/local for root, ~/.local else), staged in DESTDIR
	@PYTHON='$(PYTHON)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' FOLDERS='$(sort $(dir $(FILES) $(LIB)))' sh packaging/install.sh
	@echo "installed $(PREFIX)/bin/solo"

uninstall: ## remove exactly what install put there
	@set -e; made=$$(cat "$(STAGED)/made-directories" "$(STAGED).new/made-directories" 2>/dev/null || true); \
	for file in $(FILES); do rm -f "$(DESTDIR)$$file"; done; rm -rf "$(STAGED)" "$(STAGED).new" "$(STAGED).old"; \
	for folder in $$made; do rmdir "$(DESTDIR)$$folder" 2>/dev/null || true; done

dist: $(MADE) ## dist/solo_run-VERSION: the wheel and the sdist
	@$(VENV_PYTHON) -m hatchling build -d dist

pyz: ## dist/solo.pyz: one file for any Python; the views ask for their libraries
	@$(PYTHON) packaging/pyz.py dist/solo.pyz

deb: ## dist/solo-run_VERSION_all.deb, by Debian's own tools
	@missing=; for package in $(DEB_TOOLS); do \
	    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null)" = installed ] || missing="$$missing $$package"; \
	done; [ -z "$$missing" ] || { echo "solo: make deb lacks tools of Debian: apt install$$missing" >&2; exit 1; }
	@rm -rf build/deb && mkdir -p $(DEB)/examples dist
	@cp -r solo man docs README.md LICENSE pyproject.toml packaging/debian $(DEB)/
	@cp -r packaging/systemd packaging/action $(DEB)/examples/
	@cd $(DEB) && PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >../log 2>&1 \
	    || { cat ../log >&2; exit 1; }
	@cp build/deb/solo-run_*_all.deb dist/

$(MADE): pyproject.toml
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip # one that knows dependency groups: 25.1 or newer
	@$(PIP) -e . --group test
	@touch $@

venv: $(MADE) ## the developer's environment, in .venv

quick: $(MADE) ## the tests to run while typing: at most 15 seconds
	@$(PYTEST) --loop=quick $(ARGS)

test: $(MADE) ## every promise of one machine, in at most 4 minutes; installs nothing outside this directory
	@$(PYTEST) --loop=test $(ARGS)

test-full: $(VENV)/bench ## all tests but the long torture: with servers, packages, systemd and cron
	@$(PYTEST) --loop=full $(ARGS)

test-deps: ## install what the tests call, by one apt-get call; starts and enables no service
	@$(PYTHON) tests/tools.py --install

test-debian: ## `make test` in a new minimal Debian, as root and as a user; SUITES='bookworm trixie' (root)
	@tests/debian.sh $(SUITES)

$(VENV)/lint: $(MADE)
	@$(PIP) --group lint
	@touch $@

lint: $(VENV)/lint ## find mistakes in source and prose, by ruff, codespell and the words of tests/idiom.txt
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/codespell
	@$(VENV_PYTHON) tests/idiom.py

test-all: ## all tests on every CPython >= 3.10 of this machine, but those in WITHOUT='3.X ...'
	@failed=; for found in $$($(PYTHON) tests/pythons.py $(WITHOUT)); do \
	    version=$${found%%:*}; \
	    if $(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON="$${found#*:}"; then outcome=passed; \
	    else outcome=FAILED; failed="$$failed $$version"; fi; \
	    echo "Python $$version: $$outcome"; \
	done; [ -z "$$failed" ] || { echo "failed on$$failed" >&2; exit 1; }

torture: $(MADE) ## all that kills and fails, for MINUTES=60, from one seed; SEED=n replays; ARGS=--record
	@$(PYTHON) tests/tools.py
	@$(VENV_PYTHON) tests/torture.py --minutes $(or $(MINUTES),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

coverage: $(MADE) ## lines and branches of the hot path that tests run; ARGS=--record writes the result down
	@$(PYTHON) tests/tools.py
	@$(VENV_PYTHON) tests/coverage_run.py $(ARGS)

$(VENV)/bench: $(MADE)
	@$(PIP) --group bench
	@touch $@

bench: $(VENV)/bench ## speed beside the floor and the peers, and what became worse; ARGS='launch line', ARGS=--record
	@$(PYTHON) tests/tools.py
	@PYTHONPATH=tests $(VENV_PYTHON) -m bench $(ARGS)

lab: ## how the alternatives fail: the wrappers of Debian and solo in one set of scenes; writes docs/lab.*, docs/evidence.md
	@$(PYTHON) tests/tools.py
	@install -d -m 700 build build/lab # for us alone: any Python will do
	@$(MAKE) -s install PREFIX=$(CURDIR)/build/lab DESTDIR= >&2
	@cd tests && PATH="$(CURDIR)/build/lab/bin:$$PATH" $(PYTHON) -m lab $(ARGS)

fuzz: $(MADE) ## ten million inputs, over all readers of outside data; SEED=n COUNT=n TARGETS='stat words' ARGS=--record
	@$(PIP) --group fuzz || echo "solo: without atheris: unguided" >&2
	@nice $(VENV_PYTHON) tests/fuzz.py $(TARGETS) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

man: ## make the manual's tables anew, check and show it
	@$(PYTHON) -m solo.generate.manual man/solo.1
	@mandoc -T lint -W warning man/*.[0-9]
	@mandoc man/*.[0-9] | $${PAGER:-cat}

captures: $(MADE) ## take the captures of the views in README.md and docs/views.md again (root, tmux)
	@$(VENV_PYTHON) tests/captures.py

clean: ## remove what was made here
	@rm -rf $(VENV) .venv-3.* dist build .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
