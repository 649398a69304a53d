# SPDX-License-Identifier: GPL-2.0 OR MIT
CRYPTO_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard crypto/*.c)))

# Bit planes want their short loops unrolled: gcc does so at -O3 (twice as fast as -O2).
$(O)/crypto/%.o: OBJ_CFLAGS := -O3
