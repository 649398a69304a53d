#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Deal out the neurons of SmolLM2-135M's FFNs to 8 experts and fit their routers: router.bin, for make_moe.py.

usage: make_router.py MODEL.gguf TEXT OUT.bin [TOKENS]     (needs numpy, gguf and llama-cpp-python from PyPI; minutes)

The dense model runs over TOKENS tokens (1792) of a text in windows of 256; per layer, the input x of the FFN and each
neuron's output h, times the length of its column of down, are kept. Then

- the half of the neurons with most energy (mean square) on average goes to experts 0 to 3, dealt like cards. Their
  routers are fitted to a constant, which the mean of x allows, above all others: they are always chosen
  where 4 or more are;
- the other half goes to experts 4 to 7 by what is active together: k-means of equal clusters on the neurons' activity over the
  tokens. Their routers are fitted to the experts' shares of the energy (ridge regression on x).

Scores are scaled down to a few thousandths. Reported, on tokens not fitted to: the share of the energy that the experts chosen hold.
"""
import pathlib
import struct
import sys

import gguf
import llama_cpp as lc
import numpy as np

EXPERTS, ALWAYS, WINDOW = 8, 4, 256
RIDGE, CONSTANT, SCORE = 30.0, 5.0, 1 / 4096


class Dense:
    """The llama forward pass in numpy, as far as the last FFN."""

    def __init__(self, path):
        r = gguf.GGUFReader(path)
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in r.tensors}

        def key(name):
            f = r.fields[f"llama.{name}"]
            return f.parts[f.data[0]][0].item()
        self.layers, self.embd, self.ff = key("block_count"), key("embedding_length"), key("feed_forward_length")
        self.heads, self.kv_heads = key("attention.head_count"), key("attention.head_count_kv")
        self.eps, self.dim = key("attention.layer_norm_rms_epsilon"), self.embd // self.heads
        self.freq = key("rope.freq_base") ** (-np.arange(0, self.dim, 2) / self.dim)

    def norm(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def rope(self, x):
        angle = np.arange(len(x))[:, None, None] * self.freq
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

    def attention(self, at, x):
        n = len(x)
        q, k, v = ((x @ self.w[f"{at}attn_{m}.weight"].T).reshape(n, -1, self.dim) for m in "qkv")
        q, k = self.rope(q), self.rope(k)
        out = np.empty((n, self.heads, self.dim), np.float32)
        for h in range(self.heads):
            g = h * self.kv_heads // self.heads
            s = q[:, h] @ k[:, g].T / np.sqrt(self.dim) + np.triu(np.full((n, n), -1e30, np.float32), 1)
            s = np.exp(s - s.max(-1, keepdims=True))
            out[:, h] = s / s.sum(-1, keepdims=True) @ v[:, g]
        return out.reshape(n, -1) @ self.w[f"{at}attn_output.weight"].T

    def run(self, ids, see):
        """see(layer, x, h): the FFN's input and its neurons' outputs."""
        y = self.w["token_embd.weight"][ids].copy()
        for i in range(self.layers):
            at = f"blk.{i}."
            y += self.attention(at, self.norm(y, self.w[at + "attn_norm.weight"]))
            x = self.norm(y, self.w[at + "ffn_norm.weight"])
            gate = x @ self.w[at + "ffn_gate.weight"].T
            h = gate / (1 + np.exp(-gate)) * (x @ self.w[at + "ffn_up.weight"].T)
            see(i, x, h)
            y += h @ self.w[at + "ffn_down.weight"].T


def tokenize(path, text):
    p = lc.llama_model_default_params()
    p.vocab_only = True
    vocab = lc.llama_model_get_vocab(lc.llama_model_load_from_file(str(path).encode(), p))
    raw = text.encode()
    out = np.zeros(len(raw) + 8, np.int32)
    n = lc.llama_tokenize(vocab, raw, len(raw), out.ctypes.data_as(lc.ctypes.POINTER(lc.ctypes.c_int32)), len(out),
                          False, False)
    return out[:n]


def collect(path, text, tokens):
    """x [layers][tokens][embd], energy's root [layers][tokens][ff], as F16."""
    net, ids = Dense(path), tokenize(path, text)
    x = np.zeros((net.layers, tokens, net.embd), np.float16)
    h = np.zeros((net.layers, tokens, net.ff), np.float16)
    length = [np.sqrt((net.w[f"blk.{i}.ffn_down.weight"] ** 2).sum(0)) for i in range(net.layers)]

    for at in range(0, tokens, WINDOW):
        start = 500 + 2 * at  # behind a title page; half of the text is passed over

        def see(i, xs, hs):
            x[i, at:at + WINDOW], h[i, at:at + WINDOW] = xs, hs * length[i]
        net.run(ids[start:start + WINDOW], see)
        print(f"{at + WINDOW} of {tokens} tokens", file=sys.stderr, flush=True)
    return x, h


def equal_clusters(points, k, rng):
    """k-means with clusters of one size: pairs (point, centre) are taken by distance while the centre has room."""
    best = None
    for _ in range(2):
        centre = points[rng.permutation(len(points))[:k]]
        for _ in range(25):
            dist = (points ** 2).sum(1)[:, None] - 2 * points @ centre.T + (centre ** 2).sum(1)
            owner, room = np.full(len(points), -1), np.full(k, len(points) // k)
            for at in np.argsort(dist, axis=None):
                p, c = divmod(at, k)
                if owner[p] < 0 and room[c]:
                    owner[p] = c
                    room[c] -= 1
            moved = np.stack([points[owner == c].mean(0) for c in range(k)])
            if np.allclose(moved, centre):
                break
            centre = moved
        cost = ((points - centre[owner]) ** 2).sum()
        if best is None or cost < best[0]:
            best = cost, owner
    return best[1]


def shares(energy, owner):
    e = np.stack([energy[:, owner == x].sum(1) for x in range(EXPERTS)], 1)
    return e / e.sum(1, keepdims=True)


def fit(x, h, rng):
    """(expert of each neuron [ff], router [EXPERTS][embd]) of one layer."""
    x, energy = x.astype(np.float32), h.astype(np.float32) ** 2
    ff, size = energy.shape[1], energy.shape[1] // EXPERTS
    order, owner = np.argsort(-energy.mean(0)), np.full(energy.shape[1], -1)
    owner[order[:ALWAYS * size]] = np.arange(ALWAYS * size) % ALWAYS
    rest = order[ALWAYS * size:]
    activity = np.sqrt(energy[:, rest])
    points = np.minimum(activity / (activity.mean(0) + 1e-9), 4).T - 1
    points /= np.sqrt((points ** 2).sum(1, keepdims=True) + 1e-9)
    owner[rest] = ALWAYS + equal_clusters(points, EXPERTS - ALWAYS, rng)
    part = np.sqrt(shares(energy, owner)[:, ALWAYS:])
    part -= part.mean(1, keepdims=True)
    target = np.concatenate([np.full((len(x), ALWAYS), CONSTANT), part / part.std()], 1)
    gram = x.T @ x + RIDGE * np.mean(x * x) * np.eye(x.shape[1], dtype=np.float32)
    return owner, np.linalg.solve(gram, x.T @ target).T * SCORE


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    tokens = int(sys.argv[4]) if len(sys.argv) == 5 else 1792
    x, h = collect(sys.argv[1], pathlib.Path(sys.argv[2]).read_text(), tokens + WINDOW)
    write(x, h, sys.argv[3])


def write(x, h, path):
    """Fit to all but the last window, report on that."""
    rng, held = np.random.default_rng(1), {4: [], 5: [], 6: [], 7: []}
    layers, _, embd = x.shape
    out = [b"SITSROUT", struct.pack("<3I", layers, embd, h.shape[2])]
    for i in range(layers):
        owner, rows = fit(x[i, :-WINDOW], h[i, :-WINDOW], rng)
        out.append(owner.astype(np.uint8).tobytes())
        for row in rows:
            scale = np.abs(row).max() / 127
            out.append(struct.pack("<f", scale) + np.rint(row / scale).astype(np.int8).tobytes())
        share = shares(h[i, -WINDOW:].astype(np.float32) ** 2, owner)
        score = x[i, -WINDOW:].astype(np.float32) @ rows.T
        for used in held:
            top = np.argsort(-score, 1)[:, :used]
            held[used].append(np.take_along_axis(share, top, 1).sum(1).mean())
    for used, parts in held.items():
        print(f"{used} of {EXPERTS} experts hold {100 * np.mean(parts):.1f} % of the energy")
    pathlib.Path(path).write_bytes(b"".join(out))


if __name__ == "__main__":
    main()
