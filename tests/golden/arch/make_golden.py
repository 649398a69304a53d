#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden logits and expert choices of the models of models.py, computed by transformers in float32.

usage: make_golden.py OUT.bin        (needs torch and transformers from PyPI; made with 2.6.0 and 4.57.6)
       make_golden.py --seeds [NAME...]    for each mixture, the first seed whose choices are far from ties

A choice is far from a tie where the router's scores of the last expert chosen and of the first that is not (and of
groups of experts likewise) are further apart than rounding can move them: SAFE in router logits. A seed
for which that is not so is refused.

transformers 4.57 leaves out one factor of DeepSeek-V2's own code (modeling_deepseek.py, softmax_scale * mscale * mscale
where rope_scaling has mscale_all_dim; its DeepSeek-V3 has it); it is put back here.

File, little-endian:

    "SITSARCH", u32 version = 1, models
    per model:  u32 name length, name; u32 tokens, vocab, positions, layers, used
                i32 token[tokens]; u32 position[positions]; f32 logits[positions][vocab]
                u32 layer[layers]: the mixtures; u8 expert[layers][tokens][used], ascending
"""
import math
import pathlib
import struct
import sys
import tempfile

import torch
import transformers

import models

# The ends of the pieces in which arch_golden_test.c computes the prompt.
POSITIONS = [0, 15, 31, 39, 44, 45, 46, 47]
SAFE = 4e-3


def load(model, d):
    models.write_hf(model, d)
    net = transformers.AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager")
    net.eval()
    c, scaling = model.config, model.config.get("rope_scaling") or {}
    if c["model_type"] == "deepseek_v2" and scaling.get("mscale_all_dim"):
        m = 0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1
        for layer in net.model.layers:
            layer.self_attn.scaling *= m * m
    return net


def gap(scores, used):
    """How far the used best are from the rest, per row; infinite where there is no rest."""
    top = scores.sort(dim=-1, descending=True).values
    rest = top[:, used] if used < top.shape[1] else torch.full_like(top[:, 0], -math.inf)
    return (top[:, used - 1] - rest).min().item()


def choose(c, gate, inputs, output):
    """(experts [tokens][used], the narrowest gap, in router logits or their like) of one gate's call."""
    x = inputs[0].reshape(-1, c["hidden_size"])
    logits = torch.nn.functional.linear(x, gate.weight)
    used = c["num_experts_per_tok"]
    if not isinstance(output, tuple):
        return logits.softmax(-1).topk(used, dim=-1).indices, gap(logits, used)
    chosen = output[0]
    groups, open_ = c["n_group"], c["topk_group"]
    sigmoid = c["scoring_func"] == "sigmoid"
    scores = logits.sigmoid() + gate.e_score_correction_bias if sigmoid else logits
    per = scores.view(len(scores), groups, -1)
    rank = per.topk(2, dim=-1).values.sum(-1) if sigmoid else per.amax(-1)
    narrow = gap(rank, open_)
    shut = torch.full_like(rank, -math.inf).scatter(1, rank.topk(open_, dim=-1).indices, 0.0)
    scores = (per + shut.unsqueeze(-1)).view_as(scores)
    ours = scores.topk(used, dim=-1).indices
    if not torch.equal(ours.sort(-1).values, chosen.sort(-1).values):
        return chosen, -1.0  # a shut group's expert was taken: masks of 0 and of -inf differ here
    return chosen, min(narrow, gap(scores, used))


def compute(model):
    """(logits [positions][vocab], {layer: experts}, narrowest gap)"""
    c = model.config
    experts, narrow = {}, [math.inf]

    def hook(layer):
        def on_gate(gate, inputs, output):
            chosen, g = choose(c, gate, inputs, output)
            experts[layer] = chosen.sort(-1).values
            narrow[0] = min(narrow[0], g)
        return on_gate

    with tempfile.TemporaryDirectory() as d, torch.no_grad():
        net = load(model, pathlib.Path(d))
        for name, module in net.named_modules():
            if models.nr_experts(c) and name.endswith((".mlp.gate", ".block_sparse_moe.gate")):
                module.register_forward_hook(hook(int(name.split(".")[2])))
        logits = net(torch.tensor([models.PROMPT])).logits[0]
    return logits[POSITIONS], experts, narrow[0]


def find_seeds(names):
    for name, (c, opts) in models.MODELS.items():
        if not models.nr_experts(c) or (names and name not in names):
            continue
        for seed in range(1, 200):
            narrow = compute(models.Model(name, seed))[2]
            if narrow >= SAFE:
                print(f"{name}: seed {seed}, narrowest gap {narrow:.4f}; now {opts.get('seed', 1)}", flush=True)
                break


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if sys.argv[1] == "--seeds":
        find_seeds(sys.argv[2:])
        return
    out = [b"SITSARCH", struct.pack("<2I", 1, len(models.MODELS))]
    for name in models.MODELS:
        m = models.Model(name)
        logits, experts, narrow = compute(m)
        if narrow < SAFE:
            sys.exit(f"{name}: a choice of experts is {narrow:.4g} from a tie; take another seed (--seeds)")
        used = m.config["num_experts_per_tok"] if experts else 0
        out.append(struct.pack("<I", len(name)) + name.encode())
        out.append(struct.pack("<5I", len(models.PROMPT), models.VOCAB, len(POSITIONS), len(experts), used))
        out.append(struct.pack(f"<{len(models.PROMPT)}i{len(POSITIONS)}I", *models.PROMPT, *POSITIONS))
        out.append(logits.numpy().astype("<f4").tobytes())
        out.append(struct.pack(f"<{len(experts)}I", *sorted(experts)))
        for layer in sorted(experts):
            assert experts[layer].shape == (len(models.PROMPT), used), (name, experts[layer].shape)
            out.append(bytes(experts[layer].flatten().tolist()))
        spread = logits.std().item()
        hit = len(set(torch.cat([e.flatten() for e in experts.values()]).tolist())) if experts else 0
        print(f"{name}: logits spread {spread:.2f}, largest {logits.abs().max().item():.2f}, experts used {hit} of "
              f"{models.nr_experts(m.config)}, narrowest gap {narrow:.4f}")
    pathlib.Path(sys.argv[1]).write_bytes(b"".join(out))


main()
