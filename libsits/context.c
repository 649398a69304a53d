// SPDX-License-Identifier: MIT
/*
 * context.c - opening libsits: the options, the choice of provider, the run directory.
 */
#include "libsits/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_RUN_DIR "/run/sits"

/* In order of preference: AUTO takes the first whose probe succeeds. */
static const struct sits_provider *const providers[] = {
	&sits_provider_kernel,
	&sits_provider_user,
};

static const struct sits_provider *find_provider(uint32_t id)
{
	for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++)
		if (providers[i]->id == id)
			return providers[i];
	return NULL;
}

static int choose_provider(struct sits_ctx *ctx, uint32_t want)
{
	int ret = -ENODEV;

	if (want != SITS_PROVIDER_AUTO) {
		ctx->provider = find_provider(want);
		return ctx->provider ? ctx->provider->probe(ctx, true) : -EINVAL;
	}
	for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++) {
		ctx->provider = providers[i];
		ret = ctx->provider->probe(ctx, false);
		if (!ret)
			return 0;
	}
	return ret;
}

static int choose_run_dir(struct sits_ctx *ctx, const char *wanted)
{
	if (!wanted || !*wanted)
		wanted = secure_getenv("SITS_RUN_DIR");
	if (!wanted || !*wanted)
		wanted = DEFAULT_RUN_DIR;
	ctx->run_dir = strdup(wanted);
	return ctx->run_dir ? 0 : -ENOMEM;
}

int sits_open(const struct sits_open_opts *opts, struct sits_ctx **out)
{
	struct sits_open_opts o = { .size = sizeof(o) };
	struct sits_ctx *ctx;
	int ret;

	if (!out)
		return -EINVAL;
	if (opts) {
		ret = sits_opts_copy(&o, sizeof(o), opts, sizeof(o));
		if (ret)
			return ret;
	}
	if (o.flags || o.reserved || o.provider > SITS_PROVIDER_USER)
		return -EINVAL;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return -ENOMEM;
	ctx->dev_fd = -1;
	ctx->log = o.log;
	ctx->log_arg = o.log_arg;
	ret = choose_run_dir(ctx, o.run_dir);
	if (ret)
		goto err_free;
	ret = choose_provider(ctx, o.provider);
	if (ret)
		goto err_free;
	sits_log(ctx, SITS_LOG_DEBUG, "provider '%s', run directory %s", ctx->provider->name,
		 ctx->run_dir);
	*out = ctx;
	return 0;

err_free:
	sits_close(ctx);
	return ret;
}

void sits_close(struct sits_ctx *ctx)
{
	if (!ctx)
		return;
	if (ctx->dev_fd >= 0)
		close(ctx->dev_fd);
	free(ctx->run_dir);
	free(ctx);
}

const char *sits_provider_name(const struct sits_ctx *ctx)
{
	return ctx->provider->name;
}

const char *sits_run_dir(const struct sits_ctx *ctx)
{
	return ctx->run_dir;
}
