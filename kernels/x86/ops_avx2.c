// SPDX-License-Identifier: MIT
/*
 * ops_avx2.c - preparation of activations, dequantisation and the row operations with AVX2.
 */
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/x86.h"

#include "kernels/x86/prepare.h"

#include "kernels/x86/ops.h"

#include "kernels/x86/fused.h"
