// SPDX-License-Identifier: MIT
/*
 * kv_prefix_test.c - shared pages: found by their tokens alone, never written, never lost; and what sequences give up.
 *
 * A page's contents here are, for each layer, head and token, a digest of all tokens up to it: what keys and values are to a
 * model. Whatever a table is given must therefore fit its own tokens, wherever its cells lie.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/kv.h"
#include "daemon/engine/kv_evict.h"
#include "daemon/engine/kv_node.h"
#include "tests/unit/engine/rng.h"

#define P SITS_KV_PAGE_TOKENS
#define PAGES 61
#define LAYERS 2
#define HEADS 3
#define CELL_BYTES (P * sizeof(uint64_t))
#define PAGE_BYTES (LAYERS * HEADS * CELL_BYTES)
#define SEQS 12
#define MAX_PAGES 9
#define MAX_TOKENS (MAX_PAGES * P)
#define OPS 100000
#define PRIVATE (1ull << 63)

struct seq {
	struct sits_kv_table t;
	int32_t token[MAX_TOKENS];
	uint32_t nr, cached;	/* tokens; those whose digests are in pages */
	uint64_t scope;		/* private: in the index while preempted only */
	bool alive, parked;
	bool gone[LAYERS][HEADS][MAX_PAGES];
};

struct fixture {
	struct sits_kv kv;
	struct seq s[SEQS];
	uint64_t last_id;
	uint32_t hits, partial, copies, parked_hits, full, quota;
	uint32_t cuts, given_up, kept_all, cut_shared;
};

static uint8_t *cell_at(struct fixture *f, uint32_t layer, uint32_t page, uint32_t cell)
{
	return f->kv.base + page * f->kv.page_bytes + (layer * HEADS + cell) * CELL_BYTES;
}

/* Where a head has token i; NULL: it has not. */
static uint64_t *slot(struct fixture *f, const struct seq *s, uint32_t layer, uint32_t head, uint32_t i)
{
	uint32_t at;

	if (s->t.cells)
		at = sits_kv_cells_of(s->t.cells, layer)[head * s->t.cells->cap + i / P];
	else
		at = s->t.page[i / P] * HEADS + head;
	return at == SITS_KV_ABSENT ? NULL : (uint64_t *)cell_at(f, layer, at / HEADS, at % HEADS) + i % P;
}

static uint64_t digest_next(uint64_t d, int32_t token)
{
	d = (d ^ (uint32_t)(token + 1)) * 0x9E3779B97F4A7C15u;
	return d ^ d >> 29;
}

static void check_token(struct fixture *f, const struct seq *s, uint32_t i, uint64_t d)
{
	const uint64_t *at;
	uint32_t l, g;

	for (l = 0; l < LAYERS; l++) {
		for (g = 0; g < HEADS; g++) {
			at = slot(f, s, l, g, i);
			if (!at != s->gone[l][g][i / P])
				fail_msg("layer %u, head %u: token %u of %u is %s", l, g, i, s->cached, at ? "there" : "gone");
			if (at && *at != d + l * HEADS + g)
				fail_msg("layer %u, head %u: token %u of %u is another's", l, g, i, s->cached);
		}
	}
}

static void check_seq(struct fixture *f, const struct seq *s)
{
	const char *why = sits_kv_check_cells(&f->kv, &s->t);
	uint64_t d = 0;
	uint32_t i;

	if (why)
		fail_msg("%s", why);
	for (i = 0; i < s->cached; i++) {
		d = digest_next(d, s->token[i]);
		check_token(f, s, i, d);
	}
}

static void check(struct fixture *f)
{
	uint32_t refs[PAGES] = { 0 }, i, j;
	const char *why;

	for (i = 0; i < SEQS; i++)
		for (j = 0; j < f->s[i].t.nr; j++)
			refs[f->s[i].t.page[j]]++;
	why = sits_kv_check(&f->kv, refs);
	if (why)
		fail_msg("%s", why);
}

/* A new sequence; often it begins like another one. */
static void make(struct fixture *f, struct rng *r, struct seq *s)
{
	const struct seq *like = &f->s[rng_below(r, SEQS)];
	uint32_t same = like->nr ? rng_below(r, like->nr + 1) : 0, i;

	s->nr = 1 + rng_below(r, MAX_TOKENS);
	for (i = 0; i < s->nr; i++)
		s->token[i] = i < same && rng_below(r, 4000) ? like->token[i] : (int32_t)rng_below(r, 2);
	f->last_id++;
	s->scope = rng_below(r, 3) ? 1 + rng_below(r, 2) : PRIVATE | f->last_id;
	s->t.cls = rng_below(r, SITS_KV_CLASSES);
	s->alive = true;
	s->parked = false;
	s->cached = 0;
	memset(s->gone, 0, sizeof(s->gone));
}

static void admit(struct fixture *f, struct seq *s)
{
	assert_int_equal(s->t.nr, 0);
	s->cached = sits_kv_match(&f->kv, &s->t, s->scope, s->token, s->nr - 1);
	assert_true(s->cached < s->nr);
	assert_true(s->t.nr == sits_kv_pages(s->cached));
	f->hits += s->cached > 0;
	f->partial += s->t.cow;
	f->parked_hits += s->parked && s->cached;
	if (s->scope & PRIVATE)
		sits_kv_forget(&f->kv, s->scope);
	s->parked = false;
	check_seq(f, s);
}

/* A step: pages, then what was computed goes into them. */
static void grow(struct fixture *f, struct rng *r, struct seq *s)
{
	uint32_t want = s->cached + rng_below(r, s->nr - s->cached + 1), held = f->kv.held[s->t.cls], room, old;
	bool cow = s->t.cow;
	uint64_t d = 0;
	uint32_t i, l, g, page;
	int ret;

	room = sits_kv_room(&f->kv);
	old = s->t.nr + s->t.nr_gone;
	ret = sits_kv_grow(&f->kv, &s->t, want);
	if (ret) {
		assert_true(ret == -ENOSPC || ret == -EDQUOT);
		assert_int_equal(s->t.nr + s->t.nr_gone, old);
		assert_int_equal(s->t.cow, cow);
		if (ret == -ENOSPC)
			assert_true(sits_kv_pages(want) - old + cow > room);
		else
			assert_true(held + sits_kv_pages(want) - old + cow > f->kv.limit[s->t.cls]);
		f->full += ret == -ENOSPC;
		f->quota += ret == -EDQUOT;
		return;
	}
	f->copies += cow && !s->t.cow;
	for (i = 0; i < want; i++) {
		d = digest_next(d, s->token[i]);
		if (i < s->cached)
			continue;
		/* Nobody else may see what is written now. */
		page = s->t.page[i / P - s->t.nr_gone];
		assert_int_equal(f->kv.node[page].fill, 0);
		assert_int_equal(f->kv.node[page].ref, 1);
		for (l = 0; l < LAYERS; l++)
			for (g = 0; g < HEADS; g++)
				*((uint64_t *)cell_at(f, l, page, g) + i % P) = d + l * HEADS + g;
	}
	s->cached = want > s->cached ? want : s->cached;
	if (!(s->scope & PRIVATE) && rng_below(r, 2))
		sits_kv_index(&f->kv, &s->t, s->scope, s->token, s->cached, false);
}

static void end(struct fixture *f, struct rng *r, struct seq *s)
{
	if (s->scope & PRIVATE)
		sits_kv_forget(&f->kv, s->scope);
	else if (rng_below(r, 8) == 0)
		sits_kv_unindex(&f->kv, &s->t, rng_below(r, 4));
	else if (rng_below(r, 4))
		sits_kv_index(&f->kv, &s->t, s->scope, s->token, s->cached, true);
	sits_kv_release(&f->kv, &s->t);
	s->alive = s->parked = false;
	s->cached = 0;
}

static void preempt(struct fixture *f, struct seq *s)
{
	sits_kv_index(&f->kv, &s->t, s->scope, s->token, s->cached, true);
	sits_kv_release(&f->kv, &s->t);
	s->parked = true;
	s->cached = 0;
	memset(s->gone, 0, sizeof(s->gone));
}

static void copy_cell(void *arg, uint32_t layer, uint32_t to_page, uint32_t to_cell, uint32_t from_page, uint32_t from_cell)
{
	struct fixture *f = arg;

	assert_int_equal(f->kv.node[to_page].fill, 0);
	assert_int_equal(f->kv.node[to_page].ref, 1);
	memcpy(cell_at(f, layer, to_page, to_cell), cell_at(f, layer, from_page, from_cell), CELL_BYTES);
}

/* The first, and the latest that are there. Return: how many stay. */
static uint32_t expect_cut(bool *gone, uint32_t full, uint32_t keep)
{
	uint32_t i, nr = 0, stay = 1;

	for (i = full; i-- > 1;) {
		if (gone[i])
			continue;
		gone[i] = ++nr >= keep;
		stay += !gone[i];
	}
	return stay;
}

static void evict(struct fixture *f, struct rng *r, struct seq *s)
{
	uint32_t keep[LAYERS][HEADS], full = s->cached / P, l, g, sum, most = 0, nr = s->t.nr, shared = 0, i;
	const struct sits_kv_cut cut = {
		.layers = LAYERS, .heads = HEADS, .keep = keep[0], .copy = copy_cell, .arg = f,
	};
	int ret;

	if (s->t.cow || !full)
		return;
	for (l = 0; l < LAYERS; l++) {
		for (g = sum = 0; g < HEADS; g++) {
			keep[l][g] = 2 + rng_below(r, full);
			sum += expect_cut(s->gone[l][g], full, keep[l][g]);
		}
		sum = (sum + HEADS - 1) / HEADS;
		most = sum > most ? sum : most;
	}
	for (i = 0; i < full - s->t.nr_gone; i++)
		shared += f->kv.node[s->t.page[i]].fill || f->kv.node[s->t.page[i]].ref > 1;
	ret = sits_kv_evict(&f->kv, &s->t, full, &cut);
	assert_true(ret >= 0 && s->t.nr == nr - (uint32_t)ret);
	/* Either as few as the cells fill, or as before. */
	assert_true(!ret || s->t.nr == most + (sits_kv_pages(s->cached) - full));
	f->cuts++;
	f->given_up += (uint32_t)ret;
	f->cut_shared += shared && ret;
	f->kept_all += shared && !ret && most < full;
}

static void operate(struct fixture *f, struct rng *r)
{
	struct seq *s = &f->s[rng_below(r, SEQS)];
	uint32_t what = rng_below(r, 16);

	if (!s->alive) {
		make(f, r, s);
		admit(f, s);
	} else if (s->parked && what < 12) {
		admit(f, s);
	} else if (what == 0 || s->parked) {
		end(f, r, s);
	} else if (what == 1) {
		preempt(f, s);
	} else if (what == 2 && !rng_below(r, 40)) {
		sits_kv_forget(&f->kv, s->scope);
	} else if (what == 3) {
		evict(f, r, s);
	} else {
		grow(f, r, s);
	}
	check_seq(f, s);
}

/* How often the rarer things come is up to the seed. */
static bool happened(const struct fixture *f, bool limited)
{
	return f->hits > 1000 && f->partial > 100 && f->copies > 100 && f->parked_hits > 100 && f->kv.evicted > 1000 && f->full > 100 &&
	       f->cuts > 1000 && f->given_up > 1000 && f->cut_shared > 100 && (!limited || (f->quota && f->kept_all));
}

static void run_random(const char *name, uint32_t quota)
{
	struct rng r = rng_seeded(name);
	struct fixture *f = calloc(1, sizeof(*f));
	const bool limited = quota != UINT32_MAX;
	uint32_t i, j;

	assert_non_null(f);
	assert_int_equal(sits_kv_init(&f->kv, PAGE_BYTES, PAGES), 0);
	f->kv.limit[1] = quota;
	for (i = 0; i < OPS || (i < 20 * OPS && !happened(f, limited)); i++) {
		operate(f, &r);
		if (i % 16 == 0)
			check(f);
		for (j = 0; i % 64 == 0 && j < SEQS; j++)
			check_seq(f, &f->s[j]);
	}
	check(f);
	printf("# %u operations: hits %u, in part %u, copied %u, resumed %u, evicted %u, full %u, over quota %u\n", i, f->hits, f->partial,
	       f->copies, f->parked_hits, (uint32_t)f->kv.evicted, f->full, f->quota);
	printf("# %u times something was given up, %u pages; %u times of shared pages, %u times these stayed\n", f->cuts,
	       f->given_up, f->cut_shared, f->kept_all);
	assert_true(happened(f, limited) && (limited || !f->quota));
	for (i = 0; i < SEQS; i++)
		sits_kv_release(&f->kv, &f->s[i].t);
	sits_kv_forget(&f->kv, 1);
	sits_kv_forget(&f->kv, 2);
	for (i = 0; i <= f->last_id; i++)
		sits_kv_forget(&f->kv, PRIVATE | i);
	assert_int_equal(f->kv.nr_free, PAGES);
	/* Nothing of anybody is left. */
	for (i = 0; i < PAGES * PAGE_BYTES; i++)
		assert_int_equal(f->kv.base[i], 0);
	for (i = 0; i < PAGES * sizeof(struct sits_kv_node); i++)
		assert_int_equal(((const uint8_t *)f->kv.node)[i], 0);
	sits_kv_fini(&f->kv);
	free(f);
}

static void pages_used_are_pages_referenced_over_random_operations(void **state)
{
	run_random("kv prefix", UINT32_MAX);
}

static void the_same_with_a_limit_for_a_class(void **state)
{
	run_random("kv prefix, limit", 17);
}

/* ---- one thing at a time ---- */

struct small {
	struct sits_kv kv;
	int32_t token[4 * P];
};

static void small_init(struct small *s, uint32_t pages)
{
	uint32_t i;

	assert_int_equal(sits_kv_init(&s->kv, 64, pages), 0);
	for (i = 0; i < 4 * P; i++)
		s->token[i] = i * 7 % 250;
}

/* A sequence of @nr tokens came and went. */
static void leave(struct small *s, uint64_t scope, size_t nr)
{
	struct sits_kv_table t = { 0 };

	assert_int_equal(sits_kv_grow(&s->kv, &t, nr), 0);
	sits_kv_index(&s->kv, &t, scope, s->token, nr, true);
	sits_kv_release(&s->kv, &t);
}

static void only_the_same_scope_is_found(void **state)
{
	struct sits_kv_table t = { 0 };
	struct small s;

	small_init(&s, 8);
	leave(&s, 5, 3 * P);
	assert_int_equal(s.kv.nr_cached, 3);
	assert_int_equal(sits_kv_match(&s.kv, &t, 6, s.token, 4 * P), 0);
	sits_kv_release(&s.kv, &t);
	assert_int_equal(sits_kv_match(&s.kv, &t, 5, s.token, 4 * P), 3 * P);
	assert_int_equal(s.kv.nr_cached, 0);
	sits_kv_release(&s.kv, &t);
	assert_int_equal(sits_kv_forget(&s.kv, 6), 0);
	assert_int_equal(sits_kv_forget(&s.kv, 5), 3);
	assert_int_equal(s.kv.nr_free, 8);
	sits_kv_fini(&s.kv);
}

static void equal_tokens_after_other_tokens_are_not_the_same(void **state)
{
	struct sits_kv_table t = { 0 };
	struct small s;
	uint32_t i;

	small_init(&s, 8);
	for (i = 0; i < P; i++)
		s.token[P + i] = s.token[i];
	leave(&s, 1, 2 * P);
	s.token[0]++;
	assert_int_equal(sits_kv_match(&s.kv, &t, 1, s.token, 4 * P), 0);
	sits_kv_release(&s.kv, &t);
	s.token[0]--;
	s.token[P + P / 2]++;
	assert_int_equal(sits_kv_match(&s.kv, &t, 1, s.token, 4 * P), P + P / 2);
	assert_true(t.cow);
	sits_kv_release(&s.kv, &t);
	sits_kv_forget(&s.kv, 1);
	sits_kv_fini(&s.kv);
}

static void the_least_recently_used_goes_first_and_leaves_before_roots(void **state)
{
	struct sits_kv_table t = { 0 }, u = { 0 };
	struct small s;

	small_init(&s, 6);
	leave(&s, 1, 2 * P);
	leave(&s, 2, 2 * P);
	/* Scope 1 is used again: now scope 2 is the older one. */
	assert_int_equal(sits_kv_match(&s.kv, &t, 1, s.token, 2 * P), 2 * P);
	sits_kv_release(&s.kv, &t);
	assert_int_equal(s.kv.nr_free, 2);
	assert_int_equal(sits_kv_grow(&s.kv, &u, 3 * P), 0);
	assert_int_equal(s.kv.evicted, 1);
	assert_int_equal(sits_kv_match(&s.kv, &t, 2, s.token, 2 * P), P);
	sits_kv_release(&s.kv, &t);
	assert_int_equal(sits_kv_grow(&s.kv, &u, 6 * P), 0);
	assert_int_equal(s.kv.evicted, 4);
	assert_int_equal(sits_kv_room(&s.kv), 0);
	assert_int_equal(sits_kv_grow(&s.kv, &u, 6 * P + 1), -ENOSPC);
	sits_kv_release(&s.kv, &u);
	assert_int_equal(s.kv.nr_free, 6);
	sits_kv_fini(&s.kv);
}

static void two_that_compute_the_same_end_up_with_one_page(void **state)
{
	struct sits_kv_table a = { 0 }, b = { 0 };
	struct small s;

	small_init(&s, 8);
	assert_int_equal(sits_kv_grow(&s.kv, &a, 2 * P), 0);
	assert_int_equal(sits_kv_grow(&s.kv, &b, 2 * P), 0);
	assert_int_equal(sits_kv_used(&s.kv), 4);
	sits_kv_index(&s.kv, &a, 1, s.token, 2 * P, false);
	assert_int_equal(sits_kv_used(&s.kv), 4);
	sits_kv_index(&s.kv, &b, 1, s.token, 2 * P, false);
	assert_int_equal(sits_kv_used(&s.kv), 2);
	assert_memory_equal(a.page, b.page, 2 * sizeof(*a.page));
	sits_kv_release(&s.kv, &a);
	assert_int_equal(sits_kv_used(&s.kv), 2);
	sits_kv_unindex(&s.kv, &b, 1);
	sits_kv_release(&s.kv, &b);
	assert_int_equal(s.kv.nr_cached, 1);
	sits_kv_forget(&s.kv, 1);
	assert_int_equal(s.kv.nr_free, 8);
	sits_kv_fini(&s.kv);
}

static void a_page_shared_in_part_is_copied_or_taken_over(void **state)
{
	struct sits_kv_table a = { 0 }, b = { 0 };
	struct small s;
	uint32_t old;

	small_init(&s, 2);
	leave(&s, 1, P / 2);
	memset(s.kv.base + 64 * s.kv.newest, 0x5A, 64);
	old = s.kv.newest;
	/* With room: a copy, and the old one stays for others. */
	assert_int_equal(sits_kv_match(&s.kv, &a, 1, s.token, P), P / 2);
	assert_true(a.cow);
	assert_int_equal(sits_kv_grow(&s.kv, &a, P), 0);
	assert_true(!a.cow && a.page[0] != old);
	assert_memory_equal(s.kv.base + 64 * a.page[0], s.kv.base + 64 * old, 64);
	assert_int_equal(s.kv.nr_cached, 1);
	/* Without: it is taken over. */
	assert_int_equal(sits_kv_match(&s.kv, &b, 1, s.token, P), P / 2);
	assert_int_equal(sits_kv_grow(&s.kv, &b, P), 0);
	assert_true(!b.cow && b.page[0] == old);
	assert_int_equal(sits_kv_room(&s.kv), 0);
	sits_kv_release(&s.kv, &a);
	sits_kv_release(&s.kv, &b);
	assert_int_equal(s.kv.nr_free, 2);
	sits_kv_fini(&s.kv);
}

static void a_class_has_no_more_than_its_limit(void **state)
{
	struct sits_kv_table a = { .cls = 1 }, b = { .cls = 1 }, c = { .cls = 2 };
	struct small s;

	small_init(&s, 8);
	s.kv.limit[1] = 3;
	leave(&s, 1, 4 * P);
	/* Pages that are shared count once for each class. */
	assert_int_equal(sits_kv_match(&s.kv, &a, 1, s.token, 4 * P), 3 * P);
	assert_int_equal(sits_kv_match(&s.kv, &b, 1, s.token, 4 * P), 3 * P);
	assert_int_equal(s.kv.held[1], 3);
	assert_int_equal(sits_kv_grow(&s.kv, &a, 4 * P), -EDQUOT);
	assert_int_equal(sits_kv_match(&s.kv, &c, 1, s.token, 4 * P), 4 * P);
	assert_int_equal(sits_kv_grow(&s.kv, &c, 8 * P), 0);
	assert_int_equal(s.kv.held[2], 8);
	assert_int_equal(sits_kv_used(&s.kv), 8);
	sits_kv_release(&s.kv, &a);
	assert_int_equal(s.kv.held[1], 3);
	sits_kv_release(&s.kv, &b);
	assert_int_equal(s.kv.held[1], 0);
	sits_kv_release(&s.kv, &c);
	assert_int_equal(s.kv.nr_cached, 4);
	sits_kv_forget(&s.kv, 1);
	sits_kv_fini(&s.kv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_used_are_pages_referenced_over_random_operations),
		cmocka_unit_test(the_same_with_a_limit_for_a_class),
		cmocka_unit_test(only_the_same_scope_is_found),
		cmocka_unit_test(equal_tokens_after_other_tokens_are_not_the_same),
		cmocka_unit_test(the_least_recently_used_goes_first_and_leaves_before_roots),
		cmocka_unit_test(two_that_compute_the_same_end_up_with_one_page),
		cmocka_unit_test(a_page_shared_in_part_is_copied_or_taken_over),
		cmocka_unit_test(a_class_has_no_more_than_its_limit),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
