// SPDX-License-Identifier: MIT
/*
 * ops_avx512.c - preparation of activations, dequantisation and the row operations with AVX-512.
 */
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/x86.h"

#include "kernels/x86/prepare.h"

#include "kernels/x86/ops.h"

#include "kernels/x86/fused.h"
