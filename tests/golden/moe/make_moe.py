#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turn a dense llama GGUF into a real mixture of experts, in Mixtral's form, which llama.cpp loads too.

usage: make_moe.py copies DENSE.gguf OUT.gguf [--used K]     default 2
       make_moe.py split DENSE.gguf OUT.gguf [--used K]      default 6

copies: each of the 8 experts of a layer is the whole FFN, the router is random. Weights of the experts chosen add up
        to one, so any choice gives the dense model's logits within rounding. As heavy as a real mixture of its shape.
split:  the FFN's 1536 neurons are dealt out to 8 experts, 192 each. A neuron is a row of gate and up, copied as it is, and
        a column of down, which lies across quantised blocks: down becomes F16. router.bin says which expert gets which
        neuron and holds the routers (make_router.py, for SmolLM2-135M only). The router's scores are small, so that
        experts chosen weigh almost exactly 1 / K each; K is multiplied into down. Choosing all 8 of 8 is the dense
        model but for the rounding of down; fewer leave out what a token needs least, as far as the router can tell.

Standard library only.
"""
import argparse
import hashlib
import math
import mmap
import operator
import os
import pathlib
import struct
import sys

EXPERTS = 8
ROUTER = pathlib.Path(__file__).with_name("router.bin")
# type -> (name, elements of a block, bytes of a block)
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
         6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
         14: ("Q6_K", 256, 210)}
F16, Q4_1 = 1, 3
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, STRING, ARRAY = 4, 8, 9


class Gguf:
    """Keys as raw bytes and tensors as (ne, type, memoryview) of a GGUF v3 file."""

    def __init__(self, path):
        self.f = open(path, "rb")
        self.map = mmap.mmap(self.f.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        magic, version, nr_tensors, nr_keys = self.take("<4sIQQ")
        if magic != b"GGUF" or version != 3:
            sys.exit(f"{path}: not a GGUF v3 file")
        self.keys = {}  # name -> (type, raw value)
        for _ in range(nr_keys):
            name, kind = self.string(), self.take("<I")[0]
            start = self.at
            self.skip(kind)
            self.keys[name] = (kind, self.map[start:self.at])
        infos = []
        for _ in range(nr_tensors):
            name, n = self.string(), self.take("<I")[0]
            infos.append((name, self.take(f"<{n}Q"), *self.take("<IQ")))
        align = self.u32("general.alignment", 32)
        base = -(-self.at // align) * align
        view = memoryview(self.map)
        self.tensors = {}
        for name, ne, kind, offset in infos:
            if kind not in TYPES:
                sys.exit(f"{path}: tensor {name} has type {kind}; known: {', '.join(t[0] for t in TYPES.values())}")
            n = math.prod(ne) // TYPES[kind][1] * TYPES[kind][2]
            self.tensors[name] = (ne, kind, view[base + offset:base + offset + n])

    def take(self, fmt):
        out = struct.unpack_from(fmt, self.map, self.at)
        self.at += struct.calcsize(fmt)
        return out

    def string(self):
        n = self.take("<Q")[0]
        self.at += n
        return self.map[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            elem, n = self.take("<IQ")
            if elem in SIZES:
                self.at += n * SIZES[elem]
            else:
                for _ in range(n):
                    self.skip(elem)
        else:
            self.at += SIZES[kind]

    def u32(self, name, default=None):
        if name not in self.keys and default is not None:
            return default
        if self.keys.get(name, (None,))[0] != U32:
            sys.exit(f"key {name} is missing or not a u32")
        return struct.unpack("<I", self.keys[name][1])[0]


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def row_bytes(kind, n):
    _, elems, size = TYPES[kind]
    return n // elems * size


def random_router(layer, embd):
    """[EXPERTS][embd]: scores of a few units, that no expert wins always. Counter-based: the same everywhere."""
    raw = hashlib.shake_128(f"router/{layer}".encode()).digest(EXPERTS * embd)
    return struct.pack(f"<{len(raw)}f", *((x - 127.5) / 1024 for x in raw))


class Router:
    """router.bin: "SITSROUT", u32 layers, embd, ff; per layer u8 expert[ff]; per expert f32 scale, i8 row[embd]."""

    def __init__(self, layers, embd, ff):
        raw = ROUTER.read_bytes()
        if raw[:8] != b"SITSROUT" or struct.unpack_from("<3I", raw, 8) != (layers, embd, ff):
            sys.exit(f"{ROUTER.name} is not for a model of {layers} layers of {embd} by {ff}")
        self.expert, self.rows = [], []
        at = 20
        for _ in range(layers):
            self.expert.append(list(raw[at:at + ff]))
            at += ff
            rows = b""
            for _ in range(EXPERTS):
                scale, *row = struct.unpack_from(f"<f{embd}b", raw, at)
                rows += struct.pack(f"<{embd}f", *(scale * x for x in row))
                at += 4 + embd
            self.rows.append(rows)


LOW, HIGH = bytes(i & 15 for i in range(256)), bytes(i >> 4 for i in range(256))


def q4_1_row(row, factor):
    """The values of a row of Q4_1 blocks, times a factor. A block: F16 scale and minimum, 16 bytes of low and high codes."""
    out = []
    for at in range(0, len(row), 20):
        d, m = struct.unpack_from("<2e", row, at)
        value = [(d * i + m) * factor for i in range(16)].__getitem__
        codes = bytes(row[at + 4:at + 20])
        out += map(value, codes.translate(LOW))
        out += map(value, codes.translate(HIGH))
    return out


def copies(ffn):
    for name, (ne, kind, data) in ffn.items():
        yield name, (*ne, EXPERTS), kind, [data] * EXPERTS


def split(ffn, owner, used):
    """@owner: the expert of each neuron."""
    order = sorted(range(len(owner)), key=owner.__getitem__)
    width = len(order) // EXPERTS
    for name, (ne, kind, data) in ffn.items():
        if name != "down":
            n = row_bytes(kind, ne[0])
            yield name, (ne[0], width, EXPERTS), kind, [data[i * n:(i + 1) * n] for i in order]
            continue
        if kind != Q4_1:
            sys.exit(f"down is {TYPES[kind][0]}; known here: Q4_1")
        pick, n = operator.itemgetter(*order), row_bytes(kind, ne[0])
        experts = [[] for _ in range(EXPERTS)]
        for r in range(ne[1]):
            raw = struct.pack(f"<{ne[0]}e", *pick(q4_1_row(data[r * n:(r + 1) * n], used)))
            for x, part in enumerate(experts):
                part.append(raw[2 * x * width:2 * (x + 1) * width])
        yield name, (width, ne[1], EXPERTS), F16, [b"".join(p) for p in experts]


def convert(way, src, dst, used):
    g = Gguf(src)
    if g.keys.get("general.architecture", (0, b""))[1][8:] != b"llama" or "llama.expert_count" in g.keys:
        sys.exit(f"{src}: not a dense model of the llama architecture")
    layers, embd, ff = (g.u32(f"llama.{k}") for k in ("block_count", "embedding_length", "feed_forward_length"))
    router = Router(layers, embd, ff) if way == "split" else None
    keys = dict(g.keys)
    keys["llama.expert_count"] = (U32, struct.pack("<I", EXPERTS))
    keys["llama.expert_used_count"] = (U32, struct.pack("<I", used))
    keys["general.name"] = (STRING, text(f"{pathlib.Path(src).stem} as {EXPERTS} experts, {way}"))
    if way == "split":
        keys["llama.feed_forward_length"] = (U32, struct.pack("<I", ff // EXPERTS))
    keys.pop("general.alignment", None)

    tensors = []  # name, ne, type, parts
    for name, (ne, kind, data) in g.tensors.items():
        if ".ffn_gate." not in name and ".ffn_up." not in name and ".ffn_down." not in name:
            tensors.append((name, ne, kind, [data]))
    for i in range(layers):
        ffn = {k: g.tensors[f"blk.{i}.ffn_{k}.weight"] for k in ("gate", "up", "down")}
        rows = router.rows[i] if router else random_router(i, embd)
        tensors.append((f"blk.{i}.ffn_gate_inp.weight", (embd, EXPERTS), 0, [rows]))
        made = split(ffn, router.expert[i], used) if router else copies(ffn)
        tensors += [(f"blk.{i}.ffn_{k}_exps.weight", ne, kind, parts) for k, ne, kind, parts in made]

    infos, at = b"", 0
    for name, ne, kind, parts in tensors:
        infos += text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, at)
        n = sum(map(len, parts))
        assert n == row_bytes(kind, math.prod(ne)), name
        at += -(-n // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(text(k) + struct.pack("<I", kind) + raw for k, (kind, raw) in keys.items()) + infos
    part = pathlib.Path(f"{dst}.part")
    with open(part, "wb") as f:
        f.write(head)
        for name, ne, kind, parts in tensors:
            f.write(bytes(-f.tell() % 32))
            for p in parts:
                f.write(p)
        f.write(bytes(-f.tell() % 32))
    os.replace(part, dst)


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: ").strip())
    p.add_argument("way", choices=["copies", "split"])
    p.add_argument("src")
    p.add_argument("dst")
    p.add_argument("--used", type=int)
    a = p.parse_args()
    used = a.used if a.used is not None else {"copies": 2, "split": 6}[a.way]
    if not 1 <= used <= EXPERTS:
        sys.exit(f"--used {used}: must be 1 to {EXPERTS}")
    convert(a.way, a.src, a.dst, used)


if __name__ == "__main__":
    main()
