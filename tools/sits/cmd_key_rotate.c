// SPDX-License-Identifier: MIT
/*
 * cmd_key_rotate.c - sits key rotate: change the key that files are under for a new one. The keys are sits_key_rotation_*()'s,
 * the files rekey_many.c's; here is the order, and what is said about it.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "sits/context.h"
#include "sits/rekey.h"
#include "tools/sits/cmd.h"
#include "tools/sits/cmd_key.h"
#include "tools/sits/rekey_many.h"

#define ID_TEXT (2 * SITS_KEY_ID_LEN + 1)

static json_t *key_json(const char *id, const char *spec)
{
	return json_pack("{s:o, s:o}", "key_id", id ? json_string(id) : json_null(), "key", tool_json_text(spec));
}

/* The keys, and what can be done with the old one now. @done: all files are under the new one, which is in its place. */
static json_t *report_keys(const struct key_args *a, const struct sits_key_rotation *rot, bool done)
{
	const char *kept = sits_key_rotation_kept_spec(rot), *old_at = done ? kept : a->operands[0];
	const char *new_at = sits_key_rotation_new_spec(rot);
	const struct sits_key *new_key = sits_key_rotation_new(rot);
	char old_id[ID_TEXT], new_id[ID_TEXT], safe[4200];

	tool_key_id(sits_key_rotation_old(rot), old_id);
	if (new_key)
		tool_key_id(new_key, new_id);
	if (!a->json && !a->quiet) {
		printf("old key    %s, at %s\n", old_id, tool_print_safe(old_at, safe, sizeof(safe)));
		printf("new key    %s, at %s\n", new_key ? new_id : "not made yet", tool_print_safe(new_at, safe, sizeof(safe)));
	}
	return json_pack("{s:o, s:o, s:o}", "old_key", key_json(old_id, old_at), "new_key", key_json(new_key ? new_id : NULL, new_at),
			 "new_key_id", new_key ? json_string(new_id) : json_null());
}

/* The old key is still needed, and so is the new one. @what: was done of it. */
static void say_not_done(const struct key_args *a, const struct sits_key_rotation *rot, const char *what)
{
	char old_id[ID_TEXT], new_id[ID_TEXT];

	tool_error(KEY_CMD, "%s: keep both keys, the old one (%s) at %s and the new one (%s) at %s, and run the same command again once what failed was mended, or moved away",
		   what, tool_key_id(sits_key_rotation_old(rot), old_id), a->operands[0],
		   tool_key_id(sits_key_rotation_new(rot), new_id), sits_key_rotation_new_spec(rot));
}

static int rotate(const struct key_args *a, struct sits_ctx *ctx, struct sits_key_rotation *rot)
{
	bool dry = a->flags & SITS_REKEY_DRY_RUN;
	struct rekey_many m = {
		.cmd = KEY_CMD,
		.ctx = ctx,
		.old_key = sits_key_rotation_old(rot),
		.new_key = sits_key_rotation_new(rot),
		.flags = a->flags,
		.threads = a->threads,
		.wait_s = a->wait_s,
		.json = a->json,
		.quiet = a->quiet,
	};
	int status, ret = 0;

	if (!m.new_key)
		m.new_key = m.old_key;	/* a dry run: no file can be under the one that is not made */
	status = rekey_many_run(&m, a->operands + 1, a->nr - 1);
	if (!status && !dry)
		ret = sits_key_rotation_commit(rot);
	if (ret)
		json_decref(tool_failure(KEY_CMD, a->operands[0], ret));
	if ((status || ret) && !dry)
		say_not_done(a, rot, status ? "not all files are under the new key" : "all files are under the new key, but it could not take its place");
	if (ret)
		status = 1;
	rekey_many_report(&m, !status, report_keys(a, rot, !status && !dry));
	return status;
}

int key_rotate(struct key_args *a)
{
	struct sits_key_rotation *rot = NULL;
	struct sits_ctx *ctx = NULL;
	int ret, status;

	tool_protect();
	status = tool_open(KEY_CMD, NULL, NULL, &ctx);
	if (status)
		return status;
	ret = sits_key_rotation_begin(ctx, a->operands[0], a->new_spec, a->flags & SITS_REKEY_DRY_RUN, &rot);
	status = ret ? tool_fail(KEY_CMD, "key", ret, a->json) : rotate(a, ctx, rot);
	sits_key_rotation_end(rot);
	sits_close(ctx);
	return status;
}
