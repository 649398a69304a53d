# SPDX-License-Identifier: MIT
# The guest's own programs, and the targets that boot it. docs/vm-tests.md
VM_SRCS := $(sort $(wildcard tests/vm/guest/*_test.c))
VM_BINS := $(VM_SRCS:%.c=$(O)/%)

# Without libdrm this one says so and skips.
$(O)/tests/vm/guest/zerocopy_drm_test.o: OBJ_CFLAGS := $(shell pkg-config --silence-errors --cflags libdrm)
$(O)/tests/vm/guest/zerocopy_drm_test: VM_LIBS := $(shell pkg-config --silence-errors --libs libdrm)

$(VM_BINS): $(O)/%: $(O)/%.o $(TEST_LIBS)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ -lcmocka -lcrypto $(VM_LIBS) $(DAEMON_LIBS) $(LIB_LIBS)

# The first process has nothing to load libraries from, and is no place for a sanitizer.
$(O)/tests/vm/init: tests/vm/init.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(filter-out -fsanitize% -fno-sanitize%,$(SITS_CFLAGS)) -static -o $@ $<

# The boot sector of Bochs' disk.
$(O)/tests/vm/boot.bin: tests/vm/boot.S
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -c -o $(@:.bin=.o) $<
	$(Q)ld -Ttext=0x7c00 -e _start --oformat=binary -o $@ $(@:.bin=.o)

.SECONDARY: $(VM_BINS:%=%.o)
.PHONY: vm-programs check-vm check-vm-debug check-avx512 vm-shell
vm-programs: $(VM_BINS) $(O)/tests/vm/init

VM_KERNELS := $(patsubst %,--kernel %,$(KERNEL))
check-vm: all unit-tests vm-programs
	@tests/vm/run --build "$(O)" $(VM_KERNELS) $(if $(MATCH),--match "$(MATCH)")

# The same on a kernel that looks for faults: KASAN, lockdep, kmemleak.
check-vm-debug: all unit-tests vm-programs
	@scripts/install-deps debug
	@tests/vm/run --build "$(O)" --kernel 6.1-debug $(if $(MATCH),--match "$(MATCH)")

# AVX-512 and GFNI where the processor has none.
check-avx512: unit-tests $(O)/tests/vm/init $(O)/tests/vm/boot.bin
	@scripts/install-deps avx512
	@tests/vm/run --build "$(O)" --bochs $(if $(MATCH),--match "$(MATCH)")

vm-shell: all unit-tests vm-programs
	@tests/vm/run --build "$(O)" --shell $(or $(VM_KERNELS),--kernel 6.1)
