# SPDX-License-Identifier: MIT
# libsits: static and shared. Its objects and those of crypto/.
LIB_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard libsits/*.c)))
LIB_LIBS := -luring -lkeyutils

$(O)/libsits.a: $(LIB_OBJS) $(CRYPTO_OBJS)
PROGRAMS += $(O)/libsits.a
