// SPDX-License-Identifier: MIT
/*
 * sm4_diff_test.c - SM4 against OpenSSL, libgcrypt and the standards' definitions, on every core, bit for bit: all lengths
 * to 8192, all alignments, counters that wrap, nonces and associated data of all lengths, and random messages up to 64 MiB
 * in random pieces.
 *
 * Random cases are numbered; each has a seed of its own, made of $SITS_TEST_SEED and its number. Every case runs on all cores.
 *
 *	SITS_DIFF_CASES=n	random cases to run (a few by default)
 *	SITS_DIFF_FIRST=n	the first one's number: with SITS_DIFF_CASES=1, that case alone
 *	SITS_DIFF_STATE=file	go on from what this file says, and keep it up to date; then nothing but random cases runs
 *	SITS_DIFF_HUGE=1	nothing but messages of more than 4 GiB in one call, which take half a minute
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/crypto/sm4_ops.h"

#include <cmocka.h>

#define LEN_MAX		(64u << 20)
#define LEN_ALL		8192
#define AROUND		128	/* bytes before and after a message, where nothing may be written; room for offsets, too */
#define PAINT		0xa5

static struct {
	uint8_t *src, *dst, *want;	/* LEN_MAX and 2 * AROUND bytes each */
	uint8_t raw[32], iv[4096], aad[16384];
	const struct sits_sm4_core *const *cores;
	unsigned int nr_cores;
	uint64_t seed, number;		/* of the random case that runs */
	const char *test;
} bed;

static uint8_t *map(void)
{
	void *p = mmap(NULL, LEN_MAX + 2 * AROUND, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void fill(uint8_t *p, size_t len)
{
	uint64_t r;

	for (; len >= 8; len -= 8, p += 8) {
		r = test_random();
		memcpy(p, &r, 8);
	}
	test_fill(p, len);
}

/* What the caller chose for a message; sources and results are in the bed. */
struct message {
	int op;
	size_t len, iv_len, aad_len;
	const union op_key *keys;	/* one for each core, or NULL: made here */
};

static struct op_args args_of(const struct message *m)
{
	return (struct op_args){ .raw = bed.raw, .iv = bed.iv, .iv_len = m->iv_len, .aad = bed.aad, .aad_len = m->aad_len,
				 .len = m->len };
}

static bool painted(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != PAINT)
			return false;
	}
	return true;
}

static void complain(const struct message *m, const struct op_args *a, const char *what, bool in_place, size_t at)
{
	fail_msg("%s: %s on %s: %s: len %zu (byte %zu), nonce %zu, aad %zu, src & 63 = %u, dst & 63 = %u, %s, split 0x%" PRIx64
		 "; case %" PRIu64 " of seed 0x%" PRIx64, bed.test, ops[m->op].name, a->core->name, what, m->len, at,
		 m->iv_len, m->aad_len, (unsigned int)((uintptr_t)a->src & 63), (unsigned int)((uintptr_t)a->dst & 63),
		 in_place ? "in place" : "apart", a->split, bed.number, bed.seed);
}

/* One core's answer against the peers' (in bed.want and expect). */
static void compare(const struct message *m, const struct sits_sm4_core *core, const union op_key *key,
		    const struct op_args *expect, size_t src_off, size_t dst_off, bool in_place, uint64_t split)
{
	struct op_args a = args_of(m);
	uint8_t *dst = bed.dst + AROUND / 2 + dst_off;
	bool writes = op_writes(m->op);
	int ret;

	a.core = core;
	a.split = ops[m->op].pieces ? split : 0;
	a.dst = dst;
	a.src = bed.src + src_off;
	if (m->op == OP_GCM_DECRYPT || m->op == OP_GCM_AUTH)
		memcpy(a.tag, expect->tag, 16);
	memset(dst - 32, PAINT, 32);
	memset(dst + m->len, PAINT, 32);
	if (in_place) {
		memcpy(dst, a.src, m->len);
		a.src = dst;
	}
	ret = ops[m->op].run(key, &a);
	if (ret)
		complain(m, &a, "refused", in_place, 0);
	if (writes && memcmp(dst, bed.want, m->len)) {
		size_t at = 0;

		while (dst[at] == bed.want[at])
			at++;
		complain(m, &a, "wrong text", in_place, at);
	}
	if (!painted(dst - 32, 32) || (writes && !painted(dst + m->len, 32)))
		complain(m, &a, "wrote outside", in_place, 0);
	if (op_has_state(m->op) && memcmp(a.state, expect->state, 16))
		complain(m, &a, "wrong state after", in_place, 0);
	if ((m->op == OP_CORE_GCM_ENCRYPT || m->op == OP_CORE_GCM_DECRYPT) && memcmp(a.state2, expect->state2, 16))
		complain(m, &a, "wrong hash after", in_place, 0);
	if (m->op == OP_GCM_ENCRYPT && memcmp(a.tag, expect->tag, 16))
		complain(m, &a, "wrong tag", in_place, 0);
}

static struct op_args expectation(const struct message *m, size_t src_off)
{
	struct op_args expect = args_of(m);

	expect.src = bed.src + src_off;
	expect.dst = bed.want;
	ops[m->op].peer(&expect);
	return expect;
}

/* On every core, each at alignments and in pieces of its own. */
static void check(const struct message *m)
{
	size_t src_off = test_random() % 64;
	struct op_args expect = expectation(m, src_off);

	for (unsigned int c = 0; c < bed.nr_cores; c++) {
		uint64_t r = test_random();
		union op_key key;

		if (!m->keys)
			ops[m->op].set_key(bed.cores[c], &key, bed.raw);
		compare(m, bed.cores[c], m->keys ? &m->keys[c] : &key, &expect, src_off, r % 64, r >> 8 & 1,
			r >> 9 & 1 ? r >> 10 | 1 : 0);
	}
}

static void set_keys(int op, union op_key *keys)
{
	fill(bed.raw, 32);
	for (unsigned int c = 0; c < bed.nr_cores; c++)
		ops[op].set_key(bed.cores[c], &keys[c], bed.raw);
}

/* The sanitizers make ours and the peers' helpers several times slower; they look at every n-th. */
#define STRIDE (OPS_SANITIZED ? 3 : 1)

static void test_lengths(void **state)
{
	union op_key keys[8];

	bed.test = "lengths";
	fill(bed.src, LEN_ALL + AROUND);
	for (int op = 0; op < NR_OPS; op++) {
		struct message m = { .op = op, .keys = keys };

		set_keys(op, keys);
		for (m.len = ops[op].min_len; m.len <= LEN_ALL;
		     m.len += ops[op].step == 1 && m.len > 1200 ? STRIDE : ops[op].step) {
			m.iv_len = ops[op].aead ? 12 : 16;
			m.aad_len = ops[op].aead ? m.len % 61 : 0;
			fill(bed.iv, 16);
			check(&m);
		}
	}
}

static void test_alignments(void **state)
{
	union op_key keys[8];

	bed.test = "alignments";
	fill(bed.src, LEN_ALL + AROUND);
	for (int op = 0; op < NR_OPS; op++) {
		set_keys(op, keys);
		for (size_t src_off = 0; src_off < 64; src_off++) {
			struct message m = { .op = op, .keys = keys, .iv_len = ops[op].aead ? 12 : 16 };
			struct op_args expect;

			/* Long enough for the longest batch once in a while. */
			m.len = 16 + test_random() % (src_off % 8 ? 600 : 2600);
			m.len -= m.len % ops[op].step;
			fill(bed.iv, 16);
			expect = expectation(&m, src_off);
			for (size_t dst_off = src_off % STRIDE; dst_off < 64; dst_off += STRIDE) {
				for (unsigned int c = 0; c < bed.nr_cores; c++)
					compare(&m, bed.cores[c], &keys[c], &expect, src_off, dst_off, false, 0);
			}
			/* In place, at this alignment. */
			for (unsigned int c = 0; c < bed.nr_cores; c++)
				compare(&m, bed.cores[c], &keys[c], &expect, src_off, src_off, true, 0);
		}
	}
}

/* The counter's last `ones` bytes are full but for `before` blocks. */
static void nearly(uint8_t ctr[16], int ones, unsigned int before)
{
	fill(ctr, 16);
	memset(ctr + 16 - ones, 0xff, (size_t)ones);
	for (unsigned int i = 0; before && i < 2; i++)
		ctr[15 - i] = (uint8_t)(0xff - ((before - 1) >> 8 * i & 0xff));
	if (before && ones == 1)
		ctr[14] &= 0x7f;
}

/* Carries out of every byte of a counter, at each block of the longest batches, and all round at 128 bits. */
static void test_counters_carry(void **state)
{
	static const int counting[] = { OP_CTR, OP_STREAM, OP_CORE_CTR128, OP_CORE_CTR32, OP_CORE_GCM_ENCRYPT,
					OP_CORE_GCM_DECRYPT };
	union op_key keys[8];

	bed.test = "counters";
	fill(bed.src, LEN_ALL + AROUND);
	for (size_t i = 0; i < sizeof(counting) / sizeof(counting[0]); i++) {
		int op = counting[i];

		set_keys(op, keys);
		for (int ones = 1; ones <= 16; ones++) {
			for (unsigned int before = 0; before <= 290; before += 1 + test_random() % (3 * STRIDE)) {
				struct message m = { .op = op, .keys = keys, .iv_len = 16 };

				nearly(bed.iv, ones, before);
				m.len = 16 * before + 1 + test_random() % 3000;
				m.len -= m.len % ops[op].step;
				check(&m);
			}
		}
	}
}

/* GCM whose counter, which is of 32 bits, comes round: with a nonce of 16 bytes that was solved for. */
static void test_gcm_counter_wraps(void **state)
{
	union op_key keys[8];
	uint8_t h[16] = { 0 }, inverse[16], j0[16];

	bed.test = "gcm counter";
	fill(bed.src, LEN_ALL + AROUND);
	set_keys(OP_GCM_ENCRYPT, keys);
	peer_ecb(1, bed.raw, h, h, 16);
	peer_gf_inverse(inverse, h);
	for (int op = OP_GCM_ENCRYPT; op <= OP_GCM_DECRYPT; op++) {
		for (unsigned int before = 0; before <= 300; before++) {
			struct message m = { .op = op, .keys = keys, .iv_len = 16, .aad_len = test_random() % 20 };

			nearly(j0, 4, before);
			peer_gcm_nonce_for(bed.iv, inverse, j0);
			m.len = 16 * before + 1 + test_random() % 2500;
			check(&m);
		}
	}
}

static void test_gcm_nonces_and_aad(void **state)
{
	union op_key keys[8];

	bed.test = "gcm nonces and associated data";
	fill(bed.src, LEN_ALL + AROUND);
	fill(bed.aad, sizeof(bed.aad));
	set_keys(OP_GCM_ENCRYPT, keys);
	for (int op = OP_GCM_ENCRYPT; op <= OP_GCM_AUTH; op++) {
		struct message m = { .op = op, .keys = keys };

		for (m.iv_len = 1; m.iv_len <= 1100; m.iv_len += m.iv_len < 300 ? 1 : 1 + test_random() % 40) {
			fill(bed.iv, m.iv_len);
			m.aad_len = test_random() % 40;
			m.len = test_random() % 300;
			check(&m);
		}
		for (m.aad_len = 0; m.aad_len <= 4500; m.aad_len += m.aad_len < 1100 ? 1 : 1 + test_random() % 40) {
			m.iv_len = m.aad_len % 3 ? 12 : 1 + test_random() % 64;
			fill(bed.iv, m.iv_len);
			m.len = m.aad_len % 5 ? test_random() % 300 : 0;
			check(&m);
		}
	}
}

/* ---------------------------------------------------------------- lengths that 32 bits do not hold */

/*
 * GCM over more than 2^32 bits of associated data, and of text, in pieces of a megabyte: the same megabyte each time.
 */
static void test_gcm_many_bits(void **state)
{
	const size_t piece = 1u << 20, nr = 513;
	gcry_cipher_hd_t peer;
	uint8_t tag[2][16];
	union op_key key;

	bed.test = "many bits";
	fill(bed.raw, 32);
	fill(bed.iv, 12);
	fill(bed.src, piece);
	for (int aad = 0; aad < 2; aad++) {
		peer = peer_gcry(GCRY_CIPHER_MODE_GCM, bed.raw, 16);
		PEER_CHECK(!gcry_cipher_setiv(peer, bed.iv, 12));
		for (size_t i = 0; i < nr; i++) {
			if (aad)
				PEER_CHECK(!gcry_cipher_authenticate(peer, bed.src, piece));
			else
				PEER_CHECK(!gcry_cipher_decrypt(peer, bed.want, piece, bed.src, piece));
		}
		if (aad) {
			gcry_cipher_final(peer);
			PEER_CHECK(!gcry_cipher_encrypt(peer, bed.want, 0, bed.src, 0));
		}
		PEER_CHECK(!gcry_cipher_gettag(peer, tag[aad], 16));
	}
	/* On the fastest core alone: no core counts these lengths. */
	op_gcm_key(bed.cores[0], &key, bed.raw);
	for (int aad = 0; aad < 2; aad++) {
		struct sits_gcm s;

		assert_int_equal(sits_gcm_start(&s, &key.gcm, bed.iv, 12), 0);
		for (size_t i = 0; i < nr; i++)
			assert_int_equal((aad ? sits_gcm_aad : sits_gcm_update_auth)(&s, bed.src, piece), 0);
		assert_int_equal(sits_gcm_verify(&s, tag[aad], 16), 0);
	}
}

#define HUGE_LEN ((4ull << 30) + (3u << 20) + 48)

/* A window of 64 MiB, mapped again and again until it is huge. */
static uint8_t *map_huge(int fd)
{
	size_t room = (HUGE_LEN / LEN_MAX + 1) * LEN_MAX;
	uint8_t *p = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(fd >= 0 && p != MAP_FAILED && !ftruncate(fd, LEN_MAX));
	for (size_t at = 0; at < room; at += LEN_MAX)
		assert_true(mmap(p + at, LEN_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p + at);
	return p;
}

/*
 * More than 4 GiB in one call: what counts blocks or bytes in 32 bits goes wrong. Of the result, the last window is left; before
 * it, all that can go wrong shows in the counter, the tag, or the tweak that comes out.
 */
static void test_huge(void **state)
{
	const size_t window_at = HUGE_LEN / LEN_MAX * LEN_MAX, left = HUGE_LEN - window_at;
	uint8_t *src = map_huge(memfd_create("src", 0)), *dst = map_huge(memfd_create("dst", 0));
	uint8_t ctr[16], want_ctr[16], tag[16], want_tag[16];
	gcry_cipher_hd_t peer;

	bed.test = "huge";
	fill(src, LEN_MAX);
	fill(bed.raw, 32);
	fill(bed.iv, 16);
	memcpy(want_ctr, bed.iv, 16);
	peer_count(want_ctr, window_at / 16, 128);
	peer_ctr(bed.raw, want_ctr, bed.want, src, left);
	peer_count(want_ctr, left / 16, 128);
	peer = peer_gcry(GCRY_CIPHER_MODE_GCM, bed.raw, 16);
	PEER_CHECK(!gcry_cipher_setiv(peer, bed.iv, 12));
	for (size_t at = 0; at < HUGE_LEN; at += LEN_MAX) {
		size_t n = HUGE_LEN - at < LEN_MAX ? HUGE_LEN - at : LEN_MAX;

		PEER_CHECK(!gcry_cipher_decrypt(peer, bed.dst, n, src, n));
	}
	PEER_CHECK(!gcry_cipher_gettag(peer, want_tag, 16));
	for (unsigned int c = 0; c < bed.nr_cores; c++) {
		union op_key key;

		op_sm4_key(bed.cores[c], &key, bed.raw);
		memcpy(ctr, bed.iv, 16);
		sits_sm4_ctr(&key.sm4, ctr, dst, src, HUGE_LEN);
		assert_memory_equal(ctr, want_ctr, 16);
		assert_memory_equal(dst, bed.want, left);
		sits_sm4_ecb_encrypt(&key.sm4, dst, src, HUGE_LEN / 16);
		peer_ecb(1, bed.raw, bed.src, src, left);
		assert_memory_equal(dst, bed.src, left);
		op_gcm_key(bed.cores[c], &key, bed.raw);
		memcpy(tag, want_tag, 16);
		assert_int_equal(sits_gcm_decrypt(&key.gcm, bed.iv, NULL, 0, dst, src, HUGE_LEN, tag), 0);
		assert_memory_equal(dst, bed.dst, left);
		print_message("# %s: 4 GiB and more in one call\n", bed.cores[c]->name);
	}
}

/* ---------------------------------------------------------------- random cases */

static size_t random_len(uint64_t number)
{
	uint64_t r = test_random();
	size_t edge;

	if (number % 20011 == 7) {	/* any magnitude alike */
		size_t top = (size_t)1 << (13 + r % 14);

		return top < LEN_MAX ? top + (r >> 8) % top : LEN_MAX - (r >> 8) % 64;
	}
	switch (r % 16) {
	case 0 ... 5:
		return (r >> 8) % 65;
	case 6 ... 9:
		return (r >> 8) % 513;
	case 10 ... 12:
		return (r >> 8) % 2301;
	case 13 ... 14:
		return (r >> 8) % 8193;
	default:	/* around multiples of a batch */
		edge = (size_t)128 << (r >> 4) % 5;
		edge *= 1 + (r >> 8) % (8192 / edge);
		return edge - 17 + (r >> 24) % 35;
	}
}

/* Random bytes, or a few patterns that arithmetic may stumble over. */
static void random_bytes(uint8_t *p, size_t len)
{
	static const uint8_t patterns[] = { 0x00, 0xff, 0x80, 0x01 };
	uint64_t r = test_random();

	if (r % 64 < 4)
		memset(p, patterns[r % 64], len);
	else
		fill(p, len);
}

static void random_nonce(struct message *m)
{
	uint64_t r = test_random();
	uint8_t h[16] = { 0 }, j0[16];

	m->iv_len = 16;
	if (!ops[m->op].aead) {
		random_bytes(bed.iv, 16);
		if (r % 2)
			nearly(bed.iv, 1 + (int)(r >> 8 & 15), (unsigned int)(r >> 16 & 1023));
		return;
	}
	m->aad_len = r % 4 == 0 ? 0 : r % 4 == 1 ? (r >> 8) % 1100 : (r >> 8) % 65;
	if (r % 128 == 127)
		m->aad_len = (r >> 8) % sizeof(bed.aad);
	random_bytes(bed.aad, m->aad_len);
	if (r >> 32 & 1)
		m->iv_len = 12;
	else
		m->iv_len = 1 + (r >> 40) % (r >> 33 & 7 ? 64 : sizeof(bed.iv));
	random_bytes(bed.iv, m->iv_len);
	if ((r >> 52) % 256 == 0) {
		m->iv_len = 16;
		peer_ecb(1, bed.raw, h, h, 16);
		peer_gf_inverse(h, h);
		nearly(j0, 4, (unsigned int)(r >> 16 & 511));
		peer_gcm_nonce_for(bed.iv, h, j0);
	}
}

static void random_case(uint64_t number)
{
	struct message m = { .op = 0 };

	bed.number = number;
	*test_seed() = bed.seed + number * 0xd1342543de82ef95ull;
	m.op = (int)(test_random() % NR_OPS);
	m.len = random_len(number);
	m.len -= m.len % ops[m.op].step;
	if (m.len < ops[m.op].min_len)
		m.len = ops[m.op].min_len + m.len;
	random_bytes(bed.raw, 32);
	random_nonce(&m);
	random_bytes(bed.src, m.len + 64);
	check(&m);
}

static uint64_t number_from_env(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : otherwise;
}

/* What to go on from: the seed, the number of the next case. */
static void save_state(const char *path, uint64_t next)
{
	char tmp[4096];
	FILE *f;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	f = fopen(tmp, "w");
	assert_non_null(f);
	fprintf(f, "0x%" PRIx64 " %" PRIu64 "\n", bed.seed, next);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(rename(tmp, path), 0);
}

static void test_random_cases(void **state)
{
	uint64_t first = number_from_env("SITS_DIFF_FIRST", 0);
	uint64_t last = first + number_from_env("SITS_DIFF_CASES", 120000 / STRIDE);
	const char *path = getenv("SITS_DIFF_STATE");
	FILE *f = path ? fopen(path, "r") : NULL;

	bed.test = "random";
	if (f) {
		assert_int_equal(fscanf(f, "%" SCNx64 " %" SCNu64, &bed.seed, &first), 2);
		fclose(f);
	}
	for (uint64_t i = first; i < last; i++) {
		random_case(i);
		if (path && i % 65536 == 65535)
			save_state(path, i + 1);
	}
	if (path)
		save_state(path, last > first ? last : first);
	print_message("# seed 0x%" PRIx64 ": cases %" PRIu64 " to %" PRIu64 ", each on %u cores, agree\n", bed.seed, first, last,
		      bed.nr_cores);
}

static int setup(void **state)
{
	bed.src = map();
	bed.dst = map();
	bed.want = map();
	bed.cores = sits_sm4_cores(&bed.nr_cores);
	assert_in_range(bed.nr_cores, 1, 8);
	bed.seed = *test_seed();
	for (unsigned int c = 0; c < bed.nr_cores; c++)
		print_message("# core: %s\n", bed.cores[c]->name);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_cases),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_alignments),
		cmocka_unit_test(test_counters_carry),
		cmocka_unit_test(test_gcm_counter_wraps),
		cmocka_unit_test(test_gcm_nonces_and_aad),
		cmocka_unit_test(test_gcm_many_bits),
	};
	const struct CMUnitTest huge[] = { cmocka_unit_test(test_huge) };
	const struct CMUnitTest random[] = { cmocka_unit_test(test_random_cases) };

	cmocka_set_message_output(CM_OUTPUT_TAP);
	peer_init();
	test_seed_init();
	if (getenv("SITS_DIFF_HUGE"))
		return cmocka_run_group_tests_name("sm4 huge", huge, setup, NULL);
	if (getenv("SITS_DIFF_STATE") || getenv("SITS_DIFF_FIRST"))
		return cmocka_run_group_tests_name("sm4 random cases", random, setup, NULL);
	return cmocka_run_group_tests_name("sm4 differential", tests, setup, NULL);
}
