// SPDX-License-Identifier: MIT
/*
 * cmd_run.c - sits run: one request to sitsd, its answer streamed to standard output.
 *
 * The answer is untrusted text: on a terminal, characters that it would obey are replaced. In a file or a
 * pipe, and in JSON, the text is as the model gave it.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/infer.h"
#include "sits/queue.h"
#include "tools/sits/client.h"
#include "tools/sits/cmd.h"
#include "tools/sits/tool_opts.h"

#define CMD "run"
#define MAX_STOPS	16
#define MAX_STOP_BYTES	256
#define MAX_TAG_BYTES 64
#define CANCEL_WAIT_NS	1000000000u	/* for the daemon to confirm a cancel */
#define INFO_WAIT_MS	2000
#define REPLACEMENT	"\xef\xbf\xbd"	/* U+FFFD */

struct options {
	const char *queue, *run_dir, *provider, *system, *model, *tag;
	const char *stop[MAX_STOPS];
	size_t nr_stop;
	bool raw, special, json, quiet;
	double timeout_s;
};

struct run {
	struct options o;
	struct sits_ctx *ctx;
	struct sits_infer_builder *b;
	struct sits_channel *ch;
	uint64_t req, seed;
	char *prompt;		/* read from standard input, or NULL */

	char *text;		/* all of it, for JSON */
	size_t text_len, text_cap;
	bool terminal;
	char last;		/* last byte written */
	int out_err;		/* -errno of writing the answer */

	uint64_t start_ns, first_ns, cancel_ns;
	uint32_t nr_tokens;
	struct sits_infer_done done;
	bool has_done;
	int status;		/* of the request's end */
	char error[512];	/* the daemon's words */
};

static volatile sig_atomic_t caught;
static int wake_fd = -1;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ signals */

static void on_signal(int sig)
{
	uint64_t one = 1;
	int saved = errno;
	ssize_t n;

	if (caught)
		_exit(128 + sig);
	caught = sig;
	n = write(wake_fd, &one, sizeof(one));
	(void)n;
	errno = saved;
}

static int catch_signals(void)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = on_signal }, old;	/* no SA_RESTART: a stalled write must be left */

	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0)
		return -errno;
	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		sigaction(sigs[i], NULL, &old);
		if (old.sa_handler != SIG_IGN)
			sigaction(sigs[i], &sa, NULL);
	}
	signal(SIGPIPE, SIG_IGN);
	return 0;
}

/* ------------------------------------------------------------------ options */

static const char help[] =
	"usage: sits run [OPTION]... [PROMPT | -]\n"
	"Send a prompt to sitsd and stream the answer to standard output. With '-', or without PROMPT where\n"
	"standard input is no terminal, the prompt is read from standard input.\n\n"
	"  -s, --system TEXT       system message\n"
	"      --raw               send the prompt as it is, without the model's chat form\n"
	"      --raw-special       the same, and recognise special tokens in it\n"
	"  -n, --max-tokens N      longest answer in tokens (default: what fits the context)\n"
	"  -t, --temp T            temperature; 0 always takes the likeliest token (default)\n"
	"      --top-k K           draw from the K likeliest tokens (default 0: off)\n"
	"      --top-p P           draw from the likeliest tokens that sum up to P (default 1: off)\n"
	"      --min-p P           leave out tokens less likely than P times the likeliest (default 0: off)\n"
	"      --repeat-penalty R  make repetition less likely (default 1: off)\n"
	"      --repeat-last-n N   tokens that penalties look back over (default 64)\n"
	"      --frequency-penalty F, --presence-penalty F\n"
	"                          the same by count, and by presence (default 0: off)\n"
	"      --seed N            seed of the draw (default 0: a random one)\n"
	"      --stop TEXT         end the answer where TEXT would come; up to 16 times\n"
	"      --ignore-eos        go on to the number of tokens, whatever the model says\n"
	"      --tag TEXT          share computed prefixes with requests of the same tag only; up to 64 bytes\n"
	"      --no-speculation    let no tokens be guessed ahead; the answer is the same\n"
	"  -c, --class CLASS       realtime, guaranteed (default) or besteffort\n"
	"      --timeout S         give up after S seconds\n"
	"      --model ID          refuse another model than this\n"
	"      --json              print one JSON object in place of the text\n"
	"  -q, --quiet             no line of numbers on standard error\n"
	"      --queue NAME        queue of the daemon (default " SITS_INFER_QUEUE ")\n"
	"      --run-dir DIR       where the daemon's sockets are (default $SITS_RUN_DIR, or /run/sits)\n"
	"      --provider NAME     auto, kernel or user (default auto)\n"
	"  -h, --help              this text\n\n"
	"Exit status: 0 answered, 1 failed, 2 wrong usage, 128 + N ended by signal N (Ctrl-C: 130).\n";

/* Arguments of options: @arg is the struct run. Return: 0, or an exit status after a message. */

static int take_class(void *arg, const char *text)
{
	static const char *const name[] = { "realtime", "guaranteed", "besteffort" };
	struct run *r = arg;

	for (uint16_t i = 0; i < 3; i++) {
		if (!strcmp(text, name[i])) {
			sits_infer_builder_hdr(r->b)->sched_class = i;
			return 0;
		}
	}
	return tool_usage(CMD, "--class: '%s' is not realtime, guaranteed or besteffort", text);
}

static int take_seed(void *arg, const char *text)
{
	struct run *r = arg;

	if (!tool_parse_u64(text, &r->seed) || r->seed > INT64_MAX)
		return tool_usage(CMD, "--seed: '%s' is not a whole number from 0 to 2^63 - 1", text);
	return 0;
}

static int take_stop(void *arg, const char *text)
{
	struct options *o = &((struct run *)arg)->o;

	if (o->nr_stop == MAX_STOPS)
		return tool_usage(CMD, "--stop: more than %d", MAX_STOPS);
	if (!*text || strlen(text) > MAX_STOP_BYTES)
		return tool_usage(CMD, "--stop: has %zu bytes; 1 to %d are possible", strlen(text), MAX_STOP_BYTES);
	o->stop[o->nr_stop++] = text;
	return 0;
}

static int take_tag(void *arg, const char *text)
{
	struct run *r = arg;

	if (!*text || strlen(text) > MAX_TAG_BYTES)
		return tool_usage(CMD, "--tag: has %zu bytes; 1 to %d are possible", strlen(text), MAX_TAG_BYTES);
	r->o.tag = text;
	return 0;
}

static int take_timeout(void *arg, const char *text)
{
	struct run *r = arg;
	float f = 0;
	int status = tool_float(CMD, "timeout", text, &f);

	if (!status && (f <= 0 || f > 1e9f))
		return tool_usage(CMD, "--timeout: '%s' is not a number of seconds above 0", text);
	r->o.timeout_s = f;
	return status;
}

static int check_options(struct options *o, int nr_operands)
{
	o->raw |= o->special;
	if (o->raw && o->system)
		return tool_usage(CMD, "--raw and --system exclude each other: a raw prompt has no messages");
	return nr_operands > 1 ? tool_usage(CMD, "one prompt is expected; put it in quotes") : -1;
}

/* Return: -1 to go on, else an exit status. */
static int parse_options(struct run *r, int argc, char **argv)
{
	struct sits_infer_request_hdr *h = sits_infer_builder_hdr(r->b);
	struct options *o = &r->o;
	const struct tool_opt opt[] = {
		{ "system", 's', .text = &o->system, .may_be_empty = true },
		{ "raw", .flag = &o->raw },
		{ "raw-special", .flag = &o->special },
		{ "max-tokens", 'n', .u32 = &h->max_tokens },
		{ "temp", 't', .f32 = &h->temperature },
		{ "temperature", .f32 = &h->temperature },
		{ "top-k", .u32 = &h->top_k },
		{ "top-p", .f32 = &h->top_p },
		{ "min-p", .f32 = &h->min_p },
		{ "repeat-penalty", .f32 = &h->repeat_penalty },
		{ "repeat-last-n", .u32 = &h->repeat_last_n },
		{ "frequency-penalty", .f32 = &h->frequency_penalty },
		{ "presence-penalty", .f32 = &h->presence_penalty },
		{ "seed", .take = take_seed },
		{ "stop", .take = take_stop },
		{ "ignore-eos", .bits = &h->flags, .bit = SITS_INFER_IGNORE_EOS },
		{ "no-speculation", .bits = &h->flags, .bit = SITS_INFER_NO_SPECULATION },
		{ "tag", .take = take_tag },
		{ "class", 'c', .take = take_class },
		{ "timeout", .take = take_timeout },
		{ "model", .text = &o->model },
		{ "json", .flag = &o->json },
		{ "quiet", 'q', .flag = &o->quiet },
		{ "queue", .text = &o->queue },
		{ "run-dir", .text = &o->run_dir },
		{ "provider", .text = &o->provider },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = CMD, .help = help, .opt = opt, .arg = r, .operands = -1 };
	int status = tool_parse(&l, argc, argv);

	return status < 0 ? check_options(o, argc - optind) : status;
}

/* ------------------------------------------------------------------ the request */

/* Offset of the first byte that is not UTF-8 (RFC 3629), or @len. */
static size_t utf8_valid(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t i = 0;

	while (i < len) {
		unsigned char c = p[i], lo = 0x80, hi = 0xbf;
		size_t n = c < 0x80 ? 0 : c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 4;

		if (n == 4 || len - i <= n)
			return i;
		if (c == 0xe0)
			lo = 0xa0;
		else if (c == 0xed)
			hi = 0x9f;
		else if (c == 0xf0)
			lo = 0x90;
		else if (c == 0xf4)
			hi = 0x8f;
		for (size_t k = 1; k <= n; k++, lo = 0x80, hi = 0xbf)
			if (p[i + k] < lo || p[i + k] > hi)
				return i;
		i += n + 1;
	}
	return len;
}

static int add_text(struct run *r, uint16_t field, const char *name, const char *s, size_t len)
{
	size_t bad = utf8_valid(s, len);
	int ret;

	if (bad < len)
		return tool_error(CMD, "%s: byte %zu (0x%02x) is not UTF-8; convert it first, with iconv(1) for example", name,
				  bad, (unsigned char)s[bad]);
	ret = sits_infer_builder_add(r->b, field, s, len);
	if (ret)
		return tool_error(CMD, "%s: %s", name, ret == -EMSGSIZE ? "the request would be larger than 4 MiB" : strerror(-ret));
	return 0;
}

static int read_stdin(struct run *r, size_t *len)
{
	size_t max = SITS_REQUEST_MAX + 1;
	ssize_t n = 0;

	r->prompt = malloc(max);
	if (!r->prompt)
		return tool_error(CMD, "out of memory");
	*len = 0;
	do {
		n = read(STDIN_FILENO, r->prompt + *len, max - *len);
		if (n > 0)
			*len += (size_t)n;
	} while ((n > 0 && *len < max) || (n < 0 && errno == EINTR && !caught));
	if (caught)
		return 128 + caught;
	if (n < 0)
		return tool_error(CMD, "standard input: %s", strerror(errno));
	/* The newline that ends a line is not part of a question; a raw prompt is as it is. */
	if (!r->o.raw && *len && r->prompt[*len - 1] == '\n')
		--*len;
	return 0;
}

static int add_prompt(struct run *r, const char *arg)
{
	uint16_t field = !r->o.raw ? SITS_FIELD_USER : r->o.special ? SITS_FIELD_PROMPT_SPECIAL : SITS_FIELD_PROMPT;
	size_t len = 0;
	int ret;

	if (!arg && isatty(STDIN_FILENO))
		return tool_usage(CMD, "a prompt is required");
	if (arg && strcmp(arg, "-"))
		return add_text(r, field, "prompt", arg, strlen(arg));
	ret = read_stdin(r, &len);
	/* A command that failed on the other side of a pipe is no question. */
	if (!ret && !len && !r->o.raw)
		return tool_usage(CMD, "the prompt on standard input is empty");
	return ret ? ret : add_text(r, field, "prompt", r->prompt, len);
}

/* Encode, and let the checks of the other side speak before anything is sent. */
static int build_request(struct run *r, const char *arg)
{
	struct sits_infer_request_hdr *h = sits_infer_builder_hdr(r->b), checked;
	const void *bytes;
	char why[256];
	size_t len;
	int ret = 0;

	if (r->o.system)
		ret = add_text(r, SITS_FIELD_SYSTEM, "--system", r->o.system, strlen(r->o.system));
	if (!ret)
		ret = add_prompt(r, arg);
	for (size_t i = 0; !ret && i < r->o.nr_stop; i++)
		ret = add_text(r, SITS_FIELD_STOP, "--stop", r->o.stop[i], strlen(r->o.stop[i]));
	if (!ret && r->o.model)
		ret = add_text(r, SITS_FIELD_MODEL, "--model", r->o.model, strlen(r->o.model));
	if (!ret && r->o.tag)
		ret = add_text(r, SITS_FIELD_TAG, "--tag", r->o.tag, strlen(r->o.tag));
	if (ret)
		return ret;
	/* Drawn here, so that the answer can be had again; 53 bits, which every JSON reader keeps. */
	while (!r->seed && h->temperature > 0) {
		if (getrandom(&r->seed, sizeof(r->seed), 0) != sizeof(r->seed))
			r->seed = now_ns();
		r->seed >>= 11;
	}
	h->seed = r->seed;
	sits_infer_builder_bytes(r->b, &bytes, &len);
	if (sits_infer_parse(bytes, len, &checked, NULL, NULL, why, sizeof(why)))
		return tool_usage(CMD, "%s", why);
	return 0;
}

static int submit(struct run *r)
{
	uint64_t timeout_ns = (uint64_t)ceil(r->o.timeout_s * 1e9);	/* not 0, which is never */
	const void *bytes;
	char why[512];
	size_t len;
	int ret;

	sits_infer_builder_bytes(r->b, &bytes, &len);
	/* Room for the request beside what comes back; 0 is a sensible size. */
	ret = client_open(&r->ctx, r->o.queue, len > 256 << 10 ? 3 * (uint64_t)len : 0, &r->ch);
	if (ret)
		return tool_error(CMD, "%s", client_open_words(r->ctx, r->o.queue, ret, why, sizeof(why)));
	r->start_ns = now_ns();
	ret = sits_channel_submit(r->ch, bytes, len, timeout_ns, &r->req);
	return ret ? tool_error(CMD, "can't send the request: %s", client_words(ret)) : 0;
}

/* ------------------------------------------------------------------ the answer */

static void cancel(struct run *r)
{
	if (r->cancel_ns)
		return;
	r->cancel_ns = now_ns();
	sits_channel_cancel(r->ch, r->req);
}

static void put(struct run *r, const char *s, size_t len)
{
	ssize_t n;

	if (len)
		r->last = s[len - 1];
	while (len && !r->out_err) {
		n = write(STDOUT_FILENO, s, len);
		if (n < 0 && errno == EINTR && !caught)
			continue;
		if (n < 0) {
			if (errno != EINTR)
				r->out_err = -errno;
			cancel(r);
			return;
		}
		s += n;
		len -= (size_t)n;
	}
}

/* Bytes at @s that a terminal would obey: C0 but for newline and tab, DEL, and C1 in its UTF-8 form. */
static size_t control_at(const char *s, size_t len)
{
	unsigned char c = (unsigned char)s[0];

	if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
		return 1;
	return c == 0xc2 && len > 1 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] <= 0x9f ? 2 : 0;
}

static void put_safe(struct run *r, const char *s, size_t len)
{
	size_t from = 0, i = 0, n;

	while (i < len) {
		n = control_at(s + i, len - i);
		if (!n) {
			i++;
			continue;
		}
		put(r, s + from, i - from);
		put(r, REPLACEMENT, sizeof(REPLACEMENT) - 1);
		from = i += n;
	}
	put(r, s + from, len - from);
}

static int keep(struct run *r, const char *s, size_t len)
{
	if (r->text_len + len > r->text_cap) {
		size_t cap = 2 * (r->text_len + len) + 1024;
		char *p = realloc(r->text, cap);

		if (!p)
			return -ENOMEM;
		r->text = p;
		r->text_cap = cap;
	}
	memcpy(r->text + r->text_len, s, len);
	r->text_len += len;
	return 0;
}

static void take_text(struct run *r, const char *s, size_t len, uint32_t nr_tokens)
{
	if (!r->first_ns)
		r->first_ns = now_ns();
	r->nr_tokens += nr_tokens;
	if (r->o.json) {
		if (keep(r, s, len)) {
			r->out_err = -ENOMEM;
			cancel(r);
		}
	} else if (r->terminal) {
		put_safe(r, s, len);
	} else {
		put(r, s, len);
	}
}

static void take_chunk(struct run *r, const struct sits_chunk *c)
{
	struct sits_infer_chunk_hdr h = { 0 };
	const char *body;
	size_t len;

	if (c->last)
		r->status = c->status;
	if (c->len < sizeof(h))
		return;
	memcpy(&h, c->data, sizeof(h));
	body = (const char *)c->data + sizeof(h);
	len = c->len - sizeof(h);
	if (h.type == SITS_CHUNK_TEXT) {
		take_text(r, body, len, h.nr_tokens);
	} else if (h.type == SITS_CHUNK_DONE && len >= sizeof(r->done)) {
		memcpy(&r->done, body, sizeof(r->done));
		r->has_done = true;
	} else if (h.type == SITS_CHUNK_ERROR) {
		snprintf(r->error, sizeof(r->error), "%.*s", (int)(len < sizeof(r->error) ? len : sizeof(r->error) - 1), body);
	}
}

/* Sleep until the channel or a signal has something. Return: false where a cancel was not confirmed in time. */
static bool wait_news(struct run *r)
{
	struct pollfd p[2] = {
		{ .fd = sits_channel_fd(r->ch), .events = POLLIN }, { .fd = wake_fd, .events = POLLIN },
	};
	uint64_t waited = r->cancel_ns ? now_ns() - r->cancel_ns : 0;
	uint64_t n;

	if (waited >= CANCEL_WAIT_NS)
		return false;
	poll(p, 2, r->cancel_ns ? (int)((CANCEL_WAIT_NS - waited) / 1000000) + 1 : -1);
	while (read(wake_fd, &n, sizeof(n)) > 0)
		;
	return true;
}

static void receive(struct run *r)
{
	struct sits_chunk c;
	int ret;

	for (;;) {
		if (caught)
			cancel(r);
		ret = sits_channel_recv(r->ch, &c, 0);
		if (ret == 1) {
			if (c.req != r->req)
				continue;
			take_chunk(r, &c);
			if (c.last)
				return;
		} else if (ret < 0 && ret != -EINTR && ret != -EAGAIN) {
			r->status = ret;
			return;
		} else if (!wait_news(r)) {
			r->status = -ECANCELED;
			return;
		}
	}
}

/* ------------------------------------------------------------------ what is said of it */

static double first_token_s(const struct run *r)
{
	if (r->first_ns)
		return (double)(r->first_ns - r->start_ns) / 1e9;
	return (double)r->done.first_token_ns / 1e9;
}

/* Tokens after the first one, over the time from the first to the end. */
static double tokens_per_s(const struct run *r)
{
	uint64_t ns = r->done.total_ns - r->done.first_token_ns;

	if (!r->has_done || r->done.completion_tokens < 2 || !r->done.first_token_ns || !ns)
		return 0;
	return (r->done.completion_tokens - 1) / ((double)ns / 1e9);
}

static const char *finish_reason(const struct run *r)
{
	if (r->status == -ETIMEDOUT)
		return "timeout";
	return r->status ? "cancel" : sits_infer_finish_name(r->done.finish);
}

static void print_stats(const struct run *r, uint64_t end_ns)
{
	fprintf(stderr, "%u prompt + %u completion tokens, first after %.3f s, %.1f tokens/s, %.2f s in all (%s, %s)\n",
		r->done.prompt_tokens, r->has_done ? r->done.completion_tokens : r->nr_tokens, first_token_s(r), tokens_per_s(r),
		(double)(end_ns - r->start_ns) / 1e9, finish_reason(r), sits_provider_name(r->ctx));
}

/* Whole text as JSON has it: what is not UTF-8, against the promise, is replaced. */
static json_t *json_text(const struct run *r)
{
	json_t *v = json_stringn(r->text ? r->text : "", r->text_len);
	char *copy;

	if (v || !(copy = malloc(r->text_len)))
		return v ? v : json_null();
	for (size_t i = 0; i < r->text_len; i++)
		copy[i] = (unsigned char)r->text[i] < 0x80 ? r->text[i] : '?';
	v = json_stringn(copy, r->text_len);
	free(copy);
	return v;
}

static void print_json(struct run *r, uint64_t end_ns)
{
	const char *why, *model = NULL;
	json_t *info = r->status == -EPIPE || caught ? NULL : client_info(r->ch, INFO_WAIT_MS, &why), *o;

	if (info)
		model = json_string_value(json_object_get(json_object_get(info, "model"), "id"));
	o = json_pack("{s:o, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:s, s:s, s:s?, s:I}", "text", json_text(r),
		      "prompt_tokens", (int)r->done.prompt_tokens, "cached_tokens", (int)r->done.cached_tokens,
		      "completion_tokens", (int)(r->has_done ? r->done.completion_tokens : r->nr_tokens),
		      "time_to_first_token_s", first_token_s(r), "total_s", (double)(end_ns - r->start_ns) / 1e9,
		      "queue_s", (double)r->done.queue_ns / 1e9, "tokens_per_s", tokens_per_s(r),
		      "provider", sits_provider_name(r->ctx), "finish_reason", finish_reason(r), "model", model,
		      "seed", (json_int_t)r->seed);
	json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(o);
	json_decref(info);
}

/* Say how it ended. Return: the exit status. */
static int conclude(struct run *r)
{
	uint64_t end_ns = now_ns();
	bool partial = r->status == -ECANCELED || r->status == -ETIMEDOUT;
	char words[sizeof(r->error)];

	if (!r->o.json && r->last && r->last != '\n' && !r->out_err)
		put(r, "\n", 1);
	if (r->out_err == -EPIPE)
		return 128 + SIGPIPE;	/* the reader has enough, as after head(1) */
	if (r->out_err)
		return tool_error(CMD, "the answer can't be written: %s", strerror(-r->out_err));
	if (r->o.json && (!r->status || partial))
		print_json(r, end_ns);
	if (!r->o.quiet && (!r->status || partial))
		print_stats(r, end_ns);
	if (caught)
		return 128 + caught;
	if (!r->status)
		return 0;
	if (r->error[0] && !partial)
		return tool_error(CMD, "%s", tool_print_safe(r->error, words, sizeof(words)));
	return tool_error(CMD, "%s", client_words(r->status));
}

static int run_with(struct run *r, int argc, char **argv)
{
	int ret = parse_options(r, argc, argv);

	if (ret >= 0)
		return ret;
	ret = -catch_signals();
	if (ret)
		return tool_error(CMD, "%s", strerror(ret));
	ret = build_request(r, argv[optind]);
	if (!ret)
		ret = client_ctx(CMD, r->o.provider, r->o.run_dir, &r->ctx);
	if (!ret)
		ret = submit(r);
	if (ret)
		return ret;
	r->terminal = isatty(STDOUT_FILENO);
	receive(r);
	return conclude(r);
}

static int cmd_run(int argc, char **argv)
{
	struct run r = { .o.queue = SITS_INFER_QUEUE };
	int ret;

	if (sits_infer_builder_create(&r.b))
		return tool_error(CMD, "out of memory");
	ret = run_with(&r, argc, argv);
	sits_channel_close(r.ch);
	sits_close(r.ctx);
	sits_infer_builder_destroy(r.b);
	free(r.prompt);
	free(r.text);
	if (wake_fd >= 0)
		close(wake_fd);
	return ret;
}

const struct sits_cmd sits_cmd_run = {
	.name = "run", .summary = "send a prompt to sitsd and stream the answer", .run = cmd_run,
};
