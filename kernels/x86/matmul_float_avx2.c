// SPDX-License-Identifier: MIT
/*
 * matmul_float_avx2.c - matrix products of float weights with AVX2.
 */
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/x86.h"

#include "kernels/x86/matmul_float.h"
