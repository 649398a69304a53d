# SPDX-License-Identifier: MIT
# Fuzz targets: tests/fuzz/NAME_fuzz.c, seeds in tests/fuzz/corpus/NAME/, words in tests/fuzz/NAME.dict.
# They are built by themselves, with clang, libFuzzer, ASan and UBSan, in FUZZ_O.
#
#   make fuzz [FUZZ=name] [RUNS=n]      n executions of each target; what is found goes to FUZZ_O/found/
#   make fuzz-smoke                     a few seconds of each
FUZZ_NAMES := $(patsubst tests/fuzz/%_fuzz.c,%,$(sort $(wildcard tests/fuzz/*_fuzz.c)))
FUZZ_O ?= build/fuzz
FUZZ_BINS := $(FUZZ_NAMES:%=$(O)/tests/fuzz/%_fuzz)
FUZZERS += $(FUZZ_BINS)
FUZZ ?=
RUNS ?= 10000000

$(FUZZ_BINS): $(O)/%: $(O)/%.o $(TEST_LIBS)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(DAEMON_LIBS) $(LIB_LIBS)

# No SIMD kernels: readers compute nothing, and those take minutes to compile with sanitizers.
.SECONDARY: $(FUZZ_BINS:%=%.o)
.PHONY: fuzz fuzz-smoke fuzz-programs
fuzz-programs:
	@$(MAKE) --no-print-directory CC=clang SAN=1 O=$(FUZZ_O) KERNEL_X86= CFLAGS="-O1 -g -fsanitize=fuzzer-no-link" \
		$(FUZZ_NAMES:%=$(FUZZ_O)/tests/fuzz/%_fuzz)

fuzz: fuzz-programs
	@BUILD_FUZZ=$(FUZZ_O) tests/fuzz/run --runs $(RUNS) --keep $(FUZZ)

fuzz-smoke: fuzz-programs
	@BUILD_FUZZ=$(FUZZ_O) tests/fuzz/run --runs 20000 $(FUZZ)
