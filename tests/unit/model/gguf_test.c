// SPDX-License-Identifier: MIT
/*
 * gguf_test.c - gguf.c: what a right file says, and every way in which a file can be wrong.
 *
 * Malformed files that crashed other readers are here by what they do; public reports: ggml-org/ggml pull
 * request 709 and ggml-org/llama.cpp 14595, 15711, 19856, 24263, 26690, which docs/model-formats.md lists.
 */
#include "daemon/model/gguf.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "tests/unit/model/gguf_build.h"

#define NE(...) ((const uint64_t[]){ __VA_ARGS__ })

static struct sits_gguf *g;
static void *image;
static size_t image_len;

static int open_image(struct gguf_build *b, struct sits_diag *diag)
{
	image = gguf_build_end(b, &image_len);
	diag->msg[0] = '\0';
	g = NULL;
	return sits_gguf_open(image, image_len, &g, diag);
}

static void must_open(struct gguf_build *b)
{
	struct sits_diag diag;

	if (open_image(b, &diag))
		fail_msg("%s", diag.msg);
}

static void done(void)
{
	sits_gguf_close(g);
	free(image);
	g = NULL;
	image = NULL;
}

/* Refused with this errno, and the words are in the message. */
static void must_fail(struct gguf_build *b, int err, const char *words)
{
	struct sits_diag diag;
	int ret = open_image(b, &diag);

	if (ret != err)
		fail_msg("%d instead of %d: %s", ret, err, diag.msg);
	if (!strstr(diag.msg, words))
		fail_msg("\"%s\" does not say \"%s\"", diag.msg, words);
	assert_null(strchr(diag.msg, '\n'));
	assert_null(g);
	done();
}

static void build_sample(struct gguf_build *b)
{
	static const float w[6] = { 1, 2, 3, 4, 5, 6 };

	gguf_build_begin(b);
	gguf_build_str(b, "general.architecture", "llama");
	gguf_build_u32(b, "llama.block_count", 30);
	gguf_build_f32(b, "eps", 1e-5f);
	gguf_build_bool(b, "yes", 1);
	gguf_build_bool(b, "no", 0);
	gguf_build_strs(b, "tokens", (const char *[]){ "a", "", "\xff" }, 3);
	gguf_build_array(b, "types", 5, 3, (int32_t[]){ 1, -2, 3 }, 12);
	gguf_build_tensor(b, "w", SITS_F32, 2, NE(3, 2), w, sizeof(w));
	gguf_build_tensor(b, "q", SITS_Q8_0, 1, NE(64), NULL, 68);
	gguf_build_tensor(b, "b", SITS_F32, 1, NE(1), w, 4);
}

static void reads_keys_and_tensors(void **state)
{
	const struct sits_gguf_tensor *t;
	struct sits_gguf_array a;
	struct gguf_build b;
	struct sits_str s;
	int32_t i32;
	uint64_t u;
	bool flag;
	float f;

	build_sample(&b);
	must_open(&b);
	assert_int_equal(sits_gguf_nr_keys(g), 7);
	assert_int_equal(sits_gguf_get_str(g, "general.architecture", &s), 0);
	assert_int_equal(s.len, 5);
	assert_memory_equal(s.p, "llama", 5);
	assert_int_equal(sits_gguf_get_u64(g, "llama.block_count", &u), 0);
	assert_int_equal(u, 30);
	assert_int_equal(sits_gguf_get_f32(g, "eps", &f), 0);
	assert_true(f == 1e-5f);
	assert_int_equal(sits_gguf_get_bool(g, "yes", &flag), 0);
	assert_true(flag);
	assert_int_equal(sits_gguf_get_bool(g, "no", &flag), 0);
	assert_false(flag);
	assert_int_equal(sits_gguf_get_array(g, "tokens", &a), 0);
	assert_int_equal(a.type, SITS_GGUF_STRING);
	assert_int_equal(a.nr, 3);
	assert_null(a.data);
	assert_int_equal(a.strings[0].len, 1);
	assert_int_equal(a.strings[1].len, 0);
	assert_memory_equal(a.strings[2].p, "\xff", 1);
	assert_int_equal(sits_gguf_get_array(g, "types", &a), 0);
	assert_int_equal(a.type, SITS_GGUF_I32);
	assert_null(a.strings);
	memcpy(&i32, (const char *)a.data + 4, 4);
	assert_int_equal(i32, -2);

	assert_int_equal(sits_gguf_nr_tensors(g), 3);
	t = sits_gguf_find(g, "w");
	assert_ptr_equal(t, sits_gguf_tensor_at(g, 0));
	assert_int_equal(t->nr_dims, 2);
	assert_int_equal(t->ne[0], 3);
	assert_int_equal(t->ne[1], 2);
	assert_int_equal(t->ne[2], 1);
	assert_int_equal(t->ne[3], 1);
	assert_int_equal(t->bytes, 24);
	assert_true(((const float *)t->data)[5] == 6);
	t = sits_gguf_find(g, "q");
	assert_int_equal(t->type, SITS_Q8_0);
	assert_int_equal(t->bytes, 68);
	assert_int_equal(((const char *)t->data - (const char *)image) % 32, 0);
	assert_true(*(const float *)sits_gguf_find(g, "b")->data == 1);
	done();
	(void)state;
}

static void walks_in_file_order(void **state)
{
	enum sits_gguf_type type;
	struct gguf_build b;
	struct sits_str s;

	build_sample(&b);
	must_open(&b);
	assert_int_equal(sits_gguf_key_at(g, 0, &s, &type), 0);
	assert_memory_equal(s.p, "general.architecture", 20);
	assert_int_equal(type, SITS_GGUF_STRING);
	assert_int_equal(sits_gguf_key_at(g, 6, &s, &type), 0);
	assert_int_equal(type, SITS_GGUF_ARRAY);
	assert_int_equal(sits_gguf_key_at(g, 7, &s, &type), -ENOENT);
	assert_memory_equal(sits_gguf_tensor_at(g, 2)->name.p, "b", 1);
	assert_null(sits_gguf_tensor_at(g, 3));
	done();
	(void)state;
}

static void look_ups_say_absent_and_other_type(void **state)
{
	struct sits_gguf_array a;
	struct gguf_build b;
	struct sits_str s;
	uint64_t u;
	bool flag;
	float f;

	build_sample(&b);
	must_open(&b);
	assert_int_equal(sits_gguf_get_u64(g, "", &u), -ENOENT);
	assert_int_equal(sits_gguf_get_u64(g, "nothing", &u), -ENOENT);
	assert_int_equal(sits_gguf_get_f32(g, "nothing", &f), -ENOENT);
	assert_int_equal(sits_gguf_get_bool(g, "nothing", &flag), -ENOENT);
	assert_int_equal(sits_gguf_get_str(g, "nothing", &s), -ENOENT);
	assert_int_equal(sits_gguf_get_array(g, "nothing", &a), -ENOENT);
	assert_int_equal(sits_gguf_get_u64(g, "eps", &u), -EINVAL);
	assert_int_equal(sits_gguf_get_u64(g, "yes", &u), -EINVAL);
	assert_int_equal(sits_gguf_get_u64(g, "tokens", &u), -EINVAL);
	assert_int_equal(sits_gguf_get_f32(g, "llama.block_count", &f), -EINVAL);
	assert_int_equal(sits_gguf_get_bool(g, "llama.block_count", &flag), -EINVAL);
	assert_int_equal(sits_gguf_get_str(g, "tokens", &s), -EINVAL);
	assert_int_equal(sits_gguf_get_array(g, "general.architecture", &a), -EINVAL);
	assert_null(sits_gguf_find(g, "nothing"));
	assert_null(sits_gguf_find(g, ""));
	done();
	(void)state;
}

/* {name, type, bytes, n, fits u64, value} */
static void integers_convert_where_they_fit(void **state)
{
	static const struct {
		const char *key;
		uint32_t type;
		size_t n;
		int64_t v;
		int ret;
	} c[] = {
		{ "u8", 0, 1, 255, 0 }, { "i8", 1, 1, 127, 0 }, { "i8-", 1, 1, -1, -EINVAL },
		{ "u16", 2, 2, 65535, 0 }, { "i16", 3, 2, 32767, 0 }, { "i16-", 3, 2, -32768, -EINVAL },
		{ "u32", 4, 4, 4294967295, 0 }, { "i32", 5, 4, 2147483647, 0 }, { "i32-", 5, 4, -1, -EINVAL },
		{ "u64", 10, 8, -1, 0 }, { "i64", 11, 8, INT64_MAX, 0 }, { "i64-", 11, 8, INT64_MIN, -EINVAL },
	};
	struct gguf_build b;
	uint64_t u;
	size_t i;

	gguf_build_begin(&b);
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++)
		gguf_build_raw(&b, c[i].key, c[i].type, &c[i].v, c[i].n);
	must_open(&b);
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		assert_int_equal(sits_gguf_get_u64(g, c[i].key, &u), c[i].ret);
		if (!c[i].ret)
			assert_true(u == (uint64_t)c[i].v);
	}
	done();
	(void)state;
}

static void doubles_convert_where_they_fit(void **state)
{
	static const double d[] = { 0.5, 1e300, -1e300, INFINITY, 1e-320 };
	struct gguf_build b;
	float f;

	gguf_build_begin(&b);
	gguf_build_raw(&b, "half", 12, &d[0], 8);
	gguf_build_raw(&b, "large", 12, &d[1], 8);
	gguf_build_raw(&b, "-large", 12, &d[2], 8);
	gguf_build_raw(&b, "inf", 12, &d[3], 8);
	gguf_build_raw(&b, "tiny", 12, &d[4], 8);
	must_open(&b);
	assert_int_equal(sits_gguf_get_f32(g, "half", &f), 0);
	assert_true(f == 0.5f);
	assert_int_equal(sits_gguf_get_f32(g, "large", &f), -EINVAL);
	assert_int_equal(sits_gguf_get_f32(g, "-large", &f), -EINVAL);
	assert_int_equal(sits_gguf_get_f32(g, "inf", &f), 0);
	assert_true(isinf(f));
	assert_int_equal(sits_gguf_get_f32(g, "tiny", &f), 0);
	assert_true(f == 0);
	done();
	(void)state;
}

static void empty_and_tensorless_files_open(void **state)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	must_open(&b);
	assert_int_equal(sits_gguf_nr_keys(g) + sits_gguf_nr_tensors(g), 0);
	assert_null(sits_gguf_find(g, "x"));
	done();
	gguf_build_begin(&b);
	gguf_build_str(&b, "k", "v");	/* odd length: nothing is padded where no tensor follows */
	must_open(&b);
	done();
	sits_gguf_close(NULL);
	(void)state;
}

static void trailing_bytes_are_allowed(void **state)
{
	struct gguf_build b;

	build_sample(&b);
	gguf_put_zeros(&b.data, 1000);
	must_open(&b);
	done();
	(void)state;
}

/* Writers may leave out the padding behind the last tensor. */
static void last_padding_may_be_missing(void **state)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(3), NULL, 12);
	b.data.len = 12;
	must_open(&b);
	done();
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(3), NULL, 12);
	b.data.len = 11;
	must_fail(&b, -EBADMSG, "past the end of the file");
	(void)state;
}

static void other_files_are_named(void **state)
{
	struct sits_diag diag = { "" };

	assert_int_equal(sits_gguf_open("", 0, &g, &diag), -EBADMSG);
	diag.msg[0] = '\0';
	assert_int_equal(sits_gguf_open(NULL, 0, &g, &diag), -EBADMSG);
	diag.msg[0] = '\0';
	assert_int_equal(sits_gguf_open("GGU", 3, &g, &diag), -EBADMSG);
	diag.msg[0] = '\0';
	assert_int_equal(sits_gguf_open("PK\3\4 zip archive, not a model", 30, &g, &diag), -EBADMSG);
	assert_non_null(strstr(diag.msg, "not a GGUF file"));
	assert_int_equal(sits_gguf_open("PK\3\4 zip archive, not a model", 30, &g, NULL), -EBADMSG);
	(void)state;
}

static void old_and_new_versions_are_unsupported(void **state)
{
	static const struct {
		uint32_t v;
		int err;
		const char *words;
	} c[] = {
		{ 1, -EPROTONOSUPPORT, "version 1" }, { 2, -EPROTONOSUPPORT, "convert" }, { 4, -EPROTONOSUPPORT, "version 4" },
		{ UINT32_MAX, -EPROTONOSUPPORT, "version 4294967295" }, { 0, -EBADMSG, "version 0" },
		{ 0x03000000, -EPROTONOSUPPORT, "big-endian" }, { 0x02000000, -EPROTONOSUPPORT, "big-endian" },
	};
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		build_sample(&b);
		b.version = c[i].v;
		must_fail(&b, c[i].err, c[i].words);
	}
	(void)state;
}

/* ggml 709, llama.cpp 15711: a count times a struct's size wraps, or asks for all memory. */
static void counts_beyond_the_file_allocate_nothing(void **state)
{
	static const uint64_t nr[] = { 1000, UINT64_C(1) << 31, UINT64_C(1) << 60, UINT64_C(1) << 63, UINT64_MAX,
				       SIZE_MAX / sizeof(struct sits_gguf_tensor), SIZE_MAX / 368 };
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(nr) / sizeof(nr[0]); i++) {
		gguf_build_begin(&b);
		gguf_put_zeros(&b.data, 26);
		b.nr_tensors = nr[i];
		b.align = 0;
		must_fail(&b, -EBADMSG, "tensors do not fit");
		gguf_build_begin(&b);
		gguf_put_zeros(&b.data, 26);
		b.nr_keys = nr[i];
		must_fail(&b, -EBADMSG, "keys do not fit");
	}
	(void)state;
}

/* llama.cpp 19856, ggml 709: lengths that wrap when added to an offset or multiplied by a size. */
static void lengths_that_wrap_are_refused(void **state)
{
	static const uint64_t n[] = { UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, UINT64_C(1) << 61, (UINT64_C(1) << 30) + 1 };
	struct gguf_build b;
	size_t i;
	uint32_t elem;

	for (i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
		gguf_build_begin(&b);	/* a key's name */
		gguf_put_u64(&b.keys, n[i]);
		gguf_put_zeros(&b.keys, 64);
		b.nr_keys = 1;
		must_fail(&b, -EBADMSG, "name");
		gguf_build_begin(&b);	/* a string */
		gguf_build_key(&b, "k", 8);
		gguf_put_u64(&b.keys, n[i]);
		must_fail(&b, -EBADMSG, "at most 1073741824");
		for (elem = 0; elem <= 12; elem++) {
			gguf_build_begin(&b);
			gguf_build_array(&b, "k", elem, n[i], NULL, 0);
			must_fail(&b, -EBADMSG, "at most 1073741824");
		}
	}
	(void)state;
}

static void strings_and_arrays_end_inside_the_file(void **state)
{
	struct gguf_build b;
	uint32_t elem;

	gguf_build_begin(&b);
	gguf_build_key(&b, "k", 8);
	gguf_put_u64(&b.keys, 4);
	gguf_put(&b.keys, "abc", 3);
	must_fail(&b, -EBADMSG, "key 0 (k): value needs 4 bytes, the file has 3 left");
	for (elem = 0; elem <= 12; elem++) {
		gguf_build_begin(&b);
		gguf_build_array(&b, "k", elem, UINT64_C(1) << 30, "123456789", 9);
		must_fail(&b, -EBADMSG, "does not fit");
	}
	gguf_build_begin(&b);	/* the second string of an array */
	gguf_build_array(&b, "k", 8, 2, "\1\0\0\0\0\0\0\0a\xff\xff\xff\0\0\0\0\0", 17);
	must_fail(&b, -EBADMSG, "a string of the array");
	(void)state;
}

/* ggml 709: types outside the format's used as an index. */
static void unknown_value_types_are_refused(void **state)
{
	static const uint32_t type[] = { 13, 14, 255, 256, 0x7fffffff, 0x80000000, UINT32_MAX };
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(type) / sizeof(type[0]); i++) {
		gguf_build_begin(&b);
		gguf_build_raw(&b, "k", type[i], "12345678", 8);
		must_fail(&b, -EBADMSG, "value type");
		gguf_build_begin(&b);
		gguf_build_array(&b, "k", type[i], 1, "12345678", 8);
		must_fail(&b, -EBADMSG, "array element type");
	}
	(void)state;
}

/* llama.cpp 26690: a narrower element type than the reader strides by. The type is handed out with the data. */
static void arrays_carry_their_element_type(void **state)
{
	struct sits_gguf_array a;
	struct gguf_build b;
	uint32_t elem;
	char key[8];

	gguf_build_begin(&b);
	for (elem = 0; elem <= 12; elem++) {
		static const uint8_t bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

		if (!bytes[elem])
			continue;
		snprintf(key, sizeof(key), "a%u", elem);
		gguf_build_array(&b, key, elem, 3, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 3u * bytes[elem]);
	}
	must_open(&b);
	for (elem = 0; elem <= 12; elem++) {
		if (elem == 8 || elem == 9)
			continue;
		snprintf(key, sizeof(key), "a%u", elem);
		assert_int_equal(sits_gguf_get_array(g, key, &a), 0);
		assert_int_equal(a.type, elem);
		assert_int_equal(a.nr, 3);
	}
	done();
	(void)state;
}

static void bools_are_0_or_1(void **state)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_bool(&b, "k", 2);
	must_fail(&b, -EBADMSG, "a bool is 2");
	gguf_build_begin(&b);
	gguf_build_array(&b, "k", 7, 3, "\1\0\377", 3);
	must_fail(&b, -EBADMSG, "a bool is 255");
	(void)state;
}

static void arrays_nest_only_so_deep(void **state)
{
	struct sits_gguf_array a;
	struct gguf_build b;
	int depth, i;

	for (depth = 1; depth < 100000; depth = depth < 6 ? depth + 1 : depth * 10) {
		gguf_build_begin(&b);
		gguf_build_key(&b, "k", 9);
		for (i = 1; i < depth; i++) {
			gguf_put_u32(&b.keys, 9);
			gguf_put_u64(&b.keys, 1);
		}
		gguf_put_u32(&b.keys, 8);
		gguf_put_u64(&b.keys, 1);
		gguf_put_str(&b.keys, "x", 1);
		if (depth > 4) {
			must_fail(&b, -EBADMSG, "nest deeper");
			continue;
		}
		must_open(&b);
		assert_int_equal(sits_gguf_get_array(g, "k", &a), 0);
		assert_int_equal(a.type, depth > 1 ? SITS_GGUF_ARRAY : SITS_GGUF_STRING);
		assert_null(a.data);
		assert_true((depth == 1) == (a.strings != NULL));
		done();
	}
	(void)state;
}

/* llama.cpp 24263: an empty key ran into an assertion. */
static void bad_names_are_refused(void **state)
{
	static const char *const bad[] = { "", "a\nb", "a\x7f", "\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
					   "\xe2\x82", "\xc2\x85" };
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		gguf_build_begin(&b);
		gguf_build_u32(&b, bad[i], 1);
		must_fail(&b, -EBADMSG, "the name is");
		gguf_build_begin(&b);
		gguf_build_tensor(&b, bad[i], SITS_F32, 1, NE(8), NULL, 32);
		must_fail(&b, -EBADMSG, "the name is");
	}
	gguf_build_begin(&b);	/* a NUL within */
	gguf_put_str(&b.keys, "a\0b", 3);
	gguf_put_u32(&b.keys, 0);
	gguf_put_zeros(&b.keys, 1);
	b.nr_keys = 1;
	must_fail(&b, -EBADMSG, "the name is");
	gguf_build_begin(&b);
	gguf_build_u32(&b, "schlüssel.键.🙂", 1);
	must_open(&b);
	done();
	(void)state;
}

static void names_have_a_longest_length(void **state)
{
	static char name[65537];
	struct gguf_build b;
	uint64_t u;

	memset(name, 'k', 65535);
	gguf_build_begin(&b);
	gguf_build_u32(&b, name, 5);
	must_open(&b);
	assert_int_equal(sits_gguf_get_u64(g, name, &u), 0);
	done();
	name[65535] = 'k';
	gguf_build_begin(&b);
	gguf_build_u32(&b, name, 5);
	must_fail(&b, -EBADMSG, "at most 65535");
	name[64] = '\0';
	gguf_build_begin(&b);
	gguf_build_tensor(&b, name, SITS_F32, 1, NE(8), NULL, 32);
	must_fail(&b, -EBADMSG, "at most 63");
	name[63] = '\0';
	gguf_build_begin(&b);
	gguf_build_tensor(&b, name, SITS_F32, 1, NE(8), NULL, 32);
	must_open(&b);
	assert_non_null(sits_gguf_find(g, name));
	done();
	(void)state;
}

/* A long name is shown cut between characters, so that the message stays UTF-8. */
static void long_names_are_cut_in_messages(void **state)
{
	static char name[400];
	struct sits_diag diag;
	struct gguf_build b;
	size_t i;

	for (i = 0; i < 399; i += 3)
		memcpy(name + i, "漢", 3);
	gguf_build_begin(&b);
	gguf_build_bool(&b, name, 7);
	assert_int_equal(open_image(&b, &diag), -EBADMSG);
	assert_non_null(strstr(diag.msg, "漢)"));
	assert_non_null(strstr(diag.msg, "a bool is 7"));
	done();
	(void)state;
}

static void names_are_unique(void **state)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_u32(&b, "k", 1);
	gguf_build_u32(&b, "other", 1);
	gguf_build_str(&b, "k", "x");
	must_fail(&b, -EBADMSG, "key 2 (k): the same key is already there, as key 0");
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(8), NULL, 32);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(8), NULL, 32);
	must_fail(&b, -EBADMSG, "tensor 1 (w): a tensor of the same name is already there, as tensor 0");
	(void)state;
}

/* Comparing each name with all before it would not end within the test's time limit. */
static void a_million_names_take_linear_time(void **state)
{
	enum { N = 1000000 };
	struct gguf_build b;
	char key[32];
	uint64_t u;
	int i;

	gguf_build_begin(&b);
	for (i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "general.some.key.%08x", i);
		gguf_build_u32(&b, key, (uint32_t)i);
	}
	must_open(&b);
	assert_int_equal(sits_gguf_nr_keys(g), N);
	for (i = 0; i < N; i += 997) {
		snprintf(key, sizeof(key), "general.some.key.%08x", i);
		assert_int_equal(sits_gguf_get_u64(g, key, &u), 0);
		assert_int_equal(u, i);
	}
	done();
	(void)state;
}

static void alignment_is_a_power_of_two(void **state)
{
	static const struct {
		uint32_t align;
		bool ok;
	} c[] = {
		{ 0, false }, { 1, false }, { 4, false }, { 8, true }, { 16, true }, { 24, false }, { 32, true },
		{ 4096, true }, { 4097, false }, { 0x80000000, false }, { UINT32_MAX, false },
	};
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		gguf_build_begin(&b);
		gguf_build_u32(&b, "general.alignment", c[i].align);
		b.align = c[i].ok ? c[i].align : 32;
		gguf_build_tensor(&b, "a", SITS_F32, 1, NE(1), NULL, 4);
		gguf_build_tensor(&b, "b", SITS_F32, 1, NE(1), NULL, 4);
		if (!c[i].ok && c[i].align != 0x80000000) {
			must_fail(&b, -EBADMSG, "power of two");
		} else if (!c[i].ok) {
			must_fail(&b, -EBADMSG, "tensors before it end at 2147483648");
		} else {
			must_open(&b);
			assert_int_equal(((const char *)sits_gguf_find(g, "b")->data - (const char *)image) % c[i].align, 0);
			done();
		}
	}
	(void)state;
}

/* Found by fuzzing another reader: an alignment of another type than u32 ran into an assertion. */
static void alignment_of_another_type_is_refused(void **state)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_raw(&b, "general.alignment", 10, "\40\0\0\0\0\0\0\0", 8);
	must_fail(&b, -EBADMSG, "(general.alignment): value type 10, must be 4");
	gguf_build_begin(&b);
	gguf_build_str(&b, "general.alignment", "32");
	must_fail(&b, -EBADMSG, "must be 4");
	(void)state;
}

/* llama.cpp 24263: a zero dimension, divided by. */
static void zero_dimensions_are_refused(void **state)
{
	struct gguf_build b;
	uint32_t n, d;

	for (n = 1; n <= 4; n++) {
		for (d = 0; d < n; d++) {
			uint64_t ne[4] = { 32, 2, 2, 2 };

			ne[d] = 0;
			gguf_build_begin(&b);
			gguf_build_tensor(&b, "w", SITS_Q8_0, n, ne, NULL, 0);
			must_fail(&b, -EBADMSG, "is zero");
		}
	}
	(void)state;
}

/* ggml 709: more dimensions than there is room for. */
static void one_to_four_dimensions(void **state)
{
	static const uint64_t ne[5] = { 2, 1, 1, 1, 1 };
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 5, ne, NULL, 8);
	must_fail(&b, -EBADMSG, "5 dimensions");
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 0, ne, NULL, 8);
	must_fail(&b, -EBADMSG, "0 dimensions");
	gguf_build_begin(&b);
	gguf_put_str(&b.infos, "w", 1);
	gguf_put_u32(&b.infos, UINT32_MAX);
	gguf_put_zeros(&b.infos, 64);
	b.nr_tensors = 1;
	must_fail(&b, -EBADMSG, "4294967295 dimensions");
	(void)state;
}

/* llama.cpp 14595: dimensions whose product wraps to something small. */
static void element_counts_that_wrap_are_refused(void **state)
{
	static const uint64_t ne[][4] = {
		{ UINT64_MAX, 1, 1, 1 }, { UINT64_C(1) << 63, 1, 1, 1 }, { UINT64_C(1) << 32, UINT64_C(1) << 32, 1, 1 },
		{ 1152, (UINT64_C(1) << 42) + 1, 1 << 20, 1 }, { 1 << 16, 1 << 16, 1 << 16, 1 << 16 },
		{ 32, UINT64_MAX / 32 + 2, 1, 1 }, { INT64_MAX, 3, 1, 1 },
	};
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(ne) / sizeof(ne[0]); i++) {
		gguf_build_begin(&b);
		gguf_build_tensor(&b, "w", SITS_F32, 4, ne[i], NULL, 0);
		must_fail(&b, -EBADMSG, "number of elements overflows");
	}
	(void)state;
}

/* llama.cpp 14595: elements that can be counted, bytes and sums of them that can't. */
static void sizes_that_wrap_are_refused(void **state)
{
	struct gguf_build b;

	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(INT64_MAX), NULL, 0);
	must_fail(&b, -EBADMSG, "size in bytes overflows");
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(UINT64_C(0x3fffffffffffffff)), NULL, 0);
	must_fail(&b, -EBADMSG, "end overflows");	/* 2^64 - 4 bytes: padding wraps */
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "v", SITS_F32, 1, NE(UINT64_C(0x3ffffffffffffff0)), NULL, 0);
	b.offset_error = -64;	/* 2^64 - 64, where the first one ends */
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(32), NULL, 128);
	must_fail(&b, -EBADMSG, "end overflows");	/* and the second begins again at 64 */
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", SITS_F32, 1, NE(UINT64_C(1) << 61), NULL, 0);
	must_fail(&b, -EBADMSG, "past the end of the file");
	(void)state;
}

static void unknown_tensor_types_are_unsupported(void **state)
{
	static const uint32_t type[] = { 4, 5, 9, 10, 16, 24, 31, 41, 255, 0x7fffffff, 0x80000000, UINT32_MAX };
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(type) / sizeof(type[0]); i++) {
		char words[64];

		gguf_build_begin(&b);
		gguf_build_tensor(&b, "blk.0.w", type[i], 1, NE(256), NULL, 256);
		snprintf(words, sizeof(words), "tensor 0 (blk.0.w): tensor type %u", type[i]);
		must_fail(&b, -EPROTONOSUPPORT, words);
	}
	gguf_build_begin(&b);
	gguf_build_tensor(&b, "w", 10, 1, NE(256), NULL, 84);
	must_fail(&b, -EPROTONOSUPPORT, "Q2_K");
	(void)state;
}

static void every_supported_type_has_its_size(void **state)
{
	struct gguf_build b;
	uint32_t type, nr = 0;
	char name[16];

	gguf_build_begin(&b);
	for (type = 0; type < 64; type++) {
		const struct sits_dtype_info *info = sits_dtype_info(type);

		if (!info)
			continue;
		snprintf(name, sizeof(name), "t%u", type);
		gguf_build_tensor(&b, name, type, 2, NE(2u * info->block_elems, 3), NULL, 6u * info->block_bytes);
		nr++;
	}
	assert_true(nr >= 11);
	must_open(&b);
	for (type = 0; type < nr; type++) {
		const struct sits_gguf_tensor *t = sits_gguf_tensor_at(g, type);

		assert_int_equal(t->bytes, 6u * sits_dtype_info(t->type)->block_bytes);
	}
	done();
	(void)state;
}

static void rows_are_whole_blocks(void **state)
{
	struct gguf_build b;
	uint32_t type;

	for (type = 0; type < 64; type++) {
		const struct sits_dtype_info *info = sits_dtype_info(type);

		if (!info || info->block_elems == 1)
			continue;
		gguf_build_begin(&b);
		/* Whole blocks in all, but not in a row. */
		gguf_build_tensor(&b, "w", type, 2, NE(info->block_elems / 2, 2), NULL, info->block_bytes);
		must_fail(&b, -EBADMSG, "is not whole");
	}
	(void)state;
}

static void offsets_are_the_running_sum(void **state)
{
	static const int64_t error[] = { 1, 32, -32, 4096, INT64_MIN, -1 };
	struct gguf_build b;
	size_t i;

	for (i = 0; i < sizeof(error) / sizeof(error[0]); i++) {
		gguf_build_begin(&b);
		gguf_build_tensor(&b, "a", SITS_F32, 1, NE(8), NULL, 32);
		b.offset_error = error[i];
		gguf_build_tensor(&b, "b", SITS_F32, 1, NE(8), NULL, 32);
		must_fail(&b, -EBADMSG, "the tensors before it end at 32");
	}
	(void)state;
}

/* Every shorter file is refused, and no byte behind it is read (ASan sees the heap block's end). */
static void every_cut_is_refused(void **state)
{
	struct sits_diag diag;
	struct sits_gguf *cut;
	struct gguf_build b;
	uint8_t *p, *copy;
	size_t len, need, n;

	build_sample(&b);
	p = gguf_build_end(&b, &len);
	need = len - 28;	/* 4 of the last 32 bytes are the last tensor's */
	for (n = 0; n <= len; n++) {
		copy = malloc(n ? n : 1);
		assert_non_null(copy);
		memcpy(copy, p, n);
		diag.msg[0] = '\0';
		if (n < need) {
			assert_int_equal(sits_gguf_open(copy, n, &cut, &diag), -EBADMSG);
			assert_true(diag.msg[0]);
		} else {
			assert_int_equal(sits_gguf_open(copy, n, &cut, &diag), 0);
			sits_gguf_close(cut);
		}
		free(copy);
	}
	free(p);
	(void)state;
}

static void touch_all(const struct sits_gguf *x)
{
	enum sits_gguf_type type;
	struct sits_str key;
	unsigned int sink = 0;
	uint64_t i;

	for (i = 0; i < sits_gguf_nr_keys(x); i++) {
		assert_int_equal(sits_gguf_key_at(x, i, &key, &type), 0);
		sink += (uint8_t)key.p[key.len - 1];
	}
	for (i = 0; i < sits_gguf_nr_tensors(x); i++) {
		const struct sits_gguf_tensor *t = sits_gguf_tensor_at(x, i);

		sink += ((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->bytes - 1];
	}
	__asm__ volatile("" : : "r"(sink));	/* the reads are wanted */
}

/* Every byte before the data set to every value: refused with words, or a file whose facts hold. */
static void every_changed_byte_is_survived(void **state)
{
	struct sits_diag diag;
	struct sits_gguf *x;
	struct gguf_build b;
	size_t len, i, opened = 0;
	uint8_t *p, was;
	int v, ret;

	build_sample(&b);
	p = gguf_build_end(&b, &len);
	for (i = 0; i < len - 160; i++) {
		was = p[i];
		for (v = 0; v < 256; v++) {
			p[i] = (uint8_t)v;
			diag.msg[0] = '\0';
			ret = sits_gguf_open(p, len, &x, &diag);
			if (ret) {
				assert_true(ret == -EBADMSG || ret == -EPROTONOSUPPORT);
				assert_true(diag.msg[0]);
				continue;
			}
			touch_all(x);
			sits_gguf_close(x);
			opened++;
		}
		p[i] = was;
	}
	assert_true(opened >= i);
	free(p);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_keys_and_tensors),
		cmocka_unit_test(walks_in_file_order),
		cmocka_unit_test(look_ups_say_absent_and_other_type),
		cmocka_unit_test(integers_convert_where_they_fit),
		cmocka_unit_test(doubles_convert_where_they_fit),
		cmocka_unit_test(empty_and_tensorless_files_open),
		cmocka_unit_test(trailing_bytes_are_allowed),
		cmocka_unit_test(last_padding_may_be_missing),
		cmocka_unit_test(other_files_are_named),
		cmocka_unit_test(old_and_new_versions_are_unsupported),
		cmocka_unit_test(counts_beyond_the_file_allocate_nothing),
		cmocka_unit_test(lengths_that_wrap_are_refused),
		cmocka_unit_test(strings_and_arrays_end_inside_the_file),
		cmocka_unit_test(unknown_value_types_are_refused),
		cmocka_unit_test(arrays_carry_their_element_type),
		cmocka_unit_test(bools_are_0_or_1),
		cmocka_unit_test(arrays_nest_only_so_deep),
		cmocka_unit_test(bad_names_are_refused),
		cmocka_unit_test(names_have_a_longest_length),
		cmocka_unit_test(long_names_are_cut_in_messages),
		cmocka_unit_test(names_are_unique),
		cmocka_unit_test(a_million_names_take_linear_time),
		cmocka_unit_test(alignment_is_a_power_of_two),
		cmocka_unit_test(alignment_of_another_type_is_refused),
		cmocka_unit_test(zero_dimensions_are_refused),
		cmocka_unit_test(one_to_four_dimensions),
		cmocka_unit_test(element_counts_that_wrap_are_refused),
		cmocka_unit_test(sizes_that_wrap_are_refused),
		cmocka_unit_test(unknown_tensor_types_are_unsupported),
		cmocka_unit_test(every_supported_type_has_its_size),
		cmocka_unit_test(rows_are_whole_blocks),
		cmocka_unit_test(offsets_are_the_running_sum),
		cmocka_unit_test(every_cut_is_refused),
		cmocka_unit_test(every_changed_byte_is_survived),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
