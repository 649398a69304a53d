/* SPDX-License-Identifier: MIT */
/*
 * siphash.h - a keyed hash of words, for tables whose keys others choose: nobody without the key can make collisions.
 *
 * Source: Aumasson and Bernstein 2012, "SipHash: a fast short-input PRF", section 2; 2 and 4 rounds.
 */
#ifndef SITS_DAEMON_SIPHASH_H
#define SITS_DAEMON_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sits_sip {
	uint64_t v[4];
	uint64_t len_bytes;
};

static inline uint64_t sits_sip_rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

static inline void sits_sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = sits_sip_rotl(v[1], 13) ^ v[0];
	v[0] = sits_sip_rotl(v[0], 32);
	v[2] += v[3];
	v[3] = sits_sip_rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = sits_sip_rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = sits_sip_rotl(v[1], 17) ^ v[2];
	v[2] = sits_sip_rotl(v[2], 32);
}

static inline struct sits_sip sits_sip_begin(const uint64_t key[2])
{
	return (struct sits_sip){ .v = { key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
					 key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u } };
}

static inline void sits_sip_compress(struct sits_sip *s, uint64_t m)
{
	s->v[3] ^= m;
	sits_sip_round(s->v);
	sits_sip_round(s->v);
	s->v[0] ^= m;
}

/** sits_sip_word() - Eight bytes more, as a little-endian number. */
static inline void sits_sip_word(struct sits_sip *s, uint64_t m)
{
	sits_sip_compress(s, m);
	s->len_bytes += 8;
}

/** sits_sip_end() - The last @nr bytes, less than 8, at @tail; then the hash. */
static inline uint64_t sits_sip_end(struct sits_sip *s, const void *tail, size_t nr)
{
	uint64_t m = 0;
	int i;

	if (nr)
		memcpy(&m, tail, nr);
	sits_sip_compress(s, m | (s->len_bytes + nr) << 56);
	s->v[2] ^= 0xFF;
	for (i = 0; i < 4; i++)
		sits_sip_round(s->v);
	return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

/** sits_siphash() - Of @len bytes. */
static inline uint64_t sits_siphash(const uint64_t key[2], const void *bytes, size_t len)
{
	struct sits_sip s = sits_sip_begin(key);
	uint64_t m;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		memcpy(&m, (const char *)bytes + i, 8);
		sits_sip_word(&s, m);
	}
	return sits_sip_end(&s, (const char *)bytes + i, len - i);
}

#endif
