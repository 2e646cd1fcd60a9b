# Forwards each target to make.py, which does the work on every system: `make lab` is `python3 make.py lab`.
# Settings go through too: make lab PORT=8890, make test ARGS="-k gae", make PYTHON=python3.12 setup.
PYTHON ?= python3
TARGETS := lab test setup chapters reproduce bench site setup-lm lint pins clean help

.DEFAULT_GOAL := help
.PHONY: $(TARGETS)
$(TARGETS):
	@$(PYTHON) make.py $@
