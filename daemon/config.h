/* SPDX-License-Identifier: MIT */
/*
 * config.h - sitsd's configuration: one YAML file, then options of the command line on top.
 *
 * One table in config.c holds every key with its type, range, unit and default; the schema handed
 * to libcyaml, the messages, the comparison at a reload and the printed form all come from it.
 * man/sitsd.yaml.5 describes each key for people; a test holds the two together.
 */
#ifndef SITS_DAEMON_CONFIG_H
#define SITS_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SITS_CONFIG_DEFAULT_PATH "/etc/sits/sitsd.yaml"

/* Values of log.format. */
#define SITS_LOG_FORMAT_TEXT	0
#define SITS_LOG_FORMAT_JSON	1

/* Numbers and choices are uint64_t and strings char * (NULL: unset), whatever their range, so that the
 * table needs two kinds of storage only. Owned by the struct; freed by sits_config_fini(). */
struct sits_config {
	uint64_t provider;		/* SITS_PROVIDER_* */
	char *run_dir, *state_dir;
	uint64_t drain_timeout_ms;

	struct {
		uint64_t require_locked, require_huge;
	} memory;
	struct {
		char *name;
		uint64_t depth, per_client, max_clients, mode, chunk_backlog;
	} queue;
	struct {
		char *path, *key, *id, *draft_path;
		uint64_t min_version, allow_ecb, load_threads, buffered;
	} model;
	struct {
		uint64_t threads, max_seqs, token_budget, context, kv_bytes, pin;
		char *isa;
		uint64_t moe_temperature;		/* percent of the model's own */
		uint64_t moe_capacity, moe_balance;	/* percent of an even share; millionths of a score */
		uint64_t route_patterns;
		uint64_t kv_type;		/* enum sits_kv_kind */
		uint64_t kv_limit[3];		/* by SITS_CLASS_*; 0: none */
		uint64_t kv_keep;		/* tokens; 0: all */
		uint64_t prefix_cache;		/* enum sits_prefix_sharing */
		uint64_t speculation;		/* enum sits_speculation */
		uint64_t draft_tokens;
	} engine;
	struct {
		uint64_t max_tokens, max_prompt_tokens;
	} limits;
	struct {
		uint64_t level;		/* SITS_LOG_* */
		uint64_t format;
	} log;
};

/* Receives each thing that is wrong, in words: "FILE:LINE: KEY: what". */
typedef void (*sits_config_report_fn)(void *arg, const char *line);

/** sits_config_init() - Every default. Return: 0; -ENOMEM. */
int sits_config_init(struct sits_config *c);
void sits_config_fini(struct sits_config *c);

/**
 * sits_config_load_file() - Read a file on top of what @c holds.
 * @report: called once for each error; may be NULL
 * Return: 0; -EINVAL after at least one report; -ENOMEM or -errno of reading the file, reported too. On failure
 * @c may hold some of the file's values: free it.
 */
int sits_config_load_file(struct sits_config *c, const char *path, sits_config_report_fn report, void *arg);

/** sits_config_load_text() - The same from memory; @name stands for the file in messages. */
int sits_config_load_text(struct sits_config *c, const char *text, size_t len, const char *name,
			  sits_config_report_fn report, void *arg);

/** sits_config_set() - One key by its dotted name ("engine.threads"), as from an option @origin. */
int sits_config_set(struct sits_config *c, const char *key, const char *value, const char *origin,
		    sits_config_report_fn report, void *arg);

/** sits_config_check() - What only all values together can show: required keys, values that contradict each
 * other. @name: as in the load. Return: 0; -EINVAL after at least one report. */
int sits_config_check(const struct sits_config *c, const char *name, sits_config_report_fn report, void *arg);

/** sits_config_print() - Every key with its value, as YAML that loads to the same values. */
void sits_config_print(const struct sits_config *c, FILE *f);

/**
 * sits_config_diff() - Compare two configurations.
 * @changed: called for each key that differs; @reloadable says whether a running daemon can take it over
 */
void sits_config_diff(const struct sits_config *from, const struct sits_config *to,
		      void (*changed)(void *arg, const char *key, bool reloadable, const char *from_value,
				      const char *to_value),
		      void *arg);

/** sits_config_apply_reloadable() - Copy the keys that a running daemon can take over. */
void sits_config_apply_reloadable(struct sits_config *to, const struct sits_config *from);

/** sits_config_key_at() - The dotted name of key @i in table order, NULL past the end; for tests and help. */
const char *sits_config_key_at(size_t i, char *buf, size_t len);

#endif
