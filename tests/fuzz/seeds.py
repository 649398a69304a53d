#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the seeds of the fuzz targets: tests/fuzz/corpus/TARGET/NAME. Small, right inputs that reach deep."""
import json
import pathlib
import struct
import sys

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


F32_T, Q4_T = 0, 2  # types of tensors


def vector(name, n):
    return (name, F32_T, [n], bytes(4 * n))


def matrix(name, k, n, *stack):
    return (name, Q4_T, [k, n, *stack], bytes(18 * (k // 32) * n * (stack[0] if stack else 1)))


def attention(i):
    b = f"blk.{i}.attn_"
    return [vector(b + "norm.weight", 32), matrix(b + "q.weight", 32, 32), matrix(b + "k.weight", 32, 16), matrix(b + "v.weight", 32, 16),
            matrix(b + "output.weight", 32, 32), vector(f"blk.{i}.ffn_norm.weight", 32)]


def experts(i, shared=False):
    b = f"blk.{i}.ffn_"
    out = [(b + "gate_inp.weight", F32_T, [32, 4], bytes(4 * 32 * 4))]
    out += [matrix(b + f"{part}_exps.weight", 32, 32, 4) for part in ("gate", "up", "down")]
    return out + [matrix(b + f"{part}_shexp.weight", 32, 32) for part in ("gate", "up", "down") if shared]


def json_tokenizer(words):
    """As sits quantize writes it for a directory: tokenizer.json whole, and what follows from it."""
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [
        {"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i in (0, 1, 2)], "normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                                                                  "split": True},
        "post_processor": None, "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
        "model": {"type": "BPE", "unk_token": words[0], "fuse_unk": True, "byte_fallback": False, "vocab": {w: i for i, w in enumerate(words)},
                  "merges": [["\u2581", "t"], ["h", "e"], ["\u2581t", "he"]]}}
    return [("tokenizer.huggingface.json", STRING, json.dumps(whole, ensure_ascii=False, separators=(",", ":"))),
            ("tokenizer.sits.end_token_ids", ARRAY, (I32, [2]))]


def mixture(name, arch, keys, tensors, layers=1, as_json=False):
    """A mixture of four experts, two for each token, 32 wide, with few tokens: small, so that mutations hit what is its own."""
    words = ["<unk>", "<|im_start|>", "<|im_end|>", "\u2581", "t", "h", "e", "\u2581t", "he", "\u2581the"]
    sizes = {"block_count": layers, "context_length": 64, "embedding_length": 32, "feed_forward_length": 64, "attention.head_count": 2,
             "attention.head_count_kv": 1, "vocab_size": len(words), "expert_count": 4, "expert_used_count": 2,
             "expert_feed_forward_length": 32} | {k: v for k, v in keys.items() if type(v) is int}
    floats = {"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e4} | {k: v for k, v in keys.items() if type(v) is float}
    tokenizer = [("tokenizer.ggml.model", STRING, "llama"),
                 ("tokenizer.ggml.scores", ARRAY, (F32, [-float(i) for i in range(len(words))]))]
    save("gguf", name + "-model", gguf(
        [("general.architecture", STRING, arch)] + [(f"{arch}.{k}", U32, v) for k, v in sizes.items()] +
        [(f"{arch}.{k}", F32, v) for k, v in floats.items()] + [(f"{arch}.{k}", BOOL, v) for k, v in keys.items() if type(v) is bool] + [
            ("tokenizer.ggml.tokens", ARRAY, (STRING, words)),
            ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3] + [1] * 7)), ("tokenizer.ggml.unknown_token_id", U32, 0),
            ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2)] +
        (json_tokenizer(words) if as_json else tokenizer),
        [matrix("token_embd.weight", 32, len(words)), vector("output_norm.weight", 32)] + tensors))


def mixture_seeds():
    qkv = [vector("blk.0.attn_q.bias", 32), vector("blk.0.attn_k.bias", 16), vector("blk.0.attn_v.bias", 16)]
    mixture("qwen2moe", "qwen2moe", {"expert_shared_feed_forward_length": 32},
            attention(0) + qkv + experts(0, shared=True) + [vector("blk.0.ffn_gate_inp_shexp.weight", 32)])
    norms = [vector("blk.0.attn_q_norm.weight", 32), vector("blk.0.attn_k_norm.weight", 16)]
    mixture("olmoe", "olmoe", {"expert_weights_norm": False}, attention(0) + norms + experts(0))
    mixture("olmoe-json", "olmoe", {}, attention(0) + norms + experts(0), as_json=True)
    # Experts in tensors of their own, as older files and safetensors have them.
    mixture("mixtral", "llama", {}, attention(0) + experts(0)[:1] +
            [matrix(f"blk.0.ffn_{part}.{x}.weight", 32, 32) for part in ("gate", "up", "down") for x in range(4)])
    latent = {"attention.kv_lora_rank": 32, "rope.dimension_count": 16, "leading_dense_block_count": 1, "expert_shared_count": 1,
              "expert_group_count": 2, "expert_group_used_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
              "expert_weights_scale": 2.5}

    def layer(i):
        return [vector(f"blk.{i}.{n}.weight", 32) for n in ("attn_norm", "attn_kv_a_norm", "ffn_norm")] + [
            matrix(f"blk.{i}.attn_kv_a_mqa.weight", 32, 48), matrix(f"blk.{i}.attn_output.weight", 32, 32)]
    mixture("deepseek2", "deepseek2", latent | {"attention.key_length": 32, "attention.value_length": 16, "feed_forward_length": 32},
            layer(0) + layer(1) + [matrix(f"blk.{i}.{n}.weight", 32, 64) for i in (0, 1) for n in ("attn_q", "attn_kv_b")] +
            [matrix(f"blk.0.ffn_{part}.weight", 32, 32) for part in ("gate", "up", "down")] + experts(1, shared=True) +
            [vector("blk.1.exp_probs_b.bias", 4)], layers=2)
    # The other form of file: kv_b in two parts. A query of low rank; softmax, where a group counts by its best expert.
    mixture("deepseek2-mla", "deepseek2", latent | {
        "attention.key_length": 48, "attention.value_length": 32, "attention.key_length_mla": 32, "attention.value_length_mla": 16,
        "attention.q_lora_rank": 32, "leading_dense_block_count": 0, "expert_gating_func": 1}, layer(0) + experts(0, shared=True) + [
            matrix("blk.0.attn_q_a.weight", 32, 32), vector("blk.0.attn_q_a_norm.weight", 32), matrix("blk.0.attn_q_b.weight", 32, 64),
            ("blk.0.attn_k_b.weight", F32_T, [16, 32, 2], bytes(4 * 16 * 32 * 2)), matrix("blk.0.attn_v_b.weight", 32, 16, 2)])


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


def sm4_seeds():
    for mode, name in enumerate(("stream", "xts", "gcm", "cbc")):
        for core in range(4):
            head = bytearray(range(64))
            head[53], head[58] = core, mode
            struct.pack_into("<HH", head, 54, 1100 + 300 * core, 45)
            lens = struct.pack("<6H", 1, 15, 33, 0, 272, 64) if mode in (0, 2) else struct.pack("<3H", 1, 17, 5)
            save("sm4", f"{name}-{core}", bytes(head) + lens)


def safetensors_seeds():
    def entry(dtype, shape, a, b):
        return {"dtype": dtype, "shape": shape, "data_offsets": [a, b]}

    def seed(name, header, size):
        save("safetensors", name, struct.pack("<H", size) + json.dumps(header, separators=(",", ":")).encode())
    seed("empty", {}, 0)
    seed("some", {"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 3], 0, 24), "b": entry("BF16", [4], 24, 32),
                  "none": entry("F16", [0, 4], 32, 32), "one": entry("U8", [], 32, 33), "half": entry("F4", [2], 33, 34)}, 34)
    names = ("F64", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "BOOL", "C64", "F8_E4M3", "F8_E5M2", "F8_E8M0")
    bits = (64, 64, 32, 16, 8, 64, 32, 16, 8, 64, 8, 8, 8)
    at, out = 0, {}
    for n, b in zip(names, bits):
        out[n] = entry(n, [1, 2], at, at + b // 4)
        at += b // 4
    seed("types", out, at)
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    save("safetensors", "raw", b"\0\x80" + struct.pack("<Q", len(header)) + header + bytes(4))


LLAMA_CONFIG = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
                "num_key_value_heads": 1, "vocab_size": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
                "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 6, "eos_token_id": [7, 5]}


def config_json_seeds():
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True, "decoder_sparse_step": 1,
           "mlp_only_layers": []}
    mla = {"kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4,
           "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 0, "routed_scaling_factor": 2.5,
           "n_group": 2, "topk_group": 1}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7,
            "mscale_all_dim": 0.7}
    variants = {
        "llama": {}, "llama3": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                 "original_max_position_embeddings": 32}},
        "linear": {"rope_scaling": {"type": "linear", "factor": 2.0}, "attention_bias": False, "mlp_bias": False},
        "yarn": {"rope_scaling": yarn | {"attention_factor": 1.1, "truncate": True}}, "parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        "mistral": {"model_type": "mistral", "sliding_window": 16}, "mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
        "qwen2": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0, "layer_types": ["sliding_attention"]},
        "qwen3": {"model_type": "qwen3", "head_dim": 16}, "qwen2moe": {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 32} | moe,
        "qwen3moe": {"model_type": "qwen3_moe"} | moe, "olmoe": {"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": None},
        "v2": {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy", "scoring_func": "softmax", "rope_scaling": yarn} | mla,
        "v3": {"model_type": "deepseek_v3", "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True, "num_nextn_predict_layers": 1,
               "rope_interleave": True} | mla,
    }
    for name, more in variants.items():
        save("config_json", name, json.dumps(LLAMA_CONFIG | more, separators=(",", ":")).encode())


def tokenizer_json_seeds():
    sys.path.insert(0, str(ROOT.parent / "golden"))
    import tokenizer_json as golden
    texts = ["Hello, the thing in there's 123456 ways\n\n  x", "<s> gr\u00fc\u00dfe <tool_call> e\u0301 \u6f22\u5b57", "   ", "<|im_end|>[INST] a"]
    words = ["\u0120t", "\u0120th", "\u0120the", "in", "er", "th"]
    merges = [["\u0120", "t"], ["\u0120t", "h"], ["\u0120th", "e"], ["i", "n"], ["e", "r"], ["t", "h"]]
    for i, (name, kind) in enumerate({**golden.BYTES, **golden.CHARACTERS}.items()):
        normalizer, pre, extra, post, more = kind
        chars = name in golden.CHARACTERS
        tokens = [a["content"] for a in extra] if chars else []
        if chars:
            tokens += ["\u2581", "t", "h", "e", "\u2581t", "he", "\u2581the", "<0x41>", "<0xC3>", "a", "1"]
        else:
            tokens += [c for c in byte_alphabet() if c.isascii() or c in "\u0120\u010a\u00c3"] + words
        vocab = {t: n for n, t in enumerate(dict.fromkeys(tokens))}
        added = [dict(a, id=vocab.get(a["content"], len(vocab) + n)) for n, a in enumerate(extra)]
        ids = {a["content"]: a["id"] for a in added}
        post = json.loads(json.dumps(post))
        for p in (post or {}).get("processors", [post] if post else []):
            for s in p.get("special_tokens", {}).values():
                s["ids"] = [ids[s["id"]]]
        model = {"type": "BPE", "vocab": vocab, "merges": [["\u2581", "t"], ["h", "e"], ["\u2581t", "he"]] if chars else [" ".join(m) for m in merges]}
        t = {"version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
             "decoder": golden.CHARS if chars else {"type": "ByteLevel"}, "model": model | more}
        config = {"bos_token": "<s>" if "<s>" in ids else None, "eos_token": {"content": added[-1]["content"]}, "chat_template": CHATML}
        save("tokenizer_json", name, json.dumps({"t": t, "c": config if i % 2 else None, "v": 4 * i, "x": texts[i % 4]}, separators=(",", ":")).encode())


gguf_seeds()
mixture_seeds()
safetensors_seeds()
config_json_seeds()
tokenizer_json_seeds()
infer_seeds()
sealed_seeds()
tokenizer_seeds()
chat_seeds()
sm4_seeds()
