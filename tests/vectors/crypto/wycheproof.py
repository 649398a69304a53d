#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turn Wycheproof's testvectors_v1/sm4_gcm_test.json (argument) into wycheproof_sm4_gcm.inc (output).

Keeps the cases with 96-bit nonces and 128-bit tags. With --other-nonces: those with nonces of other lengths,
as wycheproof_sm4_gcm_nonces.inc.
"""
import json
import sys

other = '--other-nonces' in sys.argv[1:-1]
data = json.load(open(sys.argv[-1]))
which = 'nonces of other lengths than 96 bits' if other else '96-bit nonces'
print(f'''/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SM4-GCM cases of Project Wycheproof (github.com/C2SP/wycheproof, testvectors_v1/sm4_gcm_test.json, Apache-2.0),
 * those with {which} and 128-bit tags; made by wycheproof.py. Data only.
 * name, key, nonce, associated data, plaintext, ciphertext, tag, valid
 */''')
for g in data['testGroups']:
    if (g['ivSize'] != 96) != other or g['tagSize'] != 128 or g['keySize'] != 128:
        continue
    for t in g['tests']:
        name = f'Wycheproof sm4_gcm {t["tcId"]}' + (f': {t["comment"]}' if t['comment'] else '')
        fields = [name] + [t[k] for k in ('key', 'iv', 'aad', 'msg', 'ct', 'tag')]
        print('{ ' + ', '.join(json.dumps(f) for f in fields) + f', {"true" if t["result"] == "valid" else "false"} }},')
