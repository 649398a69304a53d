# SPDX-License-Identifier: GPL-2.0 OR MIT
CRYPTO_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard crypto/*.c)))
