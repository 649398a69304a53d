// SPDX-License-Identifier: MIT
/*
 * wire.c - sending messages, names and paths, and the arithmetic of an arena's rings.
 */
#include "libsits/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int sits_wire_send(int sock, const void *msg, size_t len)
{
	ssize_t n = send(sock, msg, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n == (ssize_t)len)
		return 0;
	if (n >= 0 || errno == ECONNRESET || errno == ENOTCONN)
		return -EPIPE;
	/* No memory for the message now is the same as no room for it now. */
	return errno == ENOBUFS || errno == ENOMEM || errno == EINTR ? -EAGAIN : -errno;
}

int sits_wire_send_fd(int sock, const void *msg, size_t len, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)msg, .iov_len = len };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(sock, &mh, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -errno;
}

int sits_wire_check_name(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	size_t len;

	if (!name)
		return -EINVAL;
	len = strnlen(name, SITS_QUEUE_NAME_MAX);
	if (!len || len >= SITS_QUEUE_NAME_MAX || name[0] == '.' || strspn(name, allowed) != len)
		return -EINVAL;
	return 0;
}

int sits_wire_path(struct sits_ctx *ctx, const char *name, const char *suffix, char *path,
		   size_t path_len)
{
	const size_t max = sizeof(((struct sockaddr_un *)0)->sun_path);
	int n = snprintf(path, path_len, "%s/%s%s", ctx->run_dir, name, suffix);

	if (n > 0 && (size_t)n < path_len && (size_t)n < max)
		return 0;
	sits_log(ctx, SITS_LOG_ERR,
		 "run directory %s: the path of a socket in it would have %d bytes, at most %zu are possible: choose a shorter one",
		 ctx->run_dir, n, max - 1);
	return -ENAMETOOLONG;
}

bool sits_wire_want_io_uring(void)
{
	const char *no = secure_getenv("SITS_NO_IO_URING");

	return !no || !*no || !strcmp(no, "0");
}

bool sits_ring_place(const struct sits_ring *ring, uint64_t len, uint64_t *off, uint64_t *end)
{
	uint64_t need = (len + SITS_ARENA_ALIGN - 1) / SITS_ARENA_ALIGN * SITS_ARENA_ALIGN;
	uint64_t room = ring->bytes - (ring->head - ring->done);
	uint64_t at = ring->head % ring->bytes, skip = 0;

	if (len > ring->bytes)
		return false;
	if (need > ring->bytes - at) {
		skip = ring->bytes - at;
		at = 0;
	}
	if (skip + need > room)
		return false;
	*off = at;
	*end = ring->head + skip + need;
	return true;
}

bool sits_ring_set_done(struct sits_ring *ring, uint64_t done)
{
	if (done < ring->done || done > ring->head)
		return false;
	ring->done = done;
	return true;
}
