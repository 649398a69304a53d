// SPDX-License-Identifier: MIT
/*
 * sm4_forgery_test.c - SM4-GCM refuses what was changed, in any bit, and gives out nothing of it; and what callers may do wrong
 * with any mode is refused, or harmless, as crypto/sm4.h says.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include "tests/unit/crypto/sm4_ops.h"

#include <cmocka.h>

#define TEXT_MAX 2200
#define AAD_MAX 300

/* A sealed message. */
struct sealed {
	u8 raw[16], iv[64], aad[AAD_MAX], plain[TEXT_MAX], text[TEXT_MAX], tag[16];
	size_t iv_len, aad_len, len;
	union op_key key;
};

static void seal(struct sealed *m, const struct sits_sm4_core *core, size_t iv_len, size_t aad_len, size_t len)
{
	struct op_args a = { .core = core, .raw = m->raw, .iv = m->iv, .iv_len = iv_len, .aad = m->aad, .aad_len = aad_len,
			     .dst = m->text, .src = m->plain, .len = len };

	m->iv_len = iv_len;
	m->aad_len = aad_len;
	m->len = len;
	test_fill(m->raw, 16);
	test_fill(m->iv, iv_len);
	test_fill(m->aad, aad_len);
	test_fill(m->plain, len);
	op_gcm_key(core, &m->key, m->raw);
	assert_int_equal(op_gcm_encrypt(&m->key, &a), 0);
	memcpy(m->tag, a.tag, 16);
}

static void nothing(const u8 *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(p[i], 0);
}

/* Open m by every way there is: each has to give `want`, and to leave nothing where it refuses. */
static void open_all(const struct sealed *m, int want)
{
	static u8 out[TEXT_MAX];
	struct op_args a = { .core = m->key.gcm.sm4.core, .iv = m->iv, .iv_len = m->iv_len, .aad = m->aad,
			     .aad_len = m->aad_len, .dst = out, .src = m->text, .len = m->len };
	struct sits_gcm s;

	memcpy(a.tag, m->tag, 16);
	if (m->iv_len == 12) {
		memset(out, 0xa5, sizeof(out));
		assert_int_equal(op_gcm_decrypt(&m->key, &a), want);
		if (want)
			nothing(out, m->len);
		else
			assert_memory_equal(out, m->plain, m->len);
		if (m->len < sizeof(out))
			assert_int_equal(out[m->len], 0xa5);
		memcpy(out, m->text, m->len);
		a.src = out;
		assert_int_equal(op_gcm_decrypt(&m->key, &a), want);
		if (want)
			nothing(out, m->len);
		else
			assert_memory_equal(out, m->plain, m->len);
		a.src = m->text;
	}
	a.split = test_random() | 1;
	assert_int_equal(op_gcm_decrypt(&m->key, &a), want);
	assert_int_equal(op_gcm_auth(&m->key, &a), want);
	/* The state is gone, whatever the verdict. */
	assert_int_equal(op_gcm_feed(&m->key, &s, &a, 0), 0);
	assert_int_equal(sits_gcm_verify(&s, m->tag, 16), want);
	nothing((const u8 *)&s, sizeof(s));
}

/* Each bit of p[len], a part of *m. */
static void flip_each(const struct sealed *m, u8 *p, size_t len)
{
	for (size_t bit = 0; bit < 8 * len; bit++) {
		p[bit / 8] ^= (u8)(1 << bit % 8);
		open_all(m, -EBADMSG);
		p[bit / 8] ^= (u8)(1 << bit % 8);
	}
}

static void test_each_bit(void **state)
{
	static const struct {
		size_t iv_len, aad_len, len;
	} shapes[] = { { 12, 20, 100 }, { 12, 0, 1 }, { 12, 0, 0 }, { 12, 48, 16 }, { 12, 13, 300 }, { 1, 7, 33 }, { 16, 32, 64 },
		       { 60, 1, 0 } };
	static struct sealed m;

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		seal(&m, *state, shapes[i].iv_len, shapes[i].aad_len, shapes[i].len);
		open_all(&m, 0);
		flip_each(&m, m.tag, 16);
		flip_each(&m, m.iv, m.iv_len);
		flip_each(&m, m.aad, m.aad_len);
		flip_each(&m, m.text, m.len);
		open_all(&m, 0);
	}
	/* Long enough for the longest batch: one bit in every block. */
	seal(&m, *state, 12, AAD_MAX, TEXT_MAX);
	open_all(&m, 0);
	flip_each(&m, m.tag, 16);
	for (size_t at = test_random() % 128; at < 8 * (size_t)TEXT_MAX; at += 128) {
		m.text[at / 8] ^= (u8)(1 << at % 8);
		open_all(&m, -EBADMSG);
		m.text[at / 8] ^= (u8)(1 << at % 8);
	}
}

/* Several bits at once: what a comparison that adds up differences, or stops early, might let through. */
static void test_tags(void **state)
{
	static struct sealed m;
	u8 tag[16];

	seal(&m, *state, 12, 30, 200);
	memcpy(tag, m.tag, 16);
	for (int i = 0; i < 16; i++) {
		for (int j = 0; j < i; j++) {
			m.tag[i] ^= 0x80;
			m.tag[j] ^= 0x80;
			open_all(&m, -EBADMSG);
			memcpy(m.tag, tag, 16);
		}
	}
	for (int i = 0; i < 16; i++)
		m.tag[i] = (u8)~tag[i];
	open_all(&m, -EBADMSG);
	memset(m.tag, 0, 16);
	open_all(&m, -EBADMSG);
	memset(m.tag, 0xff, 16);
	open_all(&m, -EBADMSG);
	for (int i = 0; i < 2000; i++) {
		test_fill(m.tag, 16);
		open_all(&m, -EBADMSG);
	}
	memcpy(m.tag, tag, 16);
	open_all(&m, 0);
}

static int verify_short(const struct sealed *m, const u8 *tag, size_t tag_len)
{
	struct sits_gcm s;
	int ret;

	assert_int_equal(sits_gcm_start(&s, &m->key.gcm, m->iv, m->iv_len), 0);
	assert_int_equal(sits_gcm_aad(&s, m->aad, m->aad_len), 0);
	assert_int_equal(sits_gcm_update_auth(&s, m->text, m->len), 0);
	ret = sits_gcm_verify(&s, tag, tag_len);
	nothing((const u8 *)&s, sizeof(s));
	return ret;
}

static void test_short_tags(void **state)
{
	static struct sealed m;
	u8 tag[32] = { 0 };

	seal(&m, *state, 12, 30, 200);
	for (size_t len = 0; len <= 32; len++) {
		memset(tag, 0, sizeof(tag));
		memcpy(tag, m.tag, 16);
		if (len < 4 || len > 16) {
			assert_int_equal(verify_short(&m, tag, len), -EINVAL);
			continue;
		}
		/* What is behind the tag does not count. */
		memset(tag + len, 0xee, sizeof(tag) - len);
		assert_int_equal(verify_short(&m, tag, len), 0);
		for (size_t bit = 0; bit < 8 * len; bit++) {
			tag[bit / 8] ^= (u8)(1 << bit % 8);
			assert_int_equal(verify_short(&m, tag, len), -EBADMSG);
			tag[bit / 8] ^= (u8)(1 << bit % 8);
		}
	}
}

/* Bytes moved over the boundaries, cut off, or put behind. */
static void test_boundaries(void **state)
{
	static struct sealed m, n;

	seal(&m, *state, 12, 64, 192);
	n = m;
	for (size_t by = 1; by <= 64; by++) {	/* associated data handed over as text */
		n.aad_len = 64 - by;
		n.len = 192 + by;
		memcpy(n.text, m.aad + 64 - by, by);
		memcpy(n.text + by, m.text, 192);
		open_all(&n, -EBADMSG);
	}
	n = m;
	for (size_t by = 1; by <= 192; by++) {	/* and the other way */
		n.aad_len = 64 + by;
		n.len = 192 - by;
		memcpy(n.aad + 64, m.text, by);
		memcpy(n.text, m.text + by, n.len);
		open_all(&n, -EBADMSG);
	}
	n = m;
	for (n.len = 0; n.len < 192; n.len++)
		open_all(&n, -EBADMSG);
	n = m;
	for (n.aad_len = 0; n.aad_len < 64; n.aad_len++)
		open_all(&n, -EBADMSG);
	n = m;
	memset(n.text + 192, 0, 64);	/* zeros behind are not padding */
	for (n.len = 193; n.len <= 256; n.len++)
		open_all(&n, -EBADMSG);
	n = m;
	memset(n.aad + 64, 0, 64);
	for (n.aad_len = 65; n.aad_len <= 128; n.aad_len++)
		open_all(&n, -EBADMSG);
	n = m;
	memset(n.iv + 12, 0, 4);
	n.iv[15] = 1;	/* the first counter block, as a nonce of 16 bytes */
	n.iv_len = 16;
	open_all(&n, -EBADMSG);
	open_all(&m, 0);
	/* Two blocks in each other's place. */
	n = m;
	memcpy(n.text, m.text + 16, 16);
	memcpy(n.text + 16, m.text, 16);
	open_all(&n, -EBADMSG);
	n = m;
	memcpy(n.aad, m.aad + 16, 16);
	memcpy(n.aad + 16, m.aad, 16);
	open_all(&n, -EBADMSG);
	/* Another key. */
	n = m;
	n.raw[15] ^= 1;
	op_gcm_key(*state, &n.key, n.raw);
	open_all(&n, -EBADMSG);
}

static void test_empty(void **state)
{
	u8 raw[32], iv[16], copy[16], tag[16], want[16];
	struct op_args peer = { .raw = raw, .iv = iv, .iv_len = 12 };
	struct sits_sm4_stream stream;
	union op_key key;
	struct sits_gcm s;

	test_fill(raw, 32);
	test_fill(iv, 16);
	memcpy(copy, iv, 16);
	op_sm4_key(*state, &key, raw);
	sits_sm4_ecb_encrypt(&key.sm4, NULL, NULL, 0);
	sits_sm4_ecb_decrypt(&key.sm4, NULL, NULL, 0);
	sits_sm4_cbc_encrypt(&key.sm4, copy, NULL, NULL, 0);
	sits_sm4_cbc_decrypt(&key.sm4, copy, NULL, NULL, 0);
	sits_sm4_ctr(&key.sm4, copy, NULL, NULL, 0);
	assert_memory_equal(copy, iv, 16);
	sits_sm4_stream_start(&stream, &key.sm4, iv);
	sits_sm4_stream_crypt(&stream, NULL, NULL, 0);
	sits_sm4_stream_end(&stream);
	op_gcm_key(*state, &key, raw);
	op_peer_gcm_encrypt(&peer);
	memcpy(want, peer.tag, 16);
	assert_int_equal(sits_gcm_encrypt(&key.gcm, iv, NULL, 0, NULL, NULL, 0, tag), 0);
	assert_memory_equal(tag, want, 16);
	assert_int_equal(sits_gcm_decrypt(&key.gcm, iv, NULL, 0, NULL, NULL, 0, tag), 0);
	tag[0] ^= 1;
	assert_int_equal(sits_gcm_decrypt(&key.gcm, iv, NULL, 0, NULL, NULL, 0, tag), -EBADMSG);
	assert_int_equal(sits_gcm_start(&s, &key.gcm, iv, 12), 0);
	assert_int_equal(sits_gcm_aad(&s, NULL, 0), 0);
	assert_int_equal(sits_gcm_update_encrypt(&s, NULL, NULL, 0), 0);
	sits_gcm_final(&s, tag);
	assert_memory_equal(tag, want, 16);
}

static void test_refused_lengths(void **state)
{
	u8 raw[32], iv[16], buf[32], copy[32], tag[16] = { 0 };
	union op_key key;
	struct sits_gcm s;

	test_fill(raw, 32);
	test_fill(iv, 16);
	test_fill(buf, 32);
	memcpy(copy, buf, 32);
	op_xts_key(*state, &key, raw);
	for (size_t len = 0; len < 16; len++) {
		for (int form = SITS_XTS_IEEE; form <= SITS_XTS_GB; form++) {
			assert_int_equal(sits_xts_encrypt(&key.xts, form, iv, buf, buf, len), -EINVAL);
			assert_int_equal(sits_xts_decrypt(&key.xts, form, iv, buf, buf, len), -EINVAL);
		}
	}
	assert_memory_equal(buf, copy, 32);
	op_gcm_key(*state, &key, raw);
	/* Longer than a nonce's counter lasts: refused before a byte is looked at. */
	assert_int_equal(sits_gcm_encrypt(&key.gcm, iv, NULL, 0, buf, buf, SITS_GCM_TEXT_MAX + 1, tag), -EMSGSIZE);
	assert_int_equal(sits_gcm_encrypt(&key.gcm, iv, buf, SITS_GCM_AAD_MAX + 1, buf, buf, 16, tag), -EMSGSIZE);
	assert_memory_equal(buf, copy, 32);
	nothing(tag, 16);
	assert_int_equal(sits_gcm_start(&s, &key.gcm, iv, 0), -EINVAL);
	assert_int_equal(sits_gcm_start(&s, &key.gcm, iv, 12), 0);
	assert_int_equal(sits_gcm_aad(&s, buf, SITS_GCM_AAD_MAX + 1), -EMSGSIZE);
	assert_int_equal(sits_gcm_aad(&s, buf, 20), 0);
	assert_int_equal(sits_gcm_aad(&s, buf, SITS_GCM_AAD_MAX), -EMSGSIZE);	/* in all */
	assert_int_equal(sits_gcm_update_encrypt(&s, buf, buf, SITS_GCM_TEXT_MAX + 1), -EMSGSIZE);
	assert_int_equal(sits_gcm_update_encrypt(&s, buf, buf, 7), 0);
	assert_int_equal(sits_gcm_update_encrypt(&s, buf, buf, SITS_GCM_TEXT_MAX - 6), -EMSGSIZE);
	assert_int_equal(sits_gcm_aad(&s, raw, 1), -EINVAL);	/* after text */
	sits_gcm_final(&s, tag);
	/* What was refused left no trace in the tag. */
	memcpy(buf, copy, 32);
	{
		struct op_args peer = { .raw = raw, .iv = iv, .iv_len = 12, .aad = copy, .aad_len = 20, .dst = buf, .src = copy,
					.len = 7 };

		op_peer_gcm_encrypt(&peer);
		assert_memory_equal(tag, peer.tag, 16);
	}
}

/* A key made for one core works on the portable one, as the kernel needs where vector registers may not be used. */
static void test_keys_on_portable(void **state)
{
	static u8 src[3000], dst[3000], want[3000];
	u8 raw[32], iv[16];

	for (int op = 0; op < NR_OPS; op++) {
		struct op_args a = { .core = &sits_sm4_portable, .raw = raw, .iv = iv, .iv_len = ops[op].aead ? 12 : 16,
				     .dst = dst, .src = src, .len = 2992 }, peer = a;
		union op_key key;

		test_fill(raw, 32);
		test_fill(iv, 16);
		test_fill(src, sizeof(src));
		ops[op].set_key(*state, &key, raw);
		if (op >= OP_XTS_ENCRYPT && op <= OP_XTS_GB_DECRYPT)
			key.xts.data.core = key.xts.tweak.core = &sits_sm4_portable;
		else
			key.sm4.core = &sits_sm4_portable;
		peer = a;
		peer.dst = want;
		ops[op].peer(&peer);
		memcpy(a.tag, peer.tag, 16);
		assert_int_equal(ops[op].run(&key, &a), 0);
		if (op_writes(op))
			assert_memory_equal(dst, want, a.len);
		if (op_has_state(op))
			assert_memory_equal(a.state, peer.state, 16);
		if (op >= OP_CORE_GCM_ENCRYPT)
			assert_memory_equal(a.state2, peer.state2, 16);
		if (ops[op].aead)
			assert_memory_equal(a.tag, peer.tag, 16);
	}
}

/* A key may be used by many at once: nothing of a call is kept outside of its arguments. */
#define NR_THREADS 4
#define NR_MESSAGES 200

static struct {
	union op_key key;
	u8 iv[16], src[TEXT_MAX], sealed[NR_MESSAGES][TEXT_MAX], tag[NR_MESSAGES][16];
} shared;

static size_t shared_len(int i)
{
	return (size_t)(i * 37) % TEXT_MAX;
}

static void *use_key(void *unused)
{
	for (int i = 0; i < NR_MESSAGES; i++) {
		u8 out[TEXT_MAX], tag[16];
		size_t len = shared_len(i);

		if (sits_gcm_encrypt(&shared.key.gcm, shared.iv, shared.src, 30, out, shared.src, len, tag) ||
		    memcmp(out, shared.sealed[i], len) || memcmp(tag, shared.tag[i], 16))
			return "sealed otherwise";
		if (sits_gcm_decrypt(&shared.key.gcm, shared.iv, shared.src, 30, out, out, len, tag) ||
		    memcmp(out, shared.src, len))
			return "opened otherwise";
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[NR_THREADS];
	u8 raw[16];

	test_fill(raw, 16);
	test_fill(shared.iv, 16);
	test_fill(shared.src, TEXT_MAX);
	op_gcm_key(*state, &shared.key, raw);
	for (int i = 0; i < NR_MESSAGES; i++)
		peer_gcm(1, raw, shared.iv, 12, shared.src, 30, shared.sealed[i], shared.src, shared_len(i), shared.tag[i]);
	for (int i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_key, NULL), 0);
	for (int i = 0; i < NR_THREADS; i++) {
		void *wrong;

		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction fn;
	} each[] = {
		{ "each bit", test_each_bit },
		{ "tags", test_tags },
		{ "short tags", test_short_tags },
		{ "boundaries", test_boundaries },
		{ "empty", test_empty },
		{ "refused lengths", test_refused_lengths },
		{ "its keys on the portable core", test_keys_on_portable },
		{ "one key, many threads", test_threads },
	};
	const size_t nr_each = sizeof(each) / sizeof(each[0]);
	static char names[64][64];
	struct CMUnitTest tests[64];
	const struct sits_sm4_core *const *cores;
	unsigned int nr, n = 0;

	cmocka_set_message_output(CM_OUTPUT_TAP);
	peer_init();
	test_seed_init();
	cores = sits_sm4_cores(&nr);
	for (unsigned int c = 0; c < nr; c++) {
		for (size_t i = 0; i < nr_each; i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", cores[c]->name, each[i].name);
			tests[n] = (struct CMUnitTest){ names[n], each[i].fn, NULL, NULL, (void *)cores[c] };
		}
	}
	return _cmocka_run_group_tests("sm4 forgeries and misuse", tests, n, NULL, NULL);
}
