// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * cpu.c - what this processor, and the system that saves its registers, can do for SM4.
 */
#include "crypto/sm4_core.h"

#if defined(__x86_64__) && defined(__KERNEL__)

#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <asm/fpu/types.h>

static u32 ask(void)
{
	u32 has = 0;

	if (boot_cpu_has(X86_FEATURE_AES))
		has |= SITS_CPU_AESNI;
	if (boot_cpu_has(X86_FEATURE_PCLMULQDQ))
		has |= SITS_CPU_PCLMUL;
	if (boot_cpu_has(X86_FEATURE_GFNI))
		has |= SITS_CPU_GFNI;
	if (boot_cpu_has(X86_FEATURE_VPCLMULQDQ))
		has |= SITS_CPU_VPCLMUL;
	if (boot_cpu_has(X86_FEATURE_AVX) && boot_cpu_has(X86_FEATURE_AVX2) && boot_cpu_has(X86_FEATURE_OSXSAVE) &&
	    cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL))
		has |= SITS_CPU_AVX2;
	if ((has & SITS_CPU_AVX2) && boot_cpu_has(X86_FEATURE_AVX512F) && boot_cpu_has(X86_FEATURE_AVX512BW) &&
	    boot_cpu_has(X86_FEATURE_AVX512VL) && boot_cpu_has(X86_FEATURE_AVX512DQ) &&
	    boot_cpu_has(X86_FEATURE_AVX512VBMI) &&
	    cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM | XFEATURE_MASK_AVX512, NULL))
		has |= SITS_CPU_AVX512;
	return has;
}

#elif defined(__x86_64__)

#include <cpuid.h>

/* Intel's Software Developer's Manual, volume 2, CPUID: leaves 1 and 7. */
#define LEAF1_ECX_PCLMULQDQ	(1u << 1)
#define LEAF1_ECX_AES		(1u << 25)
#define LEAF1_ECX_OSXSAVE	(1u << 27)
#define LEAF1_ECX_AVX		(1u << 28)
#define LEAF7_EBX_AVX2		(1u << 5)
#define LEAF7_EBX_BMI		(1u << 3 | 1u << 8)	/* 1, 2 */
#define LEAF7_EBX_AVX512	(1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)	/* F, DQ, BW, VL */
#define LEAF7_ECX_AVX512VBMI	(1u << 1)
#define LEAF7_ECX_GFNI		(1u << 8)
#define LEAF7_ECX_VPCLMULQDQ	(1u << 10)
/* Volume 1, XCR0: the registers that the system saves. */
#define XCR0_YMM		0x06u	/* xmm and the upper halves of ymm */
#define XCR0_ZMM		0xe6u	/* those, masks, the upper halves of zmm, and zmm16 and up */

static u32 saved_registers(void)
{
	u32 low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static u32 ask(void)
{
	u32 a, b, c, d, b7 = 0, c7 = 0, xcr0, has = 0;

	if (!__get_cpuid(1, &a, &b, &c, &d))
		return 0;
	if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d))
		b7 = c7 = 0;
	xcr0 = c & LEAF1_ECX_OSXSAVE ? saved_registers() : 0;
	if (c & LEAF1_ECX_AES)
		has |= SITS_CPU_AESNI;
	if (c & LEAF1_ECX_PCLMULQDQ)
		has |= SITS_CPU_PCLMUL;
	if (c7 & LEAF7_ECX_GFNI)
		has |= SITS_CPU_GFNI;
	if (c7 & LEAF7_ECX_VPCLMULQDQ)
		has |= SITS_CPU_VPCLMUL;
	if ((b7 & LEAF7_EBX_BMI) == LEAF7_EBX_BMI)
		has |= SITS_CPU_BMI;
	if ((c & LEAF1_ECX_AVX) && (b7 & LEAF7_EBX_AVX2) && (xcr0 & XCR0_YMM) == XCR0_YMM)
		has |= SITS_CPU_AVX2;
	if ((has & SITS_CPU_AVX2) && (b7 & LEAF7_EBX_AVX512) == LEAF7_EBX_AVX512 && (c7 & LEAF7_ECX_AVX512VBMI) &&
	    (xcr0 & XCR0_ZMM) == XCR0_ZMM)
		has |= SITS_CPU_AVX512;
	return has;
}

#else

static u32 ask(void)
{
	return 0;
}

#endif

#define ASKED (1u << 31)

u32 sits_cpu_features(void)
{
	static u32 answer;
	u32 has = sits_observe(&answer);

	if (!has) {
		has = ask() | ASKED;
		sits_publish(&answer, has);
	}
	return has & ~ASKED;
}
