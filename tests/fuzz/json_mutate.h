/* SPDX-License-Identifier: MIT */
/*
 * json_mutate.h - changes to JSON that leave it JSON, so that what reads the values is reached: a value replaced, removed,
 * repeated or moved, a key given another's name. Every fourth change, and all of what is no JSON, is libFuzzer's own.
 */
#ifndef SITS_TESTS_FUZZ_JSON_MUTATE_H
#define SITS_TESTS_FUZZ_JSON_MUTATE_H

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

/* Where a value hangs: in an object by its key, or in an array by its place. */
struct jm_place {
	json_t *parent, *value;
	const char *key;
	size_t i;
};

static inline size_t jm_count(const json_t *v)
{
	const char *key;
	size_t i, n = 0;
	json_t *sub;

	json_object_foreach((json_t *)v, key, sub)
		n += 1 + jm_count(sub);
	json_array_foreach((json_t *)v, i, sub)
		n += 1 + jm_count(sub);
	return n;
}

/* The @n-th value below @v. Return: whether there is one; else *n is less by how many there were. */
static inline int jm_find(json_t *v, size_t *n, struct jm_place *p)
{
	const char *key;
	json_t *sub;
	size_t i;

	json_object_foreach(v, key, sub) {
		if (!(*n)--) {
			*p = (struct jm_place){ v, sub, key, 0 };
			return 1;
		}
		if (jm_find(sub, n, p))
			return 1;
	}
	json_array_foreach(v, i, sub) {
		if (!(*n)--) {
			*p = (struct jm_place){ v, sub, NULL, i };
			return 1;
		}
		if (jm_find(sub, n, p))
			return 1;
	}
	return 0;
}

static inline json_t *jm_text(const char *s, uint64_t *rng)
{
	uint8_t buf[256];
	size_t len = strlen(s) < sizeof(buf) / 2 ? strlen(s) : sizeof(buf) / 2;

	memcpy(buf, s, len);
	len = LLVMFuzzerMutate(buf, len, sizeof(buf));
	return json_stringn((const char *)buf, len);	/* NULL where it is no UTF-8 */
}

static inline json_t *jm_value(const json_t *old, uint64_t *rng)
{
	static const json_int_t ints[] = { 0, 1, -1, 2, 3, 16, 255, 256, 65535, 65536, 2147483647, 4294967295, INT64_MAX, INT64_MIN };
	static const double reals[] = { 0.5, -0.5, 1.0, 1e-6, 1e30, 1e300, 4096.0, -0.0 };

	switch (fuzz_rand(rng) % 12) {
	case 0:
		return json_null();
	case 1:
		return json_boolean(fuzz_rand(rng) % 2);
	case 2:
		return json_array();
	case 3:
		return json_object();
	case 4:
		return json_string("");
	case 5:
		return json_real(reals[fuzz_rand(rng) % (sizeof(reals) / sizeof(reals[0]))]);
	case 6:
	case 7:
		if (json_is_string(old))
			return jm_text(json_string_value(old), rng);
		/* fall through */
	case 8:
	case 9:
		if (json_is_integer(old))
			return json_integer((json_int_t)((uint64_t)json_integer_value(old) + fuzz_rand(rng) % 5 - 2));
		/* fall through */
	default:
		return json_integer(ints[fuzz_rand(rng) % (sizeof(ints) / sizeof(ints[0]))]);
	}
}

static inline void jm_put(struct jm_place *p, json_t *v)
{
	if (!v)
		return;
	if (p->key)
		json_object_set_new(p->parent, p->key, v);
	else
		json_array_set_new(p->parent, p->i, v);
}

static inline void jm_change(json_t *root, uint64_t *rng)
{
	size_t nr = jm_count(root), n;
	struct jm_place p, q;

	if (!nr)
		return;
	n = fuzz_rand(rng) % nr;
	jm_find(root, &n, &p);
	n = fuzz_rand(rng) % nr;
	jm_find(root, &n, &q);
	switch (fuzz_rand(rng) % 8) {
	case 0:
		if (p.key)
			json_object_del(p.parent, p.key);
		else
			json_array_remove(p.parent, p.i);
		break;
	case 1:		/* a copy: a tree may not hold itself */
		jm_put(&p, json_deep_copy(q.value));
		break;
	case 2:
		if (!p.key)
			json_array_insert_new(p.parent, p.i, json_deep_copy(p.value));
		else if (q.key)
			json_object_set_new(p.parent, q.key, json_deep_copy(p.value));
		break;
	case 3:
		if (json_is_array(p.value))
			json_array_append_new(p.value, json_deep_copy(q.value));
		else if (json_is_object(p.value) && q.key)
			json_object_set_new(p.value, q.key, json_deep_copy(q.value));
		break;
	default:
		jm_put(&p, jm_value(p.value, rng));
		break;
	}
}

/* A changed copy of JSON text at @data, or bytes changed by libFuzzer. */
static inline size_t jm_mutate(uint8_t *data, size_t size, size_t max_size, uint64_t *rng)
{
	size_t changes = 1 + fuzz_rand(rng) % 3, len;
	json_t *root;
	char *text;

	if (fuzz_rand(rng) % 4 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	root = json_loadb((const char *)data, size, 0, NULL);
	if (!root)
		return LLVMFuzzerMutate(data, size, max_size);
	while (changes--)
		jm_change(root, rng);
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	len = text ? strlen(text) : 0;
	if (!len || len > max_size) {
		free(text);
		return LLVMFuzzerMutate(data, size, max_size);
	}
	memcpy(data, text, len);
	free(text);
	return len;
}

#endif
