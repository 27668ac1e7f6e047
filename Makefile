# The front door: short names for what the CMake presets and tools/ do.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: run demo build test bench lint format asan tsan clang install python setup clean help

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local

compile = cmake --build --preset $(1) -j $(JOBS)
# gcc 12's ThreadSanitizer can't map its shadow where addresses are randomized over more than 28 bits.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

run: build/release/build.ninja ## build the command line and train a small model, plain and scheduled
	$(call compile,release) --target shunt_cli
	@tools/demo

demo: build/release/build.ninja ## build the command line and show a verified, timed shuffle
	$(call compile,release) --target shunt_cli
	@tools/demo shuffle

build: build/release/build.ninja ## build everything; the command line is build/release/bin/shunt
	$(call compile,release)

test: build python ## build, run every test, close with the counts
	@tools/run_tests release

bench: build ## run the micro benchmarks, then a shuffle against its baselines
	@build/release/bin/bench_kernels
	@tools/demo shuffle

asan: build/asan/build.ninja ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call compile,asan)
	@tools/run_tests asan

tsan: build/tsan/build.ninja ## the tests under ThreadSanitizer
	$(FIXED_ADDRESSES) $(call compile,tsan)
	@$(FIXED_ADDRESSES) tools/run_tests tsan

clang: build/clang/build.ninja ## compile the library and the command line with clang
	$(call compile,clang) --target shunt_cli shunt_runtime

lint: setup ## check format, layers and files
	@tools/lint

format: setup ## rewrite the C++ files as .clang-format says
	@tools/format -i

install: build ## install below PREFIX (/usr/local)
	cmake --install build/release --prefix $(PREFIX)

python: ## install the Python packages that tests use into build/python
	@tools/setup_python

setup: ## install the Debian packages that are missing
	@tools/setup

clean: ## remove build/
	rm -rf build

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# From then on ninja itself notices when CMake has to run again.
build/%/build.ninja: CMakePresets.json | setup
	cmake --preset $*
