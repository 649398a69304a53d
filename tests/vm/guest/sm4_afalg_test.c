// SPDX-License-Identifier: MIT
/*
 * sm4_afalg_test.c - SM4 of the kernel as programs reach it (AF_ALG): each mode of each variant of sits_sm4.ko with published
 * vectors, and what a name gives beside crypto/ in userspace on random lengths, pieces and keys; who has which priority.
 *
 * sits_sm4 must be loaded.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_alg.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "crypto/sm4.h"
#include "tests/unit/crypto/reference.h"
#include "tests/vm/guest/proc_crypto.h"

#define MAX 60000	/* AF_ALG takes 16 pages at once */
#define MAX_PIECES 12

static uint8_t src[MAX + 64], dst[MAX + 64], want[MAX + 64];

/* Of this machine, as /proc/crypto has them. */
static char variants[4][32];
static unsigned int nr_variants;

/* A bound transform with its key, or -errno. */
static int tfm_open(const char *type, const char *name, const uint8_t *key, size_t key_len)
{
	struct sockaddr_alg sa = { .salg_family = AF_ALG };
	int fd = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	strcpy((char *)sa.salg_type, type);
	strcpy((char *)sa.salg_name, name);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    setsockopt(fd, SOL_ALG, ALG_SET_KEY, key, (socklen_t)key_len) ||
	    (!strcmp(type, "aead") && setsockopt(fd, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, NULL, SITS_GCM_TAG_LEN))) {
		err = errno;
		close(fd);
		return -err;
	}
	return fd;
}

/* Send @len bytes in @nr pieces as one message; with none, what comes before it. */
static void send_all(int op, int direction, const uint8_t *iv, size_t iv_len, uint32_t aad_len, const uint8_t *data,
		     size_t len, int nr)
{
	uint8_t control[CMSG_SPACE(4) * 2 + CMSG_SPACE(4 + 16)] = { 0 };
	struct msghdr msg = { .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	struct af_alg_iv *alg_iv;
	size_t at = 0, n;

	*c = (struct cmsghdr){ .cmsg_level = SOL_ALG, .cmsg_type = ALG_SET_OP, .cmsg_len = CMSG_LEN(4) };
	memcpy(CMSG_DATA(c), &direction, 4);
	c = CMSG_NXTHDR(&msg, c);
	*c = (struct cmsghdr){ .cmsg_level = SOL_ALG, .cmsg_type = ALG_SET_AEAD_ASSOCLEN, .cmsg_len = CMSG_LEN(4) };
	memcpy(CMSG_DATA(c), &aad_len, 4);
	c = CMSG_NXTHDR(&msg, c);
	*c = (struct cmsghdr){ .cmsg_level = SOL_ALG, .cmsg_type = ALG_SET_IV, .cmsg_len = CMSG_LEN(4 + iv_len) };
	alg_iv = (void *)CMSG_DATA(c);
	alg_iv->ivlen = (uint32_t)iv_len;
	memcpy(alg_iv->iv, iv, iv_len);
	msg.msg_controllen = CMSG_SPACE(4) * 2 + CMSG_SPACE(4 + iv_len);

	if (!nr)
		assert_int_equal(sendmsg(op, &msg, MSG_MORE), 0);
	for (int i = 0; i < nr; i++, at += n) {
		struct iovec iov;

		n = i == nr - 1 ? len - at : test_random() % (len - at + 1);
		iov = (struct iovec){ .iov_base = (void *)(data + at), .iov_len = n };
		msg.msg_iov = &iov;
		msg.msg_iovlen = 1;
		assert_int_equal(sendmsg(op, &msg, i == nr - 1 ? 0 : MSG_MORE), n);
		msg.msg_control = NULL;
		msg.msg_controllen = 0;
	}
}

/* The same, but the kernel gets this program's pages, each piece through a pipe. */
static void send_spliced(int op, int direction, const uint8_t *iv, size_t iv_len, uint32_t aad_len, const uint8_t *data,
			 size_t len, int nr)
{
	size_t at = 0, n;
	int fd[2];

	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	send_all(op, direction, iv, iv_len, aad_len, NULL, 0, 0);
	for (int i = 0; i < nr; i++, at += n) {
		struct iovec iov;

		n = i == nr - 1 ? len - at : test_random() % (len - at + 1);
		iov = (struct iovec){ .iov_base = (void *)(data + at), .iov_len = n };
		for (size_t done = 0; done < n;) {
			ssize_t in = vmsplice(fd[1], &iov, 1, 0), out;

			assert_true(in > 0);
			for (size_t left = (size_t)in; left; left -= (size_t)out) {
				done += (size_t)(out = splice(fd[0], NULL, op, NULL, left, done < len ? SPLICE_F_MORE : 0));
				assert_true(out > 0);
			}
			iov.iov_base = (uint8_t *)iov.iov_base + in;
			iov.iov_len -= (size_t)in;
		}
	}
	close(fd[0]);
	close(fd[1]);
	/* What is read next knows that no more comes. */
	assert_int_equal(send(op, NULL, 0, 0), 0);
}

/* Read @len bytes, at once, into memory cut in up to four. */
static ssize_t read_pieces(int op, uint8_t *out, size_t len)
{
	struct iovec iov[4];
	ssize_t n;

	for (int i = 0; i < 4; i++) {
		iov[i] = (struct iovec){ .iov_base = out, .iov_len = i == 3 ? len : test_random() % (len + 1) };
		out += iov[i].iov_len;
		len -= iov[i].iov_len;
	}
	n = readv(op, iov, 4);
	return n < 0 ? -errno : n;
}

/*
 * One request, sent in so many pieces; beyond MAX_PIECES they are spliced. Output goes to @out, whose length is exact: with
 * room for more, the kernel waits for more input.
 * Return: bytes of output, or -errno.
 */
static ssize_t crypt_once(int tfm, int direction, const uint8_t *iv, size_t iv_len, uint32_t aad_len, const uint8_t *in,
			  size_t in_len, uint8_t *out, size_t out_len, int pieces)
{
	int op = accept4(tfm, NULL, 0, SOCK_CLOEXEC);
	ssize_t n;

	assert_true(op >= 0);
	if (pieces > MAX_PIECES)
		send_spliced(op, direction, iv, iv_len, aad_len, in, in_len, pieces - MAX_PIECES);
	else
		send_all(op, direction, iv, iv_len, aad_len, in, in_len, pieces);
	n = read_pieces(op, out, out_len);
	close(op);
	return n;
}

static void check_published(const char *mode, const char *variant)
{
	static const struct {
		const char *source, *mode, *key, *iv, *plain, *cipher;
	} vectors[] = {
		{ "GB/T 32907-2016, A.1", "ecb", "0123456789abcdeffedcba9876543210", "",
		  "0123456789abcdeffedcba9876543210", "681edf34d206965e86b3e94f536e4246" },
		{ "draft-ribose-cfrg-sm4-10, A.2.1.2", "ecb", "fedcba98765432100123456789abcdef", "",
		  "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffaaaaaaaabbbbbbbb",
		  "c5876897e4a59bbba72a10c83872245b12dd90bc2d200692b529a4155ac9e600" },
		{ "draft-ribose-cfrg-sm4-10, A.2.2.1", "cbc", "0123456789abcdeffedcba9876543210",
		  "000102030405060708090a0b0c0d0e0f",
		  "aaaaaaaabbbbbbbbccccccccddddddddeeeeeeeeffffffffaaaaaaaabbbbbbbb",
		  "78ebb11cc40b0a48312aaeb2040244cb4cb7016951909226979b0d15dc6a8f6d" },
		{ "draft-ribose-cfrg-sm4-10, A.2.5.1", "ctr", "0123456789abcdeffedcba9876543210",
		  "000102030405060708090a0b0c0d0e0f",
		  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
		  "eeeeeeeeeeeeeeeeffffffffffffffffaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb",
		  "ac3236cb970cc20791364c395a1342d1a3cbc1878c6f30cd074cce385cdd70c7"
		  "f234bc0e24c11980fd1286310ce37b926e02fcd0faa0baf38b2933851d824514" },
	};
	char driver[64];

	snprintf(driver, sizeof(driver), "%s-sm4-sits-%s", mode, variant);
	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		uint8_t key[16], iv[16], plain[64], cipher[64];
		size_t len = test_unhex(plain, 64, vectors[i].plain), iv_len = test_unhex(iv, 16, vectors[i].iv);
		int tfm;

		if (strcmp(vectors[i].mode, mode))
			continue;
		test_unhex(key, 16, vectors[i].key);
		assert_int_equal(test_unhex(cipher, 64, vectors[i].cipher), len);
		tfm = tfm_open("skcipher", driver, key, 16);
		if (tfm < 0)
			fail_msg("%s: %s", driver, strerror(-tfm));
		assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, iv, iv_len, 0, plain, len, dst, len, 1), len);
		assert_memory_equal(dst, cipher, len);
		assert_int_equal(crypt_once(tfm, ALG_OP_DECRYPT, iv, iv_len, 0, cipher, len, dst, len, 1), len);
		assert_memory_equal(dst, plain, len);
		close(tfm);
	}
}

static void test_published(void **state)
{
	for (unsigned int v = 0; v < nr_variants; v++) {
		check_published("ecb", variants[v]);
		check_published("cbc", variants[v]);
		check_published("ctr", variants[v]);
	}
}

struct gcm_vector {
	const char *name, *key, *iv, *aad, *msg, *ct, *tag;
	bool valid;
};

static const struct gcm_vector gcm_vectors[] = {
	{ "RFC 8998, A.1",
	  "0123456789abcdeffedcba9876543210", "00001234567800000000abcd", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
	  "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd"
	  "eeeeeeeeeeeeeeeeffffffffffffffffeeeeeeeeeeeeeeeeaaaaaaaaaaaaaaaa",
	  "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
	  "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d",
	  "83de3541e4c2b58177e065a9bf7b62ec", true },
#include "tests/vectors/crypto/wycheproof_sm4_gcm.inc"
};

static void check_gcm_vector(const struct gcm_vector *v, const char *variant)
{
	char driver[64];
	uint8_t key[16], iv[12];
	size_t aad_len = test_unhex(want, MAX, v->aad), len, total;
	int tfm;

	test_unhex(key, 16, v->key);
	test_unhex(iv, 12, v->iv);
	memcpy(src, want, aad_len);
	len = test_unhex(src + aad_len, MAX - aad_len, v->msg);
	assert_int_equal(test_unhex(want + aad_len, MAX - aad_len, v->ct), len);
	test_unhex(want + aad_len + len, SITS_GCM_TAG_LEN, v->tag);
	total = aad_len + len + SITS_GCM_TAG_LEN;

	snprintf(driver, sizeof(driver), "gcm-sm4-sits-%s", variant);
	tfm = tfm_open("aead", driver, key, 16);
	if (tfm < 0)
		fail_msg("%s: %s", driver, strerror(-tfm));
	if (crypt_once(tfm, ALG_OP_ENCRYPT, iv, 12, (uint32_t)aad_len, src, aad_len + len, dst, total, 1) != (ssize_t)total ||
	    !memcmp(dst + aad_len, want + aad_len, len + SITS_GCM_TAG_LEN) != v->valid)
		fail_msg("%s: wrong ciphertext or tag", v->name);
	if (crypt_once(tfm, ALG_OP_DECRYPT, iv, 12, (uint32_t)aad_len, want, total, dst, total - 16, 1) !=
	    (v->valid ? (ssize_t)(aad_len + len) : -EBADMSG))
		fail_msg("%s: %s", v->name, v->valid ? "refused" : "not refused");
	if (v->valid)
		assert_memory_equal(dst + aad_len, src + aad_len, len);
	close(tfm);
}

static void test_published_gcm(void **state)
{
	size_t nr = sizeof(gcm_vectors) / sizeof(gcm_vectors[0]), checked = 0;

	for (size_t i = 0; i < nr; i++) {
		/* AF_ALG takes an empty message for none at all. */
		if (!gcm_vectors[i].msg[0] && !gcm_vectors[i].aad[0])
			continue;
		for (unsigned int v = 0; v < nr_variants; v++)
			check_gcm_vector(&gcm_vectors[i], variants[v]);
		checked++;
	}
	assert_true(checked > 50);
}

static size_t random_length(void)
{
	static const size_t around[] = { 16, 128, 512, 1024, 2048, 4096, 32768 };

	switch (test_random() % 3) {
	case 0:
		return 1 + test_random() % 600;
	case 1:	/* about where batches and pages end */
		return around[test_random() % (sizeof(around) / sizeof(around[0]))] - 3 + test_random() % 7;
	default:
		return 1 + test_random() % (MAX - 512);
	}
}

/* As told, or its pages. */
static int random_pieces(void)
{
	return 1 + (int)(test_random() % (2 * MAX_PIECES));
}

static void test_ctr_beside_userspace(void **state)
{
	for (int i = 0; i < 150; i++) {
		size_t len = random_length();
		int off = (int)(test_random() % 32), tfm;
		uint8_t key[16], iv[16], ctr[16];
		struct sits_sm4_key k;

		test_fill(key, 16);
		test_fill(iv, 16);
		if (i % 4 == 0)	/* a counter that carries into every byte */
			memset(iv, 0xff, 15);
		test_fill(src + off, len);
		memcpy(ctr, iv, 16);
		sits_sm4_expand_key_on(&sits_sm4_portable, &k, key);
		sits_sm4_ctr(&k, ctr, want, src + off, len);
		tfm = tfm_open("skcipher", "ctr(sm4)", key, 16);
		assert_true(tfm >= 0);
		assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, iv, 16, 0, src + off, len, dst + off, len, random_pieces()), len);
		assert_memory_equal(dst + off, want, len);
		close(tfm);
	}
}

static void test_ecb_beside_userspace(void **state)
{
	uint8_t iv[16];

	for (int i = 0; i < 60; i++) {
		size_t nr = 1 + random_length() / 16, len = nr * 16;
		struct sits_sm4_key k;
		uint8_t key[16];
		int tfm;

		test_fill(key, 16);
		test_fill(src, len);
		sits_sm4_expand_key_on(&sits_sm4_portable, &k, key);
		sits_sm4_ecb_decrypt(&k, want, src, nr);
		tfm = tfm_open("skcipher", "ecb(sm4)", key, 16);
		assert_true(tfm >= 0);
		assert_int_equal(crypt_once(tfm, ALG_OP_DECRYPT, iv, 0, 0, src, len, dst, len, random_pieces()), len);
		assert_memory_equal(dst, want, len);
		assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, iv, 0, 0, want, len, dst, len, 1), len);
		assert_memory_equal(dst, src, len);
		close(tfm);
	}
}

static void test_cbc_beside_userspace(void **state)
{
	for (int i = 0; i < 60; i++) {
		size_t nr = 1 + random_length() / 16, len = nr * 16;
		uint8_t key[16], iv[16], chain[16];
		struct sits_sm4_key k;
		int tfm;

		test_fill(key, 16);
		test_fill(iv, 16);
		test_fill(src, len);
		memcpy(chain, iv, 16);
		sits_sm4_expand_key_on(&sits_sm4_portable, &k, key);
		sits_sm4_cbc_decrypt(&k, chain, want, src, nr);
		tfm = tfm_open("skcipher", "cbc(sm4)", key, 16);
		assert_true(tfm >= 0);
		assert_int_equal(crypt_once(tfm, ALG_OP_DECRYPT, iv, 16, 0, src, len, dst, len, random_pieces()), len);
		assert_memory_equal(dst, want, len);
		assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, iv, 16, 0, want, len, dst, len, random_pieces()), len);
		assert_memory_equal(dst, src, len);
		close(tfm);
	}
}

static void test_xts_beside_userspace(void **state)
{
	for (int i = 0; i < 60; i++) {
		size_t len = 15 + random_length();
		uint8_t key[32], iv[16];
		struct sits_xts_key k;
		int tfm;

		test_fill(key, 32);
		test_fill(iv, 16);
		test_fill(src, len);
		sits_xts_set_key_on(&sits_sm4_portable, &k, key);
		assert_int_equal(sits_xts_encrypt(&k, SITS_XTS_IEEE, iv, want, src, len), len < 16 ? -EINVAL : 0);
		tfm = tfm_open("skcipher", "xts(sm4)", key, 32);
		assert_true(tfm >= 0);
		if (len >= 16) {
			assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, iv, 16, 0, src, len, dst, len, random_pieces()), len);
			assert_memory_equal(dst, want, len);
			assert_int_equal(crypt_once(tfm, ALG_OP_DECRYPT, iv, 16, 0, want, len, dst, len, random_pieces()), len);
			assert_memory_equal(dst, src, len);
		}
		close(tfm);
	}
}

static void test_gcm_beside_userspace(void **state)
{
	for (int i = 0; i < 100; i++) {
		size_t len = random_length() - 1, aad_len = test_random() % 300 + !len, total = aad_len + len + 16;
		uint8_t key[16], iv[12], tag[16];
		struct sits_gcm_key k;
		size_t at;
		int tfm;

		test_fill(key, 16);
		test_fill(iv, 12);
		test_fill(src, aad_len + len);
		sits_gcm_set_key_on(&sits_sm4_portable, &k, key);
		memcpy(want, src, aad_len);
		assert_int_equal(sits_gcm_encrypt(&k, iv, src, aad_len, want + aad_len, src + aad_len, len, tag), 0);
		memcpy(want + aad_len + len, tag, 16);
		tfm = tfm_open("aead", "gcm(sm4)", key, 16);
		assert_true(tfm >= 0);
		assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, iv, 12, (uint32_t)aad_len, src, aad_len + len, dst, total,
					    random_pieces()), total);
		assert_memory_equal(dst + aad_len, want + aad_len, len + 16);
		assert_int_equal(crypt_once(tfm, ALG_OP_DECRYPT, iv, 12, (uint32_t)aad_len, want, total, dst, total - 16,
					    random_pieces()), aad_len + len);
		assert_memory_equal(dst + aad_len, src + aad_len, len);

		at = test_random() % total;
		want[at] ^= (uint8_t)(1 << test_random() % 8);
		assert_int_equal(crypt_once(tfm, ALG_OP_DECRYPT, iv, 12, (uint32_t)aad_len, want, total, dst, total - 16, 1),
				 -EBADMSG);
		close(tfm);
	}
}

static void test_keys_of_other_lengths_are_refused(void **state)
{
	uint8_t key[32] = { 0 };

	for (size_t len = 0; len <= sizeof(key); len++) {
		int tfm = tfm_open("skcipher", "ctr(sm4)", key, len);

		if (len == 16)
			assert_true(tfm >= 0 && !close(tfm));
		else
			assert_int_equal(tfm, -EINVAL);
	}
}

/* The value of @field of the algorithm whose driver is @driver; "" where there is none. */
static void proc_crypto(const char *driver, const char *field, char value[128])
{
	FILE *f = fopen("/proc/crypto", "re");
	char block[PROC_CRYPTO_BYTES];

	assert_non_null(f);
	value[0] = '\0';
	while (proc_crypto_next(f, block)) {
		proc_crypto_field(block, "driver", value);
		if (!strcmp(value, driver)) {
			proc_crypto_field(block, field, value);
			break;
		}
		value[0] = '\0';
	}
	fclose(f);
}

static const struct {
	const char *prefix, *name;
} algs[] = {
	{ "", "sm4" }, { "ecb-", "ecb(sm4)" }, { "cbc-", "cbc(sm4)" }, { "ctr-", "ctr(sm4)" }, { "xts-", "xts(sm4)" },
	{ "gcm-", "gcm(sm4)" },
};

#define NR_ALGS (sizeof(algs) / sizeof(algs[0]))

/* What is used has been tested; what is not, on 6.12, is being tested a moment yet after the module was loaded. */
static void await_self_test(const char *driver)
{
	char value[128];
	int i;

	for (i = 0; i < 1500; i++) {
		proc_crypto(driver, "selftest", value);
		if (strcmp(value, "unknown"))
			return;
		usleep(20000);
	}
}

static void test_self_tests_passed(void **state)
{
	char value[128], driver[64];

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (size_t i = 0; i < NR_ALGS; i++) {
			snprintf(driver, sizeof(driver), "%ssm4-sits-%s", algs[i].prefix, variants[v]);
			await_self_test(driver);
			proc_crypto(driver, "name", value);
			assert_string_equal(value, algs[i].name);
			proc_crypto(driver, "selftest", value);
			assert_string_equal(value, "passed");
			proc_crypto(driver, "module", value);
			assert_string_equal(value, "sits_sm4");
		}
	}
}

/* Below a driver for an accelerator, above what looks up tables, and the kernel's vector code where it is our vector code. */
static void test_priorities(void **state)
{
	static const struct {
		const char *variant;
		int priority, or_else;
	} want_priority[] = {
		{ "gfni-avx512", 700, 640 }, { "gfni-avx2", 650, 650 }, { "aesni-avx2", 600, 600 }, { "portable", 200, 200 },
	};
	char value[128], driver[64];

	for (unsigned int v = 0; v < nr_variants; v++) {
		for (size_t i = 0; i < NR_ALGS; i++) {
			size_t w = 0;

			snprintf(driver, sizeof(driver), "%ssm4-sits-%s", algs[i].prefix, variants[v]);
			proc_crypto(driver, "priority", value);
			while (strcmp(want_priority[w].variant, variants[v]))
				assert_true(++w < 4);
			if (atoi(value) != want_priority[w].or_else)
				assert_int_equal(atoi(value), want_priority[w].priority);
		}
	}
}

/* The driver of the highest priority for a name, and that priority. */
static int best_driver(const char *name, char best[128])
{
	FILE *f = fopen("/proc/crypto", "re");
	char line[256], field[64], text[128], is[128] = "", driver[128] = "";
	int max = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s : %127[^\n]", field, text) != 2)
			continue;
		if (!strcmp(field, "name"))
			strcpy(is, text);
		else if (!strcmp(field, "driver"))
			strcpy(driver, text);
		else if (!strcmp(field, "priority") && !strcmp(is, name) && atoi(text) > max) {
			max = atoi(text);
			strcpy(best, driver);
		}
	}
	fclose(f);
	return max;
}

/* A name gives the best variant, whatever else the kernel has of it. */
static void test_a_name_gives_the_best(void **state)
{
	uint8_t key[32] = { 1, 2, 3 };
	char best[128], value[128];

	for (size_t i = 1; i < NR_ALGS; i++) {
		bool aead = !strcmp(algs[i].prefix, "gcm-");
		int before, tfm;

		assert_true(best_driver(algs[i].name, best) > 0);
		print_message("# %s: %s\n", algs[i].name, best);
		assert_non_null(strstr(best, "-sits-"));
		proc_crypto(best, "refcnt", value);
		before = atoi(value);
		tfm = tfm_open(aead ? "aead" : "skcipher", algs[i].name, key, !strcmp(algs[i].prefix, "xts-") ? 32 : 16);
		assert_true(tfm >= 0);
		proc_crypto(best, "refcnt", value);
		assert_int_equal(atoi(value), before + 1);
		close(tfm);
	}
}

static void test_module_in_use_stays(void **state)
{
	uint8_t key[16] = { 1 };

	for (size_t i = 1; i < NR_ALGS; i++) {
		bool aead = !strcmp(algs[i].prefix, "gcm-");
		int tfm;

		if (!strcmp(algs[i].prefix, "xts-"))
			continue;
		tfm = tfm_open(aead ? "aead" : "skcipher", algs[i].name, key, 16);
		assert_true(tfm >= 0);
		assert_int_equal(syscall(SYS_delete_module, "sits_sm4", O_NONBLOCK), -1);
		assert_int_equal(errno, EAGAIN);
		assert_int_equal(crypt_once(tfm, ALG_OP_ENCRYPT, src, aead ? 12 : !strcmp(algs[i].prefix, "ecb-") ? 0 : 16, 0, src, 96,
					    dst, aead ? 112 : 96, 1), aead ? 112 : 96);
		close(tfm);
	}
}

static int setup(void **state)
{
	FILE *f = fopen("/proc/crypto", "re");
	char line[256], name[32];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "driver : ctr-sm4-sits-%31s", name) == 1 && nr_variants < 4)
			strcpy(variants[nr_variants++], name);
	if (f)
		fclose(f);
	return nr_variants ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self_tests_passed),
		cmocka_unit_test(test_priorities),
		cmocka_unit_test(test_a_name_gives_the_best),
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_published_gcm),
		cmocka_unit_test(test_ctr_beside_userspace),
		cmocka_unit_test(test_ecb_beside_userspace),
		cmocka_unit_test(test_cbc_beside_userspace),
		cmocka_unit_test(test_xts_beside_userspace),
		cmocka_unit_test(test_gcm_beside_userspace),
		cmocka_unit_test(test_keys_of_other_lengths_are_refused),
		cmocka_unit_test(test_module_in_use_stays),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	test_seed_init();
	return cmocka_run_group_tests_name("sm4_afalg", tests, setup, NULL);
}
