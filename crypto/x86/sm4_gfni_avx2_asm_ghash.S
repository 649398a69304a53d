/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * sm4_gfni_avx2_asm_ghash.S - GHASH by VPCLMULQDQ; ghash_avx2_asm.h says how.
 */
#define SITS_CORE(fn) sits_sm4_gfni_avx2_##fn

#include "crypto/x86/ghash_avx2_asm.h"

SITS_FUNC_START(SITS_CORE(ghash_key))
	GHASH_KEY
SITS_FUNC_END(SITS_CORE(ghash_key))

SITS_FUNC_START(SITS_CORE(ghash))
	GHASH y
SITS_FUNC_END(SITS_CORE(ghash))

SITS_ASM_END
