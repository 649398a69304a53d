# SPDX-License-Identifier: MIT
# Tests. tests/unit/ROOM/foo_test.c becomes a program that prints TAP (cmocka); it may use every
# room. Executable files tests/**/*.t print TAP themselves
# (those in tests/vm/guest in a virtual machine). tests/bench/*_bench.c are benchmarks.
UNIT_SRCS := $(sort $(shell find tests/unit tests/abi -name '*_test.c' 2>/dev/null))
UNIT_BINS := $(UNIT_SRCS:%.c=$(O)/%)
BENCH_BINS := $(patsubst %.c,$(O)/%,$(sort $(wildcard tests/bench/*_bench.c)))
TESTS += $(UNIT_BINS) $(sort $(shell find tests -path tests/vm/guest -prune -o -name '*.t' -print 2>/dev/null))
BENCHES += $(BENCH_BINS)
TEST_LIBS := $(O)/libsitsd.a $(O)/libkernels.a $(O)/libsits.a
# The command is no library: its tests link its objects, which come before the libraries they need.
TEST_TOOL_OBJS := $(patsubst %.c,$(O)/%.o,$(filter-out tools/sits/main.c,$(sort $(wildcard tools/sits/*.c))))
$(filter $(O)/tests/unit/tools/%,$(UNIT_BINS)): $(TEST_TOOL_OBJS)
# The same of sits-model, which has what they share of `sits`.
TEST_MODEL_OBJS := $(patsubst %.c,$(O)/%.o,$(filter-out tools/model/main.c,$(sort $(wildcard tools/model/*.c))) \
	$(sort $(wildcard tools/sits/tool_*.c)))
$(filter $(O)/tests/unit/quantize/%,$(UNIT_BINS)): $(TEST_MODEL_OBJS)
$(filter $(O)/tests/unit/provider/%,$(UNIT_BINS)): $(PROVIDER_OBJS)

$(UNIT_BINS) $(BENCH_BINS): $(O)/%: $(O)/%.o $(TEST_LIBS)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -lcmocka -lcrypto -lgcrypt $(DAEMON_LIBS) $(LIB_LIBS)

include tests/fuzz/build.mk
include tests/vm/build.mk
include tests/unit/crypto/build.mk

.SECONDARY: $(UNIT_BINS:%=%.o) $(BENCH_BINS:%=%.o)
.PHONY: tests unit-tests bench-programs list-tests
unit-tests: $(UNIT_BINS)
bench-programs: $(BENCH_BINS)
tests: all unit-tests bench-programs vm-programs

# For tests/all: what there is to run.
list-tests:
	@printf '%s\n' $(TESTS)
