#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Small models of random weights, one for each architecture and variant, in both formats that are served.

usage: models.py DIR [NAME...]      write DIR/NAME.gguf and DIR/NAME/ for the named models, or for all
       models.py --list             names, one a line

DIR/NAME/ is a Hugging Face directory: config.json, model.safetensors, tokenizer.json, tokenizer_config.json.
DIR/NAME.gguf holds the same weights with the keys, tensor names and layouts that llama.cpp's converter gives
(conversion/*.py in the llama.cpp repository): q and k permuted for the llama architecture, experts of a layer in one
tensor, kv_b of deepseek2 in two parts ("kv_b_whole" asks for the older form in one).

Standard library only, and the same bytes on every machine: a weight is a signed number drawn from SHAKE128 of the
model's seed and the tensor's name, times a scale. make_golden.py has transformers compute the logits.
"""
import array
import hashlib
import json
import math
import pathlib
import struct
import sys

VOCAB = 259  # the 256 bytes, <s>, </s>, and "ab", made by the one merge
BOS, EOS = 256, 257
CONTEXT = 512

# ---- the models: Hugging Face configurations ----

BASE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_dropout": 0.0,
        "bos_token_id": BOS, "eos_token_id": EOS, "use_cache": True, "initializer_range": 0.02}

# Contexts are short, so that 48 tokens reach far beyond the original one.
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0, "beta_slow": 1.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def config(arch, model_type, **own):
    return {"architectures": [arch], "model_type": model_type, **BASE, **own}


def llama(**own):
    return config("LlamaForCausalLM", "llama", **{"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, **own})


def mixtral(**own):
    return config("MixtralForCausalLM", "mixtral", **{
        "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None, "output_router_logits": False,
        "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.0, **own})


def qwen2(**own):
    return config("Qwen2ForCausalLM", "qwen2", **{
        "use_sliding_window": False, "sliding_window": CONTEXT, "max_window_layers": 2, "rms_norm_eps": 1e-6, **own})


def qwen3(**own):
    return config("Qwen3ForCausalLM", "qwen3", **{
        "head_dim": 32, "attention_bias": False, "use_sliding_window": False, "sliding_window": None,
        "max_window_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, **own})


def qwen2moe(**own):
    return config("Qwen2MoeForCausalLM", "qwen2_moe", **{
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 4,
        "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False,
        "sliding_window": CONTEXT, "max_window_layers": 2, "output_router_logits": False,
        "router_aux_loss_coef": 0.001, "rms_norm_eps": 1e-6, **own})


def qwen3moe(**own):
    return config("Qwen3MoeForCausalLM", "qwen3_moe", **{
        "head_dim": 32, "attention_bias": False, "moe_intermediate_size": 32, "num_experts": 16,
        "num_experts_per_tok": 8, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "use_sliding_window": False, "sliding_window": None, "max_window_layers": 2, "output_router_logits": False,
        "router_aux_loss_coef": 0.001, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, **own})


def olmoe(**own):
    return config("OlmoeForCausalLM", "olmoe", **{
        "intermediate_size": 32, "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": False,
        "attention_bias": False, "clip_qkv": None, "output_router_logits": False, "router_aux_loss_coef": 0.01, **own})


def deepseek(model_type, **own):
    arch = {"deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}[model_type]
    return config(arch, model_type, **{
        "num_hidden_layers": 3, "num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 32,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 16,
        "n_shared_experts": 2, "num_experts_per_tok": 4, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax",
        "norm_topk_prob": False, "routed_scaling_factor": 1.0, "attention_bias": False, "rms_norm_eps": 1e-6, **own})


def mscale(m):
    return {**YARN, "mscale": m, "mscale_all_dim": m}


# A factor of 4 does to four of 16 experts what DeepSeek-V2's 16 does to six of 160.
V2 = {"q_lora_rank": 48, "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy",
      "routed_scaling_factor": 4.0, "rope_scaling": mscale(0.707)}
V3 = {"q_lora_rank": 48, "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
      "n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rope_scaling": mscale(1.0)}

# name -> (configuration, options). Options: "dtype" F32, F16 or BF16 of the matrices; "seed";
# "kv_b_whole". The seed of a mixture is one where no choice of an expert hangs on the last bits: make_golden.py checks it.
MODELS = {
    "llama": (llama(), {}),
    "llama-tied-bias": (llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, num_key_value_heads=1), {}),
    "llama-linear": (llama(rope_scaling=LINEAR), {}),
    "llama-yarn": (llama(rope_scaling=YARN), {}),
    "llama-llama3": (llama(rope_scaling=LLAMA3), {}),
    "llama-f16": (llama(num_key_value_heads=4), {"dtype": "F16"}),
    "mistral-window": (config("MistralForCausalLM", "mistral", head_dim=16, sliding_window=12), {}),
    "mixtral": (mixtral(), {}),
    "qwen2": (qwen2(), {}),
    "qwen2-yarn": (qwen2(rope_scaling=YARN, tie_word_embeddings=True), {}),
    "qwen2-window": (qwen2(use_sliding_window=True, sliding_window=12, max_window_layers=1), {}),
    "qwen3": (qwen3(), {}),
    "qwen3-bf16": (qwen3(tie_word_embeddings=True), {"dtype": "BF16"}),
    "qwen2moe": (qwen2moe(), {}),
    "qwen3moe": (qwen3moe(), {"seed": 5}),
    "olmoe": (olmoe(), {"seed": 2}),
    "deepseek2-lite": (deepseek("deepseek_v2"), {"kv_b_whole": True}),
    "deepseek2-v2": (deepseek("deepseek_v2", **V2), {"seed": 1}),
    "deepseek2-v3": (deepseek("deepseek_v3", **V3), {"seed": 72}),
}

# The tokens that both sides compute: no pattern of positions, every kind of byte.
PROMPT = [(i * i * 37 + i * 11 + 5) % 256 for i in range(48)]


# ---- weights ----

class Model:
    """One model: config, and its tensors in the order and with the names of Hugging Face."""

    def __init__(self, name, seed=None):
        self.name = name
        self.config, self.opts = MODELS[name]
        self.dtype = self.opts.get("dtype", "F32")
        self.seed = seed or self.opts.get("seed", 1)
        self.tensors = {}  # name -> (shape, array of f32)
        self.build()

    def draw(self, name, shape, dev, mean=0.0):
        """Uniform, of deviation about dev, as multiples of a power of two that the model's type holds exactly."""
        n = math.prod(shape)
        scale = 2.0 ** round(math.log2(dev * math.sqrt(3)))
        raw = array.array("b")
        raw.frombytes(hashlib.shake_128(f"{self.name}/{self.seed}/{name}".encode()).digest(n))
        coarse = 4 if mean and self.dtype == "BF16" else 1  # numbers around 1 have steps of 1/128 there
        self.tensors[name] = (shape, array.array("f", [mean + x // coarse * coarse / 128 * scale for x in raw]))

    def matrix(self, name, rows, cols, gain=1.0):
        self.draw(name, (rows, cols), gain / math.sqrt(cols))

    def gain(self, name, n):
        self.draw(name, (n,), 0.15, 1.0)

    def linear(self, name, rows, cols, bias, gain=1.0):
        self.matrix(f"{name}.weight", rows, cols, gain)
        if bias:
            self.draw(f"{name}.bias", (rows,), 0.25)

    def ffn(self, at, width, names=("gate_proj", "up_proj", "down_proj"), bias=False):
        e = self.config["hidden_size"]
        self.linear(f"{at}.{names[0]}", width, e, bias)
        self.linear(f"{at}.{names[1]}", width, e, bias)
        self.linear(f"{at}.{names[2]}", e, width, bias)

    def attention(self, at):
        c = self.config
        e, heads, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        d = head_dim(c)
        qkv_bias = c["model_type"] in ("qwen2", "qwen2_moe") or c.get("attention_bias", False)
        self.linear(f"{at}.q_proj", heads * d, e, qkv_bias, 1.5)
        self.linear(f"{at}.k_proj", kv * d, e, qkv_bias, 1.5)
        self.linear(f"{at}.v_proj", kv * d, e, qkv_bias)
        self.linear(f"{at}.o_proj", e, heads * d, c["model_type"] == "llama" and c["attention_bias"])
        if c["model_type"].startswith("qwen3"):
            self.gain(f"{at}.q_norm.weight", d)
            self.gain(f"{at}.k_norm.weight", d)
        if c["model_type"] == "olmoe":
            self.gain(f"{at}.q_norm.weight", heads * d)
            self.gain(f"{at}.k_norm.weight", kv * d)

    def latent_attention(self, at):
        c = self.config
        e, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
        nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        if c["q_lora_rank"]:
            self.matrix(f"{at}.q_a_proj.weight", c["q_lora_rank"], e)
            self.gain(f"{at}.q_a_layernorm.weight", c["q_lora_rank"])
            self.matrix(f"{at}.q_b_proj.weight", heads * (nope + rope), c["q_lora_rank"], 1.5)
        else:
            self.matrix(f"{at}.q_proj.weight", heads * (nope + rope), e, 1.5)
        self.matrix(f"{at}.kv_a_proj_with_mqa.weight", rank + rope, e, 1.5)
        self.gain(f"{at}.kv_a_layernorm.weight", rank)
        self.matrix(f"{at}.kv_b_proj.weight", heads * (nope + v), rank)
        self.matrix(f"{at}.o_proj.weight", e, heads * v)

    def mixture(self, at):
        c = self.config
        e, x = c["hidden_size"], nr_experts(c)
        kind = c["model_type"]
        self.matrix(f"{at}.gate.weight", x, e, 2.0)
        if c.get("topk_method") == "noaux_tc":
            self.draw(f"{at}.gate.e_score_correction_bias", (x,), 0.1)
        names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        for i in range(x):
            self.ffn(f"{at}.experts.{i}", expert_width(c), names)
        if kind == "qwen2_moe":
            self.ffn(f"{at}.shared_expert", c["shared_expert_intermediate_size"])
            self.matrix(f"{at}.shared_expert_gate.weight", 1, e)
        if kind.startswith("deepseek"):
            self.ffn(f"{at}.shared_experts", c["n_shared_experts"] * c["moe_intermediate_size"])

    def build(self):
        c = self.config
        e = c["hidden_size"]
        self.draw("model.embed_tokens.weight", (c["vocab_size"], e), 1.0)
        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}"
            self.gain(f"{at}.input_layernorm.weight", e)
            if "kv_lora_rank" in c:
                self.latent_attention(f"{at}.self_attn")
            else:
                self.attention(f"{at}.self_attn")
            self.gain(f"{at}.post_attention_layernorm.weight", e)
            if nr_experts(c) and i >= c.get("first_k_dense_replace", 0):
                self.mixture(f"{at}.block_sparse_moe" if c["model_type"] == "mixtral" else f"{at}.mlp")
            else:
                self.ffn(f"{at}.mlp", c["intermediate_size"], bias=c.get("mlp_bias", False))
        self.gain("model.norm.weight", e)
        if not c["tie_word_embeddings"]:
            self.matrix("lm_head.weight", c["vocab_size"], e, 2.0)


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def nr_experts(c):
    return c.get("num_local_experts") or c.get("num_experts") or c.get("n_routed_experts") or 0


def expert_width(c):
    return c["moe_intermediate_size"] if "moe_intermediate_size" in c else c["intermediate_size"]


# ---- bytes ----

def to_bytes(values, dtype):
    """Exact, see draw()."""
    if dtype == "F32":
        return values.tobytes() if sys.byteorder == "little" else struct.pack(f"<{len(values)}f", *values)
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    raw = struct.pack(f"<{len(values)}f", *values)
    return b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))


def byte_tokens():
    """The printable stand-ins for bytes in byte-level BPE. Source: GPT-2's encoder.py, bytes_to_unicode()."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    n, out = 0, []
    for b in range(256):
        out.append(chr(b if b in keep else 256 + n))
        n += b not in keep
    return out


TOKENS = byte_tokens() + ["<s>", "</s>", "ab"]


# ---- Hugging Face ----

def write_hf(m, d):
    d.mkdir(parents=True, exist_ok=True)
    torch_dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[m.dtype]
    (d / "config.json").write_text(json.dumps({**m.config, "torch_dtype": torch_dtype}, indent=2) + "\n")
    header, data = {"__metadata__": {"format": "pt"}}, []
    at = 0
    for name, (shape, values) in m.tensors.items():
        dtype = "F32" if name.endswith("e_score_correction_bias") else m.dtype
        raw = to_bytes(values, dtype)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    (d / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data))

    special = [{"id": i, "content": TOKENS[i], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i in (BOS, EOS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(TOKENS)}, "merges": ["a b"]},
    }
    (d / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    (d / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "add_bos_token": False, "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False}) + "\n")


# ---- GGUF ----

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_NR = {"F32": 0, "F16": 1, "BF16": 30}
ARCH = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
        "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmoe": "olmoe", "deepseek_v2": "deepseek2",
        "deepseek_v3": "deepseek2"}

# What follows "model.layers.N." and what it becomes after "blk.N."
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
EXPERT_NAMES = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
                "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value):
    """(type, bytes) of a key's value; a list is an array of what its first element is, integers in it I32."""
    if isinstance(value, list):
        kind = value_bytes(value[0])[0]
        return ARRAY, struct.pack("<IQ", I32 if kind == U32 else kind, len(value)) + b"".join(
            value_bytes(v)[1] for v in value)
    kind = {bool: BOOL, int: U32, float: F32, str: STRING}[type(value)]
    return kind, text(value) if kind == STRING else struct.pack({BOOL: "<?", U32: "<I", F32: "<f"}[kind], value)


def key(name, value):
    kind, raw = value_bytes(value)
    return text(name) + struct.pack("<I", kind) + raw


def gguf_keys(m):
    c, arch = m.config, ARCH[m.config["model_type"]]
    mla = "kv_lora_rank" in c
    own = {
        "block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"], "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "rope.freq_base": c["rope_theta"],
    }
    if arch in ("llama", "deepseek2"):
        own["vocab_size"] = c["vocab_size"]
    if arch == "llama":
        own["rope.dimension_count"] = head_dim(c)
    if c.get("head_dim"):
        own["attention.key_length"] = own["attention.value_length"] = c["head_dim"]
    if c["model_type"] == "mistral" or c.get("use_sliding_window"):
        own["attention.sliding_window"] = c["sliding_window"]
    if c.get("use_sliding_window"):
        own["attention.sliding_window_pattern"] = [i >= c["max_window_layers"] for i in range(c["num_hidden_layers"])]
    if nr_experts(c):
        own["expert_count"], own["expert_used_count"] = nr_experts(c), c["num_experts_per_tok"]
    if arch in ("qwen2moe", "qwen3moe"):
        own["expert_feed_forward_length"] = c["moe_intermediate_size"]
    if arch == "qwen2moe":
        own["expert_shared_feed_forward_length"] = c["shared_expert_intermediate_size"]
    if mla:
        rank, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
        full, v = c["qk_nope_head_dim"] + rope, c["v_head_dim"]
        own.update({
            "leading_dense_block_count": c["first_k_dense_replace"], "attention.kv_lora_rank": rank,
            "expert_feed_forward_length": c["moe_intermediate_size"], "expert_shared_count": c["n_shared_experts"],
            "expert_weights_scale": c["routed_scaling_factor"], "rope.dimension_count": rope,
            "expert_gating_func": {"softmax": 1, "sigmoid": 2}[c["scoring_func"]],
            "expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"],
        })
        if m.opts.get("kv_b_whole"):
            own.update({"attention.key_length": full, "attention.value_length": v})
        else:
            own.update({"attention.head_count_kv": 1, "attention.key_length": rank + rope,
                        "attention.value_length": rank, "attention.key_length_mla": full,
                        "attention.value_length_mla": v})
        if c["q_lora_rank"]:
            own["attention.q_lora_rank"] = c["q_lora_rank"]
        if c["norm_topk_prob"]:
            own["expert_weights_norm"] = True
    scaling = c.get("rope_scaling") or {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        own["rope.scaling.type"], own["rope.scaling.factor"] = scaling["rope_type"], scaling["factor"]
    if scaling.get("rope_type") == "yarn":
        own["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        own["rope.scaling.yarn_beta_fast"] = scaling["beta_fast"]
        own["rope.scaling.yarn_beta_slow"] = scaling["beta_slow"]
        if "mscale_all_dim" in scaling:
            own["rope.scaling.yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    kinds = [1] * 256 + [3, 3, 1]
    return [
        key("general.architecture", arch), key("general.name", m.name), key("general.type", "model"),
        key("general.file_type", {"F32": 0, "F16": 1, "BF16": 32}[m.dtype]), key("general.quantization_version", 2),
        *(key(f"{arch}.{k}", v) for k, v in own.items()),
        key("tokenizer.ggml.model", "gpt2"), key("tokenizer.ggml.pre", "gpt-2"),
        key("tokenizer.ggml.tokens", TOKENS), key("tokenizer.ggml.token_type", kinds),
        key("tokenizer.ggml.merges", ["a b"]), key("tokenizer.ggml.bos_token_id", BOS),
        key("tokenizer.ggml.eos_token_id", EOS), key("tokenizer.ggml.add_bos_token", False),
    ]


def permute(values, rows, cols, heads):
    """Rows of each head from halves (i, i + d/2) to pairs (2i, 2i + 1), as the converter does for llama."""
    d = rows // heads
    out = array.array("f")
    for h in range(heads):
        for i in range(d):
            r = h * d + i // 2 + i % 2 * (d // 2)
            out += values[r * cols:(r + 1) * cols]
    return out


def split_kv_b(m, values):
    """kv_b [heads * (nope + v)][rank] -> k_b, transposed: ne {nope, rank, heads}; v_b: ne {rank, v, heads}."""
    c = m.config
    heads, rank, nope, v = c["num_attention_heads"], c["kv_lora_rank"], c["qk_nope_head_dim"], c["v_head_dim"]
    k_b, v_b = array.array("f"), array.array("f")
    for h in range(heads):
        at = h * (nope + v) * rank
        for r in range(rank):
            k_b += values[at + r:at + nope * rank:rank]
        v_b += values[at + nope * rank:at + (nope + v) * rank]
    return ((nope, rank, heads), k_b), ((rank, v, heads), v_b)


def llama3_factors(c):
    """What the frequencies are divided by. Source: the Llama 3.1 model card's reference code."""
    s, d = c["rope_scaling"], head_dim(c)
    low, high, orig = s["low_freq_factor"], s["high_freq_factor"], s["original_max_position_embeddings"]
    out = array.array("f")
    for i in range(0, d, 2):
        wave = 2 * math.pi * c["rope_theta"] ** (i / d)
        smooth = (orig / wave - low) / (high - low)
        out.append(1 if wave < orig / high else s["factor"] if wave > orig / low else
                   1 / ((1 - smooth) / s["factor"] + smooth))
    return out


def gguf_tensors(m):
    """name -> (ne, values, dtype); the order of the dimensions is GGUF's: the contiguous one first."""
    c, arch = m.config, ARCH[m.config["model_type"]]
    out, stacks = {}, {}
    if (c.get("rope_scaling") or {}).get("rope_type") == "llama3":
        f = llama3_factors(c)
        out["rope_freqs.weight"] = ((len(f),), f, "F32")
    for name, (shape, values) in m.tensors.items():
        dtype = "F32" if len(shape) == 1 else m.dtype
        ne = tuple(reversed(shape))
        whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                 "lm_head.weight": "output.weight"}
        if name in whole:
            out[whole[name]] = (ne, values, dtype)
            continue
        _, _, layer, *rest = name.split(".")
        rest, last = ".".join(rest[:-1]), rest[-1]
        if ".experts." in f".{rest}":
            stack = f"blk.{layer}.{EXPERT_NAMES[rest.split('.')[-1]]}.weight"
            if stack not in stacks:
                stacks[stack] = array.array("f")
                out[stack] = (ne + (nr_experts(c),), stacks[stack], dtype)
            stacks[stack] += values  # in the order of the experts
            continue
        if last == "e_score_correction_bias":
            out[f"blk.{layer}.exp_probs_b.bias"] = (ne, values, "F32")
            continue
        if rest == "self_attn.kv_b_proj" and not m.opts.get("kv_b_whole"):
            k_b, v_b = split_kv_b(m, values)
            out[f"blk.{layer}.attn_k_b.weight"] = (*k_b, dtype)
            out[f"blk.{layer}.attn_v_b.weight"] = (*v_b, dtype)
            continue
        if arch == "llama" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = c["num_attention_heads" if rest.endswith("q_proj") else "num_key_value_heads"]
            values = permute(values, shape[0], shape[1] if len(shape) > 1 else 1, heads)
        if NAMES[rest] in ("ffn_gate_inp", "ffn_gate_inp_shexp"):
            dtype = "F32"
        if NAMES[rest] == "ffn_gate_inp_shexp":
            ne = ne[:1]
        out[f"blk.{layer}.{NAMES[rest]}.{last}"] = (ne, values, dtype)
    return out


def write_gguf(m, path):
    keys, tensors = gguf_keys(m), gguf_tensors(m)
    infos, data, at = b"", [], 0
    for name, (ne, values, dtype) in tensors.items():
        assert math.prod(ne) == len(values), name
        infos += text(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, TYPE_NR[dtype], at)
        raw = to_bytes(values, dtype)
        raw += bytes(-len(raw) % 32)
        data.append(raw)
        at += len(raw)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    path.write_bytes(head + bytes(-len(head) % 32) + b"".join(data))


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    if sys.argv[1] == "--list":
        print("\n".join(MODELS))
        return
    d = pathlib.Path(sys.argv[1])
    d.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        if name not in MODELS:
            sys.exit(f"models.py: no model is named {name}; see --list")
        m = Model(name)
        write_hf(m, d / name)
        write_gguf(m, d / f"{name}.gguf")


if __name__ == "__main__":
    main()
