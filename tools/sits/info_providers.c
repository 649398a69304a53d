// SPDX-License-Identifier: MIT
/*
 * info_providers.c - see info_providers.h.
 *
 * A region of each kind is made, looked at, attacked by its own process, and destroyed. Nothing is claimed that was not seen: what
 * an attempt does not decide is null. Attempts on itself are decided by the kernel as those of others: where it refuses a process
 * its own memory, the way in is closed to everybody.
 */
#include "tools/sits/info_providers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sits/context.h"
#include "sits/region.h"
#include "tools/sits/cmd.h"
#include "tools/sits/stat_data.h"

#define PROBE_BYTES	(2u << 20)	/* one huge page */
#define PROBE_PAGE	4096u

static json_t *closed_if(int err, int want)
{
	return err == want ? json_true() : err ? json_null() : json_false();
}

/* The way of process_vm_readv(), /proc/PID/mem and ptrace. */
static json_t *closed_to_tracers(void *data)
{
	char copy[16];
	struct iovec local = { copy, sizeof(copy) }, remote = { data, sizeof(copy) };
	ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

	return closed_if(n < 0 ? errno : 0, EFAULT);
}

/* The way of direct I/O, registered buffers and RDMA: a page of it into a pipe, by reference. */
static json_t *closed_to_pins(void *data)
{
	struct iovec page = { data, PROBE_PAGE };
	int ends[2];
	ssize_t n;
	json_t *closed;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return json_null();
	n = vmsplice(ends[1], &page, 1, SPLICE_F_NONBLOCK);
	closed = closed_if(n < 0 ? errno : 0, EFAULT);
	close(ends[0]);
	close(ends[1]);
	return closed;
}

/* Once sealed: by whoever gets the descriptor, and by its owner's own code through the mapping that it has. */
static void sealed_facts(struct sits_region *region, json_t *facts)
{
	bool sealed = !sits_region_seal(region);
	void *data = sealed ? sits_region_data(region) : NULL, *again;
	int fd = sealed ? sits_region_fd(region) : -1;
	json_t *to_others = json_null(), *to_owner = json_null();

	if (fd >= 0) {
		again = mmap(NULL, PROBE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		to_others = json_boolean(again == MAP_FAILED);
		if (again != MAP_FAILED)
			munmap(again, PROBE_PAGE);
	}
	if (data) {
		to_owner = json_boolean(mprotect(data, PROBE_PAGE, PROT_READ | PROT_WRITE));
		mprotect(data, PROBE_PAGE, PROT_READ);
	}
	json_object_set_new(facts, "sealed_to_others", to_others);
	json_object_set_new(facts, "sealed_to_owner", to_owner);
}

static json_t *region_facts(struct sits_region *region)
{
	void *data = sits_region_data(region);
	struct sits_region_info i;
	int ret = sits_region_info(region, &i);
	json_t *facts;

	if (ret)
		return json_pack("{s:s}", "error", strerror(-ret));
	facts = json_pack("{s:b, s:b, s:b, s:b, s:I}", "locked", i.locked, "huge_pages", i.huge_bytes >= PROBE_BYTES,
			  "excluded_from_dumps", i.nodump, "excluded_from_fork", i.nofork, "page_bytes", (json_int_t)i.page_bytes);
	json_object_set_new(facts, "closed_to_tracers", data ? closed_to_tracers(data) : json_null());
	json_object_set_new(facts, "closed_to_pins", data ? closed_to_pins(data) : json_null());
	sealed_facts(region, facts);
	return facts;
}

/* What the library says of a provider: why it can't be had, or what it lacks. */
struct heard {
	char error[512], warning[512];
};

static void hear(void *arg, int severity, const char *line)
{
	struct heard *h = arg;

	if (severity == SITS_LOG_ERR)
		snprintf(h->error, sizeof(h->error), "%s", line);
	else if (severity == SITS_LOG_WARN)
		snprintf(h->warning, sizeof(h->warning), "%s", line);
}

static json_t *probe(struct sits_ctx *ctx, uint32_t kind, char *said)
{
	struct sits_region_opts opts = {
		.size = sizeof(opts), .kind = kind, .node = -1, .len_bytes = PROBE_BYTES, .name = "probe",
		.flags = SITS_REGION_ALLOW_UNLOCKED,
	};
	struct sits_region *region;
	json_t *facts;
	int ret;

	said[0] = '\0';
	ret = sits_region_create(ctx, &opts, &region);
	if (ret)
		return json_pack("{s:s}", "error", said[0] ? said : strerror(-ret));
	facts = region_facts(region);
	sits_region_destroy(region);
	return facts;
}

json_t *info_regions(struct sits_ctx *ctx, char *said)
{
	return json_pack("{s:o, s:o, s:o}", "pinned", probe(ctx, SITS_REGION_PINNED, said),
			 "huge", probe(ctx, SITS_REGION_HUGE, said), "protected", probe(ctx, SITS_REGION_PROTECTED, said));
}

static json_t *provider(uint32_t which, const char *run_dir)
{
	struct heard heard = { "", "" };
	struct sits_open_opts o = { .size = sizeof(o), .provider = which, .run_dir = run_dir, .log = hear, .log_arg = &heard };
	struct sits_ctx *ctx = NULL;
	json_t *facts;
	int ret = sits_open(&o, &ctx);

	if (ret)
		return json_pack("{s:b, s:s}", "available", 0, "error", heard.error[0] ? heard.error : strerror(-ret));
	facts = json_pack("{s:b}", "available", 1);
	if (heard.warning[0])
		json_object_set_new(facts, "warning", json_string(heard.warning));
	json_object_set_new(facts, "regions", info_regions(ctx, heard.error));
	sits_close(ctx);
	return facts;
}

json_t *info_providers(struct sits_ctx *chosen, json_t *regions, const char *run_dir)
{
	static const struct {
		const char *name;
		uint32_t id;
	} all[] = { { "kernel", SITS_PROVIDER_KERNEL }, { "user", SITS_PROVIDER_USER } };
	json_t *providers = json_object();
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		json_object_set_new(providers, all[i].name, !strcmp(all[i].name, sits_provider_name(chosen)) ?
				    json_pack("{s:b, s:O}", "available", 1, "regions", regions) : provider(all[i].id, run_dir));
	return providers;
}

json_t *info_module(void)
{
	struct stat_live live = { .fd = open(SITS_DEV_PATH, O_RDWR | O_CLOEXEC) };
	struct stat_source src = stat_live_source(&live);
	json_t *module, *device, *version;
	int err;

	live.err = live.fd < 0 ? -errno : 0;
	device = stat_device(&src, &err);
	if (live.fd >= 0)
		close(live.fd);
	if (!device)
		return json_null();
	module = stat_module(&src);
	version = json_object_get(module, "version");
	device = json_pack("{s:O?, s:O, s:O}", "version", version, "abi_version", json_object_get(device, "abi_version"),
			   "features", json_object_get(device, "features"));
	json_decref(module);
	return device;
}

/* ------------------------------------------------------------------ for people */

static const char *cell(const json_t *regions, const char *kind, const char *key)
{
	const json_t *v = json_object_get(json_object_get(regions, kind), key);

	return json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-";
}

void info_print_regions(const char *name, const json_t *regions)
{
	static const char *const kinds[] = { "pinned", "huge", "protected" };
	static const char *const rows[][2] = {
		{ "locked", "locked in memory" },
		{ "huge_pages", "in huge pages" },
		{ "excluded_from_dumps", "excluded from core dumps" },
		{ "excluded_from_fork", "excluded from fork" },
		{ "closed_to_tracers", "closed to ptrace and /proc/PID/mem" },
		{ "closed_to_pins", "closed to pins (direct I/O, RDMA)" },
		{ "sealed_to_others", "once sealed: unwritable by others" },
		{ "sealed_to_owner", "once sealed: nor by its owner" },
	};
	const char *err, *before = NULL;
	char why[512];
	size_t i;

	printf("  %-36s %-8s %-8s %s\n", name, kinds[0], kinds[1], kinds[2]);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		printf("    %-34s %-8s %-8s %s\n", rows[i][1], cell(regions, kinds[0], rows[i][0]), cell(regions, kinds[1], rows[i][0]),
		       cell(regions, kinds[2], rows[i][0]));
	/* Mostly all of them for one reason. */
	for (i = 0; i < 3; i++) {
		err = json_string_value(json_object_get(json_object_get(regions, kinds[i]), "error"));
		if (err && (!before || strcmp(err, before)))
			printf("    %s: not available: %s\n", kinds[i], tool_print_safe(err, why, sizeof(why)));
		before = err;
	}
}
