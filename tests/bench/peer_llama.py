#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The peer's side of the engine benchmarks: llama.cpp through llama-cpp-python's low-level binding.

usage: peer_llama.py MODEL.gguf THREADS

Reads commands from standard input, one a line, and answers each with one JSON line, so that the driver can
take turns between the peer and SITS inside one run:
    decode-1 PROMPT N     tokens/s of N greedy tokens after PROMPT tokens, one stream
    prefill-512 N         tokens/s of one prompt of N tokens
    batch-8 S PROMPT N    tokens/s, all together, of S streams that decode N tokens each
"""
import json
import sys
import time

import llama_cpp as lc
import numpy as np


def null_log(level, text, data):
    pass


LOG = lc.llama_log_callback(null_log)


class Peer:
    def __init__(self, path, threads):
        lc.llama_log_set(LOG, None)
        lc.llama_backend_init()
        self.model = lc.llama_load_model_from_file(path.encode(), lc.llama_model_default_params())
        if not self.model:
            sys.exit(f"peer_llama: cannot load {path}")
        p = lc.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = 8192, 512, 512, 16
        p.n_threads = p.n_threads_batch = threads
        p.kv_unified = True
        self.ctx = lc.llama_init_from_model(self.model, p)
        self.vocab = lc.llama_model_get_vocab(self.model)
        self.nr_vocab = lc.llama_vocab_n_tokens(self.vocab)
        self.batch = lc.llama_batch_init(512, 0, 16)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (tok, pos, seq, logits) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = tok, pos, 1, seq, logits
        if lc.llama_decode(self.ctx, b):
            sys.exit("peer_llama: llama_decode failed")

    def greedy(self, i):
        p = lc.llama_get_logits_ith(self.ctx, i)
        return int(np.ctypeslib.as_array(p, shape=(self.nr_vocab,)).argmax())

    def clear(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.ctx), True)

    def prompt(self, n, seq=0):
        # The same made-up ids on both sides: ordinary tokens, spread over the vocabulary.
        return [1000 + (i * 7919 + seq * 104729) % 40000 for i in range(n)]

    def fill(self, n, seq):
        toks = self.prompt(n, seq)
        for at in range(0, n, 512):
            part = toks[at:at + 512]
            self.decode([(t, at + i, seq, at + i == n - 1) for i, t in enumerate(part)])
        return self.greedy(len(part) - 1)

    def decode_1(self, nr_prompt, n):
        return self.batch_8(1, nr_prompt, n)

    def prefill_512(self, n):
        self.clear()
        start = time.perf_counter()
        self.fill(n, 0)
        return n / (time.perf_counter() - start)

    def batch_8(self, streams, nr_prompt, n):
        self.clear()
        toks = [self.fill(nr_prompt, s) for s in range(streams)]
        start = time.perf_counter()
        for step in range(n):
            self.decode([(t, nr_prompt + step, s, True) for s, t in enumerate(toks)])
            toks = [self.greedy(s) for s in range(streams)]
        return streams * n / (time.perf_counter() - start)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    peer = Peer(sys.argv[1], int(sys.argv[2]))
    todo = {"decode-1": peer.decode_1, "prefill-512": peer.prefill_512, "batch-8": peer.batch_8}
    print(json.dumps({"ready": True, "peer": f"llama-cpp-python {lc.__version__}"}), flush=True)
    for line in sys.stdin:
        name, *args = line.split()
        print(json.dumps({"name": name, "value": todo[name](*map(int, args))}), flush=True)


main()
