// SPDX-License-Identifier: MIT
/*
 * matmul_float_avx512.c - matrix products of float weights with AVX-512.
 */
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"

#include "kernels/x86/matmul_float.h"
