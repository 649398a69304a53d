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
	$(Q)$(CC) $(CFLAGS) $(SITS_CFLAGS) $(OBJ_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/%.a:
	@mkdir -p $(@D)
	@$(if $(V),,echo "  AR    $@")
	$(Q)rm -f $@; ar rcs $@ $^

-include $(patsubst %.o,%.d,$(CRYPTO_OBJS) $(LIB_OBJS) $(KERNEL_OBJS) $(DAEMON_OBJS))
-include $(shell find $(O) -name '*.d' 2>/dev/null)

.PHONY: clean
clean:
	$(Q)rm -rf build
