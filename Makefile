# The usual commands. The build itself is described in meson.build, packages in scripts/deps.
#
#	make            build; build/bin/zwinger is the result
#	make demo       a data-analysis job in a sandbox
#	make check      every check and test; the last line counts them
#	make check-e2b  the official E2B SDK from npm at a daemon of this build
#	make check-mcp  the official MCP SDK and conformance runner from npm at this build
#	make soak       the daemon under load for about an hour (MINUTES= of the mixed load, SHORT=1 for two minutes of it all, ONLY= one subject)
#	make bench      speed, against other sandboxes found here (QUICK=1 for a rough answer)
#	make install    DESTDIR= and prefix= as usual
#	make deps       install (as root) or name (otherwise) every package that the above need
#	make fuzz       FUZZ_SECONDS= for each fuzz target
#	make tidy       clang-tidy        make format     clang-format in place        make clean

BUILD ?= build
prefix ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
SHELL = /bin/sh
MAKEFLAGS += --no-print-directory

# A directory is set up once; ninja itself notices changes of meson.build afterwards.
setup = test -f $(1)/build.ninja || $(2) meson setup $(1) $(3) > $(1).log || { cat $(1).log; rm -f $(1)/build.ninja; exit 1; }; rm -f $(1).log
# Progress for whoever watches, silence for a log.
ninja = if [ -t 1 ]; then ninja -C $(1); else ninja -C $(1) --quiet; fi

.PHONY: all build build-clang demo check check-e2b check-mcp soak bench install deps deps-build deps-demo deps-check deps-bench fuzz tidy format clean

all: build

deps: ; @scripts/deps build demo check bench
deps-build: ; @scripts/deps build
deps-demo: ; @scripts/deps build demo
deps-check: ; @scripts/deps check
deps-bench: ; @scripts/deps bench

build: deps-build
	@$(call setup,$(BUILD),)
	@$(call ninja,$(BUILD))

# By a second compiler, which has other warnings, with the address and undefined-behaviour sanitizers and the fuzz targets: what the
# unit tests run in once more, and what the fuzzers need.
build-clang: deps-check
	@$(call setup,$(BUILD)-clang,CC=clang,-Dfuzz=true -Db_sanitize=address$(,)undefined -Db_lundef=false -Dstatic=false)
	@$(call ninja,$(BUILD)-clang)

demo: deps-demo build
	@examples/data-analysis/demo.sh $(BUILD)/bin/zwinger

check: deps-check build build-clang
	@scripts/run-tests $(BUILD)

# The official SDK of E2B, installed from npm into the build folder, at a daemon of this build. Needs node, npm and, once, a network.
check-e2b: build
	@tests/e2b/run-sdk $(BUILD)

check-mcp: build
	@tests/mcp/run-sdk $(BUILD)

soak: deps-check build
	@tests/soak/run-soak $(BUILD) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY))

bench: deps-bench build
	@failed=0; bench/run $(BUILD) $(if $(QUICK),--quick) || failed=1; echo; \
	bench/network $(BUILD) $(if $(QUICK),--quick) || failed=1; echo; \
	bench/daemon $(BUILD) $(if $(QUICK),--quick) || failed=1; exit $$failed

install: build
	@meson configure $(BUILD) -Dprefix=$(prefix)
	@$(call ninja,$(BUILD))
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild --quiet

fuzz: build-clang
	@scripts/fuzz $(BUILD)-clang $(FUZZ_SECONDS)

tidy: build-clang
	@scripts/tidy $(BUILD)-clang

format:
	@scripts/check-format --fix

clean:
	rm -rf --one-file-system $(BUILD) $(BUILD)-clang

, := ,
