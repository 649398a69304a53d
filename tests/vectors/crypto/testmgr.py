#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turn the SM4 vectors of Linux's crypto/testmgr.h (argument) into testmgr_sm4.inc (output).

Takes the values of the ecb, cbc, ctr, xts and gcm tables, as hexadecimal, and none of the file's text. One line of
the output is one case: mode, name, key, initial value, associated data, plaintext, ciphertext (gcm: with its tag).
"""
import re
import sys

TABLES = [('ECB', 'sm4_tv_template'), ('CBC', 'sm4_cbc_tv_template'), ('CTR', 'sm4_ctr_tv_template'),
          ('XTS', 'sm4_xts_tv_template'), ('GCM', 'sm4_gcm_tv_template')]
ESCAPE = re.compile(r'\\x([0-9a-fA-F]{1,2})|\\([0-7]{1,3})|\\(.)|(.)', re.S)
NAMED = {'0': 0, 'n': 10, 't': 9, 'r': 13, '\\': 92, '"': 34}


def string(literals):
    out = bytearray()
    for text in re.findall(r'"((?:[^"\\]|\\.)*)"', literals):
        for m in ESCAPE.finditer(text):
            out.append(int(m[1], 16) if m[1] else int(m[2], 8) if m[2] else NAMED[m[3]] if m[3] else ord(m[4]))
    return bytes(out)


def cases(table):
    """Each { } of a table, as a dict of its fields."""
    body = re.sub(r'/\*.*?\*/', '', table, flags=re.S)
    for case in re.split(r'\}\s*,\s*\{|^\s*\{', body):
        fields = {}
        for m in re.finditer(r'\.(\w+)\s*=\s*((?:"(?:[^"\\]|\\.)*"\s*)+|[^,"]+)', case):
            value = m[2].strip()
            fields[m[1]] = string(value) if '"' in value else bytes(1024) if value == 'zeroed_string' else value
        if 'key' in fields:
            yield fields


def cut(fields, name, length, fallback=b''):
    data = fields.get(name, fallback)
    n = int(fields.get(length, '0'), 0)
    assert len(data) >= n, (name, len(data), n)
    return data[:n]


text = open(sys.argv[1]).read()
print('''/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The values of the SM4 cases that Linux tests its ciphers with (crypto/testmgr.h of 6.12); made by testmgr.py. Data only.
 * mode, name, key, initial value, associated data, plaintext, ciphertext (GCM: and tag)
 */''')
for mode, name in TABLES:
    table = re.search(rf'\b{name}\[\]\s*=\s*\{{\n(.*?)^\}};', text, re.S | re.M)
    if not table:
        sys.exit(f'testmgr.py: no {name}')
    for n, c in enumerate(cases(table[1])):
        gcm = mode == 'GCM'
        plain = cut(c, 'ptext', 'plen' if gcm else 'len')
        cipher = cut(c, 'ctext', 'clen' if gcm else 'len')
        assert len(cipher) == len(plain) + 16 * gcm
        iv = c.get('iv', bytes(12) if gcm else b'')[:12 if gcm else 16]
        hexes = [x.hex() for x in (cut(c, 'key', 'klen'), iv, cut(c, 'assoc', 'alen'), plain, cipher)]
        print(f'{{ {mode}, "Linux 6.12 {name} {n}", ' + ', '.join(f'"{h}"' for h in hexes) + ' },')
