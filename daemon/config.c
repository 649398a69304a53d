// SPDX-License-Identifier: MIT
/*
 * config.c - see config.h.
 *
 * Three passes over a file. libyaml's events give the line of every key (and find keys given twice,
 * which libcyaml places wrongly); libcyaml checks the structure against the schema; then each value is
 * parsed here, because libcyaml 1.3 takes "10K" for 10 and any word for a true boolean.
 */
#include "daemon/config.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "daemon/engine/engine.h"
#include "daemon/engine/threads.h"
#include "daemon/ingress/ingress.h"
#include "kernels/kernels.h"
#include "sits/context.h"
#include "sits/infer.h"
#include "sits/queue.h"

#define FILE_MAX	(1u << 20)	/* bytes of a configuration file */
#define KEY_MAX		64		/* bytes of a dotted name */
#define LINE_MAX_BYTES	512
#define VALUE_MAX	4096		/* bytes of one value: PATH_MAX */
#define LOAD_THREADS_MAX 256		/* libsits starts no more to load a file */

enum value_type { T_TEXT, T_NAME, T_ISA, T_NUMBER, T_BYTES, T_TIME, T_CHOICE, T_MODE };

struct choice {
	const char *word;
	uint64_t value;
};

static const struct choice provider_words[] = {
	{ "auto", SITS_PROVIDER_AUTO }, { "kernel", SITS_PROVIDER_KERNEL }, { "user", SITS_PROVIDER_USER }, { 0 },
};
static const struct choice level_words[] = {
	{ "error", SITS_LOG_ERR }, { "warning", SITS_LOG_WARN }, { "info", SITS_LOG_INFO },
	{ "debug", SITS_LOG_DEBUG }, { 0 },
};
static const struct choice format_words[] = {
	{ "text", SITS_LOG_FORMAT_TEXT }, { "json", SITS_LOG_FORMAT_JSON }, { 0 },
};
static const struct choice kv_words[] = { { "f16", SITS_KV_F16 }, { "int8", SITS_KV_I8 }, { 0 } };
static const struct choice prefix_words[] = {
	{ "off", SITS_PREFIX_OFF }, { "user", SITS_PREFIX_USER }, { "all", SITS_PREFIX_ALL }, { 0 },
};
static const struct choice speculation_words[] = {
	{ "off", SITS_SPEC_OFF }, { "lookup", SITS_SPEC_LOOKUP }, { "draft", SITS_SPEC_DRAFT }, { 0 },
};
static const struct choice bool_words[] = {
	{ "true", 1 }, { "false", 0 }, { "yes", 1 }, { "no", 0 }, { "on", 1 }, { "off", 0 }, { 0 },
};

struct key {
	const char *section;		/* NULL: at the top */
	const char *name;
	enum value_type type;
	size_t off;			/* in struct sits_config */
	const char *dflt;		/* as written in a file; NULL: unset */
	uint64_t min, max;
	const struct choice *words;
	const char *unit;		/* of a number, for messages */
	bool can_auto;			/* "auto" and 0 are kept as 0: somebody else decides */
	bool reload;			/* a running daemon can take it over */
};

/* A key of a section, or of the top: name, type, where it is kept, default; then what its type needs. */
#define KEY(sec, key, t, member, d, ...) \
	{ .section = sec, .name = key, .type = t, .off = offsetof(struct sits_config, member), .dflt = d, __VA_ARGS__ }
#define RANGE(lo, hi) .min = lo, .max = hi
#define BOOLEAN .words = bool_words

/* Keys of one section stand together: a section is a run of this table. */
static const struct key keys[] = {
	KEY(NULL, "provider", T_CHOICE, provider, "auto", .words = provider_words),
	KEY(NULL, "run_dir", T_TEXT, run_dir, "/run/sits",),
	KEY(NULL, "state_dir", T_TEXT, state_dir, "/var/lib/sits",),
	KEY(NULL, "drain_timeout", T_TIME, drain_timeout_ms, "30s", RANGE(0, 86400000), .reload = true),

	KEY("memory", "require_locked", T_CHOICE, memory.require_locked, "true", BOOLEAN),
	KEY("memory", "require_huge", T_CHOICE, memory.require_huge, "false", BOOLEAN),

	KEY("queue", "name", T_NAME, queue.name, "infer",),
	KEY("queue", "depth", T_NUMBER, queue.depth, "256", RANGE(1, 65536), .unit = "requests"),
	KEY("queue", "per_client", T_NUMBER, queue.per_client, "64", RANGE(1, 65536), .unit = "requests"),
	KEY("queue", "max_clients", T_NUMBER, queue.max_clients, "128", RANGE(1, 4096), .unit = "clients"),
	KEY("queue", "mode", T_MODE, queue.mode, "0660", RANGE(0, 0777)),
	KEY("queue", "chunk_backlog", T_BYTES, queue.chunk_backlog, "1M", RANGE(4096, 1u << 30)),

	KEY("model", "path", T_TEXT, model.path, NULL,),
	KEY("model", "key", T_TEXT, model.key, NULL,),
	KEY("model", "id", T_TEXT, model.id, NULL,),
	KEY("model", "draft_path", T_TEXT, model.draft_path, NULL,),
	KEY("model", "min_version", T_NUMBER, model.min_version, "0", RANGE(0, UINT64_MAX)),
	KEY("model", "allow_ecb", T_CHOICE, model.allow_ecb, "false", BOOLEAN),
	KEY("model", "load_threads", T_NUMBER, model.load_threads, "auto", RANGE(1, LOAD_THREADS_MAX), .unit = "threads",
	    .can_auto = true),
	KEY("model", "buffered", T_CHOICE, model.buffered, "false", BOOLEAN),

	KEY("engine", "threads", T_NUMBER, engine.threads, "auto", RANGE(1, SITS_THREADS_MAX), .unit = "threads", .can_auto = true),
	KEY("engine", "max_seqs", T_NUMBER, engine.max_seqs, "64", RANGE(1, 4096), .unit = "requests"),
	KEY("engine", "token_budget", T_NUMBER, engine.token_budget, "256", RANGE(1, 65536), .unit = "tokens"),
	KEY("engine", "context", T_NUMBER, engine.context, "auto", RANGE(2, 1u << 24), .unit = "tokens",
	    .can_auto = true),
	KEY("engine", "kv_bytes", T_BYTES, engine.kv_bytes, "auto", RANGE(65536, 1ull << 50), .can_auto = true),
	KEY("engine", "pin", T_CHOICE, engine.pin, "true", BOOLEAN),
	KEY("engine", "isa", T_ISA, engine.isa, "auto",),
	KEY("engine", "kv_type", T_CHOICE, engine.kv_type, "f16", .words = kv_words),
	KEY("engine", "kv_limit_realtime", T_BYTES, engine.kv_limit[SITS_CLASS_REALTIME], "1200M",
	    RANGE(65536, 1ull << 50), .can_auto = true),
	KEY("engine", "kv_limit_guaranteed", T_BYTES, engine.kv_limit[SITS_CLASS_GUARANTEED], "2000M",
	    RANGE(65536, 1ull << 50), .can_auto = true),
	KEY("engine", "kv_limit_besteffort", T_BYTES, engine.kv_limit[SITS_CLASS_BESTEFFORT], "auto",
	    RANGE(65536, 1ull << 50), .can_auto = true),
	KEY("engine", "kv_keep", T_NUMBER, engine.kv_keep, "0", RANGE(0, 1u << 24), .unit = "tokens"),
	KEY("engine", "prefix_cache", T_CHOICE, engine.prefix_cache, "user", .words = prefix_words),
	KEY("engine", "speculation", T_CHOICE, engine.speculation, "lookup", .words = speculation_words),
	KEY("engine", "draft_tokens", T_NUMBER, engine.draft_tokens, "8", RANGE(1, 64), .unit = "tokens"),
	KEY("engine", "moe_temperature", T_NUMBER, engine.moe_temperature, "100", RANGE(1, 10000), .unit = "percent"),
	KEY("engine", "moe_capacity", T_NUMBER, engine.moe_capacity, "0", RANGE(0, 100000), .unit = "percent"),
	KEY("engine", "moe_balance", T_NUMBER, engine.moe_balance, "0", RANGE(0, 1000000), .unit = "millionths"),
	KEY("engine", "route_patterns", T_NUMBER, engine.route_patterns, "0", RANGE(0, 65536), .unit = "patterns"),

	KEY("limits", "max_tokens", T_NUMBER, limits.max_tokens, "auto", RANGE(1, 1u << 24), .unit = "tokens",
	    .can_auto = true, .reload = true),
	KEY("limits", "max_prompt_tokens", T_NUMBER, limits.max_prompt_tokens, "auto", RANGE(1, 1u << 24),
	    .unit = "tokens", .can_auto = true, .reload = true),

	KEY("log", "level", T_CHOICE, log.level, "info", .words = level_words, .reload = true),
	KEY("log", "format", T_CHOICE, log.format, "text", .words = format_words, .reload = true),
};

#define NR_KEYS (sizeof(keys) / sizeof(keys[0]))

/* ------------------------------------------------------------------ helpers */

struct reporter {
	sits_config_report_fn fn;
	void *arg;
	const char *where;	/* file name or option */
	size_t nr;
};

static void report(struct reporter *r, size_t line, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void report(struct reporter *r, size_t line, const char *key, const char *fmt, ...)
{
	char what[LINE_MAX_BYTES], msg[2 * LINE_MAX_BYTES], pos[32] = "";
	va_list ap;

	r->nr++;
	if (!r->fn)
		return;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (line)
		snprintf(pos, sizeof(pos), ":%zu", line);
	snprintf(msg, sizeof(msg), "%.400s%s: %s%s%s", r->where, pos, key ? key : "", key ? ": " : "", what);
	/* It quotes the file, and may go to a terminal. */
	for (char *p = msg; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	r->fn(r->arg, msg);
}

static bool is_text(const struct key *k)
{
	return k->type == T_TEXT || k->type == T_NAME || k->type == T_ISA;
}

static char **text_at(const struct sits_config *c, const struct key *k)
{
	return (char **)((char *)c + k->off);
}

static uint64_t *number_at(const struct sits_config *c, const struct key *k)
{
	return (uint64_t *)((char *)c + k->off);
}

static const char *key_name(const struct key *k, char *buf, size_t len)
{
	snprintf(buf, len, "%s%s%s", k->section ? k->section : "", k->section ? "." : "", k->name);
	return buf;
}

static const struct key *find_key(const char *dotted)
{
	char buf[KEY_MAX];

	for (size_t i = 0; i < NR_KEYS; i++)
		if (!strcmp(key_name(&keys[i], buf, sizeof(buf)), dotted))
			return &keys[i];
	return NULL;
}

/* "name, depth, ..." of one section; with section NULL also the sections themselves. */
static void list_keys(const char *section, char *out, size_t len)
{
	const char *last = NULL;
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < NR_KEYS && n < len; i++) {
		const char *word = keys[i].name;

		if (section && (!keys[i].section || strcmp(keys[i].section, section)))
			continue;
		if (!section && keys[i].section) {
			if (last && !strcmp(last, keys[i].section))
				continue;
			word = last = keys[i].section;
		}
		n += snprintf(out + n, len - n, "%s%s", n ? ", " : "", word);
	}
}

/* ------------------------------------------------------------------ values */

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit no_units[] = { { "", 1 }, { 0 } };
static const struct unit byte_units[] = {
	{ "", 1 }, { "B", 1 }, { "K", 1ull << 10 }, { "KiB", 1ull << 10 }, { "M", 1ull << 20 }, { "MiB", 1ull << 20 },
	{ "G", 1ull << 30 }, { "GiB", 1ull << 30 }, { "T", 1ull << 40 }, { "TiB", 1ull << 40 }, { 0 },
};
static const struct unit time_units[] = {	/* kept in milliseconds; a bare number is seconds */
	{ "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "min", 60000 }, { "h", 3600000 }, { 0 },
};

/* All of @s as digits and a suffix from the table. Return: 0; -EINVAL no number or unknown suffix; -ERANGE. */
static int parse_scaled(const char *s, const struct unit *units, uint64_t *v)
{
	uint64_t n;
	char *end;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(s, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end == ' ' && end[1])
		end++;
	for (const struct unit *u = units; u->suffix; u++)
		if (!strcmp(end, u->suffix))
			return __builtin_mul_overflow(n, u->factor, v) ? -ERANGE : 0;
	return -EINVAL;
}

static void format_bytes(uint64_t v, char *buf, size_t len)
{
	static const char suffix[] = { 'T', 'G', 'M', 'K' };

	for (size_t i = 0; i < sizeof(suffix); i++) {
		uint64_t unit = 1ull << (40 - 10 * i);

		if (v && v % unit == 0) {
			snprintf(buf, len, "%" PRIu64 "%c", v / unit, suffix[i]);
			return;
		}
	}
	snprintf(buf, len, "%" PRIu64, v);
}

static void format_number(const struct key *k, uint64_t v, char *buf, size_t len)
{
	if (k->type == T_BYTES)
		format_bytes(v, buf, len);
	else if (k->type == T_TIME)
		snprintf(buf, len, v % 1000 ? "%" PRIu64 "ms" : "%" PRIu64 "s", v % 1000 ? v : v / 1000);
	else if (k->type == T_MODE)
		snprintf(buf, len, "%04" PRIo64, v);
	else
		snprintf(buf, len, "%" PRIu64, v);
}

/* The value as a file would have it. */
static void format_value(const struct sits_config *c, const struct key *k, char *buf, size_t len)
{
	uint64_t v;

	if (is_text(k)) {
		snprintf(buf, len, "%s", *text_at(c, k) ? *text_at(c, k) : "");
		return;
	}
	v = *number_at(c, k);
	if (k->can_auto && !v) {
		snprintf(buf, len, "auto");
		return;
	}
	for (const struct choice *w = k->words; w && w->word; w++) {
		if (w->value == v) {
			snprintf(buf, len, "%s", w->word);
			return;
		}
	}
	format_number(k, v, buf, len);
}

static int set_number(const struct key *k, const char *s, uint64_t *v, struct reporter *r, size_t line, const char *name)
{
	const struct unit *units = k->type == T_BYTES ? byte_units : k->type == T_TIME ? time_units : no_units;
	const char *how = k->type == T_BYTES ? "a number of bytes, such as 65536, 64K, 512M or 2G" :
			  k->type == T_TIME ? "a time, such as 30s, 500ms or 2m (a bare number is seconds)" :
			  "a whole number";
	char lo[32], hi[32];
	uint64_t n = 0;
	int ret;

	if (k->can_auto && (!strcmp(s, "auto") || !strcmp(s, "0"))) {
		*v = 0;
		return 0;
	}
	ret = parse_scaled(s, units, &n);
	if (ret == -EINVAL) {
		report(r, line, name, "'%.64s' is not %s%s", s, how, k->can_auto ? ", nor 'auto'" : "");
		return ret;
	}
	if (ret || n < k->min || n > k->max) {
		format_number(k, k->min, lo, sizeof(lo));
		format_number(k, k->max, hi, sizeof(hi));
		report(r, line, name, "'%.64s' is out of range: %s to %s%s%s%s", s, lo, hi, k->unit ? " " : "",
		       k->unit ? k->unit : "", k->can_auto ? ", or 'auto'" : "");
		return -EINVAL;
	}
	*v = n;
	return 0;
}

static int set_mode(const struct key *k, const char *s, uint64_t *v, struct reporter *r, size_t line, const char *name)
{
	size_t len = strlen(s);

	if (len < 3 || len > 4 || strspn(s, "01234567") != len || strtoul(s, NULL, 8) > k->max) {
		report(r, line, name, "'%.64s' is not a file mode in octal, such as 0660", s);
		return -EINVAL;
	}
	*v = strtoul(s, NULL, 8);
	return 0;
}

static int set_choice(const struct key *k, const char *s, uint64_t *v, struct reporter *r, size_t line, const char *name)
{
	char words[128] = "";
	size_t n = 0;

	for (const struct choice *w = k->words; w->word; w++) {
		if (!strcmp(w->word, s)) {
			*v = w->value;
			return 0;
		}
		n += snprintf(words + n, sizeof(words) - n, "%s%s", n ? ", " : "", w->word);
	}
	report(r, line, name, "'%.64s' is not one of: %s", s, words);
	return -EINVAL;
}

/* Any that this build has: whether this machine runs it, the engine finds out. */
static int check_isa(const char *s, struct reporter *r, size_t line, const char *name)
{
	char names[128];

	if (!strcmp(s, "auto") || sits_backend_exists(s))
		return 0;
	report(r, line, name, "'%.64s' is not one of: auto, %s", s, sits_backend_names(names, sizeof(names)));
	return -EINVAL;
}

static int set_text(const struct key *k, const char *s, char **v, struct reporter *r, size_t line, const char *name)
{
	size_t len = strlen(s);
	char *copy;

	if (!len) {
		report(r, line, name, "must not be empty");
		return -EINVAL;
	}
	if (k->type == T_NAME && (len >= SITS_QUEUE_NAME_MAX || s[0] == '.' ||
	    strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") != len)) {
		report(r, line, name, "'%.64s' is not a name: 1 to %d of A-Z a-z 0-9 _ . -, not starting with '.'", s,
		       SITS_QUEUE_NAME_MAX - 1);
		return -EINVAL;
	}
	if (k->type == T_ISA && check_isa(s, r, line, name))
		return -EINVAL;
	if (len >= VALUE_MAX) {
		report(r, line, name, "is longer than %d bytes", VALUE_MAX - 1);
		return -EINVAL;
	}
	copy = strdup(s);
	if (!copy) {
		report(r, line, name, "out of memory");
		return -ENOMEM;
	}
	free(*v);
	*v = copy;
	return 0;
}

static int set_value(struct sits_config *c, const struct key *k, const char *s, struct reporter *r, size_t line)
{
	char name[KEY_MAX];

	key_name(k, name, sizeof(name));
	switch (k->type) {
	case T_TEXT:
	case T_NAME:
	case T_ISA:
		return set_text(k, s, text_at(c, k), r, line, name);
	case T_MODE:
		return set_mode(k, s, number_at(c, k), r, line, name);
	case T_CHOICE:
		return set_choice(k, s, number_at(c, k), r, line, name);
	default:
		return set_number(k, s, number_at(c, k), r, line, name);
	}
}

/* ------------------------------------------------------------------ lines of keys */

#define INDEX_MAX	256		/* keys in a file: more than the schema has */

struct line_index {
	struct {
		char path[KEY_MAX];
		size_t line;
	} key[INDEX_MAX];
	size_t nr;
};

static size_t line_of(const struct line_index *ix, const char *path)
{
	for (size_t i = 0; i < ix->nr; i++)
		if (!strcmp(ix->key[i].path, path))
			return ix->key[i].line;
	return 0;
}

static int index_add(struct line_index *ix, const char *path, size_t line, struct reporter *r)
{
	size_t first = line_of(ix, path);

	if (first) {
		report(r, line, path, "is given twice; the first is on line %zu", first);
		return -EINVAL;
	}
	if (ix->nr == INDEX_MAX) {
		report(r, line, path, "more than %d keys", INDEX_MAX);
		return -EINVAL;
	}
	snprintf(ix->key[ix->nr].path, KEY_MAX, "%s", path);
	ix->key[ix->nr++].line = line;
	return 0;
}

/* Where in the nesting the events are. Only mappings two deep matter; what is deeper is skipped, as
 * libcyaml refuses it with words of its own. */
struct walk {
	struct line_index *ix;
	struct reporter *r;
	char section[KEY_MAX];
	int depth, documents;
	bool want_value[3];	/* by depth: a key was seen, its value comes next */
	bool sequence;		/* depth counts sequences too; no key stands directly in one */
};

static int walk_scalar(struct walk *w, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;
	size_t line = ev->start_mark.line + 1;
	char path[KEY_MAX];
	int ret;

	if (strlen(text) != ev->data.scalar.length) {
		report(w->r, line, NULL, "a NUL byte in a value");
		return -EINVAL;
	}
	if (w->depth < 1 || w->depth > 2 || w->sequence)
		return 0;
	if (w->want_value[w->depth]) {
		w->want_value[w->depth] = false;
		return 0;
	}
	w->want_value[w->depth] = true;
	if (w->depth == 1)
		snprintf(w->section, sizeof(w->section), "%s", text);
	snprintf(path, sizeof(path), "%.30s%s%.30s", w->depth == 2 ? w->section : "", w->depth == 2 ? "." : "", text);
	ret = index_add(w->ix, path, line, w->r);
	return ret;
}

static int walk_open(struct walk *w, size_t line, bool sequence)
{
	if (w->depth >= 1 && w->depth <= 2 && !w->sequence) {
		if (!w->want_value[w->depth]) {
			report(w->r, line, NULL, "a key must be a single word");
			return -EINVAL;
		}
		w->want_value[w->depth] = false;
	}
	w->sequence |= sequence;
	if (++w->depth > 16) {
		report(w->r, line, NULL, "nested too deep");
		return -EINVAL;
	}
	if (w->depth <= 2)
		w->want_value[w->depth] = false;
	return 0;
}

static int walk_event(struct walk *w, const yaml_event_t *ev)
{
	size_t line = ev->start_mark.line + 1;

	switch (ev->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (!w->documents++)
			return 0;
		report(w->r, line, NULL, "a second YAML document; one is expected");
		return -EINVAL;
	case YAML_ALIAS_EVENT:
		report(w->r, line, NULL, "YAML aliases are not taken");
		return -EINVAL;
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		return walk_open(w, line, ev->type == YAML_SEQUENCE_START_EVENT);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		w->depth--;
		return 0;
	case YAML_SCALAR_EVENT:
		return walk_scalar(w, ev);
	default:
		return 0;
	}
}

static int index_lines(const char *text, size_t len, struct line_index *ix, struct reporter *r)
{
	struct walk w = { .ix = ix, .r = r };
	yaml_parser_t parser;
	yaml_event_t ev;
	bool end = false;
	int ret = 0;

	if (!yaml_parser_initialize(&parser))
		return -ENOMEM;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	while (!end && !ret) {
		if (!yaml_parser_parse(&parser, &ev)) {
			ret = parser.problem ? -EINVAL : -ENOMEM;
			if (parser.problem)
				report(r, parser.problem_mark.line + 1, NULL, "not valid YAML: %s", parser.problem);
			break;
		}
		end = ev.type == YAML_STREAM_END_EVENT;
		ret = walk_event(&w, &ev);
		yaml_event_delete(&ev);
	}
	yaml_parser_delete(&parser);
	return ret;
}

/* ------------------------------------------------------------------ libcyaml */

/* What libcyaml loads into: the text of each key in table order, NULL where it is not in the file. */
struct raw {
	char *text[NR_KEYS];
};

struct schema {
	cyaml_schema_value_t top;
	cyaml_schema_field_t field[2 * NR_KEYS + 1];	/* top level, then each section, each with its end */
	cyaml_schema_field_t section[NR_KEYS][NR_KEYS + 1];
};

static cyaml_schema_field_t text_field(const char *name, size_t offset)
{
	cyaml_schema_field_t f = { .key = name, .data_offset = (uint32_t)offset };

	f.value.type = CYAML_STRING;
	f.value.flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL;
	f.value.data_size = 1;
	f.value.string.min = 0;
	f.value.string.max = FILE_MAX;
	return f;
}

static void build_schema(struct schema *s)
{
	size_t nr_top = 0, nr_sections = 0;

	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < NR_KEYS;) {
		cyaml_schema_field_t *sec, f = { 0 };
		size_t j = i;

		if (!keys[i].section) {
			s->field[nr_top++] = text_field(keys[i].name, i * sizeof(char *));
			i++;
			continue;
		}
		sec = s->section[nr_sections++];
		for (; j < NR_KEYS && keys[j].section && !strcmp(keys[j].section, keys[i].section); j++)
			sec[j - i] = text_field(keys[j].name, (j - i) * sizeof(char *));
		f.key = keys[i].section;
		f.data_offset = (uint32_t)(i * sizeof(char *));
		f.value.type = CYAML_MAPPING;
		f.value.flags = CYAML_FLAG_OPTIONAL;
		f.value.data_size = (uint32_t)((j - i) * sizeof(char *));
		f.value.mapping.fields = sec;
		s->field[nr_top++] = f;
		i = j;
	}
	s->top.type = CYAML_MAPPING;
	s->top.flags = CYAML_FLAG_POINTER;
	s->top.data_size = sizeof(struct raw);
	s->top.mapping.fields = s->field;
}

/* libcyaml's message and the names of its backtrace, innermost first. */
struct cyaml_words {
	char what[LINE_MAX_BYTES];
	char field[4][KEY_MAX];
	size_t nr_fields;
};

__attribute__((format(printf, 3, 0)))
static void cyaml_hear(cyaml_log_t level, void *ctx, const char *fmt, va_list ap)
{
	static const char in_field[] = "  in mapping field '";
	struct cyaml_words *w = ctx;
	char line[LINE_MAX_BYTES];
	char *p, *end;

	if (level < CYAML_LOG_ERROR)
		return;
	vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	p = !strncmp(line, "Load: ", 6) ? line + 6 : line;
	if (!strncmp(p, in_field, sizeof(in_field) - 1)) {
		p += sizeof(in_field) - 1;
		end = strchr(p, '\'');
		if (end && w->nr_fields < 4)
			snprintf(w->field[w->nr_fields++], KEY_MAX, "%.*s", (int)(end - p), p);
	} else if (!w->what[0] && strcmp(p, "Backtrace:") && strncmp(p, "  in ", 5)) {
		snprintf(w->what, sizeof(w->what), "%s", p);
	}
}

static void explain_cyaml(const struct cyaml_words *w, cyaml_err_t err, const struct line_index *ix, struct reporter *r)
{
	static const char unexpected[] = "Unexpected key: ";
	char path[2 * KEY_MAX] = "", known[LINE_MAX_BYTES];

	for (size_t i = w->nr_fields; i-- > 0;) {
		size_t n = strlen(path);

		snprintf(path + n, sizeof(path) - n, "%s%s", n ? "." : "", w->field[i]);
	}
	if (!strncmp(w->what, unexpected, sizeof(unexpected) - 1)) {
		const char *section = w->nr_fields ? w->field[w->nr_fields - 1] : NULL;
		size_t n = strlen(path);

		list_keys(section, known, sizeof(known));
		snprintf(path + n, sizeof(path) - n, "%s%.63s", n ? "." : "", w->what + sizeof(unexpected) - 1);
		report(r, line_of(ix, path), path, "unknown key; known here: %s", known);
		return;
	}
	if (strstr(w->what, "Expecting MAPPING"))
		report(r, line_of(ix, path), path[0] ? path : NULL,
		       path[0] ? "is a section: its keys come indented below it, with values" :
		       "the file must be a mapping of keys to values");
	else if (strstr(w->what, "Expecting STRING"))
		report(r, line_of(ix, path), path, "takes one value, not a list or a section");
	else
		report(r, line_of(ix, path), path[0] ? path : NULL, "%s", w->what[0] ? w->what : cyaml_strerror(err));
}

/* index_lines() has seen that the file is YAML: what libyaml can't do in libcyaml's pass over it is to get memory. It has no words for that. */
static bool is_out_of_memory(cyaml_err_t err)
{
	return err == CYAML_ERR_OOM || err == CYAML_ERR_LIBYAML_PARSER_INIT || err == CYAML_ERR_LIBYAML_PARSER;
}

static void free_raw(struct raw *raw)
{
	for (size_t i = 0; raw && i < NR_KEYS; i++)
		free(raw->text[i]);
	free(raw);
}

static int load_raw(const char *text, size_t len, const struct line_index *ix, struct reporter *r, struct raw **out)
{
	struct cyaml_words words = { 0 };
	cyaml_config_t cfg = {
		.log_fn = cyaml_hear, .log_ctx = &words, .mem_fn = cyaml_mem,
		.log_level = CYAML_LOG_WARNING, .flags = CYAML_CFG_NO_ALIAS,
	};
	struct schema *schema = malloc(sizeof(*schema));
	cyaml_data_t *data = NULL;
	cyaml_err_t err;

	if (!schema)
		return -ENOMEM;
	build_schema(schema);
	err = cyaml_load_data((const uint8_t *)text, len, &cfg, &schema->top, &data, NULL);
	free(schema);
	if (is_out_of_memory(err))
		return -ENOMEM;
	if (err != CYAML_OK) {
		explain_cyaml(&words, err, ix, r);
		return -EINVAL;
	}
	*out = data;
	return 0;
}

/* ------------------------------------------------------------------ public */

int sits_config_init(struct sits_config *c)
{
	struct reporter r = { .where = "defaults" };
	int ret;

	memset(c, 0, sizeof(*c));
	for (size_t i = 0; i < NR_KEYS; i++) {
		if (!keys[i].dflt)
			continue;
		ret = set_value(c, &keys[i], keys[i].dflt, &r, 0);
		if (ret) {
			sits_config_fini(c);
			return ret;
		}
	}
	return 0;
}

void sits_config_fini(struct sits_config *c)
{
	for (size_t i = 0; i < NR_KEYS; i++)
		if (is_text(&keys[i]))
			free(*text_at(c, &keys[i]));
	memset(c, 0, sizeof(*c));
}

int sits_config_load_text(struct sits_config *c, const char *text, size_t len, const char *name,
			  sits_config_report_fn fn, void *arg)
{
	struct reporter r = { .fn = fn, .arg = arg, .where = name };
	struct line_index *ix = calloc(1, sizeof(*ix));
	struct raw *raw = NULL;
	char path[KEY_MAX];
	int ret;

	ret = ix ? index_lines(text, len, ix, &r) : -ENOMEM;
	if (!ret)
		ret = load_raw(text, len, ix, &r, &raw);
	for (size_t i = 0; !ret && raw && i < NR_KEYS; i++)
		if (raw->text[i] && set_value(c, &keys[i], raw->text[i], &r, line_of(ix, key_name(&keys[i], path, sizeof(path)))) == -ENOMEM)
			ret = -ENOMEM;
	free_raw(raw);
	free(ix);
	if (ret == -ENOMEM && !r.nr)
		report(&r, 0, NULL, "out of memory");
	return ret ? ret : r.nr ? -EINVAL : 0;
}

/* Read all of a regular file of at most FILE_MAX bytes. */
static int read_file(const char *path, char **out, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	char *buf;
	ssize_t n;
	int ret;

	if (fd < 0)
		return -errno;
	ret = fstat(fd, &st) ? -errno : S_ISDIR(st.st_mode) ? -EISDIR : !S_ISREG(st.st_mode) ? -EINVAL :
	      st.st_size > FILE_MAX ? -EFBIG : 0;
	buf = ret ? NULL : malloc(FILE_MAX + 1);
	if (!ret && !buf)
		ret = -ENOMEM;
	*len = 0;
	while (!ret) {
		n = read(fd, buf + *len, FILE_MAX + 1 - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			ret = -errno;
		if (n <= 0)
			break;
		*len += (size_t)n;
		if (*len > FILE_MAX)
			ret = -EFBIG;
	}
	close(fd);
	if (ret) {
		free(buf);
		return ret;
	}
	*out = buf;
	return 0;
}

int sits_config_load_file(struct sits_config *c, const char *path, sits_config_report_fn fn, void *arg)
{
	struct reporter r = { .fn = fn, .arg = arg, .where = path };
	char *text = NULL;
	size_t len = 0;
	int ret = read_file(path, &text, &len);

	if (ret) {
		report(&r, 0, NULL, "%s", ret == -EFBIG ? "larger than 1 MiB: not a configuration" :
		       ret == -EINVAL ? "not a regular file" :
		       ret == -ENOENT ? "No such file or directory; --config names another, and sitsd.yaml(5) has one to start from" :
		       strerror(-ret));
		return ret;
	}
	ret = sits_config_load_text(c, text, len, path, fn, arg);
	free(text);
	return ret;
}

int sits_config_set(struct sits_config *c, const char *key, const char *value, const char *origin,
		    sits_config_report_fn fn, void *arg)
{
	struct reporter r = { .fn = fn, .arg = arg, .where = origin };
	const struct key *k = find_key(key);

	if (!k) {
		report(&r, 0, key, "unknown key");
		return -EINVAL;
	}
	return set_value(c, k, value, &r, 0);
}

int sits_config_check(const struct sits_config *c, const char *name, sits_config_report_fn fn, void *arg)
{
	struct reporter r = { .fn = fn, .arg = arg, .where = name };

	if (!c->model.path)
		report(&r, 0, "model.path", "is required: the sealed model file or directory (made with 'sits seal')");
	if (!c->model.key)
		report(&r, 0, "model.key", "is required: file:PATH or keyring:NAME (made with 'sits key new')");
	else if (strncmp(c->model.key, "file:", 5) && strncmp(c->model.key, "keyring:", 8))
		/* Whatever stands there may be a key itself: it is not repeated. */
		report(&r, 0, "model.key", "must be file:PATH or keyring:NAME; key bytes never stand in a configuration");
	if (c->queue.per_client > c->queue.depth)
		report(&r, 0, "queue.per_client", "%" PRIu64 " is more than queue.depth, %" PRIu64, c->queue.per_client,
		       c->queue.depth);
	if (c->engine.token_budget < c->engine.max_seqs)
		report(&r, 0, "engine.token_budget", "%" PRIu64 " is less than engine.max_seqs, %" PRIu64 ": each running request "
		       "takes one in a step", c->engine.token_budget, c->engine.max_seqs);
	if (c->engine.kv_keep && c->engine.kv_keep < SITS_KV_KEEP_LEAST)
		report(&r, 0, "engine.kv_keep", "%" PRIu64 " is less than %d tokens, which each head keeps; 0 keeps all",
		       c->engine.kv_keep, SITS_KV_KEEP_LEAST);
	if (c->engine.speculation == SITS_SPEC_DRAFT && !c->model.draft_path)
		report(&r, 0, "model.draft_path", "is required with engine.speculation: draft");
	if (c->engine.speculation != SITS_SPEC_DRAFT && c->model.draft_path)
		report(&r, 0, "model.draft_path", "is of use with engine.speculation: draft only");
	return r.nr ? -EINVAL : 0;
}

/* A YAML scalar in double quotes where plain style could be misread. */
static void print_scalar(FILE *f, const char *s)
{
	if (*s && strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-") == strlen(s) &&
	    *s != '-' && *s != '.') {
		fputs(s, f);
		return;
	}
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if ((unsigned char)*s < 0x20 || *s == 0x7f)
			fprintf(f, "\\x%02x", (unsigned char)*s);
		else
			fputc(*s, f);
	}
	fputc('"', f);
}

void sits_config_print(const struct sits_config *c, FILE *f)
{
	const char *section = NULL;
	char value[VALUE_MAX];

	for (size_t i = 0; i < NR_KEYS; i++) {
		const struct key *k = &keys[i];

		if (is_text(k) && !*text_at(c, k))
			continue;
		if (k->section && (!section || strcmp(section, k->section)))
			fprintf(f, "%s:\n", section = k->section);
		fprintf(f, "%s%s: ", k->section ? "  " : "", k->name);
		format_value(c, k, value, sizeof(value));
		print_scalar(f, value);
		fputc('\n', f);
	}
}

void sits_config_diff(const struct sits_config *from, const struct sits_config *to,
		      void (*changed)(void *arg, const char *key, bool reloadable, const char *from_value,
				      const char *to_value),
		      void *arg)
{
	char a[VALUE_MAX], b[VALUE_MAX], name[KEY_MAX];

	for (size_t i = 0; i < NR_KEYS; i++) {
		format_value(from, &keys[i], a, sizeof(a));
		format_value(to, &keys[i], b, sizeof(b));
		if (strcmp(a, b))
			changed(arg, key_name(&keys[i], name, sizeof(name)), keys[i].reload, a, b);
	}
}

void sits_config_apply_reloadable(struct sits_config *to, const struct sits_config *from)
{
	for (size_t i = 0; i < NR_KEYS; i++)
		if (keys[i].reload && !is_text(&keys[i]))
			*number_at(to, &keys[i]) = *number_at(from, &keys[i]);
}

const char *sits_config_key_at(size_t i, char *buf, size_t len)
{
	return i < NR_KEYS ? key_name(&keys[i], buf, len) : NULL;
}
