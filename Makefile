# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
# Everything installed goes into .venv, from the hashed lock files in requirements/.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' Makefile)

# The system's python: one under a home folder is out of reach for the plain user that half of the tests run as.
PYTHON = /usr/bin/python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# What builds the sample skills.
ASC := .make/assemblyscript
ROUNDS = 60
MINUTES = 1
ROWS =
GATE = 1.05
COMMIT = HEAD
SECONDS_EACH = 30
MUTANTS = 8
KEY =
SECONDS = 1800
TARGETS =
EXAMPLES = 25
# Of Debian, for test-kernel and test-arm; and which tests run there, if not what is usual.
KERNEL = cloud
TESTS =
# Each test makes its own folders, homes and servers, so they go side by side: one more than there are processors, as
# many wait for a disk, a deadline or a process more than they work.
SIDE_BY_SIDE = -n $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 ))) --dist worksteal
PYTEST_FLAGS =
# What touches the system, for the plain user; values do not depend on who reads them, nor do the journal's bytes on who
# cuts its power or damages them. `make test-user PLAIN=tests`: all.
PLAIN = $(addprefix tests/unit/,artifacts/test_store.py daemon/test_wire_guard.py guard/test_look.py guard/test_look_changes.py guard/test_look_trail.py \
	inside/test_escapes.py inside/test_files.py launch sandbox/test_probe.py sandbox/test_probe_launcher.py sandbox/test_starter.py \
	state/test_db.py state/test_place.py state/test_whole.py state/test_writer.py vault wiring/test_peers.py) tests/conformance \
	tests/faults/test_disk.py tests/faults/test_exhaustion.py \
	$(filter-out $(addprefix tests/escape/test_,journal_processes.py odd_values.py power_cuts.py),$(wildcard tests/escape/test_*.py))
# Races against the clock can be lost to the test beside; what is really broken fails alone too.
AGAIN = echo "palyra: what failed beside others, once more alone …"
ALONE = --last-failed --last-failed-no-failures none
LOCK_FLAGS =
COMPILE = $(PY) -m uv pip compile --quiet --universal --no-emit-package palyra --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --no-header $(LOCK_FLAGS)

# A .venv that was copied here together with its folder still names the old place: install again.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' Makefile

dev: $(READY) ## set up .venv, ending with .venv/bin/palyra
	@$(PY) -m compileall -q src

system:
	@tools/system.sh $(PYTHON) $(PY)

$(READY): requirements/dev.txt pyproject.toml | system
	@echo "palyra: installing into $(VENV) …"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -qq --require-hashes --requirement requirements/dev.txt
	@$(PY) -m pip install -qq --no-deps --no-build-isolation --editable .
	@printf %s '$(CURDIR)' > $@

demo: dev ## a guided first call, allowed and refused
	@$(VENV)/bin/palyra demo

$(ASC)/.ready: requirements/assemblyscript/package-lock.json requirements/node.txt tools/assemblyscript.sh
	@echo "palyra: installing the AssemblyScript compiler into $(ASC) …"
	@tools/assemblyscript.sh $(PYTHON) $(ASC) || echo "palyra: the sample skills will not be built" >&2

# What tests use beside what Palyra needs: strace counts system calls.
test-programs:
	@tools/system.sh $(PYTHON) $(PY) strace

test: lint test-programs $(ASC)/.ready ## everything: style, types, layers, all tests; as root also the plain-user half
	@rm -rf .make/promises
	@export PALYRA_PROMISES=.make/promises/$$([ "$$(id -u)" = 0 ] && echo root || echo plain).json; \
		$(PY) -m pytest $(SIDE_BY_SIDE) $(PYTEST_FLAGS) tests || { $(AGAIN); $(PY) -m pytest $(ALONE) $(PYTEST_FLAGS) tests; }
	@test "$$(id -u)" != 0 || $(MAKE) --no-print-directory test-user
	@$(PY) -m tests.promises

test-user: dev ## what touches the system, conformance and escape tests, as a plain user
	@tools/plain_user.sh bash -c 'export PALYRA_PROMISES=.make/promises/plain.json; $(PY) -m pytest $(SIDE_BY_SIDE) $(PYTEST_FLAGS) $(PLAIN) || \
		{ $(AGAIN); $(PY) -m pytest $(ALONE) $(PYTEST_FLAGS) $(PLAIN); }'

test-toolchains: dev ## skills and guests built in every language; what builds them is installed below .make
	@PALYRA_TOOLCHAINS=1 $(PY) -m pytest $(PYTEST_FLAGS) -rs tests/toolchains

test-podman: dev ## the container backend with a real engine; as root on Debian podman is installed
	@image=$$(tools/podman.sh) && PALYRA_TEST_IMAGE=$$image $(PY) -m pytest $(PYTEST_FLAGS) tests/podman

test-deploy: dev ## deploy/ for real: its units under a systemd of their own, its proxy, its image; as root on Debian
	@tools/deploy.sh $(PYTHON) .make/deploy/palyra
	@image=$$(tools/deploy_image.sh .make/deploy/palyra/bin/python .make/deploy) && \
		PALYRA_TEST_INSTALLATION=.make/deploy/palyra PALYRA_TEST_DEPLOY_IMAGE=$$image \
		PALYRA_TEST_NGINX=.make/deploy/nginx/usr/sbin/nginx $(PY) -m pytest $(PYTEST_FLAGS) tests/deploy

test-browser: dev ## the console in a real Chromium, with scripts and without; as root on Debian it is installed
	@tools/browser.sh $(PYTHON) .make/browser
	@$(PY) -m tests.browser .make/browser/bin/python .make/screenshots

screenshots: dev ## the pictures of the console's guide, taken again
	@tools/browser.sh $(PYTHON) .make/browser
	@$(PY) -m tests.browser .make/browser/bin/python docs/guide --portrait

test-kernel: dev ## the sandbox on an x86-64 machine under Debian's older kernel (KERNEL=6.12-cloud TESTS=tests/conformance); as root on Debian
	@tools/machine.sh $(PY) .make/kernel-$(KERNEL) amd64 linux-image-$(KERNEL)-amd64 $(TESTS)

test-arm: dev ## the same on an emulated ARM machine, in about an hour; as root on Debian
	@tools/machine.sh $(PY) .make/arm-$(KERNEL) arm64 linux-image-$(KERNEL)-arm64 $(TESTS)

test-windows-layout: dev ## structures of the Windows backend against the mingw-w64 headers; as root on Debian installed
	@$(PY) tools/windows_layout.py --check

# The stores' own tests, on a server.
STORE_TESTS = $(addprefix tests/unit/,journal/test_store.py budget/test_store.py approvals/test_store.py wiring/test_versions.py \
	state/test_retention.py state/test_search.py \
	state/test_rotation.py wiring/test_runs.py wiring/test_guest_storage.py wiring/test_run_facts.py wiring/test_standing.py wiring/test_skill_acts.py)

test-cluster: dev ## the stores' tests on a real PostgreSQL, and many machines; as root on Debian it is installed
	@tools/postgresql.sh
	@$(PY) -m pip install -qq --require-hashes --requirement requirements/cluster.txt
	@PALYRA_TEST_STORES=postgres $(PY) -m pytest $(SIDE_BY_SIDE) $(PYTEST_FLAGS) $(STORE_TESTS)
	@PALYRA_TEST_CLUSTER=1 PALYRA_TEST_STORES=postgres $(PY) -m pytest $(PYTEST_FLAGS) tests/cluster

lint: dev ## ruff, mypy, and which package may import which
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo 'palyra: `make fmt` formats these files' >&2; exit 1; }
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo --cache-dir .make/import-linter

fmt: dev ## format, and fix what ruff can fix
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

test-standards: dev ## exports checked by securesystemslib, in-toto-attestation and Go's sumdb; as root Go is installed
	@test -x .make/standards/bin/python || $(PYTHON) -m venv .make/standards
	@.make/standards/bin/python -m pip install -qq --require-hashes --requirement requirements/standards.txt
	@$(PY) tools/standards.py .make/standards/bin/python

test-adapters: dev ## each adapter with its framework's real package, in a .venv of its own below .make
	@test -x .make/adapters/bin/python || $(PYTHON) -m venv .make/adapters
	@.make/adapters/bin/python -m pip install -qq --require-hashes --requirement requirements/adapters.txt
	@PALYRA_ADAPTERS=1 .make/adapters/bin/python -m pytest -p no:cacheprovider -o filterwarnings= $(PYTEST_FLAGS) tests/adapters

conformance: dev ## MCP's own suite for 2026-07-28 and the Inspector, over stdio and HTTP; both installed by npm below .make
	@$(PY) tools/conformance.py

test-api: dev ## schemathesis over the whole OpenAPI document of a real daemon, as an agent and as an operator (EXAMPLES=25)
	@test -x .make/api/bin/python || $(PYTHON) -m venv .make/api
	@.make/api/bin/python -m pip install -qq --require-hashes --requirement requirements/api.txt
	@$(PY) tools/api.py .make/api/bin/schemathesis --examples $(EXAMPLES)

test-crash: dev ## many more kills and power cuts under the journal than `make test` plays
	@PALYRA_KILLS=100 PALYRA_POWER_CUTS=2000 $(PY) -m pytest $(PYTEST_FLAGS) tests/escape/test_journal_processes.py \
		tests/escape/test_power_cuts.py

escape: dev ## the escape stories alone
	@$(PY) -m pytest $(PYTEST_FLAGS) tests/escape

soak: dev ## 64 callers at once, then a daemon under mixed HTTP load: nothing is left, memory stays flat (MINUTES=1)
	@$(PY) -m tests.soak --seconds $$(( $(MINUTES) * 60 ))
	@$(PY) -m tests.soak.http --seconds $$(( $(MINUTES) * 60 ))
	@PALYRA_GUEST_CALLS=100000 $(PY) -m pytest $(PYTEST_FLAGS) tests/unit/inside/wasm/test_flat.py

fuzz: dev ## new cases for every property test, random bytes against every parser (SECONDS_EACH=30 TARGETS="heads hello")
	@$(PY) -m pytest $(PYTEST_FLAGS) -m hypothesis --hypothesis-profile=search tests/unit
	@$(PY) -m pip install -qq --require-hashes --only-binary :all: --requirement requirements/fuzz.txt \
		|| echo 'palyra: no atheris for this Python' >&2
	@$(PY) -m tests.fuzz --seconds $(SECONDS_EACH) $(TARGETS)

release: dev ## wheel, sdist, manuals, bill of materials, provenance, checksums in dist/ (KEY=key.pem signs)
	@$(PY) tools/release.py $(if $(KEY),--key $(KEY))

picture: dev ## the terminal in the quickstart, drawn from palyra demo
	@$(PY) tools/picture.py

test-package: dev ## wheel and sdist in clean environments, with what was asked for and nothing else; built twice
	@PALYRA_PACKAGE=1 $(PY) -m pytest $(PYTEST_FLAGS) tests/package

mutate: dev ## small wrongs in guard, policy and egress: does a test notice? (MUTANTS=8 of each module, SECONDS=1800)
	@$(PY) tools/mutate.py --each $(MUTANTS) --seconds $(SECONDS)

bench: dev ## ratios beside peers (ROUNDS=60 ROWS="tier_b tier_c tier_c_cold growth")
	@$(PY) -m bench --rounds $(ROUNDS) $(ROWS)

ratchet: dev test-programs ## record the counts of a call, an append and a connection that fell; refuse those that rose
	@$(PY) -m tests.ratchet

bench-against: dev ## this tree beside COMMIT, round by round; fails when a row got slower (COMMIT=HEAD~9 ROWS="tier_c http" GATE=1.05)
	@$(PY) -m bench.against --rounds $(ROUNDS) --gate $(GATE) $(COMMIT) $(ROWS)

docs: dev ## write the generated pages again
	@$(PY) tools/reference.py
	@$(PY) -m tests.promises --index

site: dev ## the documentation as a site, built without a warning; in site/
	@test -x .make/docs/bin/python || $(PYTHON) -m venv .make/docs
	@.make/docs/bin/python -m pip install -qq --require-hashes --requirement requirements/docs.txt
	@$(PY) tools/website.py .make/docs/bin/zensical

lock: dev ## resolve the dependencies again (LOCK_FLAGS=--upgrade takes newer ones)
	@$(COMPILE) pyproject.toml --output-file requirements/runtime.txt
	@$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.txt
	@$(COMPILE) requirements/cluster.in pyproject.toml --extra dev --extra cluster --constraint requirements/dev.txt --output-file requirements/cluster.txt
	@$(COMPILE) pyproject.toml --extra daemon --extra mcp --constraint requirements/dev.txt --output-file requirements/daemon.txt
	@$(COMPILE) requirements/build.in --constraint requirements/dev.txt --output-file requirements/build.txt
	@$(COMPILE) requirements/peers.in --output-file requirements/peers.txt
	@$(COMPILE) requirements/standards.in --output-file requirements/standards.txt
	@$(COMPILE) requirements/api.in --output-file requirements/api.txt
	@$(COMPILE) requirements/browser.in --output-file requirements/browser.txt
	@$(COMPILE) requirements/docs.in --output-file requirements/docs.txt
	@$(COMPILE) requirements/fuzz.in --output-file requirements/fuzz.txt
	@$(COMPILE) requirements/toolchains.in --output-file requirements/toolchains.txt
	@$(COMPILE) requirements/adapters.in pyproject.toml --output-file requirements/adapters.txt
	@$(COMPILE) requirements/node.in --output-file requirements/node.txt

clean: ## remove what set-up and tests made
	@rm -rf $(VENV) .make .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build .demo site
