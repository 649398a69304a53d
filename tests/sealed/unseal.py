#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Open a sealed file with an implementation independent of SITS, and write its plaintext.

    tests/sealed/unseal.py [--allow-ecb] [--jobs N] FILE KEYFILE OUTPUT

OUTPUT may be - for standard output (then plaintext of verified chunks is written before the last has verified). 100 MB
takes some 10 s of CPU time with the `cryptography` package, several minutes without.
"""
import argparse
import multiprocessing
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sealed_format as sf  # noqa: E402

_worker = {}


def start_worker(path, header):
    _worker['file'] = open(path, 'rb')
    _worker['header'] = header
    _worker['gcm'] = sf.Gcm(header.file_key)


def open_chunk(job):
    i, tag = job
    h = _worker['header']
    at = i * h.chunk_bytes
    data = os.pread(_worker['file'].fileno(), min(h.chunk_bytes, h.data_bytes - at), h.data_off + at)
    if h.suite == sf.ECB:
        return sf.sm4_ecb(h.file_key, data, decrypt=True)
    return _worker['gcm'].open(h.nonce(i), h.aad(i), data, tag)


def unseal(path, kek, out, allow_ecb, jobs):
    with open(path, 'rb') as f:
        header = sf.Header(f.read(sf.PAGE), kek)
        tags = f.read(header.tags_bytes)
        padding = f.read(header.data_off - sf.PAGE - header.tags_bytes)
        size = os.fstat(f.fileno()).st_size
    if size != header.data_off + header.data_bytes:
        raise sf.Refused(f'has {size} bytes, the header says {header.data_off + header.data_bytes}')
    if any(padding):
        raise sf.Refused('bytes between tag table and ciphertext are not zero')
    if header.suite == sf.ECB and not allow_ecb:
        raise sf.Refused('suite 240 (SM4-ECB) protects no integrity: pass --allow-ecb to read it all the same')
    left = header.plain_bytes
    work = [(i, tags[16 * i:16 * i + 16]) for i in range(header.chunks)]
    with multiprocessing.Pool(jobs, start_worker, (path, header)) as pool:
        for i, plain in enumerate(pool.imap(open_chunk, work)):
            if plain is None:
                raise sf.Refused(f'chunk {i} does not verify: it was changed')
            out.write(plain[:left])
            left -= min(left, len(plain))
    if left:
        raise sf.Refused(f'{left} bytes are missing')


def main():
    parser = argparse.ArgumentParser(description='Open a sealed file and write its plaintext.')
    parser.add_argument('--allow-ecb', action='store_true', help='read suite 240, which has no integrity')
    parser.add_argument('--jobs', type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument('file')
    parser.add_argument('keyfile')
    parser.add_argument('output')
    args = parser.parse_args()
    temporary = None
    try:
        if args.output == '-':
            unseal(args.file, sf.read_key(args.keyfile), sys.stdout.buffer, args.allow_ecb, args.jobs)
            return 0
        temporary = args.output + '.part'
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'wb') as out:
            unseal(args.file, sf.read_key(args.keyfile), out, args.allow_ecb, args.jobs)
        os.replace(temporary, args.output)
        return 0
    except (sf.Refused, OSError, struct.error) as e:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        print(f'unseal.py: {args.file}: {e}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
