# SPDX-License-Identifier: MIT
# sitsd. Everything but main.c goes into a library, so that tests can link the rooms.
DAEMON_OBJS += $(patsubst %.c,$(O)/%.o,$(filter-out daemon/main.c,$(sort $(wildcard daemon/*.c daemon/*/*.c))))
DAEMON_LIBS := -lcyaml -lyaml -ljansson -lpcre2-8 -lutf8proc -lsystemd -lm

$(O)/libsitsd.a: $(DAEMON_OBJS)

$(O)/sitsd: $(O)/daemon/main.o $(O)/libsitsd.a $(O)/libkernels.a $(O)/libsits.a
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS) $(SITS_LDFLAGS) -o $@ $^ $(DAEMON_LIBS) $(LIB_LIBS)

PROGRAMS += $(O)/libsitsd.a $(if $(wildcard daemon/main.c),$(O)/sitsd)
