/* SPDX-License-Identifier: MIT */
/*
 * pattern.h - a secret to look for in all of memory, by a program that does not hold it: 16 bytes, all different, over and over.
 *
 * What is kept is masked, and what is compared or written is unmasked a byte or a word at a time, through volatile: so neither this
 * program's memory nor a saved register set has a run of it. Any run of 23 bytes is found, at whatever offset it lies: it has
 * two aligned words in a row, each of which is one of 16.
 */
#ifndef SITS_PATTERN_H
#define SITS_PATTERN_H

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATTERN_BYTES 16

struct pattern {
	unsigned char masked[PATTERN_BYTES];
	unsigned char mask[PATTERN_BYTES];
	uint64_t word_mask;
	uint64_t words[256];	/* by their lowest byte, masked; 0: none starts with that */
};

/* Where it was found. */
struct finds {
	long pages;		/* of 4 KiB, with at least one */
	uint64_t at[512];	/* addresses of the first of them */
};

static uint64_t pattern_seed;

/* Source: Marsaglia 2003, "Xorshift RNGs", the triple 13, 7, 17. */
__attribute__((unused))
static uint64_t pattern_random(void)
{
	pattern_seed ^= pattern_seed << 13;
	pattern_seed ^= pattern_seed >> 7;
	pattern_seed ^= pattern_seed << 17;
	return pattern_seed;
}

__attribute__((unused))
static void pattern_set_seed(void)
{
	const char *text = getenv("SITS_SEED");
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	pattern_seed = text ? strtoull(text, NULL, 0) : (uint64_t)ts.tv_sec * 1000000007u + ts.tv_nsec;
	pattern_seed |= 1;
	printf("# SITS_SEED=%llu\n", (unsigned long long)pattern_seed);
}

static inline unsigned char pattern_byte(const struct pattern *p, unsigned long i)
{
	const volatile unsigned char *a = p->masked, *b = p->mask;

	return a[i % PATTERN_BYTES] ^ b[i % PATTERN_BYTES];
}

__attribute__((unused))
static void pattern_make(struct pattern *p)
{
	memset(p, 0, sizeof(*p));
	p->word_mask = pattern_random();
	for (unsigned int i = 0; i < PATTERN_BYTES; i++) {
		bool again = true;

		while (again) {
			uint64_t r = pattern_random();

			p->masked[i] = r >> 20;
			p->mask[i] = r >> 40;
			again = !pattern_byte(p, i);
			for (unsigned int k = 0; k < i; k++)
				again |= pattern_byte(p, k) == pattern_byte(p, i);
		}
	}
	for (unsigned int i = 0; i < PATTERN_BYTES; i++) {
		volatile uint64_t word = p->word_mask;

		for (unsigned int k = 0; k < 8; k++)
			word ^= (uint64_t)pattern_byte(p, i + k) << (8 * k);
		p->words[pattern_byte(p, i)] = word;
	}
}

__attribute__((unused))
static void pattern_fill(const struct pattern *p, volatile unsigned char *to, unsigned long len)
{
	for (unsigned long i = 0; i < len; i++)
		to[i] = pattern_byte(p, i);
}

__attribute__((unused))
static bool pattern_is(const struct pattern *p, const volatile unsigned char *at, unsigned long len)
{
	for (unsigned long i = 0; i < len; i++)
		if (at[i] != pattern_byte(p, i))
			return false;
	return true;
}

static inline bool pattern_word(const struct pattern *p, uint64_t x)
{
	uint64_t want = p->words[x & 0xff];

	return want && (x ^ p->word_mask) == want;
}

/* Look through @len bytes that come from address @addr of what is searched. Runs across two calls count in neither. */
__attribute__((unused))
static void pattern_scan(const struct pattern *p, const void *buf, unsigned long len, uint64_t addr, struct finds *f)
{
	const volatile uint64_t *w = buf;

	for (unsigned long i = 0; i + 1 < len / 8; i++) {
		if (!pattern_word(p, w[i]) || !pattern_word(p, w[i + 1]))
			continue;
		if (f->pages < (long)(sizeof(f->at) / sizeof(f->at[0])))
			f->at[f->pages] = (addr + i * 8) & ~4095ull;
		f->pages++;
		/* On to the next page. */
		i = (((addr + i * 8) | 4095) + 1 - addr) / 8 - 1;
	}
}

/* All of a file or a block device. Return bytes read, or -1. */
__attribute__((unused))
static long long pattern_scan_file(const struct pattern *p, const char *path, struct finds *f)
{
	static uint64_t buf[(1 << 20) / 8];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long long off = 0;
	ssize_t n;

	while (fd >= 0 && (n = pread(fd, buf, sizeof(buf), off)) > 0) {
		pattern_scan(p, buf, n, off, f);
		off += n;
		memset(buf, 0, sizeof(buf));
	}
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : off;
}

/* All memory that the kernel has mapped, by /proc/kcore; addresses are physical. Return bytes read, or -1. */
__attribute__((unused))
static long long pattern_scan_memory(const struct pattern *const *ps, struct finds *fs, int nr)
{
	static uint64_t buf[(1 << 20) / 8];
	static Elf64_Phdr ph[256];
	int fd = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
	long long total = 0;
	Elf64_Ehdr eh;

	if (fd < 0)
		return -1;
	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh) || eh.e_phnum > 256 ||
	    pread(fd, ph, eh.e_phnum * sizeof(ph[0]), eh.e_phoff) != (ssize_t)(eh.e_phnum * sizeof(ph[0]))) {
		close(fd);
		return -1;
	}
	for (int i = 0; i < eh.e_phnum; i++) {
		/* The direct map alone: the kernel's text is mapped twice, and what is vmalloc's is in it as well. */
		if (ph[i].p_type != PT_LOAD || ph[i].p_paddr == (Elf64_Addr)-1 || ph[i].p_vaddr >= 0xffffffff80000000ull)
			continue;
		for (uint64_t off = 0; off < ph[i].p_memsz; off += sizeof(buf)) {
			uint64_t left = ph[i].p_memsz - off;
			ssize_t n = pread(fd, buf, left < sizeof(buf) ? left : sizeof(buf), ph[i].p_offset + off);

			if (n <= 0)
				continue;
			for (int k = 0; k < nr; k++)
				pattern_scan(ps[k], buf, n, ph[i].p_paddr + off, &fs[k]);
			total += n;
			/* Or it would be found here, later. */
			memset(buf, 0, sizeof(buf));
		}
	}
	close(fd);
	return total;
}

#endif
