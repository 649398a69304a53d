/* SPDX-License-Identifier: GPL-2.0 */
/*
 * weights_key.h - key-encryption keys from the kernel's keyrings.
 */
#ifndef SITS_WEIGHTS_KEY_H
#define SITS_WEIGHTS_KEY_H

#include "crypto/sm4.h"

/**
 * sits_weights_key_get() - The bytes of a key in the caller's keyrings.
 * @desc: description of a key of type "logon" or "user"
 * @raw: out, secret, the caller's to wipe; zeros on failure
 *
 * Looked for in the keyrings that request_key(2) searches, then in the user keyring, which a
 * service's session has no link to: logon before user in each. The payload is 16 bytes that are not
 * all text, or 32 hexadecimal digits and perhaps an end of line, as in a key file.
 *
 * Context: the caller's credentials count. May sleep.
 * Return: 0; -ENOKEY: there is none; -EKEYREVOKED: it was revoked or has expired; -EKEYREJECTED:
 * its payload is no key; -EACCES: no permission to search for it; -ENOMEM.
 */
int sits_weights_key_get(const char *desc, u8 raw[SITS_SM4_KEY_LEN]);

#endif
