#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the seeds of the fuzz targets: tests/fuzz/corpus/TARGET/NAME. Small, right inputs that reach deep."""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).parent
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def save(target, name, data):
    path = ROOT / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    if kind == STRING:
        return text(v)
    if kind == ARRAY:
        elem, items = v
        return struct.pack("<IQ", elem, len(items)) + b"".join(value(elem, i) for i in items)
    return struct.pack("<" + PACK[kind], v)


def gguf(keys, tensors=(), align=32):
    """keys: (name, type, value); tensors: (name, type, dimensions, bytes)"""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, kind, v in keys:
        out += text(name) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, kind, dims, raw in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        out += struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % align)
    return out + (bytes(-len(out) % align) if tensors else b"") + data


CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_alphabet():
    keep = [b for b in range(256) if 0x21 <= b <= 0x7e or (b >= 0xa1 and b != 0xad)]
    other = [b for b in range(256) if b not in keep]
    return [chr(b) if b in keep else chr(256 + other.index(b)) for b in range(256)]


def model(tokens, types, extra):
    """One layer of llama: 32 wide, 2 heads of 16."""
    n = len(tokens)
    f32 = lambda k, rows=1: bytes(4 * k * rows)  # noqa: E731
    q4 = lambda k, rows: bytes(18 * (k // 32) * rows)  # noqa: E731
    keys = [("general.architecture", STRING, "llama"), ("general.name", STRING, "seed"),
            ("llama.block_count", U32, 1), ("llama.context_length", U32, 64), ("llama.embedding_length", U32, 32),
            ("llama.feed_forward_length", U32, 32), ("llama.attention.head_count", U32, 2),
            ("llama.attention.head_count_kv", U32, 1), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            ("llama.rope.freq_base", F32, 10000.0), ("llama.rope.dimension_count", U32, 16), ("llama.vocab_size", U32, n),
            ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)), ("tokenizer.ggml.token_type", ARRAY, (I32, types)),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2),
            ("tokenizer.ggml.unknown_token_id", U32, 0), ("tokenizer.chat_template", STRING, CHATML)] + extra
    tensors = [("token_embd.weight", 2, [32, n], q4(32, n)), ("output_norm.weight", 0, [32], f32(32)),
               ("blk.0.attn_norm.weight", 0, [32], f32(32)), ("blk.0.attn_q.weight", 2, [32, 32], q4(32, 32)),
               ("blk.0.attn_k.weight", 2, [32, 16], q4(32, 16)), ("blk.0.attn_v.weight", 2, [32, 16], q4(32, 16)),
               ("blk.0.attn_output.weight", 2, [32, 32], q4(32, 32)), ("blk.0.ffn_norm.weight", 0, [32], f32(32)),
               ("blk.0.ffn_gate.weight", 2, [32, 32], q4(32, 32)), ("blk.0.ffn_up.weight", 2, [32, 32], q4(32, 32)),
               ("blk.0.ffn_down.weight", 2, [32, 32], q4(32, 32))]
    return gguf(keys, tensors)


def gguf_seeds():
    save("gguf", "empty", gguf([]))
    scalars = [(f"t{k}", k, 1) for k in PACK]
    arrays = [(f"a{k}", ARRAY, (k, [0, 1])) for k in PACK]
    nested = [("n", ARRAY, (ARRAY, [(STRING, ["x", "", "yz"]), (U8, [1, 2]), (ARRAY, [(BOOL, [0, 1])])]))]
    types = [("s", STRING, "value"), ("as", ARRAY, (STRING, ["a", "", "b"]))]
    save("gguf", "types", gguf(scalars + arrays + nested + types))
    blocks = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
              13: (256, 176), 14: (256, 210), 30: (1, 2)}
    save("gguf", "tensors", gguf([("general.alignment", U32, 64)],
                                 [(f"t{k}", k, [e, 2][:1 + k % 2], bytes(b * (1 + k % 2))) for k, (e, b) in blocks.items()], 64))
    special = ["<unk>", "<|im_start|>", "<|im_end|>"]
    words = ["Ġ t", "Ġt h", "Ġth e", "i n", "e r"]
    bpe = special + byte_alphabet() + [w.replace(" ", "") for w in words]
    save("gguf", "bpe-model", model(bpe, [2, 3, 3] + [1] * (len(bpe) - 3), [
        ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "smollm"),
        ("tokenizer.ggml.merges", ARRAY, (STRING, words)), ("tokenizer.ggml.add_bos_token", BOOL, 0)]))
    spm = special + [f"<0x{b:02X}>" for b in range(256)] + ["▁", "t", "h", "e", "▁t", "he", "▁the"]
    save("gguf", "spm-model", model(spm, [2, 3, 3] + [6] * 256 + [1] * 7, [
        ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.scores", ARRAY, (F32, [-float(i) for i in range(len(spm))])),
        ("tokenizer.ggml.add_bos_token", BOOL, 1), ("tokenizer.ggml.add_space_prefix", BOOL, 1)]))


def request(fields, **values):
    h = dict(flags=0, op=1, cls=1, max_tokens=16, top_k=0, temperature=0.0, top_p=1.0, min_p=0.0, repeat=1.0, freq=0.0,
             pres=0.0, last_n=64, seed=0) | values
    out = struct.pack("<IIHHIIIffffffIIQ", 64, h["flags"], h["op"], h["cls"], len(fields), h["max_tokens"], h["top_k"],
                      h["temperature"], h["top_p"], h["min_p"], h["repeat"], h["freq"], h["pres"], h["last_n"], 0, h["seed"])
    for kind, body in fields:
        out += struct.pack("<HHI", kind, 0, len(body)) + body + bytes(-len(body) % 8)
    return out


def infer_seeds():
    save("infer", "prompt", request([(1, b"Hello")]))
    save("infer", "special", request([(7, b"<|im_start|>user\nHi<|im_end|>\n")], flags=1))
    save("infer", "chat", request([(2, b"Be brief."), (3, "Grüße".encode()), (4, b"Hi"), (3, b"More")], temperature=0.7, top_p=0.9,
                                  top_k=40, seed=7))
    save("infer", "stops", request([(3, b"x"), (6, b"model")] + [(5, b"stop%d" % i) for i in range(16)], cls=2))
    save("infer", "info", request([], op=2))


def sealed_seeds():
    # The form alone; the mutator seals pages of its own, which need the cipher.
    page = bytearray(4096)
    page[0:8] = b"\x89SITS\r\n\x1a"
    struct.pack_into("<IIIIQQ", page, 8, 1, 1, 1 << 20, 0, 5 << 20, 3)
    page[64:69] = b"model"
    save("sealed_hdr", "form", bytes(page))
    save("sealed_hdr", "short", b"\x89SITS\r\n\x1a")


def tokenizer_seeds():
    texts = ["Hello, the thing in there's 123456 ways\n\n  indented\tx", "<|im_end|> <s> grüße 漢字🙂 e\u0301", "          ", ""]
    for kind in range(6):
        for i, t in enumerate(texts):
            save("tokenizer", f"{kind}-{i}", bytes([kind + 6 * (i % 4) + (0xc0 if i == 1 else 0x40 if i == 2 else 0)]) + t.encode())
    save("tokenizer", "not-utf8", b"\x01a\xff\xc3(\xe2\x82 \xed\xa0\x80\xf4\x90\x80\x80b")


def chat_seeds():
    families = json.loads((ROOT.parent / "vectors" / "chat.json").read_text())

    def messages(*list_):
        return b"".join(bytes([role, len(t)]) + t for role, t in list_)
    for i, f in enumerate(families):
        token = f["tokens"][-1].encode()
        save("chat", f["family"], bytes([i]) + messages((0, b"s" + token), (1, token + b"u"), (2, b" <think>a</think>\n b " + token), (1, b" v\n")))
    for i, f in enumerate(families):
        if f["family"] in ("smollm2", "qwen3", "llama3.1", "mistral-v3", "zephyr", "deepseek-v3.1"):
            save("chat", f"source-{f['family']}", bytes([255, i]) + f["template"].encode())
    save("chat", "orders", bytes([0]) + messages((1, b""), (1, b"x"), (3, b"")))


gguf_seeds()
infer_seeds()
sealed_seeds()
tokenizer_seeds()
chat_seeds()
