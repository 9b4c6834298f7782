# SPDX-License-Identifier: BSD-2-Clause
# A thin front for meson: `make` builds, `make demo` shows it, `make quick` and `make test` prove it.
BUILD ?= build
prefix ?= /usr/local
DESTDIR ?=
# Suites of `make test`: of the normal build and of the sanitizer builds, of which each takes what
# it is better at finding fault with; `make test-asan SAN_SUITES=...` for others.
SUITES ?= unit abi man fuzz conformance strict sockets stress system wire programs apps
QUICK_SUITES ?= unit man conformance strict
LONG_SUITES ?= unit man-full conformance strict stress system
SAN_SUITES ?=
ASAN_SUITES ?= unit fuzz conformance strict sockets stress
TSAN_SUITES ?= unit conformance sockets stress system-threads
SANITIZED = test-asan-run test-tsan-run
FUZZ_SECONDS ?= 60
# A long run: seconds, and what else tests/stress takes (--help).
STRESS_SECONDS ?= 60
STRESS_ARGS ?= --qps 32 --threads 4 --procs 2

# Programs at once: most of a test's time is waiting.
FEW := $(shell nproc)
MANY := $(shell expr 2 '*' $(FEW))
export MESON_TESTTHREADS ?= $(MANY)
suites = $(foreach s,$(1),--suite $(s))
# The exit status is that of test-summary, which counts cases.
run-suites = meson test -C $(1) --no-rebuild $(call suites,$(2)) || true
# Virtual machines, two at once.
run-vm = MESON_TESTTHREADS=2 meson test -C $(1) --no-rebuild --logbase vmlog $(call suites,$(2)) || true

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@command -v meson >/dev/null && command -v ninja >/dev/null || \
		{ echo "meson and ninja are needed: make deps"; exit 1; }
	meson setup $(BUILD)

build-%/build.ninja: build-aux/%.ini
	meson setup --native-file $< build-$*

deps:
	scripts/deps build demo test

demo:
	scripts/deps build demo
	$(MAKE) all
	scripts/demo $(BUILD)

# The rest of the packages is fetched while the compiler works. The machines and the sanitizers run
# beside the normal build's suites: they have their own networks, and all of them wait a lot. Where
# a network of its own is not to be had: one after the other.
test:
	scripts/deps build
	scripts/deps test & packages=$$!; $(MAKE) all && wait $$packages
	rm -rf $(BUILD)/tap build-asan/tap build-tsan/tap
	{ $(MAKE) deps-vm; $(call run-vm,$(BUILD),vm); } > $(BUILD)/vm.log 2>&1 & machines=$$!; \
	MESON_TESTTHREADS=$(FEW) scripts/own-net $(MAKE) $(SANITIZED) > $(BUILD)/sanitized.log 2>&1 & \
	sanitized=$$!; \
	$(MAKE) test-normal; \
	wait $$sanitized; status=$$?; \
	cat $(BUILD)/sanitized.log; \
	if [ $$status = 77 ]; then $(MAKE) $(SANITIZED); status=$$?; fi; \
	wait $$machines; cat $(BUILD)/vm.log; \
	[ $$status = 0 ] || { echo "a build with a sanitizer failed"; exit 1; }
	scripts/test-summary $(BUILD) build-asan build-tsan

test-normal: all
	rm -rf $(addprefix $(BUILD)/tap/,$(SUITES))
	$(call run-suites,$(BUILD),$(SUITES))

# What a change is tried with: the suites of single functions and of the API, in a minute.
quick: all
	rm -rf $(BUILD)/tap
	MESON_TESTTHREADS=$(shell expr 3 '*' $(FEW)) $(call run-suites,$(BUILD),$(QUICK_SUITES))
	scripts/test-summary $(BUILD)

# The rounds that `make test` shortens, and all that TSan can see: the better part of an hour.
test-long: export T_LONG = 1
test-long: all
	rm -rf $(BUILD)/tap build-asan/tap build-tsan/tap
	$(call run-suites,$(BUILD),$(LONG_SUITES))
	$(MAKE) $(SANITIZED) TSAN_SUITES="unit conformance stress system"
	$(MAKE) stress STRESS_SECONDS=300
	scripts/test-summary $(BUILD) build-asan build-tsan

# Debian's programs with all their options, sizes and 10 s runs (doc/testing.md).
test-programs: all
	scripts/deps build test
	rm -rf $(BUILD)/tap
	$(call run-suites,$(BUILD),programs-full)
	scripts/test-summary $(BUILD)

# UCX, MPIs, libfabric, pyverbs on the device, in all places (doc/programs.md).
test-apps: all
	scripts/deps build test apps
	rm -rf $(BUILD)/tap
	$(call run-suites,$(BUILD),apps-full)
	scripts/test-summary $(BUILD)

# Everything that needs a virtual machine, also what `make test` leaves out (doc/testing.md).
test-vm: all deps-siw
	rm -rf $(BUILD)/tap
	$(call run-vm,$(BUILD),vm vm-more)
	scripts/test-summary $(BUILD)

deps-vm:
	scripts/deps vm || echo "the tests that need a virtual machine will be skipped"

deps-siw: deps-vm
	scripts/deps siw || echo "the tests that need the kernel's siw will be skipped"

# Only what the suites run is built.
san-suites = $(or $(SAN_SUITES),$(if $(filter asan,$(1)),$(ASAN_SUITES),$(TSAN_SUITES)))
test-asan-run test-tsan-run: test-%-run: build-%/build.ninja
	nice ninja -C build-$* $(addprefix suite-,$(call san-suites,$*))
	rm -rf build-$*/tap
	$(call run-suites,build-$*,$(call san-suites,$*))

test-asan test-tsan: test-%: test-%-run
	scripts/test-summary build-$*

fuzz: build-fuzz/build.ninja
	ninja -C build-fuzz
	scripts/fuzz build-fuzz $(FUZZ_SECONDS)

stress: all
	LD_LIBRARY_PATH=$(abspath $(BUILD))/lib $(BUILD)/tests/stress/stress \
		--seconds $(STRESS_SECONDS) $(STRESS_ARGS)

# Does memory grow? Over TCP and over shared memory; STRESS_SECONDS=600 for a figure to rely on.
stress-memory: all
	for transport in tcp shm; do \
		ANYRDMA_TRANSPORT=$$transport LD_LIBRARY_PATH=$(abspath $(BUILD))/lib \
		$(BUILD)/tests/stress/stress --seconds $(STRESS_SECONDS) --procs 2 --qps 16 \
			--threads 1 --grow 4096 || exit 1; \
	done

bench: all
	scripts/deps bench
	BUILD=$(abspath $(BUILD)) bench/run.sh
	bench/host $(BUILD)

# In a virtual machine: the user-space device beside the kernel's rxe and siw. MODE=quick: in a minute.
bench-vm: all
	scripts/deps bench vm
	scripts/deps siw || echo "siw will be left out"
	BUILD=$(abspath $(BUILD)) bench/vm.sh $(MODE) || [ $$? = 77 ]

# The manual as HTML.
doc: all
	scripts/deps build doc
	scripts/man-html $(BUILD)/man $(BUILD)/doc/html

check: all
	scripts/deps check cross || echo "checks whose programs are missing will be left out"
	scripts/check $(BUILD)

install: all
	meson configure $(BUILD) -Dprefix=$(prefix)
	ninja -C $(BUILD)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-asan build-tsan build-fuzz build-clang build-release build-aarch64

# The suites share ports and processors.
.NOTPARALLEL:
.PHONY: all bench bench-vm check clean demo deps deps-siw deps-vm doc fuzz install quick stress stress-memory test test-apps \
	test-asan test-asan-run test-long test-normal test-programs test-tsan test-tsan-run test-vm
