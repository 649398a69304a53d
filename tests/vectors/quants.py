#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make tests/vectors/quants.h: blocks as gguf-py, the Python package of llama.cpp, encodes them.

usage: quants.py >quants.h        (needs the packages gguf and numpy from PyPI; made with gguf 0.19.0, numpy 2.4.6)

The input is made by a rule that C has too (tests/unit/quantize/quants_test.c): integers over a power of two, so that both
have the same floats.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf.quants import quantize

ROWS, K = 4, 64


def inputs():
    i = np.arange(ROWS * K, dtype=np.int64)
    x = ((i * 7919 + 13) % 2003 - 1001).astype(np.float32) / np.float32(256)
    x[K] = 40          # a block with one large element
    x[K + 32:2 * K] = 0    # a block of zeros
    x[2 * K] = -3.9375     # the largest magnitude twice, with both signs: the first counts
    x[2 * K + 1:2 * K + 32] = np.clip(x[2 * K + 1:2 * K + 32], -2, 2)
    x[2 * K + 5] = 3.9375
    return x.reshape(ROWS, K)


def main():
    print("/* SPDX-License-Identifier: MIT */\n/* Made by quants.py; what is in it is said there. */")
    for name, kind in (("q8_0", Q.Q8_0), ("q4_0", Q.Q4_0), ("q5_0", Q.Q5_0), ("bf16", Q.BF16)):
        raw = quantize(inputs(), kind).tobytes()
        print(f"static const unsigned char vector_{name}[{len(raw)}] = {{")
        for at in range(0, len(raw), 20):
            print("\t" + ", ".join(f"0x{b:02x}" for b in raw[at:at + 20]) + ",")
        print("};")
    sys.stdout.flush()


main()
