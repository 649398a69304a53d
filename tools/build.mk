# SPDX-License-Identifier: MIT
# The sits command: one file per subcommand, linked with libsits alone.
TOOL_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tools/sits/*.c)))

# The manifest of a sealed directory is read by both, in one source that needs nothing else.
$(O)/sits: $(TOOL_OBJS) $(O)/daemon/manifest.o $(O)/daemon/diag.o $(O)/libsits.a
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ -ljansson -lm $(LIB_LIBS)

PROGRAMS += $(O)/sits
