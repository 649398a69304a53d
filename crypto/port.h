/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * port.h - the little that crypto/ needs from its surroundings; the only #ifdef __KERNEL__ here.
 */
#ifndef SITS_CRYPTO_PORT_H
#define SITS_CRYPTO_PORT_H

#ifdef __KERNEL__

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/string.h>
#include <linux/types.h>
#include <asm/barrier.h>
#ifdef CONFIG_X86_64
#include <asm/fpu/api.h>
#include <asm/simd.h>
#include <crypto/internal/simd.h>
#endif

#define sits_wipe(p, n) memzero_explicit(p, n)

/* What is found out once, by whoever comes first, and read by all. */
#define sits_publish(p, v) smp_store_release(p, v)
#define sits_observe(p) smp_load_acquire(p)

/*
 * Vector registers, preemption being off meanwhile: hence so many bytes at a time. False: they may not be used here and now.
 */
#define SITS_SIMD_BYTES 16384u
static inline bool sits_simd_begin(void)
{
#ifdef CONFIG_X86_64
	if (crypto_simd_usable()) {
		kernel_fpu_begin();
		return true;
	}
#endif
	return false;
}

static inline void sits_simd_end(void)
{
#ifdef CONFIG_X86_64
	kernel_fpu_end();
#endif
}

#define sits_noinline noinline

/* Room that stacks of the kernel do not have: for functions that one caller at a time uses. */
#define SITS_ROOM static

/* The kernel may not touch vector registers: sm4_bs128.c is left out of modules. */
#define SITS_HAVE_VECTORS 0
#define SITS_HAVE_X86_USER 0

#else

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef SITS_CRYPTO_TYPES
#define SITS_CRYPTO_TYPES
typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#define sits_wipe(p, n) explicit_bzero(p, n)

#define sits_publish(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define sits_observe(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)

#define SITS_SIMD_BYTES ((size_t)1 << 30)
static inline bool sits_simd_begin(void)
{
	return true;
}

static inline void sits_simd_end(void)
{
}

#define sits_noinline __attribute__((noinline))

#define SITS_ROOM

#define SITS_HAVE_VECTORS 1

/* Assembly that is for userspace alone (crypto/x86/wipe.S, sm3_bmi2.S). */
#ifdef __x86_64__
#define SITS_HAVE_X86_USER 1
#else
#define SITS_HAVE_X86_USER 0
#endif

#endif

/* Unaligned loads and stores of either byte order. */
static inline u32 sits_get_be32(const u8 *p)
{
	return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3];
}

static inline void sits_put_be32(u8 *p, u32 v)
{
	p[0] = (u8)(v >> 24);
	p[1] = (u8)(v >> 16);
	p[2] = (u8)(v >> 8);
	p[3] = (u8)v;
}

static inline u64 sits_get_be64(const u8 *p)
{
	return (u64)sits_get_be32(p) << 32 | sits_get_be32(p + 4);
}

static inline void sits_put_be64(u8 *p, u64 v)
{
	sits_put_be32(p, (u32)(v >> 32));
	sits_put_be32(p + 4, (u32)v);
}

static inline u32 sits_get_le32(const u8 *p)
{
	return (u32)p[3] << 24 | (u32)p[2] << 16 | (u32)p[1] << 8 | p[0];
}

static inline void sits_put_le32(u8 *p, u32 v)
{
	p[0] = (u8)v;
	p[1] = (u8)(v >> 8);
	p[2] = (u8)(v >> 16);
	p[3] = (u8)(v >> 24);
}

static inline u64 sits_get_le64(const u8 *p)
{
	return (u64)sits_get_le32(p + 4) << 32 | sits_get_le32(p);
}

static inline void sits_put_le64(u8 *p, u64 v)
{
	sits_put_le32(p, (u32)v);
	sits_put_le32(p + 4, (u32)(v >> 32));
}

#endif
