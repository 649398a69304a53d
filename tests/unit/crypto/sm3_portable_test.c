// SPDX-License-Identifier: MIT
/* sm3_portable_test.c - what sm3_test.c tests, of SM3 in C, on a machine that has it in assembly. */
#include "crypto/sm3.h"
#include "crypto/sm4_core.h"

#define sits_cpu_features() 0u
#define sits_sm3_init portable_sm3_init
#define sits_sm3_update portable_sm3_update
#define sits_sm3_final portable_sm3_final
void portable_sm3_init(struct sits_sm3 *s);
void portable_sm3_update(struct sits_sm3 *s, const void *data, size_t len);
void portable_sm3_final(struct sits_sm3 *s, u8 out[SITS_SM3_LEN]);

#include "crypto/sm3.c"
#include "tests/unit/crypto/sm3_test.c"
