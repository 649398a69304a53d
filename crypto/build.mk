# SPDX-License-Identifier: GPL-2.0 OR MIT
CRYPTO_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard crypto/*.c)))

# gcc unrolls the short loops over planes at -O3 only, which makes SM4 and GHASH twice as fast; and SM3 gets
# slower by half where its message schedule is vectorised.
$(O)/crypto/%.o: OBJ_CFLAGS := -O3
$(O)/crypto/sm3.o: OBJ_CFLAGS := -O3 -fno-tree-vectorize
