#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden logits: what llama.cpp computes with a GGUF's weights, for tests/unit/engine/golden_test.c.

usage: make_logits.py MODEL.gguf OUT.bin [--report]     (needs llama-cpp-python, gguf and numpy from PyPI)

The reference is llama.cpp on the same weights, dequantised to F32, with F32 keys and values and without flash
attention. On the quantised file itself it rounds activations to 8 bits, and two of its own ways then differ more
from one another (mean KL 3e-3 to 5e-3 on SmolLM2-135M) than a right answer may differ from the exact one. How far that
usual way is from the exact one is recorded for each position, as a measure to hold ours against.

For each prompt: its token ids, the 32 tokens of the greedy continuation (end tokens do not end it), and for
each of the 32 positions, with all tokens before it forced, the TOP largest logits, the log-sum-exp over the
whole vocabulary, the margin of the first over the second, and the reference's own noise there: the largest
difference of any of the TOP logits between ways of computing that should not matter. The ways: the prompt in
one piece or token by token, flash attention on or off, keys and values in F32 or F16. One thread: more change
nothing but the time it takes.

File, little-endian:

    "SITSGOLD", u32 version = 1, vocab, prompts, top, steps = 32
    per prompt:  u32 name length, name; u32 tokens; i32 id[tokens]
      per step:  i32 greedy; f32 logit (of greedy), lse, margin, noise, usual; u16 id[top]; u16 below[top]
                 a logit is the greedy one's less below / 2048; usual: KL of llama.cpp's usual way from this one
"""
import ctypes
import pathlib
import struct
import sys
import tempfile

import gguf
import llama_cpp as lc
import numpy as np

STEPS, TOP, SCALE = 32, 512, 2048.0

CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")
STORY = ("The lighthouse keeper had kept a diary for forty years, and every evening he wrote down the colour of the sea, "
         "the direction of the wind, and the names of the ships that passed. ")

# name, text, special tokens recognised, exact number of tokens (0: all)
PROMPTS = [
    ("question", CHAT.format("What is the capital of France?"), True, 0),
    ("story", "Once upon a time, in a village between two mountains, there lived a clockmaker who", False, 0),
    ("chinese", "今天天气很好，我们一起去公园散步，然后", False, 0),
    ("python", "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    if n < 2:\n", False, 0),
    ("c", "#include <stdio.h>\n\nint main(void)\n{\n\tfor (int i = 0; i < 10; i++)\n\t\tprintf(", False, 0),
    ("emoji", "🎉🎂 Happy birthday! 🥳 Here are some party ideas 🎈:\n1. ", False, 0),
    ("empty", "", False, 0),
    ("one token", "The", False, 1),
    ("500 tokens", STORY * 20, False, 500),
    ("french", "Où est la bibliothèque ? Elle est située à côté de l'hôtel, près du", False, 0),
    ("numbers", "2, 4, 8, 16, 32, 64, 128,", False, 0),
    ("json", "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"field\": \"mathematics\", \"works\": [", False, 0),
]


class Reference:
    """One context of llama.cpp, used for one sequence."""

    def __init__(self, model, ubatch=512, flash=False, kv=0):
        p = lc.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = 1024, 512, ubatch
        p.n_threads = p.n_threads_batch = 1
        p.flash_attn_type = 1 if flash else 0
        p.type_k = p.type_v = kv  # ggml types: 0 is F32, 1 is F16
        p.no_perf = True
        self.ctx = lc.llama_init_from_model(model, p)
        self.vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
        self.pos = 0

    def reset(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.ctx), True)
        self.pos = 0

    def feed(self, ids):
        """Logits after the last of ids."""
        b = lc.llama_batch_init(len(ids), 0, 1)
        b.n_tokens = len(ids)
        for i, t in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i] = t, self.pos + i, 1
            b.seq_id[i][0] = 0
            b.logits[i] = i == len(ids) - 1
        if lc.llama_decode(self.ctx, b):
            sys.exit("llama_decode failed")
        self.pos += len(ids)
        lc.llama_batch_free(b)
        return np.ctypeslib.as_array(lc.llama_get_logits_ith(self.ctx, -1), (self.vocab,)).copy()


def tokenize(model, text, special):
    vocab = lc.llama_model_get_vocab(model)
    raw = text.encode()
    out = (ctypes.c_int32 * (len(raw) + 8))()
    n = lc.llama_tokenize(vocab, raw, len(raw), out, len(out), True, special)
    ids = list(out[:n])
    # llama-cpp-python starts an empty prompt with BOS whatever the metadata says of adding one.
    return ids if ids else [lc.llama_vocab_bos(vocab)]


def dequantise(path, out):
    """The same file with every tensor in F32."""
    r = gguf.GGUFReader(path)
    raw = bytes(r.data[:r.tensors[0].field.offset])  # magic, counts and all keys, as they are
    infos, offset = b"", 0
    for t in r.tensors:
        name = t.name.encode()
        infos += struct.pack("<Q", len(name)) + name + struct.pack("<I", len(t.shape))
        infos += struct.pack(f"<{len(t.shape)}QIQ", *map(int, t.shape), 0, offset)
        offset += -(-4 * int(t.n_elements) // r.alignment) * r.alignment
    with open(out, "wb") as f:
        f.write(raw + infos)
        for t in r.tensors:
            f.write(b"\0" * (-f.tell() % r.alignment))
            f.write(gguf.quants.dequantize(t.data, t.tensor_type).astype("<f4").tobytes())


def load(path):
    return lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())


def log_softmax(l):
    l = l.astype(np.float64) - float(l.max())
    return l - np.log(np.exp(l).sum())


def main():
    lc.llama_backend_init()
    usual = Reference(load(sys.argv[1]), 512, True, 1)
    with tempfile.TemporaryDirectory() as d:
        exact_path = pathlib.Path(d) / "exact.gguf"
        dequantise(sys.argv[1], exact_path)
        model = load(exact_path)
    ref = Reference(model)
    others = [Reference(model, 1), Reference(model, 512, True), Reference(model, 512, False, 1)]
    out = [b"SITSGOLD", struct.pack("<5I", 1, ref.vocab, len(PROMPTS), TOP, STEPS)]
    for name, text, special, cut in PROMPTS:
        ids = tokenize(model, text, special)
        if cut:
            assert len(ids) >= cut, name
            ids = ids[:cut]
        out.append(struct.pack("<I", len(name)) + name.encode() + struct.pack(f"<I{len(ids)}i", len(ids), *ids))
        for r in [ref, usual] + others:
            r.reset()
        feed, margins, noises, kls = ids, [], [], []
        for _ in range(STEPS):
            l = ref.feed(feed)
            order = np.argsort(-l, kind="stable")[:TOP]
            noise = max(float(np.abs(o.feed(feed) - l)[order].max()) for o in others)
            best = int(order[0])
            logp = log_softmax(l)
            kl = float((np.exp(logp) * (logp - log_softmax(usual.feed(feed)))).sum())
            margin = float(l[order[0]] - l[order[1]])
            below = np.clip(np.rint((l[best] - l[order]) * SCALE), 0, 65535).astype("<u2")
            out.append(struct.pack("<i5f", best, float(l[best]), float(l[best]) - float(logp[best]), margin, noise, kl))
            out.append(order.astype("<u2").tobytes() + below.tobytes())
            margins.append(margin)
            noises.append(noise)
            kls.append(kl)
            feed = [best]
        if "--report" in sys.argv:
            close = sum(m <= n for m, n in zip(margins, noises))
            print(f"{name}: {len(ids)} tokens, noise mean {np.mean(noises):.4f} max {np.max(noises):.4f}, smallest margin "
                  f"{min(margins):.4f}, within noise: {close} of {STEPS}, usual way's KL mean {np.mean(kls):.2e}")
    with open(sys.argv[2], "wb") as f:
        f.write(b"".join(out))


main()
