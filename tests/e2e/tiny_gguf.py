# SPDX-License-Identifier: MIT
"""A llama model of random weights as a GGUF file, made with the standard library alone.

Its tokens are the 256 bytes and three control tokens, with a ChatML template, so that whatever a test sends is
tokenised and whatever comes out is text. It talks nonsense, fast: for tests of everything around a model.
"""
import random
import struct
import sys

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
CHAT = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
        "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def byte_tokens():
    """The printable stand-ins for bytes in byte-level BPE. Source: GPT-2's encoder.py, bytes_to_unicode()."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    n, out = 0, []
    for b in range(256):
        out.append(chr(b if b in keep else 256 + n))
        n += b not in keep
    return out


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def strings(name, values):
    return key(name, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def tiny_gguf(path, context=16384, layers=2, embd=64, ff=96, heads=4, kv_heads=2, seed=1, chat=CHAT):
    rnd = random.Random(seed)
    tokens = byte_tokens() + ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "ab"]
    kinds = [1] * 256 + [3] * 3 + [1]
    head_dim = embd // heads
    keys = [
        key("general.architecture", STRING, text("llama")), key("general.name", STRING, text("tiny random model")),
        key("llama.block_count", U32, struct.pack("<I", layers)),
        key("llama.context_length", U32, struct.pack("<I", context)),
        key("llama.embedding_length", U32, struct.pack("<I", embd)),
        key("llama.feed_forward_length", U32, struct.pack("<I", ff)),
        key("llama.attention.head_count", U32, struct.pack("<I", heads)),
        key("llama.attention.head_count_kv", U32, struct.pack("<I", kv_heads)),
        key("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        key("llama.rope.freq_base", F32, struct.pack("<f", 10000)),
        key("tokenizer.ggml.model", STRING, text("gpt2")), key("tokenizer.ggml.pre", STRING, text("gpt-2")),
        strings("tokenizer.ggml.tokens", tokens),
        key("tokenizer.ggml.token_type", ARRAY, struct.pack(f"<IQ{len(kinds)}i", I32, len(kinds), *kinds)),
        strings("tokenizer.ggml.merges", ["a b"]),
        key("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 256)),
        key("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 258)),
        key("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
    ]
    if chat:
        keys.append(key("tokenizer.chat_template", STRING, text(chat)))
    shapes = [("token_embd.weight", (embd, len(tokens)), 1.0)]
    for i in range(layers):
        kv = kv_heads * head_dim
        shapes += [(f"blk.{i}.attn_norm.weight", (embd,), 0), (f"blk.{i}.ffn_norm.weight", (embd,), 0),
                   (f"blk.{i}.attn_q.weight", (embd, embd), 0.2), (f"blk.{i}.attn_k.weight", (embd, kv), 0.2),
                   (f"blk.{i}.attn_v.weight", (embd, kv), 0.2), (f"blk.{i}.attn_output.weight", (embd, embd), 0.2),
                   (f"blk.{i}.ffn_gate.weight", (embd, ff), 0.2), (f"blk.{i}.ffn_up.weight", (embd, ff), 0.2),
                   (f"blk.{i}.ffn_down.weight", (ff, embd), 0.15)]
    shapes.append(("output_norm.weight", (embd,), 0))
    infos, data = b"", b""
    for name, shape, dev in shapes:
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, len(data))  # F32
        values = [rnd.gauss(0, dev) for _ in range(n)] if dev else [1.0] * n
        data += struct.pack(f"<{n}f", *values)
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + infos
    head += bytes(-len(head) % 32)
    with open(path, "wb") as f:
        f.write(head + data)


if __name__ == "__main__":
    tiny_gguf(sys.argv[1])
