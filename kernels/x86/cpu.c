// SPDX-License-Identifier: MIT
/*
 * cpu.c - detection of instruction sets. Compiled without instruction set flags.
 *
 * CPUID says what the processor has; XGETBV says which registers the operating system saves.
 * Both must agree. Bit numbers: Intel SDM volume 2A, CPUID, tables 3-8 and following; volume 1,
 * section 13.3 (XCR0).
 */
#include <cpuid.h>
#include <stdint.h>

#include "kernels/x86/cpu.h"

#define BIT(n) (1u << (n))

#define L1C_FMA BIT(12)
#define L1C_OSXSAVE BIT(27)
#define L1C_AVX BIT(28)
#define L1C_F16C BIT(29)
#define L7B_AVX2 BIT(5)
#define L7B_BMI2 BIT(8)
#define L7B_AVX512 (BIT(16) | BIT(17) | BIT(30) | BIT(31))	/* F, DQ, BW, VL */
#define L7C_VNNI BIT(11)
#define L71A_BF16 BIT(5)		/* leaf 7, subleaf 1 */
#define XCR0_YMM (BIT(1) | BIT(2))
#define XCR0_ZMM (XCR0_YMM | BIT(5) | BIT(6) | BIT(7))

static bool has(uint32_t word, uint32_t bits)
{
	return (word & bits) == bits;
}

static uint32_t xcr0(void)
{
	uint32_t lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return lo;
}

bool sits_cpu_has_avx2(void)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, L1C_FMA | L1C_OSXSAVE | L1C_AVX | L1C_F16C))
		return false;
	if (!has(xcr0(), XCR0_YMM))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && has(b, L7B_AVX2 | L7B_BMI2);
}

bool sits_cpu_has_avx512(void)
{
	uint32_t a, b, c, d;

	if (!sits_cpu_has_avx2() || !has(xcr0(), XCR0_ZMM))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && has(b, L7B_AVX512) && has(c, L7C_VNNI);
}

bool sits_cpu_has_avx512bf16(void)
{
	uint32_t a, b, c, d;

	return sits_cpu_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, L71A_BF16);
}
