// SPDX-License-Identifier: MIT
/*
 * manifest.c - see manifest.h.
 */
#include "daemon/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE	"SITS-DIRECTORY 1"
#define MAGIC		"SITS-DIRECTORY "

bool sits_manifest_name_ok(const char *p, size_t len)
{
	size_t i;

	if (!len || len > SITS_MANIFEST_NAME_MAX || *p == '.')
		return false;
	for (i = 0; i < len; i++)
		if (p[i] == '/' || (uint8_t)p[i] < 0x20 || p[i] == 0x7f)
			return false;
	return true;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_digest(const char *p, uint8_t digest[32])
{
	size_t i;

	for (i = 0; i < 32; i++) {
		if (digit(p[2 * i]) < 0 || digit(p[2 * i + 1]) < 0)
			return false;
		digest[i] = (uint8_t)(digit(p[2 * i]) << 4 | digit(p[2 * i + 1]));
	}
	return p[64] == ' ';
}

/* Digits without a leading zero, up to 2^62; @p goes behind the space that follows. */
static bool take_bytes(const char **p, const char *end, uint64_t *v)
{
	const char *s = *p;

	if (s == end || *s == '0')
		return false;
	for (*v = 0; s < end && *s >= '0' && *s <= '9'; s++) {
		if (*v > (UINT64_C(1) << 62) / 10 - 1)
			return false;
		*v = 10 * *v + (uint64_t)(*s - '0');
	}
	if (s == *p || s == end || *s != ' ')
		return false;
	*p = s + 1;
	return true;
}

/* One line without its end. Return: what is wrong, or NULL. */
static const char *take_line(const char *p, const char *end, struct sits_manifest_file *f)
{
	if (end - p < 66 || !take_digest(p, f->digest))
		return "no digest of 64 hexadecimal digits";
	p += 65;
	if (!take_bytes(&p, end, &f->bytes))
		return "no number of bytes";
	if (!sits_manifest_name_ok(p, (size_t)(end - p)))
		return "no name of a file";
	memcpy(f->name, p, (size_t)(end - p));
	f->name[end - p] = '\0';
	return NULL;
}

static int take_lines(const char *p, const char *end, struct sits_manifest *out, struct sits_diag *diag)
{
	const char *eol, *wrong;
	size_t line = 2;

	for (; p < end; p = eol + 1, line++) {
		eol = memchr(p, '\n', (size_t)(end - p));
		if (!eol || out->nr == SITS_MANIFEST_FILES_MAX)
			return sits_diag_fail(diag, -EBADMSG, SITS_MANIFEST_FILE ": line %zu: %s", line,
					      eol ? "more files than a load takes" : "it has no end");
		wrong = take_line(p, eol, &out->file[out->nr]);
		if (!wrong && out->nr && strcmp(out->file[out->nr - 1].name, out->file[out->nr].name) >= 0)
			wrong = "the names do not rise";
		if (wrong)
			return sits_diag_fail(diag, -EBADMSG, SITS_MANIFEST_FILE ": line %zu: %s", line, wrong);
		out->nr++;
	}
	return out->nr ? 0 : sits_diag_fail(diag, -EBADMSG, SITS_MANIFEST_FILE ": it names no files");
}

int sits_manifest_parse(const char *text, size_t len, struct sits_manifest *out, struct sits_diag *diag)
{
	const char *eol = memchr(text, '\n', len);
	size_t lines = 0, i;

	memset(out, 0, sizeof(*out));
	if (!eol || len > SITS_MANIFEST_BYTES_MAX || len < sizeof(MAGIC) || memcmp(text, MAGIC, sizeof(MAGIC) - 1))
		return sits_diag_fail(diag, -EBADMSG, SITS_MANIFEST_FILE ": not the manifest of a sealed directory");
	if ((size_t)(eol - text) != strlen(FIRST_LINE) || memcmp(text, FIRST_LINE, strlen(FIRST_LINE)))
		return sits_diag_fail(diag, -EPROTONOSUPPORT, SITS_MANIFEST_FILE ": line 1: \"%.*s\"; only version 1 is read here",
				      (int)(eol - text > 40 ? 40 : eol - text), text);
	for (i = 0; i < len; i++)
		lines += text[i] == '\n';
	if (lines > SITS_MANIFEST_FILES_MAX + 1)
		lines = SITS_MANIFEST_FILES_MAX + 1;
	out->file = calloc(lines, sizeof(*out->file));
	if (!out->file)
		return -ENOMEM;
	return take_lines(eol + 1, text + len, out, diag);
}

void sits_manifest_fini(struct sits_manifest *m)
{
	free(m->file);
	memset(m, 0, sizeof(*m));
}

int sits_manifest_write(const struct sits_manifest *m, char **text, size_t *len)
{
	size_t i, j, at, room = sizeof(FIRST_LINE) + 1 + m->nr * (64 + 1 + 20 + 1 + SITS_MANIFEST_NAME_MAX + 2);
	char *p = malloc(room);

	if (!p)
		return -ENOMEM;
	at = (size_t)sprintf(p, FIRST_LINE "\n");
	for (i = 0; i < m->nr; i++) {
		const struct sits_manifest_file *f = &m->file[i];

		if (!sits_manifest_name_ok(f->name, strlen(f->name)) || (i && strcmp(m->file[i - 1].name, f->name) >= 0)) {
			free(p);
			return -EINVAL;
		}
		for (j = 0; j < 32; j++)
			at += (size_t)sprintf(p + at, "%02x", f->digest[j]);
		at += (size_t)sprintf(p + at, " %" PRIu64 " %s\n", f->bytes, f->name);
	}
	*text = p;
	*len = at;
	return 0;
}

bool sits_manifest_is_weights(const char *name)
{
	static const char suffix[] = ".safetensors";
	size_t len = strlen(name), n = sizeof(suffix) - 1;

	return len > n && *name != '.' && !strcmp(name + len - n, suffix);
}

bool sits_manifest_is_model_file(const char *name)
{
	static const char *const others[] = {
		"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
		"model.safetensors.index.json",
	};
	size_t i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(name, others[i]))
			return true;
	return sits_manifest_is_weights(name);
}
