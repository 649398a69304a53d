#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""sits quantize, pack and perplexity through the command, on a small model of random weights: reports, refusals, a full
disk, a kill, hostile files. What encoders and factors do is in tests/unit/quantize."""
import os
import pathlib
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "golden" / "arch" / "models.py"
sys.path[:0] = [str(HERE.parent / "sealed"), str(HERE.parent / "e2e")]
from tap import PATIENCE, SITS, Dir, Result, Tap, sits  # noqa: E402
from tiny_gguf import tiny_gguf  # noqa: E402

tap = Tap()
with Dir(memory=True) as d:
    model, out, text, other = d / "model.gguf", d / "out.gguf", d / "text", d / "other"
    tiny_gguf(model, embd=256, ff=512, context=256)
    for f, n in ((text, 1500), (other, 900)):
        f.write_text("".join(d.rng.choice("the and of to in a is that it was ") for _ in range(n)))
    rest = {"model.gguf", "text", "other"}

    def quantize(*args, src=model, dst=out):
        return sits("quantize", "--json", *args, src, dst)

    def ppl(path, *args):
        r = sits("perplexity", "--json", "--context", 128, "--windows", 4, *args, path, text)
        assert r.rc == 0, r
        return r.json

    plain = ppl(model)
    tap.check("perplexity says what it counted", plain["ok"] and plain["windows"] == 4 and plain["scored"] == 4 * 63 and
              plain["context"] == 128 and plain["perplexity"] > 1 and plain["stderr"] > 0, plain)
    one = ppl(model, "--threads", 1, "--quiet")
    tap.check("it does not depend on the number of threads", one["perplexity"] == plain["perplexity"], (one, plain))
    int8 = ppl(model, "--kv-type", "int8")
    tap.check("keys and values of 8 bits change it, a little",
              0 < abs(int8["nll"] / plain["nll"] - 1) < 0.05, (int8, plain))
    part, whole = ppl(model, "--kv-keep", 64), ppl(model, "--kv-keep", 128, "--threads", 1)
    tap.check("keys and values given up: as before without, another perplexity with, and less memory",
              part["nll"] == plain["nll"] and 0 < abs(part["kept"]["nll"] / plain["nll"] - 1) < 0.5 and
              part["kv_pages"] == 4 and part["kept"]["kv_pages"] == 3 and
              part["kept"]["kv_bytes"] * 4 == part["kv_bytes"] * 3 and "kept" not in plain, part)
    tap.check("none given up, none lost", whole["kept"]["nll"] == plain["nll"] and whole["kept"]["kv_pages"] == 4, whole)
    r = sits("perplexity", "--kv-keep", 63, model, text)
    tap.check("too few are refused by name", r.rc == 2 and "--kv-keep '63'" in r.err, r)
    r = sits("perplexity", "--context", 128, "--kv-keep", 64, model, text)
    tap.check("people are told what was kept", r.rc == 0 and "\nkept        64 tokens: perplexity " in r.out and
              "3.0 of 4 KV pages" in r.out, r)
    r = sits("perplexity", "--context", 128, model, text)
    tap.check("it is told to people, too", r.rc == 0 and r.out.startswith("perplexity ") and "windows of 128" in r.out, r)

    for kind, most, ratio in (("q8_0", 0.01, 0.27), ("q4_0", 0.13, 0.15), ("q5_0", 0.07, 0.18), ("q4_k", 0.08, 0.15),
                              ("f16", 1e-3, 0.51), ("bf16", 0.01, 0.51), ("i8c", 0.02, 0.26)):
        r = quantize("--type", kind, "--output-type", kind)
        ok = r.rc == 0 and r.json["ok"] and len(r.json["layers"]) == 2
        errors = [t["error"] for t in r.json["tensors"] if t["to"].lower() == kind] if ok else []
        tap.check(f"{kind}: every matrix, and its error", ok and len(errors) == 15 and all(0 < e < most for e in errors) and
                  r.json["bytes_out"] == out.stat().st_size and
                  r.json["bytes_out"] < 20000 + ratio * r.json["bytes_in"], r)
        got = ppl(out)
        tap.check(f"{kind}: the model can be used", abs(got["nll"] / plain["nll"] - 1) < 5 * most + 1e-3, (got, plain))
        if kind in ("q8_0", "q4_k", "i8c"):
            p, back = d / "packed.gguf", d / "back.gguf"
            r = sits("pack", "--json", out, p)
            tap.check(f"{kind}: packed", r.rc == 0 and r.json["changed"] == 15 and r.json["packed"], r)
            tap.check(f"{kind}: packed gives the same answers, to the bit", ppl(p)["nll"] == got["nll"], (ppl(p), got))
            r = sits("pack", "--unpack", p, back)
            tap.check(f"{kind}: unpacked is the file that it was", r.rc == 0 and back.read_bytes() == out.read_bytes(), r)
            r = sits("pack", p, back)
            tap.check(f"{kind}: nothing is packed twice", r.rc == 1 and "packed already" in r.err, r)
            r = quantize("--type", "q4_0", "--requantize", src=p, dst=d / "no")
            tap.check(f"{kind}: packed weights are not quantised", r.rc == 1 and "packed" in r.err, r)
            p.unlink(), back.unlink()
        out.unlink()

    r = quantize("--type", "q4_0", "--tensor", "blk.1.*=q8_0", "--tensor", "*attn_v*=keep")
    types = {t["name"]: t["to"] for t in r.json["tensors"]}
    tap.check("types by name, the last rule counts", r.rc == 0 and types["blk.0.ffn_up.weight"] == "Q4_0" and
              types["blk.1.ffn_up.weight"] == "Q8_0" and types["blk.1.attn_v.weight"] == "F32" and
              types["token_embd.weight"] == "Q8_0" and types["blk.0.attn_norm.weight"] == "F32", r)
    for option, name in (("--type", "q9"), ("--type", "q6_k"), ("--output-type", "q9"), ("--tensor", "*=q9")):
        r = quantize("--type", "keep", option, name, dst=d / "no")
        tap.check(f"{option} {name} is refused, and what there is told", r.rc == 2 and name.removeprefix("*=") in r.err and "Q4_K, BF16" in r.err and
                  ("awq-int8" in r.err.splitlines()[0]) == (option == "--type"), r)
    r = quantize("--type", "q8_0", "--tensor", "blk.7.*=q4_0", dst=d / "no")
    tap.check("a rule that matches nothing is refused", r.rc == 1 and "blk.7" in r.err, r)
    for rule in ("*norm*=q8_0", "blk.0.attn_norm.weight=f16"):
        r = quantize("--type", "keep", "--tensor", rule, dst=d / "no")
        tap.check(f"nor is one that matches vectors alone: {rule}", r.rc == 1 and "stay F32" in r.err and not (d / "no").exists(), r)
    r = quantize("--type", "keep", "--tensor", "*=f16", "--tensor", "*norm*=keep", dst=d / "all")
    types = {t["name"]: t["to"] for t in r.json["tensors"]}
    tap.check("a rule for all leaves vectors as they are, and the model can be used", r.rc == 0 and
              {n for n, t in types.items() if t != "F16"} == {n for n in types if "norm" in n} and
              abs(ppl(d / "all")["nll"] / plain["nll"] - 1) < 0.006, r)
    (d / "all").unlink()
    r = quantize("--type", "q8_0", src=out, dst=d / "no")
    tap.check("quantised weights are not quantised again", r.rc == 1 and "Q4_0 already" in r.err and "--requantize" in r.err, r)
    r = quantize("--type", "q8_0", "--requantize", src=out, dst=d / "again")
    tap.check("unless that is asked for", r.rc == 0 and (d / "again").exists(), r)
    (d / "again").unlink()

    before = d.state()
    r = quantize("--type", "q8_0")
    tap.check("a file that is there is refused", r.rc == 1 and "--force" in r.err and r.json["error"] == "EEXIST" and
              d.state() == before, r)
    r = quantize("--type", "q8_0", "--force")
    tap.check("and replaced when asked for", r.rc == 0 and d.state() != before and set(p.name for p in d.path.iterdir()) ==
              rest | {"out.gguf"}, r)
    tap.check("its owner alone may read it", out.stat().st_mode & 0o777 == 0o600, oct(out.stat().st_mode))
    out.unlink()

    small = d / "small.gguf"
    tiny_gguf(small, context=256)
    r = quantize("--type", "awq-int8", "--dense", "--calibration", other, "--perplexity", text, "--calibration-windows", 1,
                 "--windows", 2, src=small)
    tap.check("awq-int8: factors, errors, perplexities", r.rc == 0 and len(r.json["awq"]) == 2 and
              all(0 < a["down"] <= a["down_plain"] and 0 < a["gate_up"] <= a["gate_up_plain"] for a in r.json["awq"]) and
              r.json["perplexity"]["scored"] == 2 * 127 and
              0 < r.json["perplexity"]["before"] != r.json["perplexity"]["after"] > 0 and
              sum(t["to"] == "I8C" for t in r.json["tensors"]) == 6, r)
    out.unlink(), small.unlink()
    r = quantize("--type", "awq-int8", "--calibration", other)
    tap.check("awq-int8 is for experts", r.rc == 1 and "no experts" in r.err and set(p.name for p in d.path.iterdir()) == rest, r)

    # Directories of safetensors, and the GGUFs of the same weights that were made apart from them.
    both = d / "both"
    both.mkdir()
    names = subprocess.run([sys.executable, "-B", MODELS, "--list"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run([sys.executable, "-B", MODELS, both], check=True, stdout=subprocess.DEVNULL)

    def short(path):
        r = sits("perplexity", "--json", "--context", 64, "--windows", 1, path, other)
        return r.json["nll"] if r.rc == 0 else r
    for name in names:
        r = quantize("--type", "keep", src=both / name)
        a, b = (short(out), short(both / f"{name}.gguf")) if r.rc == 0 else (r, None)
        direct = short(both / name)
        tap.check(f"{name}: perplexity of a directory is that of the GGUF", abs(direct / b - 1) < 1e-5 if b else False, (direct, b))
        # MLA's kv_b stays whole there, so sums have another order.
        whole = name in ("deepseek2-v2", "deepseek2-v3")
        tap.check(f"{name}: a directory becomes the GGUF that it is", a == b or (whole and abs(a / b - 1) < 1e-5), (a, b))
        out.unlink(missing_ok=True)
    r = quantize("--type", "q8_0", "--perplexity", other, "--windows", 1, src=both / "mixtral")
    same = sits("quantize", "--json", "--type", "q8_0", both / "mixtral.gguf", d / "same.gguf")
    kinds = [{t["name"]: (t["to"], t["error"]) for t in x.json["tensors"]} for x in (r, same)] if r.rc == same.rc == 0 else [r, same]
    tap.check("a directory is quantised as the GGUF is", kinds[0] == kinds[1] and short(out) == short(d / "same.gguf") and
              r.json["perplexity"]["before"] != r.json["perplexity"]["after"] and
              r.json["bytes_in"] == sum(f.stat().st_size for f in (both / "mixtral").iterdir()), kinds)
    out.unlink(), (d / "same.gguf").unlink()
    got = [quantize("--type", "awq-int8", "--calibration", other, "--calibration-windows", 1, "--force", src=both / n)
           for n in ("qwen3moe", "qwen3moe.gguf")]
    tap.check("awq-int8 too", all(r.rc == 0 for r in got) and got[0].json["awq"] == got[1].json["awq"], got)
    out.unlink()
    plain, packed = d / "plain.gguf", d / "packed.gguf"
    for name, args in (("qwen2moe.gguf", ("--type", "i8c")), ("qwen2moe.gguf", ("--type", "q8_0")), ("llama.gguf", ("--type", "i8c")),
                       ("qwen2moe.gguf", ("--type", "keep", "--tensor", "*shexp*=q8_0"))):
        assert quantize(*args, "--force", src=both / name, dst=plain).rc == 0 and sits("pack", "--force", plain, packed).rc == 0
        awq = ("--type", "awq-int8", "--requantize", "--calibration", other, "--calibration-windows", 1, "--dense")
        r = quantize(*awq, src=packed)
        tap.check(f"awq-int8 does not take packed weights: {name}, {args[-1]}", r.rc == 1 and "packed; quantize what" in r.err and
                  not out.exists(), r)
        tap.check("and takes what they were packed from", quantize(*awq, "--force", src=plain).rc == 0)
        out.unlink()
    plain.unlink(), packed.unlink()
    config = both / "llama" / "config.json"
    right = config.read_text()
    for name, content, words in (("a key that is not known", right.replace("{", '{"logit_scale": 2,', 1), "logit_scale"),
                                 ("no configuration", None, "config.json"), ("a cut one", right[:100], "config.json: line")):
        config.unlink()
        if content:
            config.write_text(content)
        r = quantize("--type", "keep", src=both / "llama")
        tap.check(f"a directory with {name} is refused", r.rc == 1 and "both/llama: " in r.err and words in r.err and r.err.count("\n") == 1 and
                  not r.json["ok"] and not out.exists(), r)
        config.write_text(right)
    shutil.rmtree(both)

    for name, args, words in (
            ("no type", (model, out), "--type is required"), ("an unknown type", ("--type", "q3_x", model, out), "q3_x"),
            ("a type without an encoder", ("--type", "q6_k", model, out), "q6_k"),
            ("no output", ("--type", "q8_0", model), "1 were given"),
            ("an empty output", ("--type", "q8_0", model, ""), "argument 2 is empty"),
            ("windows of no text", ("--type", "q8_0", "--windows", 1, model, out), "--windows is for --perplexity"),
            ("awq-int8 without a text", ("--type", "awq-int8", model, out), "--calibration"),
            ("a text without awq-int8", ("--type", "q8_0", "--calibration", other, model, out), "awq-int8"),
            ("a rule without a type", ("--type", "q8_0", "--tensor", "abc", model, out), "GLOB=TYPE")):
        r = sits("quantize", *args)
        tap.check(f"{name} is wrong usage", r.rc == 2 and words in r.err and not out.exists(), r)

    good = model.read_bytes()
    bad = d / "bad.gguf"

    def refused(name, content, words, *args):
        bad.write_bytes(content)
        for cmd in (("quantize", "--type", "q8_0", *args), ("perplexity",), ("pack",)) if not args else (
                ("quantize", *args),):
            r = sits(*cmd, bad, text if cmd[0] == "perplexity" else out)
            tap.check(f"{cmd[0]}: {name}", r.rc == 1 and words in r.err and r.err.count("\n") == 1 and not out.exists(), r)

    refused("an empty file", b"", "empty")
    refused("something else", b"\x7fELF" + bytes(1000), "not a GGUF file")
    refused("a file cut in its metadata", good[:200], "bad.gguf")
    refused("a file cut in its weights", good[:-1000], "cut short")
    refused("a sealed file", b"\x89SITS\r\n\x1a" + bytes(8192), "sealed")
    nan = bytearray(good)
    nan[-4096 - 256 * 4:-4096 - 256 * 4 + 4] = struct.pack("<f", float("nan"))
    refused("a weight that is not finite", bytes(nan), "not finite", "--type", "q8_0")
    big = bytearray(good)
    big[-4096 - 256 * 4:-4096 - 256 * 4 + 4] = struct.pack("<f", 1e30)
    refused("a weight that is too large", bytes(big), "too large for F16", "--type", "f16")
    # What comes out of the last norm is a million times as large: the wrong token is far more than e^700 times as likely.
    bad.write_bytes(good[:-256 * 4] + struct.pack("<256f", *[1e6] * 256))
    r = sits("perplexity", "--json", "--context", 128, "--windows", 1, "--kv-keep", 64, bad, text)
    tap.check("a perplexity beyond all numbers is null", r.rc == 0 and r.json["perplexity"] is None and r.json["nll"] > 1000 and
              r.json["kept"]["perplexity"] is None, r)
    r = quantize("--type", "q8_0", "--perplexity", text, "--windows", 1, src=bad)
    tap.check("also before and after", r.rc == 0 and r.json["perplexity"]["before"] is None and r.json["perplexity"]["change"] is None, r)
    out.unlink(), bad.unlink()
    r = sits("quantize", "--type", "q8_0", d / "none.gguf", out)
    tap.check("a file that is not there", r.rc == 1 and "none.gguf" in r.err, r)
    r = sits("perplexity", "--context", 128, model, d / "none")
    tap.check("a text that is not there", r.rc == 1 and "none" in r.err, r)
    for isa in ("", "sse9", "AVX2"):
        r = sits("perplexity", "--context", 128, "--isa", isa, model, text)
        tap.check(f"--isa '{isa}' is wrong usage", r.rc == 2 and f"--isa '{isa}' is not one of: " in r.err and "ref" in r.err and r.out == "", r)
    r = sits("perplexity", "--context", 128, "--isa", "ref", "--windows", 1, "--json", model, text)
    tap.check("--isa ref", r.rc == 0 and r.json["isa"] == "ref", r)
    r = sits("perplexity", "--context", 4096, model, text)
    tap.check("a window longer than the context", r.rc == 1 and "256" in r.err, r)
    (d / "short").write_text("a b")
    r = sits("perplexity", "--context", 128, model, d / "short")
    tap.check("a text shorter than a window", r.rc == 1 and "one window takes 128" in r.err, r)
    whole = text.read_bytes()
    (d / "short").write_bytes(whole[:1000] + "\u00e9".encode("latin-1") + whole[1000:])
    for args in (("perplexity", "--context", 128, model, d / "short"),
                 ("quantize", "--type", "q8_0", "--perplexity", d / "short", model, out)):
        r = sits(*args)
        tap.check(f"{args[0]}: a text that is not UTF-8", r.rc == 1 and "byte 1000 (0xe9) is not UTF-8" in r.err and not out.exists(), r)
    (d / "short").unlink()

    script = 'mount -t tmpfs -o size=256k none {0} || exit 99; {1} quantize --type q8_0 {2} {0}/out; echo "rc $?"; ls -A {0}'
    (d / "disk").mkdir()
    p = subprocess.run(["unshare", "--mount", "bash", "-c", script.format(*map(shlex.quote, map(str, (d / "disk", SITS, model))))],
                       capture_output=True, text=True)
    if p.returncode in (1, 99) and "rc" not in p.stdout:
        tap.skip("a full disk", f"no small disk can be mounted here: {p.stderr.strip()}")
    else:
        tap.check("a full disk", p.stdout.split() == ["rc", "1"] and "no space" in p.stderr, p)
    (d / "disk").rmdir()

    def meddled(cmd, path, meddle):
        """The command, stopped as soon as it has mapped @path, which is then meddled with; None where it was quicker."""
        p = subprocess.Popen([SITS, *map(str, cmd)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        maps = pathlib.Path(f"/proc/{p.pid}/maps")
        while p.poll() is None and str(path) not in maps.read_text():
            pass
        p.send_signal(signal.SIGSTOP)
        while p.poll() is None and "State:\tT" not in (maps.parent / "status").read_text():
            pass
        meddle(path)
        p.send_signal(signal.SIGCONT)
        o, e = p.communicate(timeout=PATIENCE)
        return None if p.returncode == 0 else Result(p.returncode, o, e)

    def cut(path):
        os.truncate(path, 0)

    def grow(path):
        with open(path, "ab") as f:
            f.write(b"more")

    victim, dead = d / "victim", d / "victim.gguf"
    packable = d / "packable.gguf"
    assert quantize("--type", "q8_0", dst=packable).rc == 0
    for name, src, path, cmd in (
            ("quantize", model, dead, ("quantize", "--json", "--type", "q4_k", dead, out)),
            ("quantize, one thread", model, dead, ("quantize", "--json", "--type", "q4_k", "--threads", 1, dead, out)),
            ("quantize, its text", text, victim, ("quantize", "--json", "--type", "q8_0", "--perplexity", victim, model, out)),
            ("pack", packable, dead, ("pack", "--json", dead, out)),
            ("perplexity", model, dead, ("perplexity", "--json", "--context", 128, dead, text)),
            ("perplexity, its text", text, victim, ("perplexity", "--json", "--context", 128, model, victim))):
        for how, words in ((cut, "cut"), (grow, "written to")):
            for _ in range(20):
                shutil.copy(src, path)
                r = meddled(cmd, path, how)
                if r:
                    break
                out.unlink(missing_ok=True)
            tap.check(f"{name}: a file that is {words} while it is read", r and r.rc == 1 and r.err.count("\n") == 1 and
                      f"{path}: changed while it was being read" in r.err and r.json["error"] == "ESTALE" and not out.exists(), r)
            out.unlink(missing_ok=True)
            path.unlink()
    packable.unlink()

    begun = time.monotonic()
    assert quantize("--type", "q4_k").rc == 0
    whole = time.monotonic() - begun
    out.unlink()
    left = []
    for sig in (signal.SIGKILL, signal.SIGTERM) * 4:
        p = subprocess.Popen([SITS, "quantize", "--quiet", "--type", "q4_k", str(model), str(out)], stderr=subprocess.DEVNULL)
        try:
            p.wait(d.rng.uniform(0, whole))
        except subprocess.TimeoutExpired:
            p.send_signal(sig)
        rc = p.wait(PATIENCE)
        names = {x.name for x in d.path.iterdir()} - rest
        if (rc == 0) != (names == {"out.gguf"}) and not (names == {"out.gguf"} and sits("pack", out, d / "p").rc == 0):
            left.append((sig, rc, names))
        for x in ("out.gguf", "p"):
            (d / x).unlink(missing_ok=True)
    tap.check("killed at any time: nothing, or the whole file", not left, left)
tap.done()
