// SPDX-License-Identifier: MIT
/*
 * moe_real_test.c - the real model as a mixture of 8 experts (tests/golden/moe/make_moe.py), against itself.
 *
 * copies: each expert is the whole FFN. Whichever are chosen, and however many, their weights add up to one, so the
 * logits are the dense model's; with one expert, whose weight is exactly one, they are so bit for bit.
 * split: the FFN's neurons are dealt out. All 8 chosen is the dense model but for the rounding of down to F16; 6
 * chosen must still predict English text, by a choice that differs from token to token.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/engine/graph_run.h"

#define MAKE "tests/golden/moe/make_moe.py"
#define EXPERTS 8
#define MAX_TOKENS 256
#define MAX_LAYERS 256

/* Jane Austen, "Pride and Prejudice" (1813), chapter 1. */
static const char text[] =
	"It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a "
	"wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, "
	"this truth is so well fixed in the minds of the surrounding families, that he is considered as the rightful "
	"property of some one or other of their daughters.\n\n"
	"\"My dear Mr. Bennet,\" said his lady to him one day, \"have you heard that Netherfield Park is let at last?\"\n\n"
	"Mr. Bennet replied that he had not.\n\n\"But it is,\" returned she; \"for Mrs. Long has just been here, and she "
	"told me all about it.\"";

#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#define INSTRUMENTED __has_feature(address_sanitizer)
#else
#define INSTRUMENTED 0
#endif

/* A model in a private mapping: what is written to it stays here. */
struct loaded {
	uint8_t *image;
	size_t len;
	struct sits_model *m;
};

static struct loaded dense;
static struct sits_tokens tokens;
static struct sits_threads *team;
static char dir[256];

static void open_model(struct loaded *l, const char *path)
{
	struct sits_diag diag = { 0 };
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st))
		fail_msg("%s: %s", path, strerror(errno));
	l->len = st.st_size;
	l->image = mmap(NULL, l->len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	if (l->image == MAP_FAILED)
		fail_msg("%s: %s", path, strerror(errno));
	if (sits_model_open(l->image, l->len, &l->m, &diag))
		fail_msg("%s: %s", path, diag.msg);
}

static void close_model(struct loaded *l)
{
	sits_model_close(l->m);
	munmap(l->image, l->len);
	memset(l, 0, sizeof(*l));
}

/* Give the metadata another number of experts for each token, and open the model anew. */
static void set_used(struct loaded *l, uint32_t used)
{
	static const char key[] = "llama.expert_used_count";
	struct sits_diag diag = { 0 };
	uint8_t *p = memmem(l->image, l->len, key, sizeof(key) - 1);

	assert_non_null(p);
	memcpy(p + sizeof(key) - 1 + sizeof(uint32_t), &used, sizeof(used));	/* behind the type */
	sits_model_close(l->m);
	if (sits_model_open(l->image, l->len, &l->m, &diag))
		fail_msg("%u experts used: %s", used, diag.msg);
	assert_int_equal(l->m->hp.route.used, used);
}

static void make(const char *way, const char *args, struct loaded *l)
{
	char cmd[1024], path[512];

	snprintf(path, sizeof(path), "%s/%s.gguf", dir, way);
	snprintf(cmd, sizeof(cmd), "python3 -B " MAKE " %s '%s' '%s' %s", way, getenv("SITS_MODEL_GGUF"), path, args);
	if (system(cmd))
		fail_msg("%s failed", cmd);
	open_model(l, path);
	unlink(path);
}

static int setup(void **state)
{
	const char *path = getenv("SITS_MODEL_GGUF"), *tmp = getenv("TMPDIR");

	if (!path || !*path)
		return 0;
	open_model(&dense, path);
	if (sits_tokenizer_encode(dense.m->tok, text, sizeof(text) - 1, 0, &tokens) || tokens.nr > MAX_TOKENS)
		return -1;
	snprintf(dir, sizeof(dir), "%s/sits-moe-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	return !mkdtemp(dir) || sits_threads_create(0, 0, &team, NULL);
}

static int teardown(void **state)
{
	if (!dense.m)
		return 0;
	close_model(&dense);
	sits_tokens_fini(&tokens);
	sits_threads_destroy(team);
	return rmdir(dir);
}

static void need_model(void)
{
	if (dense.m)
		return;
	print_message("# skip: SITS_MODEL_GGUF is not set\n");
	skip();
}

/* ---- one pass over the text ---- */

struct pass {
	float *logits;		/* [nr][vocab] of the last nr tokens */
	size_t vocab, nr;
	uint32_t *count;	/* [layers][EXPERTS] */
	size_t changed, routed;	/* choices that differ from the token's before, of all */
	uint32_t used, last[MAX_LAYERS][EXPERTS];
};

static void keep_logits(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct pass *p = arg;

	assert_int_equal(nr, p->nr);
	memcpy(p->logits, logits, nr * p->vocab * sizeof(*logits));
}

static void count_experts(void *arg, uint32_t layer, uint32_t owner, int32_t pos, const uint32_t *expert,
			  const float *weight)
{
	struct pass *p = arg;
	uint32_t now[EXPERTS] = { 0 }, i;

	assert_true(layer < MAX_LAYERS);
	for (i = 0; i < p->used; i++) {
		assert_true(expert[i] < EXPERTS);
		p->count[layer * EXPERTS + expert[i]]++;
		now[expert[i]] = 1;
	}
	p->changed += pos && memcmp(now, p->last[layer], sizeof(now));
	p->routed++;
	memcpy(p->last[layer], now, sizeof(now));
}

/* The first @nr of @ids on one backend, logits of the last @outs. */
static void run_ids(const struct sits_model *m, const struct sits_backend *be, const int32_t *ids, size_t nr, size_t outs,
		    struct pass *p)
{
	struct sits_graph_batch b = { .sample = keep_logits, .routed = count_experts, .arg = p };
	struct graph_run gr;

	memset(p, 0, sizeof(*p));
	p->vocab = m->hp.vocab;
	p->used = m->hp.route.used;
	p->nr = outs;
	p->logits = malloc(outs * p->vocab * sizeof(*p->logits));
	p->count = calloc(m->hp.layers * EXPERTS, sizeof(*p->count));
	assert_non_null(p->logits);
	assert_non_null(p->count);
	graph_run_init(&gr, m, be, team, SITS_KV_F16, nr, outs);
	graph_run_rows(&gr, &b, ids, 0, nr, outs);
	graph_run_fini(&gr);
}

static void run_text(const struct sits_model *m, const struct sits_backend *be, size_t nr, size_t outs, struct pass *p)
{
	run_ids(m, be, tokens.id, nr, outs, p);
}

static void free_pass(struct pass *p)
{
	free(p->logits);
	free(p->count);
}

/* The largest difference of any two logits, of the largest logit. */
static double furthest(const struct pass *a, const struct pass *b)
{
	double most = 0, off = 0, d;
	size_t i;

	for (i = 0; i < a->nr * a->vocab; i++) {
		most = fmax(most, fabs(a->logits[i]));
		d = fabs((double)a->logits[i] - b->logits[i]);
		if (!(d <= off))
			off = d;
	}
	return off / most;
}

/* Mean KL of the next-token distribution of @b from that of @a. */
static double divergence(const struct pass *a, const struct pass *b)
{
	double sum = 0, ma, mb, ea, eb, la, lb;
	size_t t, i;

	for (t = 0; t < a->nr; t++) {
		const float *p = a->logits + t * a->vocab, *q = b->logits + t * b->vocab;

		for (i = 0, ma = p[0], mb = q[0]; i < a->vocab; i++) {
			ma = fmax(ma, p[i]);
			mb = fmax(mb, q[i]);
		}
		for (i = 0, ea = eb = 0; i < a->vocab; i++) {
			ea += exp(p[i] - ma);
			eb += exp(q[i] - mb);
		}
		for (i = 0; i < a->vocab; i++) {
			la = p[i] - ma - log(ea);
			lb = q[i] - mb - log(eb);
			sum += exp(la) * (la - lb);
		}
	}
	return sum / a->nr;
}

/* Of the last tokens of @ids, [nr], but for the first that the pass has logits of. */
static double perplexity(const struct pass *p, const int32_t *ids, size_t nr)
{
	double sum = 0, max, e;
	size_t t, i;

	for (t = 0; t + 1 < p->nr; t++) {
		const float *l = p->logits + t * p->vocab;

		for (i = 0, max = l[0]; i < p->vocab; i++)
			max = fmax(max, l[i]);
		for (i = 0, e = 0; i < p->vocab; i++)
			e += exp(l[i] - max);
		sum += max + log(e) - l[ids[nr - p->nr + t + 1]];
	}
	return exp(sum / (p->nr - 1));
}

/* How many tokens a backend gets here: the scalar one and instrumented code are slow. */
static size_t tokens_on(const struct sits_backend *be)
{
	if (!strcmp(be->name, "ref"))
		return INSTRUMENTED ? 0 : 2;
	return INSTRUMENTED ? 3 : 24;
}

/* ---- tests ---- */

static void any_choice_of_copies_is_the_dense_model(void **state)
{
	static const uint32_t used[] = { 1, 2, EXPERTS };
	const struct sits_backend *be;
	struct loaded moe = { 0 };
	struct pass a, b;
	size_t i, k, nr;
	double off, kl;

	need_model();
	make("copies", "", &moe);
	for (i = 0; (be = sits_backend_at(i)); i++) {
		nr = tokens_on(be);
		if (!be->usable() || !nr)
			continue;
		run_text(dense.m, be, nr, nr, &a);
		for (k = 0; k < sizeof(used) / sizeof(used[0]); k++) {
			set_used(&moe, used[k]);
			run_text(moe.m, be, nr, nr, &b);
			assert_int_equal(b.routed, nr * moe.m->hp.layers);
			off = furthest(&a, &b);
			kl = divergence(&a, &b);
			print_message("# %s, %u of 8 copies: logits %.2g off, mean KL %.2g\n", be->name, used[k], off, kl);
			if (used[k] == 1)
				assert_true(off == 0);
			/*
			 * A last bit that differs can move an activation to the next of its 16-bit steps (kernels/quant.h). The
			 * engine's own distance from exact arithmetic is a mean KL of 1.8e-6 (docs/engine.md).
			 */
			assert_true(off <= 2e-3);
			assert_true(kl <= 5e-6);
			free_pass(&b);
		}
		free_pass(&a);
	}
	close_model(&moe);
}

static void all_parts_are_the_dense_model(struct loaded *moe, const struct sits_backend *be)
{
	const size_t nr = INSTRUMENTED ? 4 : 32;
	struct pass a, b;
	double off, off_even;
	uint32_t i;

	run_text(dense.m, be, nr, nr, &a);
	run_text(moe->m, be, nr, nr, &b);
	off = furthest(&a, &b);
	free_pass(&b);
	/* Without its small scores the router weighs all experts alike, exactly. */
	for (i = 0; i < moe->m->hp.layers; i++) {
		struct sits_weight *w = &moe->m->layer[i].router;

		memset((void *)(uintptr_t)w->data, 0, w->N * w->row_bytes);
	}
	run_text(moe->m, be, nr, nr, &b);
	off_even = furthest(&a, &b);
	print_message("# 8 of 8 parts: logits %.2g off; weighed evenly: %.2g\n", off, off_even);
	assert_true(off <= 2e-2);
	assert_true(off_even <= 5e-3);
	free_pass(&a);
	free_pass(&b);
}

static void six_parts_predict_text(struct loaded *moe, const struct sits_backend *be)
{
	const size_t nr = INSTRUMENTED ? 32 : tokens.nr;
	double p_dense, p_moe, share, least = 1, most = 0;
	struct pass a, b;
	size_t i;

	set_used(moe, 6);
	moe->m->hp.route.scale = 6.0f / EXPERTS;	/* down was multiplied by the 8 that the file was made for */
	run_text(dense.m, be, nr, nr - 8, &a);
	run_text(moe->m, be, nr, nr - 8, &b);
	p_dense = perplexity(&a, tokens.id, nr);
	p_moe = perplexity(&b, tokens.id, nr);
	for (i = 0; i < moe->m->hp.layers * EXPERTS; i++) {
		share = (double)b.count[i] / nr;
		least = fmin(least, share);
		most = fmax(most, share);
	}
	print_message("# perplexity %.1f, dense %.1f; an expert sees %.2f to %.2f of the tokens; %.0f %% of choices differ from "
		      "the token's before\n", p_moe, p_dense, least, most, 100.0 * b.changed / b.routed);
	assert_true(p_moe < 3 * p_dense);
	assert_true(most > 0.9 && least < 0.6);
	assert_true(b.changed > b.routed / 4);
	free_pass(&a);
	free_pass(&b);
}

static void keep_best(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	int32_t *best = arg;
	size_t i;

	for (i = 0, *best = 0; i < dense.m->hp.vocab; i++)
		if (logits[i] > logits[*best])
			*best = i;
}

/* What the mixture writes is text that the dense model could have written. */
static void six_parts_write_text(const struct loaded *moe, const struct sits_backend *be)
{
	static const char start[] = "Once upon a time, there was a little girl who";
	const uint32_t nr = INSTRUMENTED ? 3 : 24;
	struct sits_tokens t = { 0 };
	struct graph_run gr;
	struct pass p;
	const char *piece;
	char out[512] = "";
	int32_t best;
	struct sits_graph_batch b = { .sample = keep_best, .arg = &best };
	uint32_t prompt, i;
	double ppl;
	int len;

	assert_int_equal(sits_tokenizer_encode(dense.m->tok, start, sizeof(start) - 1, 0, &t), 0);
	prompt = t.nr;
	graph_run_init(&gr, moe->m, be, team, SITS_KV_F16, prompt + nr, 1);
	graph_run_rows(&gr, &b, t.id, 0, prompt, 1);
	for (i = 0; i < nr; i++) {
		assert_int_equal(sits_tokens_push(&t, best), 0);
		len = sits_tokenizer_piece(dense.m->tok, best, &piece);
		assert_true(len >= 0);
		if (strlen(out) + len < sizeof(out))
			strncat(out, piece, len);
		graph_run_rows(&gr, &b, t.id, prompt + i, 1, 1);
	}
	graph_run_fini(&gr);
	run_ids(dense.m, be, t.id, t.nr, nr + 1, &p);
	ppl = perplexity(&p, t.id, t.nr);
	for (piece = out; (piece = strchr(piece, '\n')); )
		out[piece - out] = ' ';
	print_message("# %s%s (%.1f to the dense model)\n", start, out, ppl);
	assert_true(ppl < 12);
	free_pass(&p);
	sits_tokens_fini(&t);
}

static void parts_make_the_whole_and_six_of_eight_will_do(void **state)
{
	const struct sits_backend *be = sits_backend_get(NULL);
	struct loaded moe = { 0 };

	need_model();
	make("split", "--used 8", &moe);
	six_parts_predict_text(&moe, be);
	six_parts_write_text(&moe, be);
	set_used(&moe, EXPERTS);
	all_parts_are_the_dense_model(&moe, be);
	close_model(&moe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_choice_of_copies_is_the_dense_model),
		cmocka_unit_test(parts_make_the_whole_and_six_of_eight_will_do),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
