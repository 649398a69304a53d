// SPDX-License-Identifier: MIT
/*
 * sm4_bench.c - SM4 of crypto/ against libgcrypt and OpenSSL on one core: a JSON object a line.
 *
 *   sm4_bench [--smoke] [--core NAME] [PREFIX]
 *
 * All contenders of a group take turns of a few milliseconds, many rounds of them, so that what slows the machine meanwhile
 * hits all alike; the fastest call of each counts. Every call is a message of its own: a new
 * counter block, nonce or tweak under a key that is ready. `ratio` is over libgcrypt's counter mode at the same length and,
 * for messages of 16 bytes to 4 KiB, over OpenSSL's of the same mode; in "rekey" each message brings a key as well. Cycles are those of the core, not of its time stamp
 * counter: a chain of dependent additions, timed in the same rounds, tells how long one takes.
 *
 * --smoke    a few calls of everything: shows that it runs, measures nothing
 * --core     what stands for "sm4-ctr" and the like, and for short messages, in place of the machine's best core
 * PREFIX     only lines whose name begins so
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <gcrypt.h>
#include <openssl/evp.h>

#include "crypto/sm4.h"
#include "crypto/sm4_core.h"

#define BULK_LEN	(1u << 20)
#define SLOW_LEN	(64u << 10)	/* for those that a longer message takes more than a time slice */
#define MEMORY_LEN	(256u << 20)
#define OPS_MAX		64
#define NAME_MAX_LEN	48

static const u8 raw_key[32] = "0123456789abcdef0123456789ABCDE";

struct op {
	char name[NAME_MAX_LEN];
	void (*run)(const struct op *op, u8 *dst, const u8 *src, size_t len);
	const void *state;
	const char *peer;	/* NULL: it is the measure of the others */
	int measure;		/* which op ratios are over; -1: none */
	bool in_place;
	size_t len;		/* bytes a call */
	u32 batch;		/* calls between two looks at the clock */
	double best;		/* seconds a call */
};

/* Ours, under one core. Owned by main(), wiped by nobody: the keys are no secret. */
struct ours {
	const struct sits_sm4_core *core;
	struct sits_sm4_key sm4;
	struct sits_gcm_key gcm;
	struct sits_xts_key xts;
};

static struct {
	const char *prefix;
	bool smoke;
	struct op ops[OPS_MAX];
	int nr_ops;
	size_t len;
	u8 *src, *dst;
	double cycle;		/* seconds */
	double tick;		/* seconds of the time stamp counter; 0: there is none */
	int nr_printed;
} bench;

static char libgcrypt_name[64], openssl_name[64];

/*
 * Calls are short against a time slice, so that the fastest of many was not interrupted, and the clock on the wall is right for them.
 * The thread's CPU time would not be: in a guest the kernel takes off it what the host stole, at times later than it was
 * stolen, and so from calls that were not hit; the fastest would be the most wrong. Calls that are longer than a time slice have no choice.
 */
static clockid_t clock_id = CLOCK_MONOTONIC_RAW;

static double now(void)
{
	struct timespec t;

	clock_gettime(clock_id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- the core's clock */

#define CHAIN_REPEATS 200

/* A register added to a register, over and over: one cycle each, on every core there is. (Additions of constants are not:
 * some cores do them on the way.)
 */
static void chain(void)
{
	unsigned long x = 1, y = 3;
	int i;

	for (i = 0; i < CHAIN_REPEATS; i++) {
#if defined(__x86_64__)
		__asm__ volatile(".rept 1000\n\tadd %1, %0\n\t.endr" : "+r"(x) : "r"(y));
#elif defined(__aarch64__)
		__asm__ volatile(".rept 1000\n\tadd %0, %0, %1\n\t.endr" : "+r"(x) : "r"(y));
#endif
	}
}

static void time_clock(void)
{
	clockid_t saved = clock_id;
	double t;

	clock_id = CLOCK_MONOTONIC_RAW;
	t = now();
	chain();
	t = (now() - t) / (1000.0 * CHAIN_REPEATS);
	clock_id = saved;
	if (!bench.cycle || t < bench.cycle)
		bench.cycle = t;
}

/* The time stamp counter's rate, for the record: where it differs from the clock, counts of its ticks are no cycles. */
static void time_ticks(void)
{
#if defined(__x86_64__)
	struct timespec a, b;
	u64 ticks;
	double s;

	clock_gettime(CLOCK_MONOTONIC_RAW, &a);
	ticks = __builtin_ia32_rdtsc();
	do {
		clock_gettime(CLOCK_MONOTONIC_RAW, &b);
		s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
	} while (s < 0.02);
	bench.tick = s / (double)(__builtin_ia32_rdtsc() - ticks);
#endif
}

/* ---------------------------------------------------------------- ours */

static void ours_ctr(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	u8 iv[16] = { 1 };

	sits_sm4_ctr(&o->sm4, iv, dst, src, len);
}

static void ours_ecb(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;

	sits_sm4_ecb_decrypt(&o->sm4, dst, src, len / 16);
}

static void ours_cbc_dec(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	u8 iv[16] = { 1 };

	sits_sm4_cbc_decrypt(&o->sm4, iv, dst, src, len / 16);
}

static void ours_gcm(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	u8 iv[12] = { 1 }, tag[16];

	sits_gcm_encrypt(&o->gcm, iv, NULL, 0, dst, src, len, tag);
}

/* The tag under which what is in bench.src counts as sealed; all keys are one. */
static const u8 *right_tag(const struct sits_gcm_key *key, const u8 iv[12], const u8 *src, size_t len)
{
	static u8 tag[16];
	static size_t of_len;
	struct sits_gcm s;

	if (of_len == len)
		return tag;
	if (sits_gcm_start(&s, key, iv, 12) || sits_gcm_update_auth(&s, src, len))
		abort();
	sits_gcm_final(&s, tag);
	of_len = len;
	return tag;
}

static void ours_gcm_dec(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	u8 iv[12] = { 1 };

	if (sits_gcm_decrypt(&o->gcm, iv, NULL, 0, dst, src, len, right_tag(&o->gcm, iv, src, len)))
		abort();
}

static void ours_xts(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	u8 iv[16] = { 1 };

	sits_xts_decrypt(&o->xts, SITS_XTS_IEEE, iv, dst, src, len);
}

static void ours_xts_gb(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	u8 iv[16] = { 1 };

	sits_xts_decrypt(&o->xts, SITS_XTS_GB, iv, dst, src, len);
}

/* A key for each message: what short-lived connections pay. */
static void ours_ctr_rekey(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	struct sits_sm4_key key;
	u8 iv[16] = { 1 };

	sits_sm4_expand_key_on(o->core, &key, raw_key);
	sits_sm4_ctr(&key, iv, dst, src, len);
	sits_wipe(&key, sizeof(key));
}

static void ours_gcm_rekey(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct ours *o = op->state;
	struct sits_gcm_key key;
	u8 iv[12] = { 1 }, tag[16];

	sits_gcm_set_key_on(o->core, &key, raw_key);
	sits_gcm_encrypt(&key, iv, NULL, 0, dst, src, len, tag);
	sits_wipe(&key, sizeof(key));
}

static const struct mode {
	const char *name;
	void (*run)(const struct op *op, u8 *dst, const u8 *src, size_t len);
	bool on_every_core;
} modes[] = {
	{ "sm4-ctr", ours_ctr, true },
	{ "sm4-gcm", ours_gcm, true },
	{ "sm4-gcm-dec", ours_gcm_dec, false },
	{ "sm4-ecb", ours_ecb, true },
	{ "sm4-cbc-dec", ours_cbc_dec, true },
	{ "sm4-xts", ours_xts, true },
	{ "sm4-xts-gb", ours_xts_gb, false },
};
#define NR_MODES (sizeof(modes) / sizeof(modes[0]))

static void prepare(struct ours *o, const struct sits_sm4_core *core)
{
	o->core = core;
	sits_sm4_expand_key_on(core, &o->sm4, raw_key);
	sits_gcm_set_key_on(core, &o->gcm, raw_key);
	sits_xts_set_key_on(core, &o->xts, raw_key);
}

/* ---------------------------------------------------------------- libgcrypt */

struct gcrypt_state {
	gcry_cipher_hd_t hd;
	int mode;
};

static gcry_cipher_hd_t gcrypt_open(int mode)
{
	gcry_cipher_hd_t hd;

	if (gcry_cipher_open(&hd, GCRY_CIPHER_SM4, mode, 0) ||
	    gcry_cipher_setkey(hd, raw_key, mode == GCRY_CIPHER_MODE_XTS ? 32 : 16)) {
		fprintf(stderr, "sm4_bench: this libgcrypt has no SM4 in mode %d\n", mode);
		exit(1);
	}
	return hd;
}

static void gcrypt_run(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct gcrypt_state *s = op->state;
	static const u8 iv[16] = { 1 };
	gcry_error_t err = 0;
	u8 tag[16];

	if (s->mode == GCRY_CIPHER_MODE_CTR)
		err = gcry_cipher_setctr(s->hd, iv, 16);
	else if (s->mode == GCRY_CIPHER_MODE_GCM)
		err = gcry_cipher_setiv(s->hd, iv, 12);
	else if (s->mode != GCRY_CIPHER_MODE_ECB)
		err = gcry_cipher_setiv(s->hd, iv, 16);
	if (err)
		abort();
	if (s->mode == GCRY_CIPHER_MODE_CTR || s->mode == GCRY_CIPHER_MODE_GCM)
		err = gcry_cipher_encrypt(s->hd, dst, len, dst == src ? NULL : src, dst == src ? 0 : len);
	else
		err = gcry_cipher_decrypt(s->hd, dst, len, dst == src ? NULL : src, dst == src ? 0 : len);
	if (err || (s->mode == GCRY_CIPHER_MODE_GCM && gcry_cipher_gettag(s->hd, tag, 16)))
		abort();
}

static struct gcrypt_state gcrypt[] = {
	{ NULL, GCRY_CIPHER_MODE_CTR }, { NULL, GCRY_CIPHER_MODE_GCM }, { NULL, GCRY_CIPHER_MODE_ECB },
	{ NULL, GCRY_CIPHER_MODE_CBC }, { NULL, GCRY_CIPHER_MODE_XTS },
};
static const char *const gcrypt_names[] = {
	"libgcrypt-ctr", "libgcrypt-gcm", "libgcrypt-ecb", "libgcrypt-cbc-dec", "libgcrypt-xts",
};
#define NR_GCRYPT (sizeof(gcrypt) / sizeof(gcrypt[0]))

/* ---------------------------------------------------------------- OpenSSL */

struct openssl_state {
	const char *cipher;	/* name to fetch */
	const char *name;	/* of its line */
	const char *of;		/* our mode that it is the peer of */
	bool encrypt;
	EVP_CIPHER_CTX *ctx;	/* NULL: this libcrypto does not have it */
};

/* SM4-GCM and SM4-XTS came with OpenSSL 3.2. */
static struct openssl_state openssl[] = {
	{ "SM4-CTR", "openssl-ctr", "sm4-ctr", true, NULL },
	{ "SM4-GCM", "openssl-gcm", "sm4-gcm", true, NULL },
	{ "SM4-ECB", "openssl-ecb", "sm4-ecb", false, NULL },
	{ "SM4-CBC", "openssl-cbc-dec", "sm4-cbc-dec", false, NULL },
	{ "SM4-XTS", "openssl-xts", "sm4-xts", false, NULL },
};
#define NR_OPENSSL (sizeof(openssl) / sizeof(openssl[0]))

static void openssl_open(struct openssl_state *s)
{
	EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, s->cipher, "provider=default");

	if (!cipher)
		return;
	s->ctx = EVP_CIPHER_CTX_new();
	if (!s->ctx || !EVP_CipherInit_ex2(s->ctx, cipher, raw_key, raw_key, s->encrypt, NULL) ||
	    !EVP_CIPHER_CTX_set_padding(s->ctx, 0)) {
		fprintf(stderr, "sm4_bench: %s of %s can't be used\n", s->cipher, openssl_name);
		exit(1);
	}
	EVP_CIPHER_free(cipher);
}

static void openssl_run(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct openssl_state *s = op->state;
	static const u8 iv[16] = { 1 };
	u8 tag[16];
	int n;

	if (!EVP_CipherInit_ex2(s->ctx, NULL, NULL, iv, -1, NULL) || !EVP_CipherUpdate(s->ctx, dst, &n, src, (int)len))
		abort();
	if (EVP_CIPHER_CTX_get_mode(s->ctx) == EVP_CIPH_GCM_MODE &&
	    (!EVP_CipherFinal_ex(s->ctx, tag, &n) || !EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_AEAD_GET_TAG, 16, tag)))
		abort();
}

static void openssl_rekey(const struct op *op, u8 *dst, const u8 *src, size_t len)
{
	const struct openssl_state *s = op->state;
	static const u8 iv[16] = { 1 };
	int n;

	if (!EVP_CipherInit_ex2(s->ctx, NULL, raw_key, iv, -1, NULL) || !EVP_CipherUpdate(s->ctx, dst, &n, src, (int)len))
		abort();
}

/* ---------------------------------------------------------------- taking turns */

static struct op *add(const char *name, void (*run)(const struct op *, u8 *, const u8 *, size_t), const void *state,
		      const char *peer, int measure)
{
	struct op *op = &bench.ops[bench.nr_ops++];

	if (bench.nr_ops > OPS_MAX)
		abort();
	memset(op, 0, sizeof(*op));
	snprintf(op->name, sizeof(op->name), "%s", name);
	op->run = run;
	op->state = state;
	op->peer = peer;
	op->measure = measure;
	op->len = bench.len;
	return op;
}

static bool wanted(const char *name)
{
	return !bench.prefix || !strncmp(name, bench.prefix, strlen(bench.prefix));
}

static double one_batch(struct op *op)
{
	double t = now();
	u32 i;

	for (i = 0; i < op->batch; i++)
		op->run(op, bench.dst, op->in_place ? bench.dst : bench.src, op->len);
	t = (now() - t) / op->batch;
	if (t <= 0)
		t = 1e-9 / op->batch; /* a coarse clock has not moved: the rate stays finite */
	if (!op->best || t < op->best)
		op->best = t;
	return t * op->batch;
}

/* Enough calls between two looks at the clock to make those small. */
static void calibrate(struct op *op)
{
	op->batch = 1;
	while (!bench.smoke && one_batch(op) < 50e-6)
		op->batch *= 2;
	op->best = 0;
}

static void take_turn(struct op *op, double seconds)
{
	double spent = 0;

	time_clock();
	do {
		spent += one_batch(op);
	} while (spent < seconds && !bench.smoke);
}

static double rate(const struct op *op)
{
	return (double)op->len / op->best;
}

static void print_op(const struct op *op)
{
	printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"GB/s\", ", op->name, rate(op) / 1e9);
	if (op->measure >= 0)
		printf("\"peer\": \"%s\", \"ratio\": %.6g, ", op->peer, rate(op) / rate(&bench.ops[op->measure]));
	else
		printf("\"peer\": null, \"ratio\": null, ");
	printf("\"cycles_per_byte\": %.6g, \"bytes\": %zu, \"threads\": 1, \"command\": \"sm4_bench\"}\n",
	       1 / (rate(op) * bench.cycle), op->len);
	bench.nr_printed++;
}

/* Rounds of turns over all ops that are wanted, and those that they are compared with; then the lines. */
static void run_group(int rounds, double seconds)
{
	bool run[OPS_MAX] = { false };
	int i, r;

	for (i = 0; i < bench.nr_ops; i++) {
		if (!wanted(bench.ops[i].name))
			continue;
		run[i] = true;
		if (bench.ops[i].measure >= 0)
			run[bench.ops[i].measure] = true;
	}
	bench.cycle = 0;
	for (i = 0; i < bench.nr_ops; i++)
		if (run[i])
			calibrate(&bench.ops[i]);
	for (r = 0; r < (bench.smoke ? 1 : rounds); r++)
		for (i = 0; i < bench.nr_ops; i++)
			if (run[i])
				take_turn(&bench.ops[i], seconds);
	for (i = 0; i < bench.nr_ops; i++)
		if (run[i] && wanted(bench.ops[i].name))
			print_op(&bench.ops[i]);
	fflush(stdout);
	bench.nr_ops = 0;
}

/* ---------------------------------------------------------------- what is compared */

static int add_gcrypt(size_t i)
{
	add(gcrypt_names[i], gcrypt_run, &gcrypt[i], libgcrypt_name, i ? 0 : -1);
	return bench.nr_ops - 1;
}

/* Of long messages that fit the second cache: every mode, every core, every peer. */
static void group_bulk(const struct ours *best, const struct ours *all, u32 nr)
{
	char name[NAME_MAX_LEN];
	size_t m, i;
	u32 c;

	bench.len = BULK_LEN;
	add_gcrypt(0);
	for (m = 0; m < NR_MODES; m++) {
		add(modes[m].name, modes[m].run, best, libgcrypt_name, 0);
		for (c = 0; c < nr && modes[m].on_every_core; c++) {
			snprintf(name, sizeof(name), "%s-%s", modes[m].name, all[c].core->name);
			add(name, modes[m].run, &all[c], libgcrypt_name, 0);
		}
	}
	for (i = 1; i < NR_GCRYPT; i++) {
		add_gcrypt(i);
		bench.ops[bench.nr_ops - 1].len = SLOW_LEN;
	}
	for (i = 0; i < NR_OPENSSL; i++)
		if (openssl[i].ctx)
			add(openssl[i].name, openssl_run, &openssl[i], libgcrypt_name, 0)->len = SLOW_LEN;
	run_group(60, 0.002);
}

static int find_op(const char *what, size_t len)
{
	char name[NAME_MAX_LEN];
	int i;

	snprintf(name, sizeof(name), "%s-%zu", what, len);
	for (i = 0; i < bench.nr_ops; i++)
		if (!strcmp(bench.ops[i].name, name))
			return i;
	abort();
}

static struct op *add_named(const char *what, size_t len, void (*run)(const struct op *, u8 *, const u8 *, size_t),
			    const void *state, const char *peer, int measure)
{
	char name[NAME_MAX_LEN];

	snprintf(name, sizeof(name), "%s-%zu", what, len);
	return add(name, run, state, peer, measure);
}

/*
 * Short messages, against OpenSSL's in the same mode. OpenSSL 3.0 has no GCM and no XTS: then its counter mode is the peer of GCM, which
 * is more to beat, and libgcrypt's XTS that of XTS, which like ours enciphers two blocks for one.
 */
static void group_short(const struct ours *best, size_t len)
{
	static char alone[80], xts_name[80];
	size_t m, i;

	bench.len = len;
	snprintf(alone, sizeof(alone), "%s, its CTR", openssl_name);
	snprintf(xts_name, sizeof(xts_name), "libgcrypt %s XTS", gcry_check_version(NULL));
	for (i = 0; i < NR_OPENSSL; i++)
		if (openssl[i].ctx)
			add_named(openssl[i].name, len, openssl_run, &openssl[i], NULL, -1);
	for (i = 0; i < NR_GCRYPT; i++)
		if (gcrypt[i].mode == GCRY_CIPHER_MODE_GCM || gcrypt[i].mode == GCRY_CIPHER_MODE_XTS)
			add_named(gcrypt_names[i], len, gcrypt_run, &gcrypt[i], NULL, -1);
	for (m = 0; m < NR_MODES; m++) {
		bool xts = !strncmp(modes[m].name, "sm4-xts", 7);
		const char *peer = xts ? xts_name : alone;
		int measure = xts ? find_op("libgcrypt-xts", len) : 0;

		for (i = 0; i < NR_OPENSSL; i++) {
			if (!openssl[i].ctx || strncmp(modes[m].name, openssl[i].of, strlen(openssl[i].of)))
				continue;
			peer = openssl_name;
			measure = find_op(openssl[i].name, len);
		}
		add_named(modes[m].name, len, modes[m].run, best, peer, measure);
	}
	run_group(30, 0.001);
}

#define REKEY_LEN 64

static void group_rekey(const struct ours *best)
{
	char alone[80];

	snprintf(alone, sizeof(alone), "%s, its CTR", openssl_name);
	bench.len = REKEY_LEN;
	add("openssl-ctr-rekey-64", openssl_rekey, &openssl[0], NULL, -1);
	add("sm4-ctr-rekey-64", ours_ctr_rekey, best, openssl_name, 0);
	add("sm4-gcm-rekey-64", ours_gcm_rekey, best, alone, 0);
	run_group(30, 0.001);
}

/* From memory into memory: 256 MiB, of which no cache keeps much. */
static void group_memory(const struct ours *best)
{
	bench.len = bench.smoke ? BULK_LEN : MEMORY_LEN;
	clock_id = CLOCK_THREAD_CPUTIME_ID;
	add_gcrypt(0);
	snprintf(bench.ops[0].name, NAME_MAX_LEN, "libgcrypt-ctr-256m");
	add("sm4-ctr-256m", ours_ctr, best, libgcrypt_name, 0);
	add("sm4-ctr-256m-in-place", ours_ctr, best, libgcrypt_name, 0)->in_place = true;
	add("sm4-gcm-256m", ours_gcm, best, libgcrypt_name, 0);
	add("sm4-gcm-256m-in-place", ours_gcm, best, libgcrypt_name, 0)->in_place = true;
	run_group(4, 0);
}

static void print_clock(const struct ours *best)
{
	if (!wanted("core-clock"))
		return;
	printf("{\"name\": \"core-clock\", \"value\": %.6g, \"unit\": \"GHz\", \"peer\": \"", 1e-9 / bench.cycle);
	if (bench.tick)
		printf("its time stamp counter, %.3f GHz; ", 1e-9 / bench.tick);
	printf("best core here: %s\", \"ratio\": ", best->core->name);
	if (bench.tick)
		printf("%.3f", bench.tick / bench.cycle);
	else
		printf("null");
	printf(", \"threads\": 1, \"command\": \"sm4_bench\"}\n");
}

static u8 *map_buffer(size_t len)
{
	u8 *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("sm4_bench: mmap");
		exit(1);
	}
	madvise(p, len, MADV_HUGEPAGE);
	/* Pages that were never written would all be one page of zeros, which the cache holds. */
	if (!bench.smoke)
		memset(p, 0x5a, len);
	return p;
}

static void open_peers(void)
{
	size_t i;

	snprintf(libgcrypt_name, sizeof(libgcrypt_name), "libgcrypt %s CTR", gcry_check_version(NULL));
	gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
	snprintf(openssl_name, sizeof(openssl_name), "OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING));
	for (i = 0; i < NR_GCRYPT; i++)
		gcrypt[i].hd = gcrypt_open(gcrypt[i].mode);
	for (i = 0; i < NR_OPENSSL; i++)
		openssl_open(&openssl[i]);
	if (!openssl[0].ctx) {
		fprintf(stderr, "sm4_bench: this libcrypto has no SM4\n");
		exit(1);
	}
}

/* The core that stands for the machine's best: the one that is named, else the first. */
static u32 choose(const char *core_name, const struct ours *all, u32 nr)
{
	u32 c;

	if (!core_name)
		return 0;
	for (c = 0; c < nr; c++)
		if (!strcmp(all[c].core->name, core_name))
			return c;
	fprintf(stderr, "sm4_bench: --core: no core %s on this machine; there are:", core_name);
	for (c = 0; c < nr; c++)
		fprintf(stderr, " %s", all[c].core->name);
	fprintf(stderr, "\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const size_t lengths[] = { 16, 64, 256, 1024, 4096 };
	static const struct option options[] = { { "smoke", 0, NULL, 's' }, { "core", 1, NULL, 'c' }, { 0 } };
	const char *core_name = NULL;
	const struct sits_sm4_core *const *cores;
	struct ours *all;
	u32 nr, c, best;
	size_t i;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 's')
			bench.smoke = true;
		else if (opt == 'c')
			core_name = optarg;
		else
			return 2;
	}
	bench.prefix = optind < argc ? argv[optind] : NULL;
	cores = sits_sm4_cores(&nr);
	all = calloc(nr, sizeof(*all));
	if (!all)
		return 1;
	for (c = 0; c < nr; c++)
		prepare(&all[c], cores[c]);
	best = choose(core_name, all, nr);
	open_peers();
	bench.src = map_buffer(MEMORY_LEN);
	bench.dst = map_buffer(MEMORY_LEN);
	group_bulk(&all[best], all, nr);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		group_short(&all[best], lengths[i]);
	group_rekey(&all[best]);
	group_memory(&all[best]);
	time_ticks();
	print_clock(&all[best]);
	if (bench.nr_printed)
		return 0;
	fprintf(stderr, "sm4_bench: no line's name begins with %s\n", bench.prefix);
	return 1;
}
