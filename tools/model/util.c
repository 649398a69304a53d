// SPDX-License-Identifier: MIT
/*
 * util.c - what the commands share: files in memory, time.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "daemon/model/model.h"
#include "tools/model/model.h"

int mapped_open(const char *path, struct mapped *m, struct sits_diag *diag)
{
	struct stat st;
	void *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err;

	if (fd < 0 || fstat(fd, &st)) {
		err = -errno;
		if (fd >= 0)
			close(fd);
		return sits_diag_fail(diag, err, "%s: %s", path, strerror(-err));
	}
	if (!S_ISREG(st.st_mode) || !st.st_size) {
		close(fd);
		return sits_diag_fail(diag, -EINVAL, "%s: %s", path,
				      S_ISREG(st.st_mode) ? "the file is empty" : "not a regular file");
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	err = -errno;
	close(fd);
	if (p == MAP_FAILED)
		return sits_diag_fail(diag, err, "%s: %s", path, strerror(-err));
	*m = (struct mapped){ .data = p, .len = (size_t)st.st_size };
	return 0;
}

void mapped_close(struct mapped *m)
{
	if (m->data)
		munmap((void *)m->data, m->len);
	*m = (struct mapped){ 0 };
}

/* Sealed files are named as such; anything else that is no model is the reader's to describe. */
static int refuse_sealed(const char *path, const struct mapped *f, struct sits_diag *diag)
{
	if (f->len < sizeof(SITS_SEALED_MAGIC) - 1 || memcmp(f->data, SITS_SEALED_MAGIC, sizeof(SITS_SEALED_MAGIC) - 1))
		return 0;
	return sits_diag_fail(diag, -EINVAL, "%s: a sealed file; this works on models before they are sealed", path);
}

int model_index(const char *path, const struct mapped *f, struct sits_gguf **g, struct sits_diag *diag)
{
	struct sits_diag why = { "" };
	int ret = refuse_sealed(path, f, diag);

	if (ret)
		return ret;
	ret = sits_gguf_open(f->data, f->len, g, &why);
	return ret ? sits_diag_fail(diag, ret, "%s: %s", path, why.msg[0] ? why.msg : strerror(-ret)) : 0;
}

int model_load(const char *path, const struct mapped *f, struct sits_model **m, struct sits_diag *diag)
{
	struct sits_diag why = { "" };
	int ret = refuse_sealed(path, f, diag);

	if (ret)
		return ret;
	ret = sits_model_open(f->data, f->len, m, &why);
	return ret ? sits_diag_fail(diag, ret, "%s: %s", path, why.msg[0] ? why.msg : strerror(-ret)) : 0;
}

int model_fail(const char *cmd, const char *what, int err, const struct sits_diag *diag, bool json)
{
	return diag->msg[0] ? tool_fail_because(cmd, what, err, diag->msg, json) : tool_fail(cmd, what, err, json);
}

double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
