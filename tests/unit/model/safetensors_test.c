// SPDX-License-Identifier: MIT
/*
 * safetensors_test.c - safetensors.c and json.c: what a right file says, and every way in which a file can be wrong.
 */
#include "daemon/model/safetensors.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/model/json.h"

/* Exactly as long as the file, so that the sanitizer sees a byte too far. */
static uint8_t *image_of(const char *header, size_t data_len, size_t *len)
{
	uint64_t n = strlen(header);
	uint8_t *p;
	size_t i;

	*len = 8 + n + data_len;
	p = malloc(*len);
	assert_non_null(p);
	memcpy(p, &n, 8);
	memcpy(p + 8, header, n);
	for (i = 0; i < data_len; i++)
		p[8 + n + i] = (uint8_t)i;
	return p;
}

static int open_text(const char *header, size_t data_len, struct sits_st **s, uint8_t **image, struct sits_diag *diag)
{
	size_t len;

	*image = image_of(header, data_len, &len);
	*s = NULL;
	diag->msg[0] = '\0';
	return sits_st_open("x.safetensors", *image, len, s, diag);
}

static void refused(const char *header, size_t data_len, int err, const char *words)
{
	struct sits_diag diag;
	struct sits_st *s;
	uint8_t *image;
	int ret = open_text(header, data_len, &s, &image, &diag);

	if (ret != err)
		fail_msg("%s: %d instead of %d: %s", header, ret, err, diag.msg);
	if (!strstr(diag.msg, words) || !strstr(diag.msg, "x.safetensors"))
		fail_msg("%s: \"%s\" does not say \"%s\"", header, diag.msg, words);
	assert_null(s);
	free(image);
}

static void a_right_file_is_read_in_place(void **state)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		"\"\\u00e9.weight\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[20,21]},"
		"\"none\":{\"dtype\":\"F16\",\"shape\":[4,0],\"data_offsets\":[20,20]},"
		"\"f4\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[21,24]}}   ";
	const struct sits_st_tensor *t;
	struct sits_diag diag;
	struct sits_st *s;
	uint8_t *image, *data;

	if (open_text(header, 24, &s, &image, &diag))
		fail_msg("%s", diag.msg);
	data = image + 8 + strlen(header);
	assert_int_equal(sits_st_nr(s), 5);
	t = sits_st_at(s, 0);
	assert_string_equal(t->name.p, "a");
	assert_string_equal(t->dtype, "F32");
	assert_int_equal(t->nr_dims, 1);
	assert_int_equal(t->dim[0], 2);
	assert_int_equal(t->bytes, 8);
	assert_ptr_equal(t->data, data);
	t = sits_st_at(s, 1);
	assert_string_equal(t->name.p, "b");
	assert_int_equal(t->nr_dims, 2);
	assert_int_equal(t->dim[0], 2);
	assert_int_equal(t->dim[1], 3);
	assert_ptr_equal(t->data, data + 8);
	assert_string_equal(sits_st_at(s, 2)->name.p, "none");
	assert_int_equal(sits_st_at(s, 2)->bytes, 0);
	t = sits_st_at(s, 3);
	assert_int_equal(t->nr_dims, 0);
	assert_int_equal(t->name.len, strlen("\xc3\xa9.weight"));
	assert_string_equal(t->name.p, "\xc3\xa9.weight");
	assert_string_equal(sits_st_at(s, 4)->dtype, "F4");
	assert_null(sits_st_at(s, 5));
	sits_st_close(s);
	free(image);
}

static void a_file_without_tensors_is_right(void **state)
{
	struct sits_diag diag;
	struct sits_st *s;
	uint8_t *image;

	assert_int_equal(open_text("{}", 0, &s, &image, &diag), 0);
	assert_int_equal(sits_st_nr(s), 0);
	sits_st_close(s);
	sits_st_close(NULL);
	free(image);
}

/* One tensor "t" of which one part is put in. */
#define T(dtype, shape, offsets) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void each_rule_of_the_format_is_checked(void **state)
{
	static const struct {
		const char *header;
		size_t data;
		int err;
		const char *words;
	} bad[] = {
		{ T("\"F32\"", "[2]", "[0,8]"), 9, -EBADMSG, "take 8 bytes, but 9 follow" },
		{ T("\"F32\"", "[2]", "[0,8]"), 7, -EBADMSG, "t ends at byte 8 of 7 bytes of data" },
		{ T("\"F32\"", "[2]", "[1,9]"), 9, -EBADMSG, "starts at byte 1 of the data, but the one before ends at 0" },
		{ T("\"F32\"", "[2]", "[8,0]"), 8, -EBADMSG, "data_offsets is not [begin, end]" },
		{ T("\"F32\"", "[2]", "[0]"), 8, -EBADMSG, "data_offsets is not" },
		{ T("\"F32\"", "[2]", "[0,8,8]"), 8, -EBADMSG, "data_offsets is not" },
		{ T("\"F32\"", "[2]", "[-8,0]"), 8, -EBADMSG, "data_offsets is not" },
		{ T("\"F32\"", "[2]", "[0,8.0]"), 8, -EBADMSG, "data_offsets is not" },
		{ T("\"F32\"", "[2]", "\"0,8\""), 8, -EBADMSG, "data_offsets is not" },
		{ T("\"F32\"", "[3]", "[0,8]"), 8, -EBADMSG, "takes 12 bytes of F32, its offsets 8" },
		{ T("\"F32\"", "[-2]", "[0,8]"), 8, -EBADMSG, "dimension 0 is not a whole number" },
		{ T("\"F32\"", "[2.5]", "[0,8]"), 8, -EBADMSG, "dimension 0 is not a whole number" },
		{ T("\"F32\"", "[1,true]", "[0,8]"), 8, -EBADMSG, "dimension 1 is not a whole number" },
		{ T("\"F32\"", "2", "[0,8]"), 8, -EBADMSG, "shape is not an array" },
		{ T("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8, -EBADMSG, "longer than 8" },
		{ T("\"F32\"", "[4294967296,4294967296]", "[0,8]"), 8, -EBADMSG, "number of elements overflows" },
		{ T("\"F32\"", "[4611686018427387904]", "[0,8]"), 8, -EBADMSG, "size in bits overflows" },
		{ T("\"F32\"", "[9223372036854775807,2]", "[0,8]"), 8, -EBADMSG, "overflows" },
		{ T("\"F32\"", "[99999999999999999999]", "[0,8]"), 8, -EBADMSG, "too big integer" },
		{ T("\"F4\"", "[3]", "[0,2]"), 2, -EBADMSG, "not whole bytes" },
		{ T("\"f32\"", "[2]", "[0,8]"), 8, -EPROTONOSUPPORT, "tensor t: dtype \"f32\" is not known" },
		{ T("\"\"", "[2]", "[0,8]"), 8, -EPROTONOSUPPORT, "is not known" },
		{ T("32", "[2]", "[0,8]"), 8, -EBADMSG, "dtype is not a string" },
		{ "{\"t\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -EBADMSG, "dtype is missing" },
		{ "{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, -EBADMSG, "shape is missing" },
		{ "{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, -EBADMSG, "data_offsets is missing" },
		{ "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, -EBADMSG, "key x does not belong" },
		{ "{\"t\":[0,8]}", 8, -EBADMSG, "not described by an object" },
		{ "{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -EBADMSG, "is empty" },
		{ "{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -EBADMSG, "not plain text" },
		{ "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, -EBADMSG, "line 1" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, -EBADMSG, "__metadata__.a is not a string" },
		{ "{\"__metadata__\":[]}", 0, -EBADMSG, "__metadata__ is not an object" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
		  3, -EBADMSG, "tensor b starts at byte 1 of the data, but the one before ends at 2: they overlap" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}",
		  4, -EBADMSG, "hidden between" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
		  2, -EBADMSG, "they overlap" },
		{ "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"n\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
		  2, -EBADMSG, "tensor n starts at byte 1" },
		{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		  1, -EBADMSG, "duplicate" },
		{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}", 1, -EBADMSG, "line 1" },
		{ "[]", 0, -EBADMSG, "does not start with {" },
		{ " {}", 0, -EBADMSG, "does not start with {" },
		{ "{} x", 0, -EBADMSG, "line 1" },
		{ "{\"\xff\":1}", 0, -EBADMSG, "line 1" },
		{ "", 0, -EBADMSG, "does not start with {" },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(bad[i].header, bad[i].data, bad[i].err, bad[i].words);
}

static void a_length_beyond_the_file_is_refused(void **state)
{
	static const uint64_t lengths[] = { 3, 100, SITS_ST_MAX_HEADER, SITS_ST_MAX_HEADER + 1, UINT64_MAX, UINT64_MAX - 7 };
	struct sits_diag diag;
	struct sits_st *s = NULL;
	uint8_t *image = malloc(10);
	size_t i;

	assert_non_null(image);
	memset(image, '{', 10);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		memcpy(image, &lengths[i], 8);
		diag.msg[0] = '\0';
		assert_int_equal(sits_st_open("x", image, 10, &s, &diag), -EBADMSG);
		assert_non_null(strstr(diag.msg, lengths[i] > SITS_ST_MAX_HEADER ? "this is no" : "cut short"));
	}
	for (i = 0; i < 8; i++) {
		diag.msg[0] = '\0';
		assert_int_equal(sits_st_open("x", image, i, &s, &diag), -EBADMSG);
	}
	assert_null(s);
	free(image);
}

static void names_of_1024_bytes_are_the_longest(void **state)
{
	char name[SITS_ST_MAX_NAME + 2], header[SITS_ST_MAX_NAME + 200];
	struct sits_diag diag;
	struct sits_st *s;
	uint8_t *image;

	memset(name, 'n', sizeof(name));
	name[SITS_ST_MAX_NAME + 1] = '\0';
	snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", name);
	refused(header, 1, -EBADMSG, "longer than 1024");
	name[SITS_ST_MAX_NAME] = '\0';
	snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", name);
	assert_int_equal(open_text(header, 1, &s, &image, &diag), 0);
	assert_string_equal(sits_st_at(s, 0)->name.p, name);
	sits_st_close(s);
	free(image);
}

/* ------------------------------------------------------------------ json.c */

static const struct sits_json_limits small = { .bytes = 1000, .values = 20 };

static void json_refused(const char *text, int err, const char *words)
{
	struct sits_diag diag = { "" };
	json_t *root = NULL;
	int ret = sits_json_parse("config.json", text, strlen(text), &small, &root, &diag);

	if (ret != err || !strstr(diag.msg, words) || !strstr(diag.msg, "config.json"))
		fail_msg("%.40s: %d, \"%s\" does not say \"%s\"", text, ret, diag.msg, words);
	assert_null(root);
}

static void json_has_limits(void **state)
{
	char text[1200];
	struct sits_diag diag = { "" };
	json_t *root;

	memset(text, ' ', sizeof(text));
	memcpy(text, "{}", 2);
	text[1001] = '\0';
	json_refused(text, -EFBIG, "1001 bytes");
	text[1000] = '\0';
	assert_int_equal(sits_json_parse("c", text, 1000, &small, &root, &diag), 0);
	json_decref(root);
	json_refused("{\"a\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}", -EFBIG, "values; at most 20");
	memset(text, '[', 33);
	strcpy(text + 33, "]");
	json_refused(text, -EFBIG, "nests 33 deep");
	/* Brackets and commas in a text are none of the structure, nor is an escaped quote its end. */
	assert_int_equal(sits_json_parse("c", "{\"a\":\"[[[[,,,,,,,,,,,,,,,,,,,,,,,,,,\\\"[[[[[[\"}", 46, &small, &root, &diag), 0);
	json_decref(root);
	json_refused("{\"a\":\"x", -EBADMSG, "line 1");
	json_refused("{\"a\":\"x\\", -EBADMSG, "line 1");
	json_refused("[1]", -EBADMSG, "not a JSON object");
	json_refused("", -EBADMSG, "line");
	json_refused("{\"a\":1,\"a\":2}", -EBADMSG, "duplicate");
	json_refused("{\"a\":NaN}", -EBADMSG, "line 1");
	json_refused("{\"a\":1e999}", -EBADMSG, "line 1");
	json_refused("{\"a\":\"\\ud800\"}", -EBADMSG, "line 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_right_file_is_read_in_place),
		cmocka_unit_test(a_file_without_tensors_is_right),
		cmocka_unit_test(each_rule_of_the_format_is_checked),
		cmocka_unit_test(a_length_beyond_the_file_is_refused),
		cmocka_unit_test(names_of_1024_bytes_are_the_longest),
		cmocka_unit_test(json_has_limits),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
