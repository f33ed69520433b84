# solo: `make` lists what can be made.

PYTHON ?= python3
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
DESTDIR ?=

LIB = $(PREFIX)/lib/solo
SHARE = $(PREFIX)/share
STAGED = $(DESTDIR)$(LIB)
FILES = $(PREFIX)/bin/solo $(SHARE)/man/man1/solo.1 $(SHARE)/man/man3/solo.3 $(SHARE)/man/man7/solo.7 $(SHARE)/bash-completion/completions/solo \
	$(SHARE)/zsh/site-functions/_solo $(SHARE)/fish/vendor_completions.d/solo.fish
VENV = .venv
VENV_PYTHON = $(VENV)/bin/python

.PHONY: help install uninstall venv test torture bench man captures clean

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: ## install under PREFIX (/usr/local for root, ~/.local else), staged in DESTDIR
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("solo needs Python 3.10 or newer: make install PYTHON=...")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "solo: $(PYTHON) can not make a venv (Debian: apt install python3-venv)" >&2; exit 1; }
	@mkdir -p "$(DESTDIR)/" && rm -rf "$(STAGED).new"
	@set -e; made=; for folder in $(sort $(dir $(FILES) $(LIB))); do \
	    while [ ! -d "$(DESTDIR)$$folder" ]; do \
	        missing=$${folder%/}; while [ ! -d "$(DESTDIR)$${missing%/*}" ]; do missing=$${missing%/*}; done; \
	        mkdir "$(DESTDIR)$$missing"; made="$$missing $$made"; \
	    done; \
	done; \
	$(PYTHON) -m venv "$(STAGED).new"; \
	if [ -f "$(STAGED)/made-directories" ]; then cp "$(STAGED)/made-directories" "$(STAGED).new/"; \
	else echo "$$made" >"$(STAGED).new/made-directories"; fi
	@"$(STAGED).new/bin/python" -m pip install --quiet --disable-pip-version-check .
	@cd "$(STAGED).new" && rm -f bin/[!p]* bin/pip* && rm -rf lib/python*/site-packages/pip*
	@cd "$(STAGED).new" && bin/python -m compileall -q -f --invalidation-mode unchecked-hash lib/python*/site-packages/solo
	@rm -rf "$(STAGED)" && mv "$(STAGED).new" "$(STAGED)"
	@sed -i 's|^command = .*||' "$(STAGED)/pyvenv.cfg"
	@set -e; site=$$(cd "$(STAGED)" && echo lib/python*/site-packages); cd "$(STAGED)"; \
	bin/python -I -m solo.bundle "$(LIB)/bin/python" "$(LIB)/$$site" "$(LIB)/launcher" launcher >solo; \
	install -m 755 solo "$(DESTDIR)$(PREFIX)/bin/solo"; rm solo
	@install -m 644 man/solo.1 "$(DESTDIR)$(SHARE)/man/man1/solo.1"
	@install -m 644 man/solo.3 "$(DESTDIR)$(SHARE)/man/man3/solo.3"
	@install -m 644 man/solo.7 "$(DESTDIR)$(SHARE)/man/man7/solo.7"
	@$(PYTHON) -m solo.completions bash >"$(DESTDIR)$(SHARE)/bash-completion/completions/solo"
	@$(PYTHON) -m solo.completions zsh >"$(DESTDIR)$(SHARE)/zsh/site-functions/_solo"
	@$(PYTHON) -m solo.completions fish >"$(DESTDIR)$(SHARE)/fish/vendor_completions.d/solo.fish"
	@echo "installed $(PREFIX)/bin/solo"

uninstall: ## remove exactly what install put there
	@set -e; made=$$(cat "$(STAGED)/made-directories" 2>/dev/null || true); \
	for file in $(FILES); do rm -f "$(DESTDIR)$$file"; done; rm -rf "$(STAGED)"; \
	for folder in $$made; do rmdir "$(DESTDIR)$$folder" 2>/dev/null || true; done

$(VENV_PYTHON): pyproject.toml
	@$(PYTHON) -m venv $(VENV)
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $(VENV_PYTHON)

venv: $(VENV_PYTHON) ## the developer's environment, in .venv

test: $(VENV_PYTHON) ## all tests but the long torture; installs what they need where it can
	@$(VENV_PYTHON) tests/tools.py
	@$(VENV_PYTHON) -m pytest -q $(ARGS)

torture: $(VENV_PYTHON) ## SIGKILL and failure at every system call, whole
	@$(VENV_PYTHON) tests/tools.py
	@SOLO_TORTURE=whole $(VENV_PYTHON) -m pytest -q -rP tests/test_torture.py tests/test_crowd.py tests/test_stateful.py tests/test_api.py \
	    -k 'torture or crowd or stateful or killed_at_random or at_each_step' $(ARGS)

bench: $(VENV_PYTHON) ## speed against the floor and the peers, in turn in one run
	@$(VENV_PYTHON) tests/bench.py $(ARGS)

man: ## make the manual's tables anew, check and show it
	@$(PYTHON) -m solo.manual man/solo.1
	@mandoc -T lint -W warning man/solo.1 man/solo.3 man/solo.7
	@mandoc man/solo.1 man/solo.3 man/solo.7 | $${PAGER:-cat}

captures: $(VENV_PYTHON) ## take the README's captures of the views anew (root, tmux)
	@$(VENV_PYTHON) tests/captures.py

clean: ## remove what was made here
	@rm -rf $(VENV) dist build .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
