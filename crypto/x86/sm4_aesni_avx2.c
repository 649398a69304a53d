// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * sm4_aesni_avx2.c - the table of the AES-NI and AVX2 core; sm4_aesni_avx2_asm*.S is what works.
 */
#define SITS_AVX2(name) sits_sm4_aesni_avx2_##name
#include "crypto/x86/sm4_avx2.h"

const struct sits_sm4_core sits_sm4_aesni_avx2 = {
	.name = "aesni-avx2",
	.needs = SITS_CPU_AVX2 | SITS_CPU_AESNI | SITS_CPU_PCLMUL,
	SITS_AVX2_FUNCTIONS,
};
