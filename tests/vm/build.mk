# SPDX-License-Identifier: MIT
# The guest's own programs, and the targets that boot it. docs/vm-tests.md
VM_SRCS := $(sort $(wildcard tests/vm/guest/*_test.c))
VM_BINS := $(VM_SRCS:%.c=$(O)/%)

$(VM_BINS): $(O)/%: $(O)/%.o $(TEST_LIBS)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ -lcmocka -lcrypto $(DAEMON_LIBS) $(LIB_LIBS)

# The first process has nothing to load libraries from, and is no place for a sanitizer.
$(O)/tests/vm/init: tests/vm/init.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(filter-out -fsanitize% -fno-sanitize%,$(SITS_CFLAGS)) -static -o $@ $<

.SECONDARY: $(VM_BINS:%=%.o)
.PHONY: vm-programs check-vm vm-shell
vm-programs: $(VM_BINS) $(O)/tests/vm/init

VM_KERNELS := $(patsubst %,--kernel %,$(KERNEL))
check-vm: all unit-tests vm-programs
	@tests/vm/run --build "$(O)" $(VM_KERNELS) $(if $(MATCH),--match "$(MATCH)")

vm-shell: all unit-tests vm-programs
	@tests/vm/run --build "$(O)" --shell $(or $(VM_KERNELS),--kernel 6.1)
