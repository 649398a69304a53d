#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The peer's perplexity: llama.cpp through llama-cpp-python's low-level binding, in the windows of `sits perplexity`.

usage: peer_perplexity.py MODEL.gguf TEXT [WINDOWS [THREADS [CONTEXT]]]

Prints one JSON object with the fields that `sits perplexity --json` has under the same names. WINDOWS 0: all. Tokens, windows
and what of them is scored are as tools/model/ppl.h says.
"""
import json
import math
import sys

import llama_cpp as lc
import numpy as np


def null_log(level, text, data):
    pass


LOG = lc.llama_log_callback(null_log)


def tokens_of(vocab, text):
    out = (lc.llama_token * (len(text) + 2))()
    n = lc.llama_tokenize(vocab, text, len(text), out, len(out), True, False)
    if n < 0:
        sys.exit("peer_perplexity: llama_tokenize failed")
    return list(out[:n])


def main():
    if not 3 <= len(sys.argv) <= 6:
        sys.exit(__doc__)
    model_path, text_path = sys.argv[1:3]
    windows, threads, context = (int(a) for a in (sys.argv[3:] + ["0", "2", "512"][len(sys.argv) - 3:]))
    lc.llama_log_set(LOG, None)
    lc.llama_backend_init()
    model = lc.llama_load_model_from_file(model_path.encode(), lc.llama_model_default_params())
    if not model:
        sys.exit(f"peer_perplexity: cannot load {model_path}")
    p = lc.llama_context_default_params()
    p.n_ctx = p.n_batch = p.n_ubatch = context
    p.n_threads = p.n_threads_batch = threads
    ctx = lc.llama_init_from_model(model, p)
    vocab = lc.llama_model_get_vocab(model)
    nr_vocab = lc.llama_vocab_n_tokens(vocab)
    with open(text_path, "rb") as f:
        toks = tokens_of(vocab, f.read())
    nr = len(toks) // context
    nr = min(nr, windows) if windows else nr
    first = context // 2
    batch = lc.llama_batch_init(context, 0, 1)
    nlls = []
    for w in range(nr):
        part = toks[w * context:(w + 1) * context]
        if lc.llama_vocab_get_add_bos(vocab):
            part[0] = lc.llama_vocab_bos(vocab)
        batch.n_tokens = context
        for i, t in enumerate(part):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = t, i, 1, 0
            batch.logits[i] = first <= i < context - 1
        lc.llama_memory_clear(lc.llama_get_memory(ctx), True)
        if lc.llama_decode(ctx, batch):
            sys.exit("peer_perplexity: llama_decode failed")
        for i in range(first, context - 1):
            x = np.ctypeslib.as_array(lc.llama_get_logits_ith(ctx, i), shape=(nr_vocab,)).astype(np.float64)
            top = x.max()
            nlls.append(math.log(np.exp(x - top).sum()) + top - x[part[i + 1]])
        print(f"window {w + 1} of {nr}", end="\r", file=sys.stderr, flush=True)
    nll = float(np.mean(nlls))
    err = math.exp(nll) * float(np.std(nlls)) / math.sqrt(max(len(nlls) - 1, 1))
    print(json.dumps({"peer": f"llama-cpp-python {lc.__version__}", "perplexity": math.exp(nll), "stderr": err, "nll": nll,
                      "tokens": len(toks), "scored": len(nlls), "windows": nr, "context": context, "threads": threads}))


main()
