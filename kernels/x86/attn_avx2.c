// SPDX-License-Identifier: MIT
/*
 * attn_avx2.c - attention over paged keys and values with AVX2.
 */
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/x86.h"

#include "kernels/x86/attn.h"
