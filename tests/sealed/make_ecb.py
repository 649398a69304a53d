#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write a file of suite 240 (raw SM4-ECB, wrapped session key), which SITS itself only reads.

    tests/sealed/make_ecb.py [--chunk BYTES] [--model-id ID] [--model-version N] INPUT KEYFILE OUTPUT
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sealed_format as sf  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description='Write a suite 240 file for tests.')
    parser.add_argument('--chunk', type=int, default=1 << 20)
    parser.add_argument('--model-id')
    parser.add_argument('--model-version', type=int, default=0)
    parser.add_argument('input')
    parser.add_argument('keyfile')
    parser.add_argument('output')
    args = parser.parse_args()
    session_key = os.urandom(16)
    model_id = os.path.basename(args.input) if args.model_id is None else args.model_id
    with open(args.input, 'rb') as src, open(args.output, 'wb') as dst:
        dst.write(sf.make_page(sf.read_key(args.keyfile), sf.ECB, args.chunk, os.fstat(src.fileno()).st_size, model_id,
                               args.model_version, bytes(8), session_key, os.urandom(12)))
        while data := src.read(1 << 20):
            dst.write(sf.sm4_ecb(session_key, data + bytes(-len(data) % 16)))
    return 0


if __name__ == '__main__':
    sys.exit(main())
