# SPDX-License-Identifier: MIT
# SITS: the front door. Each room lists its own objects in its build.mk.
#
#   make            everything        make test    install what is missing, run every test
#   make run        the main job      make help    all targets
#
# Variables: CC, O (where objects go), SAN=1 (ASan and UBSan), V=1 (show commands).

MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
CC_NAME := $(notdir $(firstword $(CC)))
O ?= build/$(CC_NAME)$(if $(SAN),-san)
Q := $(if $(V),,@)

VERSION := 0.1.0
WARN := -Wall -Wextra -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes \
	-Wvla -Wshadow -Wno-unused-parameter -Werror
CFLAGS ?= -O2 -g
SITS_CFLAGS := -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -fno-strict-aliasing \
	-fstack-protector-strong -I. -Iinclude -Iinclude/uapi -DSITS_VERSION='"$(VERSION)"' $(WARN)
# What a function may have on the stack, which the user may limit (ulimit -s). Kernels and the graph run on threads that get one
# of a mebibyte (daemon/engine/threads.h). Sanitizers take more, tests what they like.
FRAME := $(if $(SAN),,-Wframe-larger-than=16384)
$(O)/kernels/%.o: FRAME := $(if $(SAN),,-Wframe-larger-than=131072)
$(O)/daemon/engine/graph%.o: FRAME := $(if $(SAN),,-Wframe-larger-than=131072)
$(O)/tests/%.o: FRAME :=
SITS_LDFLAGS := -Wl,-z,relro,-z,now -pthread
ifdef SAN
SITS_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
SITS_LDFLAGS += -fsanitize=address,undefined
endif

.DEFAULT_GOAL := all
.PHONY: all
all:

# Each room adds to: LIB_OBJS (libsits), KERNEL_OBJS (compute), DAEMON_OBJS (sitsd without main),
# PROGRAMS (what `all` builds), TESTS (programs and scripts that print TAP), BENCHES, FUZZERS.
CRYPTO_OBJS :=
LIB_OBJS :=
KERNEL_OBJS :=
DAEMON_OBJS :=
PROGRAMS :=
TESTS :=
BENCHES :=
FUZZERS :=
include $(sort $(wildcard */build.mk))

all: $(PROGRAMS)

$(O)/%.o: %.c
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC    $(O)/$*.o")
	$(Q)$(CC) $(CFLAGS) $(SITS_CFLAGS) $(FRAME) $(OBJ_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/%.a:
	@mkdir -p $(@D)
	@$(if $(V),,echo "  AR    $@")
	$(Q)rm -f $@; ar rcs $@ $^

-include $(patsubst %.o,%.d,$(CRYPTO_OBJS) $(LIB_OBJS) $(KERNEL_OBJS) $(DAEMON_OBJS))
-include $(shell find $(O) -name '*.d' 2>/dev/null)

.PHONY: help run test check bench install clean
help:
	@echo 'make                 build everything into $(O)'
	@echo 'make run             seal a small real model, serve it, ask it something'
	@echo '                     MODEL=path PROMPT=text PROVIDER=kernel|user RUN_ARGS="--json -n 32 --temp 0"'
	@echo 'make test            install what is missing, run every test'
	@echo 'make check           the tests of this build alone; installs nothing [MATCH=text]'
	@echo 'make bench           measure, beside the peers [BENCH=name]; build/bench/results.jsonl'
	@echo 'make fuzz            10 million executions of each reader [FUZZ=name] [RUNS=n]'
	@echo 'make check-crypto-long   10 million random messages to SM4 on every core [CASES=n]'
	@echo 'make check-crypto-time   is the time that SM4 takes the same for all keys? [SAMPLES=n]'
	@echo 'make kmod            the kernel modules [KDIR=kernel build directory]'
	@echo 'make check-vm        the tests in a virtual machine, on stock kernels [KERNEL=6.1|6.12] [MATCH=text]'
	@echo 'make check-vm-debug  the same on a kernel that looks for faults; builds it first [MATCH=text]'
	@echo 'make check-avx512    AVX-512 and GFNI where the processor has neither, in Bochs; slow [MATCH=text]'
	@echo 'make vm-shell        a shell in that machine [KERNEL=6.1|6.12]'
	@echo 'make install         into $$DESTDIR$$PREFIX (default /usr/local)'
	@echo 'make install-kmod    the kernel modules, into $$DESTDIR/lib/modules [KDIR=kernel build directory]'
	@echo 'make install-dkms    their sources, for DKMS, into $$DESTDIR/usr/src'
	@echo 'make clean           remove build/'
	@echo 'Variables: CC=gcc|clang, SAN=1 (ASan and UBSan), O=dir (objects), V=1 (show commands)'

# Standard output belongs to the answer.
run:
	@scripts/install-deps run >&2
	@$(MAKE) --no-print-directory -j$$(nproc) all >&2
	@BUILD=$(O) scripts/run

test:
	@scripts/install-deps test
	@tests/all

check: tests
	@tests/all --here "$(O)" $(if $(MATCH),--match "$(MATCH)")

bench:
	@scripts/install-deps bench
	@$(MAKE) --no-print-directory -j$$(nproc) all bench-programs
	@tests/bench/run $(if $(BENCH),--bench "$(BENCH)") --build "$(O)"

PREFIX ?= /usr/local
install: all install-libsits install-service install-device
	install -D -m 0755 $(O)/sits $(DESTDIR)$(PREFIX)/bin/sits
	install -D -m 0755 $(O)/sits-model $(DESTDIR)$(PREFIX)/libexec/sits/sits-model
	install -D -m 0755 $(O)/sitsd $(DESTDIR)$(PREFIX)/sbin/sitsd
	for m in man/*.[14578]; do \
		install -D -m 0644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/} || exit 1; \
	done

# The unit names the daemon where it is installed.
.PHONY: install-service
install-service:
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed -e 's|/usr/sbin/sitsd|$(PREFIX)/sbin/sitsd|' packaging/sitsd.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/sitsd.service
	chmod 0644 $(DESTDIR)$(PREFIX)/lib/systemd/system/sitsd.service
	install -D -m 0644 packaging/sitsd.yaml $(DESTDIR)$(PREFIX)/share/sits/sitsd.yaml

clean:
	$(Q)rm -rf build
