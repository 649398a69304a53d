// SPDX-License-Identifier: MIT
/*
 * sm4_ct_test.c - no branch and no address of SM4 and its modes depends on a key, a text, a tweak or a hash: runs itself under
 * valgrind with these marked undefined, which then reports every such use.
 *
 * Valgrind 3.19 offers its programs AVX2, AES-NI and PCLMULQDQ, but neither GFNI nor AVX-512: the cores that want these are not
 * there inside. sm4_static.t reads their code instead; `make check-crypto-time` measures all of them.
 */
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/crypto/sm4_ops.h"

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>

#define LEN_MAX 2100

static const size_t lens[] = { 0, 1, 16, 31, 48, 100, 256, 400, 512, 530, 1024, 2100 };

static unsigned int nr_done, nr_failed;

static void secret(const void *p, size_t n)
{
	(void)VALGRIND_MAKE_MEM_UNDEFINED(p, n);
}

static void declassify(const void *p, size_t n)
{
	(void)VALGRIND_MAKE_MEM_DEFINED(p, n);
}

static void result(bool ok, const char *core, const char *what)
{
	nr_failed += !ok;
	printf("%sok %u - %s: %s\n", ok ? "" : "not ", ++nr_done, core, what);
	fflush(stdout);
}

/* Errors that one message made. */
static unsigned int one(const struct sits_sm4_core *core, int op, size_t len, uint64_t split)
{
	static u8 raw[32], iv[16], aad[40], src[LEN_MAX], dst[LEN_MAX];
	struct op_args a = { .core = core, .raw = raw, .iv = iv, .iv_len = ops[op].aead ? 12 : 16, .aad = aad,
			     .aad_len = ops[op].aead ? sizeof(aad) - 3 : 0, .dst = dst, .src = src, .len = len, .split = split };
	unsigned int before;
	union op_key key;

	test_fill(raw, 32);
	test_fill(iv, 16);
	test_fill(aad, sizeof(aad));
	test_fill(src, len);
	if (op == OP_GCM_DECRYPT || op == OP_GCM_AUTH) {
		ops[op].peer(&a);	/* the tag */
		a.core = core;
	}
	before = VALGRIND_COUNT_ERRORS;
	secret(raw, 32);
	secret(src, len);
	/* Tweaks, and the hash that a core goes on from; counters and initial values are public. */
	if (op >= OP_CORE_XTS_ENCRYPT && op <= OP_CORE_GHASH)
		secret(iv, 16);
	ops[op].set_key(core, &key, raw);
	(void)ops[op].run(&key, &a);
	before = VALGRIND_COUNT_ERRORS - before;
	declassify(raw, 32);
	declassify(iv, 16);
	declassify(src, sizeof(src));
	declassify(dst, sizeof(dst));
	declassify(&key, sizeof(key));
	declassify(&a, sizeof(a));
	return before;
}

/* Branches and addresses that depend on secrets are seen at all. */
static void sees(void)
{
	static volatile u8 table[256];
	volatile u8 sink = 0;
	unsigned int before = VALGRIND_COUNT_ERRORS;
	u8 key[2] = { 3, 4 };

	secret(key, 2);
	if (key[0] & 1)
		sink = 1;
	before = VALGRIND_COUNT_ERRORS - before;
	result(before > 0, "valgrind", "reports a branch on a secret");
	before = VALGRIND_COUNT_ERRORS;
	sink = table[key[1]];
	before = VALGRIND_COUNT_ERRORS - before;
	result(before > 0, "valgrind", "reports a secret as an index");
	(void)sink;
}

static int inside(void)
{
	unsigned int nr;
	const struct sits_sm4_core *const *cores = sits_sm4_cores(&nr);

	printf("1..%u\n", 2 + nr * NR_OPS);
	sees();
	for (unsigned int c = 0; c < nr; c++) {
		for (int op = 0; op < NR_OPS; op++) {
			/* Whether a tag is right is no secret, and branched on, once. */
			unsigned int allowed = op == OP_GCM_DECRYPT || op == OP_GCM_AUTH, worst = 0;

			for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
				size_t len = lens[i] - lens[i] % ops[op].step;
				unsigned int errors;

				if (len < ops[op].min_len)
					continue;
				errors = one(cores[c], op, len, 0);
				worst = errors > worst ? errors : worst;
				errors = ops[op].pieces ? one(cores[c], op, len, i + 99) : 0;
				worst = errors > worst ? errors : worst;
			}
			result(worst <= allowed, cores[c]->name, ops[op].name);
		}
	}
	return nr_failed ? 1 : 0;
}

/* What valgrind had to say: where, or why it did not start. */
static void show(int fd)
{
	FILE *f = lseek(fd, 0, SEEK_SET) ? NULL : fdopen(fd, "r");
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		printf("# %s", line);
}

int main(int argc, char **argv)
{
	char log[] = "/tmp/sits-ct-XXXXXX", log_fd[32];
	int fd, status;
	pid_t child;

	if (RUNNING_ON_VALGRIND) {
		peer_init();
		test_seed_init();
		return inside();
	}
	if (OPS_SANITIZED) {
		printf("1..0 # SKIP valgrind does not run what ASan instrumented\n");
		return 0;
	}
#ifdef __clang__
	printf("1..0 # SKIP valgrind 3.19 stops at clang's debugging information\n");
	return 0;
#endif
	fd = mkstemp(log);
	if (fd < 0 || unlink(log))
		return 1;
	snprintf(log_fd, sizeof(log_fd), "--log-fd=%d", fd);
	child = fork();
	if (child < 0)
		return 1;
	if (!child) {
		execlp("valgrind", "valgrind", "--quiet", "--tool=memcheck", "--error-limit=no", "--leak-check=no", log_fd, argv[0],
		       NULL);
		printf("1..0 # SKIP valgrind is not installed\n");
		fflush(stdout);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		return 1;
	if (status)
		show(fd);
	return status ? 1 : 0;
}

#else

int main(void)
{
	printf("1..0 # SKIP built without valgrind's headers\n");
	return 0;
}

#endif
