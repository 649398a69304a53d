/* SPDX-License-Identifier: MIT */
/*
 * io.h - reads and writes that are whole or failed.
 */
#ifndef SITS_LIBSITS_IO_H
#define SITS_LIBSITS_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sits_ctx;
struct stat;

/** sits_pread_all() - Return: 0; -ENODATA where the file ends before; -errno. */
int sits_pread_all(int fd, void *buf, size_t len, uint64_t off);

/** sits_read_upto() - Read until the end, or @max bytes; for what can't be read at an offset. @len: out. Return: 0; -errno. */
int sits_read_upto(int fd, void *buf, size_t max, size_t *len);

/** sits_pwrite_all() - Return: 0; -errno. */
int sits_pwrite_all(int fd, const void *buf, size_t len, uint64_t off);

/**
 * sits_copy_owner() - Give the file @fd the owner, the group, the access control list and the mode (those bits that are in
 * @mask) of another, which is open as @from.
 * @st: fstat() of it
 * Return: 0; 1 where the caller may not give away owner or group, and the rest is done; -errno.
 */
int sits_copy_owner(int fd, int from, const struct stat *st, mode_t mask);

/** sits_file_kind() - "a directory", "a device" and so on, for messages. */
const char *sits_file_kind(mode_t mode);

/**
 * sits_off_stdio() - Move a descriptor just opened off 0, 1 and 2, which it gets where the program runs with one of them
 * closed: what the program then prints would go into the file.
 * @fd: taken; -1 is passed on
 * Return: the descriptor, or -1 and errno.
 */
int sits_off_stdio(int fd);

/**
 * sits_open_regular() - Open a regular file; symbolic links are followed, devices and pipes not waited for.
 * @flags: O_RDONLY or O_RDWR
 * @st: out, fstat() of it
 * Return: the descriptor; -EISDIR; -EINVAL for what is no regular file; -errno. All are logged.
 */
int sits_open_regular(struct sits_ctx *ctx, const char *path, int flags, struct stat *st);

/** sits_reopen_direct() - The same file for O_DIRECT reads. Return: a descriptor, or -1 where that is not to be had. */
int sits_reopen_direct(int fd);

#endif
