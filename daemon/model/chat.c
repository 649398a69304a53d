// SPDX-License-Identifier: MIT
/*
 * chat.c - recognise the model's chat template and write prompts in its form. See chat.h.
 *
 * What each family looks like is the table in chat_family.c. A template is taken for a known one only if
 * all of its markers agree, its default system text is known, and the vocabulary has its control tokens:
 * a prompt in almost the right form makes a model worse without a word, so anything else is refused.
 *
 * A rendered prompt is cut into spans at control tokens and nowhere else. The template's own text
 * and the user's around it stay in one span, so that they are tokenised across their seam, as in training. The
 * leading BOS is left to SITS_TOK_ADD_BOS; it is written here only where the template has one and the
 * tokenizer adds none.
 */
#include "daemon/model/chat.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/chat_family.h"
#include "daemon/model/gguf.h"
#include "daemon/model/tok.h"

#define CHAT_SOURCE_MAX	(1u << 20)	/* ours; the longest seen are about 20 KiB */

/* tokenizer.ggml.token_type. Source: enum llama_token_type. */
#define TOKEN_CONTROL		3
#define TOKEN_USER_DEFINED	4

#define RAW_HINT "pass prompts as they are instead: sits run --raw, or /v1/completions"

/*
 * A template is a handle: its place in the array is twice the family's number, plus one where the prompt
 * starts with the BOS token.
 */
struct sits_chat_template {
	char unused;
};

static const struct sits_chat_template chat_handles[2 * SITS_CHAT_FAMILIES_MAX];

static const struct sits_chat_family *family_of(const struct sits_chat_template *t)
{
	return &sits_chat_families[(t - chat_handles) / 2];
}

static bool writes_bos(const struct sits_chat_template *t)
{
	return (t - chat_handles) % 2;
}

/* "\n" escapes, CR and CR LF to newlines, double quotes to single ones: all spellings occur, and Jinja makes no difference. */
static char *normalise(struct sits_str s)
{
	char *p = malloc(s.len + 1);
	size_t i, n = 0;

	if (!p)
		return NULL;
	for (i = 0; i < s.len; i++) {
		if (s.p[i] == '\\' && i + 1 < s.len && s.p[i + 1] == 'n') {
			p[n++] = '\n';
			i++;
		} else if (s.p[i] == '\r') {
			p[n++] = '\n';
			i += i + 1 < s.len && s.p[i + 1] == '\n';
		} else {
			p[n++] = s.p[i] == '"' ? '\'' : s.p[i];
		}
	}
	p[n] = '\0';
	return p;
}

static bool has_all(const char *src, const char *const *list, size_t nr)
{
	size_t i;

	for (i = 0; i < nr && list[i]; i++)
		if (!strstr(src, list[i]))
			return false;
	return true;
}

static bool has_none(const char *src, const char *const *list, size_t nr)
{
	size_t i;

	for (i = 0; i < nr && list[i]; i++)
		if (strstr(src, list[i]))
			return false;
	return true;
}

/*
 * Does every default system text in the source say what the family's does, or is there none? A default is a
 * literal right behind the mark; a quote there ends the literal, so that the text is the caller's.
 */
static bool default_agrees(const char *src, const struct sits_chat_family *f)
{
	static const char assigned[] = "set system_message = '";
	const char *p, *end;
	bool seen = false;

	if (!f->def_mark)
		return true;
	for (p = strstr(src, f->def_mark); p; p = strstr(p, f->def_mark)) {
		p += strlen(f->def_mark);
		p += strspn(p, "\n");
		if (*p == '\'' || *p == '{' || !*p)
			continue;
		end = strstr(p, f->def_end);
		if (!end || !f->def || (size_t)(end - p) != strlen(f->def) || memcmp(p, f->def, (size_t)(end - p)))
			return false;
		seen = true;
	}
	for (p = strstr(src, assigned); p; p = strstr(p, assigned)) {
		p += sizeof(assigned) - 1;
		if (*p != '\'')
			return false;
	}
	return seen == !!f->def;
}

static bool family_matches(const char *src, const struct sits_chat_family *f)
{
	return has_all(src, f->must, sizeof(f->must) / sizeof(f->must[0])) &&
	       has_none(src, f->not, sizeof(f->not) / sizeof(f->not[0])) && default_agrees(src, f);
}

/* Is the text a token that is recognised as such? -1: not a token, 0: an ordinary one, 1: yes. */
static int token_kind(const struct sits_gguf *g, const char *text, size_t len)
{
	struct sits_gguf_array tok, type;
	int32_t kind;
	uint64_t i;

	if (sits_gguf_get_array(g, "tokenizer.ggml.tokens", &tok) || tok.type != SITS_GGUF_STRING)
		return -1;
	for (i = 0; i < tok.nr; i++) {
		if (tok.strings[i].len != len || memcmp(tok.strings[i].p, text, len))
			continue;
		if (sits_gguf_get_array(g, "tokenizer.ggml.token_type", &type) || i >= type.nr ||
		    (type.type != SITS_GGUF_I32 && type.type != SITS_GGUF_U32))
			return 0;
		memcpy(&kind, (const char *)type.data + 4 * i, sizeof(kind));
		return kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED;
	}
	return -1;
}

/* Every control token in one of the family's strings. */
static int check_tokens(const struct sits_gguf *g, const struct sits_chat_family *f, const char *s,
			struct sits_diag *diag)
{
	const char *end;

	while (s && (s = strchr(s, SITS_CHAT_TOKEN))) {
		end = strchr(++s, SITS_CHAT_TOKEN_END);
		if (token_kind(g, s, (size_t)(end - s)) != 1)
			return sits_diag_fail(diag, -EPROTONOSUPPORT,
					      "chat template %s: %.*s is not a control token of this vocabulary; " RAW_HINT,
					      f->name, (int)(end - s), s);
		s = end;
	}
	return 0;
}

static int check_vocab(const struct sits_gguf *g, const struct sits_chat_family *f, struct sits_diag *diag)
{
	size_t i;
	int ret;

	for (i = 0; i < sizeof(f->plain) / sizeof(f->plain[0]) && f->plain[i]; i++)
		if (token_kind(g, f->plain[i], strlen(f->plain[i])) == 1)
			return sits_diag_fail(diag, -EPROTONOSUPPORT,
					      "chat template %s: %s is a control token of this vocabulary, but ordinary text in the form known; " RAW_HINT,
					      f->name, f->plain[i]);
	for (i = 0; i < 3; i++) {
		if (i == SITS_ROLE_SYSTEM && f->flags & CHAT_NO_SYSTEM)
			continue;
		ret = check_tokens(g, f, f->form[i].pre, diag);
		if (!ret)
			ret = check_tokens(g, f, f->form[i].post, diag);
		if (ret)
			return ret;
	}
	return check_tokens(g, f, f->open, diag);
}

/* bos_token or eos_token in the source: the model's must be the family's. */
static int check_edge(const struct sits_gguf *g, const struct sits_chat_family *f, const char *id_key,
		      const char *want, struct sits_diag *diag)
{
	struct sits_gguf_array tok;
	uint64_t id;

	if (!want || sits_gguf_get_u64(g, id_key, &id) || sits_gguf_get_array(g, "tokenizer.ggml.tokens", &tok) ||
	    tok.type != SITS_GGUF_STRING || id >= tok.nr || tok.strings[id].len != strlen(want) ||
	    memcmp(tok.strings[id].p, want, strlen(want)))
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "chat template %s: %s is not the token %s that its form is known with; " RAW_HINT, f->name,
				      id_key, want ? want : "(none)");
	return 0;
}

/* Will the tokenizer put BOS before the prompt? The same rule as in tokenizer.c. */
static bool tokenizer_adds_bos(const struct sits_gguf *g)
{
	const struct sits_tok_pre *pre = NULL;
	struct sits_str s;
	bool add;

	if (!sits_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &add))
		return add;
	if (!sits_gguf_get_str(g, "tokenizer.ggml.model", &s) && s.len == 5 && !memcmp(s.p, "llama", 5))
		return true;
	if (!sits_gguf_get_str(g, "tokenizer.ggml.pre", &s))
		pre = sits_tok_pre_find(s);
	return pre && pre->add_bos;
}

static int check_model(const struct sits_gguf *g, const struct sits_chat_family *f, const char *src, bool *bos,
		       struct sits_diag *diag)
{
	int ret;

	*bos = strstr(src, "bos_token") && !tokenizer_adds_bos(g);
	ret = check_vocab(g, f, diag);
	if (!ret && *bos)
		ret = check_edge(g, f, "tokenizer.ggml.bos_token_id", f->bos, diag);
	if (!ret && strstr(src, "eos_token") && f->eos)
		ret = check_edge(g, f, "tokenizer.ggml.eos_token_id", f->eos, diag);
	return ret;
}

int sits_chat_pick(const struct sits_gguf *g, const struct sits_chat_template **out, struct sits_diag *diag)
{
	struct sits_str s;
	bool bos = false;
	char *src;
	size_t i;
	int ret;

	ret = sits_gguf_get_str(g, "tokenizer.chat_template", &s);
	if (ret == -ENOENT)
		return sits_diag_fail(diag, ret, "the model has no chat template (tokenizer.chat_template); " RAW_HINT);
	if (ret || s.len > CHAT_SOURCE_MAX || memchr(s.p, '\0', s.len))
		return sits_diag_fail(diag, -EPROTONOSUPPORT,
				      "tokenizer.chat_template is not a text of at most %u bytes; " RAW_HINT, CHAT_SOURCE_MAX);
	src = normalise(s);
	if (!src)
		return sits_diag_fail(diag, -ENOMEM, "no memory for the chat template");
	for (i = 0; i < sits_chat_nr_families; i++)
		if (family_matches(src, &sits_chat_families[i]))
			break;
	if (i == sits_chat_nr_families)
		ret = sits_diag_fail(diag, -EPROTONOSUPPORT,
				     "tokenizer.chat_template is of no family known here; " RAW_HINT);
	else
		ret = check_model(g, &sits_chat_families[i], src, &bos, diag);
	free(src);
	if (!ret)
		*out = &chat_handles[2 * i + bos];
	return ret;
}

const char *sits_chat_name(const struct sits_chat_template *t)
{
	return family_of(t)->name;
}

/* The prompt while it grows: text, and runs of it that are control tokens or are not. */
struct chat_run {
	size_t start;
	int special;
};

struct chat_out {
	char *buf;
	size_t len, cap;
	struct chat_run *run;
	size_t nr, run_cap;
	int err;
};

static bool grow(void **p, size_t *cap, size_t need, size_t each)
{
	size_t n = *cap ? *cap : 64, bytes;
	void *q;

	if (need <= *cap)
		return true;
	while (n < need)
		if (__builtin_mul_overflow(n, (size_t)2, &n))
			return false;
	if (__builtin_mul_overflow(n, each, &bytes))
		return false;
	q = realloc(*p, bytes);
	if (!q)
		return false;
	*p = q;
	*cap = n;
	return true;
}

static void emit(struct chat_out *o, const char *p, size_t len, int special)
{
	size_t end;

	if (!len || o->err)
		return;
	if (__builtin_add_overflow(o->len, len, &end) || !grow((void **)&o->buf, &o->cap, end, 1) ||
	    !grow((void **)&o->run, &o->run_cap, o->nr + 1, sizeof(*o->run))) {
		o->err = -ENOMEM;
		return;
	}
	if (!o->nr || o->run[o->nr - 1].special != special)
		o->run[o->nr++] = (struct chat_run){ o->len, special };
	memcpy(o->buf + o->len, p, len);
	o->len = end;
}

/* A family's string, with its control tokens. */
static void emit_form(struct chat_out *o, const char *s)
{
	size_t n;

	while (*s) {
		if (*s == SITS_CHAT_TOKEN) {
			n = (size_t)(strchr(s, SITS_CHAT_TOKEN_END) - s) + 1;
			emit(o, s + 1, n - 2, 1);
		} else {
			n = strcspn(s, "\1");
			emit(o, s, n, 0);
		}
		s += n;
	}
}

/*
 * Bytes of the white space character at p, or 0: what Python's str.strip() drops, which Jinja's trim is.
 * Source: Unicode 15, bidirectional type WS, B or S, or category Zs.
 */
static size_t space_at(const char *s, size_t left)
{
	const uint8_t *p = (const uint8_t *)s;

	if (!left)
		return 0;
	if (p[0] == ' ' || (p[0] >= 0x09 && p[0] <= 0x0d) || (p[0] >= 0x1c && p[0] <= 0x1f))
		return 1;
	if (left >= 2 && p[0] == 0xc2 && (p[1] == 0x85 || p[1] == 0xa0))
		return 2;
	if (left < 3)
		return 0;
	if (p[0] == 0xe1 && p[1] == 0x9a && p[2] == 0x80)
		return 3;	/* U+1680 */
	if (p[0] == 0xe2 && p[1] == 0x80 && ((p[2] >= 0x80 && p[2] <= 0x8a) || p[2] == 0xa8 || p[2] == 0xa9 || p[2] == 0xaf))
		return 3;	/* U+2000 to 200A, 2028, 2029, 202F */
	if (p[0] == 0xe2 && p[1] == 0x81 && p[2] == 0x9f)
		return 3;	/* U+205F */
	if (p[0] == 0xe3 && p[1] == 0x80 && p[2] == 0x80)
		return 3;	/* U+3000 */
	return 0;
}

static void trim_left(struct sits_str *s)
{
	size_t n;

	while ((n = space_at(s->p, s->len))) {
		s->p += n;
		s->len -= n;
	}
}

static void trim_right(struct sits_str *s)
{
	size_t n;

	for (;;) {
		for (n = 1; n <= 3 && n <= s->len; n++)
			if (space_at(s->p + s->len - n, n) == n)
				break;
		if (n > 3 || n > s->len)
			return;
		s->len -= n;
	}
}

static const char THINK_END[] = "</think>";

/* Reasoning is not shown to the model again. */
static void cut_think(struct sits_str *s, uint32_t flags)
{
	const size_t n = sizeof(THINK_END) - 1;
	const char *p;
	bool cut = false;

	while ((p = memmem(s->p, s->len, THINK_END, n))) {
		p += n;
		s->len -= (size_t)(p - s->p);
		s->p = p;
		cut = true;
		if (flags & CHAT_CUT_THINK_FIRST)
			return;
	}
	while (cut && flags & CHAT_QWEN3 && s->len && *s->p == '\n') {
		s->p++;
		s->len--;
	}
}

struct chat_msgs {
	const struct sits_chat_family *f;
	const struct sits_chat_message *msg;
	size_t nr;
	size_t first;		/* 1 where msg[0] is a system message */
	struct sits_diag *diag;
};

static int check_alternate(const struct chat_msgs *m)
{
	size_t i;

	for (i = m->first; i < m->nr; i++)
		if (m->msg[i].role != ((i - m->first) % 2 ? SITS_ROLE_ASSISTANT : SITS_ROLE_USER))
			return sits_diag_fail(m->diag, -EINVAL,
					      "message %zu: in this model's form (%s) user and assistant messages take turns, after at most one system message",
					      i + 1, m->f->name);
	return 0;
}

static bool str_wrapped(const struct sits_chat_message *m, const char *head, const char *tail)
{
	return m->len >= strlen(head) && m->len >= strlen(tail) && !memcmp(m->text, head, strlen(head)) &&
	       !memcmp(m->text + m->len - strlen(tail), tail, strlen(tail));
}

/* An answer behind the last question would show its reasoning, in a form of its own; nothing needs that. */
static int check_qwen3(const struct chat_msgs *m)
{
	size_t i;

	for (i = m->nr; i-- > 0;) {
		if (m->msg[i].role == SITS_ROLE_ASSISTANT)
			return sits_diag_fail(m->diag, -EINVAL,
					      "message %zu: in this model's form (%s) no assistant message comes after the last question",
					      i + 1, m->f->name);
		if (m->msg[i].role == SITS_ROLE_USER &&
		    !str_wrapped(&m->msg[i], "<tool_response>", "</tool_response>"))
			break;
	}
	return 0;
}

static int check_order(const struct chat_msgs *m)
{
	const struct sits_chat_family *f = m->f;
	bool first_only = f->flags & (CHAT_ALTERNATE | CHAT_SYSTEM_FIRST);
	size_t i;

	if (!m->nr)
		return sits_diag_fail(m->diag, -EINVAL, "no messages");
	for (i = 0; i < m->nr; i++) {
		if (m->msg[i].role == SITS_ROLE_SYSTEM && (f->flags & CHAT_NO_SYSTEM || (i && first_only)))
			return sits_diag_fail(m->diag, -EINVAL, "message %zu: this model's form (%s) has no system message%s",
					      i + 1, f->name, f->flags & CHAT_NO_SYSTEM ? "" : " but as the first");
		if (m->msg[i].role > SITS_ROLE_ASSISTANT)
			return sits_diag_fail(m->diag, -EINVAL, "message %zu: unknown role %d", i + 1, (int)m->msg[i].role);
	}
	if (!m->first && f->flags & CHAT_NEED_SYSTEM)
		return sits_diag_fail(m->diag, -EINVAL,
				      "this model's template (%s) has a default system message that is not known here; give one",
				      f->name);
	if ((f->flags & CHAT_ALTERNATE || !*f->open) && m->msg[m->nr - 1].role != SITS_ROLE_USER)
		return sits_diag_fail(m->diag, -EINVAL, "message %zu: the last one must be the user's in this model's form (%s)",
				      m->nr, f->name);
	if (f->flags & CHAT_QWEN3)
		return check_qwen3(m);
	return f->flags & CHAT_ALTERNATE ? check_alternate(m) : 0;
}

/* @sys: written inside this user message, or NULL */
static void emit_message(struct chat_out *o, const struct chat_msgs *m, size_t i, const struct sits_chat_message *sys)
{
	const struct sits_chat_family *f = m->f;
	const struct sits_chat_form *form = &f->form[m->msg[i].role], *sf = &f->form[SITS_ROLE_SYSTEM];
	struct sits_str s = { m->msg[i].text, m->msg[i].len };

	emit_form(o, m->msg[i].role == SITS_ROLE_USER && i == m->first && f->first_pre ? f->first_pre : form->pre);
	if (sys) {
		emit_form(o, sf->pre);
		emit(o, sys->text, sys->len, 0);
		emit_form(o, sf->post);
	}
	if (m->msg[i].role == SITS_ROLE_ASSISTANT && f->flags & (CHAT_CUT_THINK_FIRST | CHAT_CUT_THINK_LAST))
		cut_think(&s, f->flags);
	if (form->trim) {
		/* llama2 strips the system text and the user's as one. */
		if (!sys || !f->first_pre)
			trim_left(&s);
		trim_right(&s);
	}
	emit(o, s.p, s.len, 0);
	emit_form(o, form->post);
}

static void emit_all(struct chat_out *o, const struct sits_chat_template *t, const struct chat_msgs *m)
{
	const struct sits_chat_family *f = m->f;
	bool inside = f->flags & (CHAT_SYSTEM_IN_FIRST | CHAT_SYSTEM_IN_LAST);
	size_t at = f->flags & CHAT_SYSTEM_IN_FIRST ? m->first : m->nr - 1, i;

	if (writes_bos(t))
		emit(o, f->bos, strlen(f->bos), 1);
	if (!m->first && f->def) {
		emit_form(o, f->form[SITS_ROLE_SYSTEM].pre);
		emit(o, f->def, strlen(f->def), 0);
		emit_form(o, f->form[SITS_ROLE_SYSTEM].post);
	}
	for (i = inside ? m->first : 0; i < m->nr; i++)
		emit_message(o, m, i, inside && m->first && i == at ? &m->msg[0] : NULL);
	emit_form(o, f->open);
}

/* Runs become spans; the text moves to the prompt. */
static int finish(struct chat_out *o, struct sits_chat_prompt *out)
{
	size_t i, end;

	if (!o->err) {
		out->span = calloc(o->nr ? o->nr : 1, sizeof(*out->span));
		if (!out->span)
			o->err = -ENOMEM;
	}
	if (o->err) {
		free(o->buf);
		free(o->run);
		return o->err;
	}
	for (i = 0; i < o->nr; i++) {
		end = i + 1 < o->nr ? o->run[i + 1].start : o->len;
		out->span[i].text = o->buf + o->run[i].start;
		out->span[i].len = end - o->run[i].start;
		out->span[i].special = o->run[i].special;
	}
	out->nr = o->nr;
	out->storage = o->buf;
	free(o->run);
	return 0;
}

int sits_chat_render(const struct sits_chat_template *t, const struct sits_chat_message *msg, size_t nr,
		     struct sits_chat_prompt *out, struct sits_diag *diag)
{
	struct chat_msgs m = { .f = family_of(t), .msg = msg, .nr = nr, .diag = diag };
	struct chat_out o = { 0 };
	int ret;

	memset(out, 0, sizeof(*out));
	m.first = nr && msg[0].role == SITS_ROLE_SYSTEM;
	ret = check_order(&m);
	if (ret)
		return ret;
	emit_all(&o, t, &m);
	ret = finish(&o, out);
	return ret ? sits_diag_fail(diag, ret, "no memory for the rendered prompt") : 0;
}

void sits_chat_prompt_fini(struct sits_chat_prompt *p)
{
	free(p->span);
	free(p->storage);
	memset(p, 0, sizeof(*p));
}
