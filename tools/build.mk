# SPDX-License-Identifier: MIT
# The sits command: one file per subcommand, linked with libsits alone.
TOOL_OBJS := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tools/sits/*.c)))

$(O)/sits: $(TOOL_OBJS) $(O)/libsits.a
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ -ljansson -lm $(LIB_LIBS)

PROGRAMS += $(if $(TOOL_OBJS),$(O)/sits)
