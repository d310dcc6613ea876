# SPDX-License-Identifier: Apache-2.0
# MRC Fabric. `make help` lists the targets; `make run` and `make test` need nothing done before.

TOPO   ?= topologies/mini.yaml
TARGET ?= auto
PYTHON := .venv/bin/python

# The tests make interfaces and switches in a network namespace of their own, which the kernel takes
# down with the last process, whatever happens.
IN_NAMESPACE := unshare --net --

# Fast ones first.
UNIT_TESTS := tests/test_p4_artefacts.py tests/test_packaging.py tests/topologies tests/controller tests/mrc tests/softswitch
NET_TESTS  := tests/net

ifeq ($(TARGET),auto)
PTF_TARGET := softswitch
else
PTF_TARGET := $(TARGET)
endif

.DEFAULT_GOAL := help
.PHONY: help deps run experiment test unit ptf net lint p4 shell shell-deps clean-net clean root

help: ## this list
	@echo "Usage: make TARGET [TOPO=topologies/mini.yaml] [TARGET=auto|softswitch|bmv2]"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

deps: ## apt and pip packages, into .venv (skipped when present)
	@scripts/setup.sh

root:
	@[ "$$(id -u)" -eq 0 ] || { echo "Mininet and network namespaces need root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

run: root deps ## bring up a fabric, program it, send sprayed MRC traffic, show where it went
	@$(PYTHON) -m topologies.run --topo $(TOPO) --target $(TARGET)

experiment: root deps ## fault or congestion: make experiment NAME=t1-kill|two-flows|incast
	@$(PYTHON) -m topologies.experiment $(NAME) --target $(TARGET)

test: root deps shell-deps ## all tests: units, PTF on softswitch, whole fabrics in Mininet
	$(IN_NAMESPACE) $(PYTHON) -m pytest $(UNIT_TESTS) ptf_tests $(NET_TESTS)

unit: deps ## unit tests only, no root needed
	$(PYTHON) -m pytest $(UNIT_TESTS)

ptf: root deps ## data-plane tests: make ptf TARGET=softswitch|bmv2
	$(IN_NAMESPACE) $(PYTHON) -m pytest ptf_tests --target $(PTF_TARGET)

net: root deps shell-deps ## whole fabrics in Mininet, kernel SRv6 peers, client compatibility
	$(IN_NAMESPACE) $(PYTHON) -m pytest $(NET_TESTS)

lint: deps ## ruff and mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

p4: ## recompile p4src/ (needs p4c on PATH; its output is committed)
	@scripts/build_p4.sh

shell-deps: deps
	@scripts/setup.sh shell

shell: shell-deps ## p4runtime-shell on a device of the running fabric: make shell DEVICE=p0t0-0
	@scripts/shell.sh $(DEVICE)

clean-net: root deps ## remove what a crashed run left: processes, interfaces, namespaces
	@$(PYTHON) -m topologies.clean

clean: ## remove what was built: virtual environments, caches
	rm -rf .venv .venv-shell .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
