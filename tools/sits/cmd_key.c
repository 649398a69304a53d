// SPDX-License-Identifier: MIT
/*
 * cmd_key.c - sits key: make keys, read them in, tell their ids, hand them to the kernel. Key bytes never reach this file.
 * Rotating is cmd_key_rotate.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/rekey.h"
#include "tools/sits/cmd.h"
#include "tools/sits/cmd_key.h"
#include "tools/sits/rekey_many.h"
#include "tools/sits/tool_opts.h"

static const char help[] =
	"usage: sits key new SPEC [OPTIONS]...\n"
	"       sits key import SPEC [OPTIONS]...\n"
	"       sits key id SPEC [OPTIONS]...\n"
	"       sits key install SPEC keyring:NAME [OPTIONS]...\n"
	"       sits key rotate SPEC PATH... [OPTIONS]...\n"
	"\n"
	"new makes a random key at SPEC and leaves one that exists as it is; import puts one there that was made\n"
	"elsewhere, and is read from standard input: 32 hexadecimal digits, its base64, or the 16 bytes; id reads\n"
	"the one there; install puts the one there into the kernel's user keyring too, with type logon: nobody can\n"
	"read it from there, and the kernel module loads models with it. All print the key's id: a digest, not a secret.\n"
	"\n"
	"rotate makes a new key, puts the sealed files at PATH (in a directory every *.sits, however deep) under it,\n"
	"and, when all are, lets it take the place of the one at SPEC, which is kept as SPEC.old-ID. Until then it is\n"
	"SPEC.next. Stopped or killed anywhere, each file is under one of the two; the same command goes on.\n"
	"\n"
	"SPEC is file:PATH, a file that only its owner may read, or keyring:NAME, the kernel's key sits:NAME in the\n"
	"session or the user keyring, gone after a restart. For example: sits key new file:/etc/sits/model.key\n"
	"\n"
	"  --json                the result as a JSON object on standard output\n"
	"  --from FILE           import: read it from FILE\n"
	"  --logon               import: into keyring:NAME with type logon, as install does\n"
	"  --new-key NEW         rotate: where the new key is, or will be made; both keys stay where they are\n"
	"  --reseal              rotate: encrypt the files' contents anew too, with fresh file keys\n"
	"  --skip-other-keys     rotate: files under neither key are no failure\n"
	"  --dry-run             rotate: say what would be done, and what would fail; write nothing\n"
	"  --threads N           rotate: threads for --reseal (one per core)\n"
	"  --wait SECONDS        rotate: at most, for a file that another process is writing (60)\n"
	"  --quiet               rotate: no lines about files, no progress bar\n"
	"  -h, --help            this text\n";

/* The options by their place in the table, and a bit of each. */
enum { OPT_JSON, OPT_FROM, OPT_LOGON, OPT_NEW, OPT_RESEAL, OPT_SKIP, OPT_DRY, OPT_THREADS, OPT_WAIT, OPT_QUIET };
#define BIT(opt) (1u << (opt))

/* Return: the exit status. */
static int print_id(const char *spec, const struct sits_key *key, bool json)
{
	static const uint8_t unknown[SITS_KEY_ID_LEN];
	char text[2 * SITS_KEY_ID_LEN + 1];
	uint8_t id[SITS_KEY_ID_LEN];
	json_t *obj;

	sits_key_id(key, id);
	if (!memcmp(id, unknown, sizeof(id)))
		return tool_fail(KEY_CMD, "the id of a key of type logon, which only the kernel has", -EOPNOTSUPP, json);
	tool_key_id(key, text);
	if (!json) {
		puts(text);
		return 0;
	}
	obj = json_pack("{s:b, s:s}", "ok", 1, "key_id", text);
	/* Left out where it is no UTF-8. */
	json_object_set_new(obj, "key", json_string(spec));
	json_dumpf(obj, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(obj);
	return 0;
}

/* Ways to get a key: return 0 with one, else -errno. */
typedef int get_key(struct sits_ctx *ctx, const struct key_args *a, struct sits_key **key);

/* Get a key, and tell its id. Return: the exit status. */
static int with_key(const struct key_args *a, get_key *get)
{
	struct sits_ctx *ctx = NULL;
	struct sits_key *key = NULL;
	int ret, status;

	status = tool_open(KEY_CMD, NULL, NULL, &ctx);
	if (status)
		return status;
	ret = get(ctx, a, &key);
	status = ret ? tool_fail(KEY_CMD, "key", ret, a->json) : print_id(a->operands[0], key, a->json);
	sits_key_close(key);
	sits_close(ctx);
	return status;
}

static int get_existing(struct sits_ctx *ctx, const struct key_args *a, struct sits_key **key)
{
	return sits_key_open(ctx, a->operands[0], key);
}

static int get_new(struct sits_ctx *ctx, const struct key_args *a, struct sits_key **key)
{
	int ret = sits_key_create(ctx, a->operands[0]);

	return ret ? ret : get_existing(ctx, a, key);
}

static int get_installed(struct sits_ctx *ctx, const struct key_args *a, struct sits_key **key)
{
	int ret = get_existing(ctx, a, key);

	return ret ? ret : sits_key_install(ctx, *key, a->operands[1]);
}

static int get_imported(struct sits_ctx *ctx, const struct key_args *a, struct sits_key **key)
{
	int ret = sits_key_import(ctx, a->from_fd, key);

	if (ret)
		return ret;
	return a->logon ? sits_key_install(ctx, *key, a->operands[0]) : sits_key_save(ctx, *key, a->operands[0]);
}

static int key_new(struct key_args *a)
{
	return with_key(a, get_new);
}

static int key_id(struct key_args *a)
{
	return with_key(a, get_existing);
}

static int key_install(struct key_args *a)
{
	return with_key(a, get_installed);
}

/* Why the key can't be read. Return: -1. */
static int no_input(const struct key_args *a, const char *what, int err, const char *words)
{
	tool_fail_because(KEY_CMD, what, err, words, a->json);
	return -1;
}

/* Where the key is read from. Return: a descriptor; -1, after a message. */
static int open_from(const struct key_args *a)
{
	char words[PATH_MAX + 128];
	struct stat st;
	int fd, err;

	if (!a->from) {
		if (!isatty(STDIN_FILENO))
			return STDIN_FILENO;
		/* It would be seen, and stay in the terminal's memory. */
		return no_input(a, "standard input", -EINVAL,
				"standard input is a terminal: let the key come through a pipe, or give --from FILE");
	}
	fd = open(a->from, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		err = errno;
		snprintf(words, sizeof(words), "--from %s: %s", a->from, strerror(err));
		return no_input(a, a->from, -err, words);
	}
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_mode & 077)
		tool_error(KEY_CMD, "warning: --from %s: others may have read this key: it has mode %04o", a->from,
			   (unsigned int)st.st_mode & 07777);
	return fd;
}

static int key_import(struct key_args *a)
{
	int status;

	a->from_fd = open_from(a);
	if (a->from_fd < 0)
		return 1;
	status = with_key(a, get_imported);
	if (a->from_fd != STDIN_FILENO)
		close(a->from_fd);
	return status;
}

/* @options: those that it takes besides --json, a BIT() of each */
static const struct verb {
	const char *name;
	int least, most;		/* operands */
	const char *needs;
	unsigned int options;
	int (*run)(struct key_args *a);
} verbs[] = {
#define ONE_SPEC "needs one SPEC, for example: file:/etc/sits/model.key"
	{ "new", 1, 1, ONE_SPEC, 0, key_new },
	{ "import", 1, 1, ONE_SPEC, BIT(OPT_FROM) | BIT(OPT_LOGON), key_import },
	{ "id", 1, 1, ONE_SPEC, 0, key_id },
	{ "install", 2, 2, "needs a SPEC and keyring:NAME, for example: sits key install file:/etc/sits/model.key keyring:model", 0,
	  key_install },
	{ "rotate", 2, INT32_MAX, "needs a SPEC and the files under that key, for example: sits key rotate file:/etc/sits/model.key "
	  "/srv/models", ~(BIT(OPT_FROM) | BIT(OPT_LOGON)), key_rotate },
};

static int run_verb(const char *what, struct key_args *a, const struct tool_cmdline *l)
{
	const struct verb *v;
	int i;

	for (v = verbs; v < verbs + sizeof(verbs) / sizeof(verbs[0]); v++)
		if (!strcmp(what, v->name))
			break;
	if (v == verbs + sizeof(verbs) / sizeof(verbs[0]))
		return tool_usage(KEY_CMD, "the first argument says what to do: new, import, id, install or rotate, for example: sits key new file:/etc/sits/model.key");
	if (a->nr < v->least || a->nr > v->most)
		return tool_usage(KEY_CMD, "%s %s; %d were given", v->name, v->needs, a->nr);
	for (i = OPT_JSON + 1; l->opt[i].name; i++)
		if (l->given & ~v->options & BIT(i))
			return tool_usage(KEY_CMD, "%s takes no option '--%s'", v->name, l->opt[i].name);
	tool_protect();
	return v->run(a);
}

static int run(int argc, char **argv)
{
	struct key_args a = { .wait_s = REKEY_WAIT_S };
	const struct tool_opt opt[] = {
		[OPT_JSON] = { "json", .flag = &a.json },
		[OPT_FROM] = { "from", .text = &a.from },
		[OPT_LOGON] = { "logon", .flag = &a.logon },
		[OPT_NEW] = { "new-key", .text = &a.new_spec },
		[OPT_RESEAL] = { "reseal", .bits = &a.flags, .bit = SITS_REKEY_RESEAL },
		[OPT_SKIP] = { "skip-other-keys", .bits = &a.flags, .bit = SITS_REKEY_SKIP_OTHER },
		[OPT_DRY] = { "dry-run", .bits = &a.flags, .bit = SITS_REKEY_DRY_RUN },
		[OPT_THREADS] = { "threads", .threads = &a.threads },
		[OPT_WAIT] = { "wait", .wait_s = &a.wait_s },
		[OPT_QUIET] = { "quiet", .flag = &a.quiet },
		{ 0 },
	};
	struct tool_cmdline l = { .cmd = KEY_CMD, .help = help, .opt = opt, .operands = -1 };
	int status = tool_parse(&l, argc, argv);

	if (status >= 0)
		return status;
	a.operands = argv + optind + 1;
	a.nr = argc - optind - 1;
	status = tool_no_empty(KEY_CMD, argc - optind, argv + optind);
	return status < 0 ? run_verb(optind < argc ? argv[optind] : "", &a, &l) : status;
}

const struct sits_cmd sits_cmd_key = { KEY_CMD, "make a key, read one in, tell its id, hand it to the kernel, change it", run };
