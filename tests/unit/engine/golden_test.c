// SPDX-License-Identifier: MIT
/*
 * golden_test.c - the real model against stored logits of llama.cpp (tests/golden/make_logits.py).
 *
 * The reference computed with the file's weights in F32; see the generator for why. Asked here, on every
 * backend usable: with all earlier tokens forced, the greedy token is the reference's wherever its margin
 * is above its own noise; left to itself the engine writes the same text up to the first place where
 * it is not; and the next-token distributions are close, mean KL at most 1e-3.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/engine/graph.h"
#include "daemon/engine/kv.h"
#include "daemon/engine/threads.h"
#include "tests/unit/engine/client.h"

#define GOLDEN "tests/golden/logits.bin"
#define STEPS 32
#define MAX_TOKENS 1024
#define CHUNK 64
#define MAX_KL 1e-3
#define SCALE 2048.0

struct step {
	int32_t greedy;
	float logit, lse, margin, noise, usual;
	const uint8_t *id, *below;	/* [top] u16, unaligned */
};

struct prompt {
	char name[32];
	uint32_t nr;
	int32_t token[MAX_TOKENS];	/* the prompt, then the greedy tokens */
	struct step step[STEPS];
};

struct golden {
	uint8_t *bytes;
	uint32_t vocab, nr, top;
	struct prompt *prompt;
};

struct fixture {
	void *image;
	size_t len;
	struct sits_model *m;
	struct golden g;
};

static void *read_file(const char *path, size_t *len)
{
	struct stat st;
	void *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st))
		fail_msg("%s: %s", path, strerror(errno));
	p = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		fail_msg("%s: %s", path, strerror(errno));
	*len = st.st_size;
	return p;
}

static const uint8_t *get(const uint8_t **p, size_t n)
{
	const uint8_t *at = *p;

	*p += n;
	return at;
}

static uint32_t get_u32(const uint8_t **p)
{
	uint32_t v;

	memcpy(&v, get(p, 4), 4);
	return v;
}

static float get_f32(const uint8_t **p)
{
	float v;

	memcpy(&v, get(p, 4), 4);
	return v;
}

static void read_golden(struct golden *g)
{
	const uint8_t *p;
	uint32_t i, s, n;
	size_t len;

	p = g->bytes = read_file(GOLDEN, &len);
	assert_memory_equal(get(&p, 8), "SITSGOLD", 8);
	assert_int_equal(get_u32(&p), 1);
	g->vocab = get_u32(&p);
	g->nr = get_u32(&p);
	g->top = get_u32(&p);
	assert_int_equal(get_u32(&p), STEPS);
	g->prompt = calloc(g->nr, sizeof(*g->prompt));
	assert_non_null(g->prompt);
	for (i = 0; i < g->nr; i++) {
		struct prompt *q = &g->prompt[i];

		n = get_u32(&p);
		assert_true(n < sizeof(q->name));
		memcpy(q->name, get(&p, n), n);
		q->nr = get_u32(&p);
		assert_true(q->nr + STEPS <= MAX_TOKENS);
		memcpy(q->token, get(&p, 4 * q->nr), 4 * q->nr);
		for (s = 0; s < STEPS; s++) {
			q->step[s].greedy = q->token[q->nr + s] = get_u32(&p);
			q->step[s].logit = get_f32(&p);
			q->step[s].lse = get_f32(&p);
			q->step[s].margin = get_f32(&p);
			q->step[s].noise = get_f32(&p);
			q->step[s].usual = get_f32(&p);
			q->step[s].id = get(&p, 2 * g->top);
			q->step[s].below = get(&p, 2 * g->top);
		}
	}
	assert_ptr_equal(p, g->bytes + len);
}

static int setup(void **state)
{
	const char *path = getenv("SITS_MODEL_GGUF");
	struct fixture *f = calloc(1, sizeof(*f));
	struct sits_diag diag = { 0 };

	*state = f;
	if (!f)
		return -1;
	if (!path || !*path)
		return 0;
	f->image = read_file(path, &f->len);
	if (sits_model_open(f->image, f->len, &f->m, &diag))
		fail_msg("%s: %s", path, diag.msg);
	read_golden(&f->g);
	assert_int_equal(f->g.vocab, f->m->hp.vocab);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	sits_model_close(f->m);
	free(f->g.prompt);
	free(f);
	return 0;
}

static struct fixture *need_model(void **state)
{
	struct fixture *f = *state;

	if (!f->m) {
		print_message("# skip: SITS_MODEL_GGUF is not set\n");
		skip();
	}
	return f;
}

/* KL of ours from the reference's, over its stored logits and one bucket for all else. */
static double kl(const struct golden *g, const struct step *s, const float *logits)
{
	double max = logits[0], sum = 0, lse, d = 0, p_rest = 1, q_rest = 1, lp, lq;
	uint16_t id, below;
	uint32_t i;

	for (i = 1; i < g->vocab; i++)
		max = logits[i] > max ? logits[i] : max;
	for (i = 0; i < g->vocab; i++)
		sum += exp(logits[i] - max);
	lse = max + log(sum);
	for (i = 0; i < g->top; i++) {
		memcpy(&id, s->id + 2 * i, 2);
		memcpy(&below, s->below + 2 * i, 2);
		lp = s->logit - below / SCALE - s->lse;
		lq = logits[id] - lse;
		d += exp(lp) * (lp - lq);
		p_rest -= exp(lp);
		q_rest -= exp(lq);
	}
	if (p_rest > 1e-9 && q_rest > 1e-9)
		d += p_rest * log(p_rest / q_rest);
	return d;
}

struct tally {
	double kl, usual, worst;
	uint32_t positions, checked, differ;
};

/* ---- all earlier tokens forced ---- */

struct forced {
	const struct golden *g;
	const struct prompt *p;
	uint32_t step;
	struct tally *t;
};

static void compare(void *arg, uint32_t owner, const float *logits, size_t nr)
{
	struct forced *f = arg;
	const struct step *s = &f->p->step[f->step];
	double d = kl(f->g, s, logits);
	uint32_t i, best = 0;

	for (i = 1; i < f->g->vocab; i++)
		if (logits[i] > logits[best])
			best = i;
	f->t->kl += d;
	f->t->usual += s->usual;
	f->t->worst = d > f->t->worst ? d : f->t->worst;
	f->t->positions++;
	if (s->margin <= s->noise)
		return;
	f->t->checked++;
	if ((int32_t)best == s->greedy)
		return;
	f->t->differ++;
	print_message("# %s, step %u: %u for %d; margin %g, noise %g, ours %g\n", f->p->name, f->step, best, s->greedy,
		      (double)s->margin, (double)s->noise, (double)(logits[best] - logits[s->greedy]));
}

static void run_rows(struct sits_graph *g, struct sits_kv *kv, struct sits_kv_table *table, struct forced *f,
		     uint32_t from, uint32_t nr, uint32_t want)
{
	struct sits_attn_seq seq = { .nr = nr, .pos0 = from };
	int32_t pos[CHUNK];
	uint32_t owner = 0, i;
	struct sits_graph_batch b = {
		.T = nr, .nr_seq = 1, .token = f->p->token + from, .pos = pos, .seq = &seq, .owner = &owner,
		.want = &want, .sample = compare, .arg = f,
	};

	assert_int_equal(sits_kv_grow(kv, table, from + nr), 0);
	seq.pages = table->page;
	for (i = 0; i < nr; i++)
		pos[i] = from + i;
	assert_int_equal(sits_graph_run(g, kv, &b), 0);
}

static void force(const struct fixture *fx, const struct sits_backend *be, struct sits_threads *team,
		  const struct prompt *p, uint32_t steps, struct tally *t)
{
	const struct sits_hparams *hp = &fx->m->hp;
	struct forced f = { .g = &fx->g, .p = p, .t = t };
	struct sits_kv_table table = { 0 };
	struct sits_graph *g;
	struct sits_kv kv;
	uint32_t at, n;
	const struct sits_kv_shape shape = { .G = hp->kv_heads, .Dk = hp->head_dim, .Dv = hp->head_dim };

	assert_int_equal(sits_kv_init(&kv, hp->layers * be->kv_layer_bytes(&shape),
				      sits_kv_pages(p->nr + steps)), 0);
	assert_int_equal(sits_graph_create(fx->m, be, team, CHUNK, 1, &g, NULL), 0);
	for (at = 0; at < p->nr; at += n) {
		n = p->nr - at < CHUNK ? p->nr - at : CHUNK;
		run_rows(g, &kv, &table, &f, at, n, at + n == p->nr);
	}
	for (f.step = 1; f.step < steps; f.step++)
		run_rows(g, &kv, &table, &f, p->nr + f.step - 1, 1, true);
	sits_graph_destroy(g);
	sits_kv_release(&kv, &table);
	sits_kv_fini(&kv);
}

#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#define INSTRUMENTED __has_feature(address_sanitizer)
#else
#define INSTRUMENTED 0
#endif

/* The scalar backend and instrumented builds take short prompts only, and a few steps of each. */
static bool is_slow(const struct sits_backend *be)
{
	return INSTRUMENTED || !strcmp(be->name, "ref");
}

static uint32_t steps_on(const struct sits_backend *be)
{
	return is_slow(be) ? 8 : STEPS;
}

static bool takes(const struct sits_backend *be, const struct prompt *p)
{
	return !is_slow(be) || p->nr < 20;
}

static void forced_distributions_are_the_references(void **state)
{
	const struct fixture *f = need_model(state);
	const struct sits_backend *be;
	struct sits_threads *team;
	uint32_t i, k, differ = 0;
	bool far = false;

	assert_int_equal(sits_threads_create(0, 0, &team, NULL), 0);
	for (i = 0; (be = sits_backend_at(i)); i++) {
		struct tally t = { 0 };

		if (!be->usable())
			continue;
		for (k = 0; k < f->g.nr; k++)
			if (takes(be, &f->g.prompt[k]))
				force(f, be, team, &f->g.prompt[k], steps_on(be), &t);
		print_message("# %s: mean KL %.3g (worst %.3g; llama.cpp's usual way %.3g) over %u positions; "
			      "greedy differs in %u of %u\n", be->name, t.kl / t.positions, t.worst,
			      t.usual / t.positions, t.positions, t.differ, t.checked);
		far |= !(t.kl / t.positions <= MAX_KL);
		differ += t.differ;
		assert_true(t.checked > t.positions / 2);
	}
	sits_threads_destroy(team);
	assert_false(far);
	assert_int_equal(differ, 0);
}

/* ---- left to itself ---- */

static int32_t best_of(const float *l, size_t n)
{
	size_t i, best = 0;

	for (i = 1; i < n; i++)
		if (l[i] > l[best])
			best = i;
	return best;
}

static void greedy_text_is_the_references(void **state)
{
	const struct fixture *f = need_model(state);
	const struct sits_backend *be;
	struct client *c = calloc(f->g.nr, sizeof(*c));
	struct sits_engine *e;
	uint32_t i, k, s, same, total;
	struct sits_diag diag = { 0 };

	assert_non_null(c);
	for (i = 0; (be = sits_backend_at(i)); i++) {
		const struct sits_engine_opts o = { .isa = be->name, .max_seqs = 16, .context = MAX_TOKENS };

		if (!be->usable() || !strcmp(be->name, "ref"))
			continue;
		if (sits_engine_create(f->m, &o, &e, &diag))
			fail_msg("%s", diag.msg);
		/* All at once: that company changes nothing is part of the claim. */
		for (k = 0; k < f->g.nr; k++) {
			const struct sits_gen_params p = {
				.prompt = f->g.prompt[k].token, .nr_prompt = f->g.prompt[k].nr,
				.max_tokens = steps_on(be), .ignore_eos = true,
				.sampling = { .top_p = 1, .repeat_penalty = 1 },
			};

			if (!takes(be, &f->g.prompt[k]))
				continue;
			c[k].keep_logits = true;
			assert_int_equal(client_submit(&c[k], e, &p, NULL), 0);
		}
		while (sits_engine_step(e) > 0)
			;
		for (k = same = total = 0; k < f->g.nr; k++) {
			if (!takes(be, &f->g.prompt[k]))
				continue;
			assert_int_equal(c[k].nr_logits, steps_on(be));
			total += steps_on(be);
			for (s = 0; s < steps_on(be); s++, same++) {
				const struct step *st = &f->g.prompt[k].step[s];
				int32_t best = best_of(c[k].logits + s * c[k].vocab, c[k].vocab);

				if (best == st->greedy)
					continue;
				if (st->margin > st->noise)
					fail_msg("%s, %s: token %u is %d, not %d; margin %g", be->name,
						 f->g.prompt[k].name, s, best, st->greedy, (double)st->margin);
				break;
			}
			client_fini(&c[k]);
		}
		print_message("# %s: %u of %u tokens up to the first difference\n", be->name, same, total);
		sits_engine_destroy(e);
	}
	free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forced_distributions_are_the_references),
		cmocka_unit_test(greedy_text_is_the_references),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
