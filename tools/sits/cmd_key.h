/* SPDX-License-Identifier: MIT */
/*
 * cmd_key.h - what the files of `sits key` share.
 */
#ifndef SITS_TOOLS_CMD_KEY_H
#define SITS_TOOLS_CMD_KEY_H

#include <stdbool.h>
#include <stdint.h>

#define KEY_CMD "key"

/* The command line; each verb looks at what it takes. */
struct key_args {
	char **operands;
	int nr;				/* of operands: the number that the verb takes was checked */
	const char *from, *new_spec;
	int from_fd;			/* importing: opened from @from, or standard input */
	uint32_t flags, threads, wait_s; /* flags: SITS_REKEY_* */
	bool json, quiet, logon;
};

/** key_rotate() - sits key rotate SPEC PATH... Return: the exit status. */
int key_rotate(struct key_args *a);

#endif
