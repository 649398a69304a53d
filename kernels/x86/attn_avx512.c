// SPDX-License-Identifier: MIT
/*
 * attn_avx512.c - attention over paged keys and values with AVX-512.
 */
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"

#include "kernels/x86/attn.h"
