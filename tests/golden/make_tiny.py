#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Logits of llama.cpp on the random-weights models of tests/unit/engine/tiny_golden_test.c.

usage: make_tiny.py DIR OUT.bin     (needs llama-cpp-python and numpy from PyPI)

DIR holds the models, written by the test program run with SITS_WRITE_TINY=DIR. For each, in order of name: the prompt
of the test, then greedy tokens; at four positions the logits of the whole vocabulary, f32, little-endian.
F32 keys and values, no flash attention.
"""
import pathlib
import sys

import llama_cpp as lc
import numpy as np

PROMPT = [(i * 37 + 11) % 256 for i in range(40)]
STEPS = 4

lc.llama_backend_init()
out = []
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.gguf")):
    model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
    if not model:
        sys.exit(f"{path}: llama.cpp does not load it")
    p = lc.llama_context_default_params()
    p.n_ctx, p.n_threads, p.n_threads_batch, p.flash_attn_type, p.type_k, p.type_v = 512, 1, 1, 0, 0, 0
    ctx = lc.llama_init_from_model(model, p)
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    feed, pos = PROMPT, 0
    for _ in range(STEPS):
        b = lc.llama_batch_init(len(feed), 0, 1)
        b.n_tokens = len(feed)
        for i, t in enumerate(feed):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = t, pos + i, 1, 0, i == len(feed) - 1
        if lc.llama_decode(ctx, b):
            sys.exit(f"{path}: llama_decode failed")
        pos += len(feed)
        logits = np.ctypeslib.as_array(lc.llama_get_logits_ith(ctx, -1), (vocab,)).astype("<f4")
        out.append(logits.tobytes())
        feed = [int(logits.argmax())]
        lc.llama_batch_free(b)
pathlib.Path(sys.argv[2]).write_bytes(b"".join(out))
