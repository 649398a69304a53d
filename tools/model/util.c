// SPDX-License-Identifier: MIT
/*
 * util.c - what the commands share: files in memory, time.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "crypto/sealed.h"
#include "daemon/model/model.h"
#include "tools/model/model.h"

/*
 * A file that is mapped. What lies behind the new end of a file that was cut, or can't be read from its disk, is SIGBUS to who reads
 * it: on_bus() puts zeros there. The list changes while there is one thread; the handler runs in any.
 */
struct mapping {
	struct mapping *next;
	uint8_t *start, *end;		/* whole pages */
	struct stat st;			/* as it was opened */
	volatile sig_atomic_t lost;
	char path[];
};

static struct mapping *mappings;
static volatile sig_atomic_t any_lost;

static void on_bus(int sig, siginfo_t *info, void *context)
{
	uint8_t *at = (uint8_t *)((uintptr_t)info->si_addr & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1));
	struct mapping *m;
	int saved = errno;

	for (m = mappings; m; m = m->next)
		if (at >= m->start && at < m->end)
			break;
	if (m && mmap(at, (size_t)(m->end - at), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
		m->lost = any_lost = 1;
	else
		signal(sig, SIG_DFL);	/* and again */
	errno = saved;
}

static void catch_bus(void)
{
	struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGBUS, &sa, NULL);
}

static int map_fd(const char *path, int fd, const struct stat *st, struct mapped *m)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), len = (size_t)st->st_size;
	struct mapping *new = malloc(sizeof(*new) + strlen(path) + 1);
	void *p;

	if (!new)
		return -ENOMEM;
	p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		free(new);
		return -errno;
	}
	*new = (struct mapping){ .next = mappings, .start = p, .end = (uint8_t *)p + (len + page - 1) / page * page, .st = *st };
	strcpy(new->path, path);
	if (!mappings)
		catch_bus();
	mappings = new;
	*m = (struct mapped){ .data = p, .len = len };
	return 0;
}

int mapped_open(const char *path, struct mapped *m, struct sits_diag *diag)
{
	struct stat st;
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
	err = map_fd(path, fd, &st, m);
	close(fd);
	return err ? sits_diag_fail(diag, err, "%s: %s", path, strerror(-err)) : 0;
}

void mapped_close(struct mapped *m)
{
	struct mapping **p = &mappings, *old;

	while (m->data && *p && (*p)->start != m->data)
		p = &(*p)->next;
	if (m->data && *p) {
		old = *p;
		*p = old->next;
		munmap(old->start, m->len);
		free(old);
	}
	*m = (struct mapped){ 0 };
}

bool mapped_lost(void)
{
	return any_lost;
}

/* By name, since a model may have more files than a process descriptors. Where the name is another file's by now, this one is left as it was. */
static bool has_changed(const struct mapping *m)
{
	struct stat st;

	return !stat(m->path, &st) && st.st_dev == m->st.st_dev && st.st_ino == m->st.st_ino &&
	       (st.st_size != m->st.st_size || memcmp(&st.st_mtim, &m->st.st_mtim, sizeof(st.st_mtim)));
}

int mapped_check(int ret, struct sits_diag *diag)
{
	const struct mapping *m;
	bool changed;

	if (ret == -ECANCELED && tool_signal())
		return ret;
	for (m = mappings; m; m = m->next) {
		changed = has_changed(m);
		if (!changed && !m->lost)
			continue;
		*diag = (struct sits_diag){ "" };
		return changed ? sits_diag_fail(diag, -ESTALE, "%s: changed while it was being read: try again once nobody writes it",
						m->path) :
				 sits_diag_fail(diag, -EIO, "%s: a part of it could not be read: it was cut short, or its disk fails", m->path);
	}
	return ret;
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
