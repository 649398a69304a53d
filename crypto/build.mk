# SPDX-License-Identifier: GPL-2.0 OR MIT
CRYPTO_OBJS += $(patsubst %.c,$(O)/%.o,$(sort $(wildcard crypto/*.c)))

# gcc unrolls the short loops over planes at -O3 only, which makes SM4 and GHASH twice as fast.
$(O)/crypto/%.o: OBJ_CFLAGS := -O3

# The cores of x86-64: crypto/x86/NAME.c is the table of one, NAME_*.S its assembly, asm_*.S what several share. A core that
# the assembler does not know the instructions of is left out. Kbuild asks the same, for modules.
ifeq ($(shell $(CC) -dumpmachine | cut -d- -f1),x86_64)
assembles = $(shell printf '%s\n' '$(1)' | $(CC) -c -x assembler -o /dev/null - 2>/dev/null && echo y)
SM4_PROBE_sm4_aesni_avx2 := vaesenclast %xmm0, %xmm1, %xmm2; vpclmulqdq $$0, %xmm0, %xmm1, %xmm2; vpshufb %ymm0, %ymm1, %ymm2
SM4_PROBE_sm4_gfni_avx2 := vgf2p8affineinvqb $$0, %ymm0, %ymm1, %ymm2; vpclmulqdq $$0, %ymm0, %ymm1, %ymm2
SM4_PROBE_sm4_gfni_avx512 := vgf2p8affineinvqb $$0, %zmm0, %zmm1, %zmm2; vpclmulqdq $$0, %zmm0, %zmm1, %zmm2; vpermi2b %zmm0, %zmm1, %zmm2
SM4_CORES := $(foreach c,sm4_aesni_avx2 sm4_gfni_avx2 sm4_gfni_avx512,$(if $(wildcard crypto/x86/$c.c),$(if $(call assembles,$(SM4_PROBE_$c)),$c)))
SM4_SRCS := crypto/x86/cpu.c crypto/x86/sm3_bmi2.S crypto/x86/wipe.S $(foreach c,$(SM4_CORES),crypto/x86/$c.c $(wildcard crypto/x86/$c_*.S)) \
	$(if $(SM4_CORES),$(wildcard crypto/x86/asm_*.S))
CRYPTO_OBJS += $(addprefix $(O)/,$(addsuffix .o,$(basename $(sort $(SM4_SRCS)))))
SITS_CFLAGS += $(foreach c,$(SM4_CORES),-DSITS_HAVE_$(shell echo $c | tr a-z A-Z))

# It names them.
$(O)/crypto/sm4_cores.o: $(SM4_CORES:%=crypto/x86/%.c)

$(O)/crypto/x86/%.o: crypto/x86/%.S
	@mkdir -p $(@D)
	@$(if $(V),,echo "  AS    $@")
	$(Q)$(CC) $(CFLAGS) $(SITS_CFLAGS) -MMD -MP -c -o $@ $<
else
CRYPTO_OBJS += $(O)/crypto/x86/cpu.o
endif
