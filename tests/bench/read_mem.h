/* SPDX-License-Identifier: MIT */
/*
 * read_mem.h - reading memory as fast as cores can: the limit of what has to read much of it.
 *
 * Which way is the fastest differs: where the hardware's prefetchers see far, a plain loop; where they stop at the end of a page of
 * 4 KiB, as in some virtual machines, fetching ahead, or several streams, more than twice as fast there. A limit is the best of all.
 */
#ifndef SITS_TESTS_BENCH_READ_MEM_H
#define SITS_TESTS_BENCH_READ_MEM_H

#include <stddef.h>
#include <stdint.h>

#define READ_WAYS 3

typedef uint64_t read_vec __attribute__((vector_size(64), aligned(1), may_alias));

static inline uint64_t read_streams(const uint8_t *mem, size_t bytes, size_t streams, size_t ahead)
{
	size_t each = bytes / streams / 128 * 128;
	read_vec a = { 0 }, b = { 0 };

	for (size_t i = 0; i < each; i += 128) {
		for (const uint8_t *p = mem + i; p < mem + streams * each; p += each) {
			if (ahead) {
				__builtin_prefetch(p + ahead);
				__builtin_prefetch(p + ahead + 64);
			}
			a ^= *(const read_vec *)p;
			b ^= *(const read_vec *)(p + 64);
		}
	}
	a ^= b;
	return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

/*
 * Read @bytes from @mem on, but for less than 512 at the end. @way: 0 to READ_WAYS - 1. Return: something that needs
 * them all.
 */
static inline uint64_t read_mem(const void *mem, size_t bytes, unsigned int way)
{
	return way == 0 ? read_streams(mem, bytes, 1, 0) : way == 1 ? read_streams(mem, bytes, 1, 4096) : read_streams(mem, bytes, 4, 2048);
}

#endif
