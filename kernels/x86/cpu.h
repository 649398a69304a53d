/* SPDX-License-Identifier: MIT */
/*
 * cpu.h - what this processor and operating system allow.
 */
#ifndef SITS_KERNELS_X86_CPU_H
#define SITS_KERNELS_X86_CPU_H

#include <stdbool.h>

/** sits_cpu_has_avx2() - AVX2, FMA, F16C and BMI2, and the system saves YMM registers. */
bool sits_cpu_has_avx2(void);

/** sits_cpu_has_avx512() - Also AVX-512 F, BW, VL, DQ and VNNI, and the system saves ZMM and masks. */
bool sits_cpu_has_avx512(void);

/** sits_cpu_has_avx512bf16() - Also AVX512_BF16. */
bool sits_cpu_has_avx512bf16(void);

#endif
