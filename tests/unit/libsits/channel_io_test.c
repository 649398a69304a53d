// SPDX-License-Identifier: MIT
/*
 * channel_io_test.c - a client's end of the wire, alone: what has come before the other end went is received, and then the end,
 * on io_uring and on poll(2).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "libsits/channel_io.h"
#include "libsits/wire.h"
#include "sits/context.h"

static struct sits_ctx *ctx;

/* Wait for as long as it takes: what does not wake us hangs here. */
static int next(struct sits_chio *io, void *buf)
{
	int ret;

	while (!(ret = sits_chio_next(io, buf)))
		assert_int_equal(sits_chio_wait(io, UINT64_MAX), 0);
	return ret;
}

/* The other end sends nr messages and goes; where it has left one of ours unread, that is an error of its own. */
static void messages_then_end(uint32_t nr, bool unread)
{
	uint8_t buf[SITS_WIRE_MAX];
	struct sits_chio io;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(sits_chio_init(&io, ctx, fds[0]), 0);
	for (uint32_t i = 0; i < nr; i++)
		assert_int_equal(send(fds[1], &i, sizeof(i), 0), sizeof(i));
	if (unread)
		assert_int_equal(send(fds[0], "x", 1, MSG_NOSIGNAL), 1);
	close(fds[1]);
	for (uint32_t i = 0; i < nr; i++) {
		assert_int_equal(next(&io, buf), sizeof(i));
		assert_memory_equal(buf, &i, sizeof(i));
	}
	assert_int_equal(next(&io, buf), -EPIPE);
	assert_int_equal(next(&io, buf), -EPIPE);
	sits_chio_fini(&io);
	close(fds[0]);
}

/* 128: as many as there are buffers for a receive, which then ends and is armed again. */
static void test_end(void **state)
{
	static const uint32_t nrs[] = { 0, 1, 2, 127, 128, 129, 150 };

	for (size_t i = 0; i < sizeof(nrs) / sizeof(nrs[0]); i++) {
		messages_then_end(nrs[i], false);
		messages_then_end(nrs[i], true);
	}
}

static int use(void **state)
{
	if (*state)
		setenv("SITS_NO_IO_URING", "1", 1);
	else
		unsetenv("SITS_NO_IO_URING");
	return 0;
}

static int open_ctx(void **state)
{
	struct sits_open_opts o = { .size = sizeof(o), .provider = SITS_PROVIDER_USER };

	return sits_open(&o, &ctx);
}

static int close_ctx(void **state)
{
	sits_close(ctx);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "test_end/io_uring", test_end, use, NULL, NULL },
		{ "test_end/poll", test_end, use, NULL, (void *)(uintptr_t)"poll" },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, open_ctx, close_ctx);
}
