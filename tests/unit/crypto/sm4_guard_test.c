// SPDX-License-Identifier: MIT
/*
 * sm4_guard_test.c - no core reads or writes a byte outside of its message: sources (read-only), results, nonces, associated
 * data and keys against pages that are not there, at both ends, at all lengths.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/crypto/sm4_ops.h"

#include <cmocka.h>

#define PAGE	4096u
#define ROOM	(4 * PAGE)

/* ROOM bytes between two pages that are not there. */
struct fenced {
	u8 *start, *end;
};

static struct fenced src, dst, iv, aad, keys, rounds, hash;
static u8 want[ROOM];

static struct fenced fence(void)
{
	u8 *p = mmap(NULL, ROOM + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED && !mprotect(p + PAGE, ROOM, PROT_READ | PROT_WRITE));
	return (struct fenced){ p + PAGE, p + PAGE + ROOM };
}

static u8 *place(const struct fenced *f, size_t len, bool at_end)
{
	return at_end ? f->end - len : f->start;
}

static void protect(const struct fenced *f, int prot)
{
	assert_int_equal(mprotect(f->start, ROOM, prot), 0);
}

/* What runs, for whoever is told that it crashed. */
static char running[160];

static void crashed(int sig)
{
	static const char text[] = "# touched a page that is not its: ";

	if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 || write(STDOUT_FILENO, running, strlen(running)) < 0 ||
	    write(STDOUT_FILENO, "\n", 1) < 0)
		_exit(3);
	_exit(2);
}

static void run(const struct sits_sm4_core *core, int op, size_t len, unsigned int ends)
{
	u8 raw[32];
	size_t iv_len = ops[op].aead ? (len % 3 ? 12 : 1 + len % 40) : 16, aad_len = ops[op].aead ? len % 50 : 0;
	union op_key *key = (union op_key *)place(&keys, sizeof(*key), true);
	struct op_args peer, a = { .core = core, .raw = raw, .iv = place(&iv, iv_len, ends & 4), .iv_len = iv_len,
				   .aad = place(&aad, aad_len, !(ends & 4)), .aad_len = aad_len,
				   .dst = place(&dst, len, ends & 2), .src = place(&src, len, ends & 1), .len = len };

	snprintf(running, sizeof(running), "%s on %s, %zu bytes, nonce %zu, aad %zu, ends %u", ops[op].name, core->name, len,
		 iv_len, aad_len, ends);
	test_fill(raw, 32);
	test_fill((u8 *)a.iv, iv_len);
	protect(&keys, PROT_READ | PROT_WRITE);
	ops[op].set_key(core, key, raw);
	protect(&keys, PROT_READ);
	peer = a;
	peer.dst = want;
	ops[op].peer(&peer);
	memcpy(a.tag, peer.tag, 16);
	assert_int_equal(ops[op].run(key, &a), 0);
	if (op_writes(op) && memcmp(a.dst, want, len))
		fail_msg("%s: wrong text", running);
	if (op_has_state(op) && memcmp(a.state, peer.state, 16))
		fail_msg("%s: wrong state", running);
	if (ops[op].aead && memcmp(a.tag, peer.tag, 16))
		fail_msg("%s: wrong tag", running);
}

static void test_messages(void **state)
{
	for (int op = 0; op < NR_OPS; op++) {
		for (size_t len = ops[op].min_len; len <= 4 * PAGE;) {
			unsigned int r = (unsigned int)test_random();

			/* The source's two ends in turn with both of the result's. */
			run(*state, op, len, r & 7);
			run(*state, op, len, ~r & 7);
			if (len >= 4 * PAGE)
				break;
			if (ops[op].step > 1)
				len += len < 2600 ? 16 : 16 * (1 + r % 23);
			else
				len += len < 600 ? 1 : len < 2600 ? 1 + r % 9 : 1 + r % 300;
			if (len > 4 * PAGE)
				len = 4 * PAGE;
		}
	}
}

/* In place, against either end. */
static void test_in_place(void **state)
{
	const struct sits_sm4_core *core = *state;

	for (int op = 0; op < NR_OPS; op++) {
		for (size_t len = ops[op].min_len; len < 2600; len += ops[op].step * (1 + test_random() % 7)) {
			u8 raw[32], nonce[16], *p = place(&dst, len, len / ops[op].step & 1);
			struct op_args peer, a = { .core = core, .raw = raw, .iv = nonce, .iv_len = ops[op].aead ? 12 : 16,
						   .dst = p, .src = p, .len = len };
			union op_key key;

			snprintf(running, sizeof(running), "%s on %s, %zu bytes in place", ops[op].name, core->name, len);
			test_fill(raw, 32);
			test_fill(nonce, 16);
			test_fill(p, len);
			ops[op].set_key(core, &key, raw);
			peer = a;
			peer.dst = want;
			ops[op].peer(&peer);
			memcpy(a.tag, peer.tag, 16);
			assert_int_equal(ops[op].run(&key, &a), 0);
			if (op_writes(op) && memcmp(p, want, len))
				fail_msg("%s: wrong text", running);
		}
	}
}

/* Round keys and hash keys alone, against either end: a core may read no more than its own. */
static void test_keys(void **state)
{
	const struct sits_sm4_core *core = *state;
	static const size_t nrs[] = { 0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 256, 300 };

	for (int end = 0; end < 2; end++) {
		struct sits_sm4_rounds *r = (struct sits_sm4_rounds *)place(&rounds, sizeof(*r), end);
		struct sits_ghash_key *h = (struct sits_ghash_key *)place(&hash, sizeof(*h), end);
		u8 *block = place(&iv, 16, end), *y = place(&aad, 16, end), raw[16];
		struct sits_gcm_key key = { 0 };

		test_fill(raw, 16);
		sits_gcm_set_key_on(core, &key, raw);
		protect(&rounds, PROT_READ | PROT_WRITE);
		protect(&hash, PROT_READ | PROT_WRITE);
		*r = key.sm4.enc;
		memset(h, 0, sizeof(*h));
		memcpy(h->h, key.hash.h, sizeof(h->h));
		snprintf(running, sizeof(running), "the hash key of %s, end %d", core->name, end);
		core->ghash_key(h);
		assert_memory_equal(h, &key.hash, sizeof(*h));
		protect(&rounds, PROT_READ);
		protect(&hash, PROT_READ);
		for (size_t i = 0; i < sizeof(nrs) / sizeof(nrs[0]); i++) {
			size_t nr = nrs[i];
			u8 *d = place(&dst, 16 * nr, end), *s = place(&src, 16 * nr, end);

			snprintf(running, sizeof(running), "the functions of %s, %zu blocks, keys at end %d", core->name, nr, end);
			test_fill(block, 16);
			core->crypt(r, d, s, nr);
			core->cbc_decrypt(r, block, d, s, nr);
			core->ctr128(r, block, d, s, nr);
			core->ctr32(r, block, d, s, nr);
			core->xts(r, block, d, s, nr, false);
			core->xts(r, block, d, s, nr, true);
			core->ghash(h, y, s, nr);
			core->gcm_encrypt(r, h, block, y, d, s, nr);
			core->gcm_decrypt(r, h, block, y, d, s, nr);
		}
	}
}

static int setup(void **state)
{
	src = fence();
	dst = fence();
	iv = fence();
	aad = fence();
	keys = fence();
	rounds = fence();
	hash = fence();
	test_fill(src.start, ROOM);
	test_fill(aad.start, ROOM);
	protect(&src, PROT_READ);
	return 0;
}

/* cmocka sets handlers of its own before each test. */
static int catch(void **state)
{
	struct sigaction sa = { .sa_handler = crashed };

	return sigaction(SIGSEGV, &sa, NULL) || sigaction(SIGBUS, &sa, NULL) ? -1 : 0;
}

int main(void)
{
	static const struct {
		const char *name;
		CMUnitTestFunction fn;
	} each[] = { { "messages", test_messages }, { "in place", test_in_place }, { "keys", test_keys } };
	const size_t nr_each = sizeof(each) / sizeof(each[0]);
	static char names[32][64];
	struct CMUnitTest tests[32];
	const struct sits_sm4_core *const *cores;
	unsigned int nr, n = 0;

	cmocka_set_message_output(CM_OUTPUT_TAP);
	peer_init();
	test_seed_init();
	cores = sits_sm4_cores(&nr);
	for (unsigned int c = 0; c < nr; c++) {
		for (size_t i = 0; i < nr_each; i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", cores[c]->name, each[i].name);
			tests[n] = (struct CMUnitTest){ names[n], each[i].fn, catch, NULL, (void *)cores[c] };
		}
	}
	return _cmocka_run_group_tests("sm4 and missing pages", tests, n, setup, NULL);
}
