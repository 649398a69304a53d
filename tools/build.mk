# SPDX-License-Identifier: MIT
# The sits command: one file per subcommand, linked with libsits alone. sits-model has the subcommands that hold
# plaintext weights, and all of the daemon's rooms behind them; `sits` starts it.
TOOL_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tools/sits/*.c)))
MODEL_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tools/model/*.c)))

# The manifest of a sealed directory is read by both, in one source that needs nothing else.
$(O)/sits: $(TOOL_OBJS) $(O)/daemon/manifest.o $(O)/daemon/diag.o $(O)/libsits.a
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ -ljansson -lm $(LIB_LIBS)

$(O)/sits-model: $(MODEL_OBJS) $(filter $(O)/tools/sits/tool_%,$(TOOL_OBJS)) $(O)/libsitsd.a $(O)/libkernels.a $(O)/libsits.a
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ $(DAEMON_LIBS) $(LIB_LIBS)

# Quantising is loops over rows of weights.
$(O)/tools/model/%.o: CFLAGS := $(if $(SAN),-O1,-O3) -g -ffp-contract=off -fno-math-errno

PROGRAMS += $(O)/sits $(O)/sits-model
