#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""sits seal, inspect, verify and rekey with a directory: a safetensors model."""
import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import time

from tap import SITS, Dir, Tap, sits

tap = Tap()

with Dir() as d:
    key, key2 = f"file:{d / 'kek.key'}", f"file:{d / 'new.key'}"
    for k in (key, key2):
        sits("key", "new", k)
    src, out = d / "model", d / "model.sits"
    src.mkdir()
    files = {"config.json": b"{}", "tokenizer.json": b"[1]", "model.safetensors": os.urandom(300_000), "README.md": b"text",
             "vocab.json": b"{}", "pytorch_model.bin": b"x" * 1000, ".hidden": b"x"}
    for name, text in files.items():
        (src / name).write_bytes(text)
    wanted = ["config.json", "model.safetensors", "tokenizer.json"]

    r = sits("seal", "--key", key, "--model-version", "7", src, out)
    tap.check("a directory is sealed as one", r.rc == 0 and "3 files" in r.out and "model id        model\n" in r.out, r)
    tap.check("what is not read is left out, and named",
              all(f"left out: {n}\n" in r.err for n in ("README.md", "vocab.json", "pytorch_model.bin")) and ".hidden" not in r.err, r)
    tap.check("it has a file for each, and a manifest",
              sorted(os.listdir(out)) == sorted([n + ".sits" for n in wanted] + ["manifest.sits"]), os.listdir(out))
    plain = b"".join((out / n).read_bytes() for n in os.listdir(out))
    tap.check("nothing of them is in the clear", files["model.safetensors"][:64] not in plain and b"SITS-DIRECTORY" not in plain)
    r = sits("inspect", "--key", key, "--json", out)
    tap.check("inspect describes it",
              r.rc == 0 and [f["name"] for f in r.json["files"]] == wanted and r.json["model_version"] == 7 and r.json["authenticated"] is True, r)
    digest = r.json["digest"]
    infos = [sits("inspect", "--key", key, "--json", out / (n + ".sits")).json for n in wanted]
    tap.check("each file has the id and version of all", {(i["model_id"], i["model_version"]) for i in infos} == {("model", 7)}, infos)
    page = bytearray((out / "manifest.sits").read_bytes())
    for version in (1 << 63, (1 << 64) - 1):
        page[32:40] = version.to_bytes(8, "little")
        (out / "manifest.sits").write_bytes(page)
        r = sits("inspect", "--json", out)
        tap.check(f"a version of {version} is not told as a negative one", r.rc == 0 and r.json["model_version"] == str(version), r)
    page[32:40] = (7).to_bytes(8, "little")
    (out / "manifest.sits").write_bytes(page)
    r = sits("verify", "--key", key, out)
    tap.check("verify checks all of it", r.rc == 0 and "each file is the one that the manifest names" in r.out, r)
    r = sits("verify", "--key", key2, out)
    tap.check("not under another key", r.rc == 1 and r.out == "", r)

    r = sits("seal", "--key", key, src, out)
    tap.check("what is there is not replaced", r.rc == 1 and "--force replaces a sealed directory" in r.err, r)
    (out / "mine").write_text("x")
    r = sits("seal", "--key", key, "--force", src, out)
    tap.check("nor with --force where something else is in it", r.rc == 1 and (out / "mine").exists(), r)
    (out / "mine").unlink()
    r = sits("seal", "--key", key, "--force", "--model-version", "8", "--json", src, out)
    tap.check("else it is, with --force", r.rc == 0 and r.json["model_version"] == 8 and r.json["digest"] != digest, r)
    tap.check("nothing is left beside it", sorted(os.listdir(d.path)) == sorted(["kek.key", "new.key", "model", "model.sits"]), os.listdir(d.path))

    old = d / "old.sits"
    sits("seal", "--key", key, "--model-version", "8", "--model-id", "model", src, old)
    shutil.copy(old / "tokenizer.json.sits", out / "tokenizer.json.sits")
    r = sits("verify", "--key", key, out)
    tap.check("a file of another seal of the same model is found", r.rc == 1 and "tokenizer.json.sits: intact, but not the file" in r.err, r)
    r = sits("verify", "--key", key, "--json", out)
    tap.check("and in JSON", r.rc == 1 and r.json["ok"] is False and r.json["error"] == "EBADMSG", r)
    (out / "tokenizer.json.sits").unlink()
    r = sits("verify", "--key", key, out)
    tap.check("one that is missing too", r.rc == 1 and "tokenizer.json.sits" in r.err, r)

    r = sits("rekey", "--key", key, "--new-key", key2, old)
    tap.check("rekey puts a directory under another key", r.rc == 0 and sits("verify", "--key", key2, old).rc == 0, r)
    r = sits("rekey", "--reseal", "--key", key2, "--new-key", key, old)
    tap.check("but does not encrypt its files anew one by one",
              r.rc == 1 and "seal the directory again" in r.err and sits("verify", "--key", key2, old).rc == 0, r)

    (d / "link.sits").symlink_to(old / "config.json.sits")
    r = sits("rekey", "--reseal", "--key", key2, "--new-key", key, d / "link.sits")
    tap.check("nor by a link that leads there",
              r.rc == 1 and "seal the directory again" in r.err and sits("verify", "--key", key2, old).rc == 0, r)
    (d / "link.sits").unlink()

    # Its name is the id of the model, made to fit where none is given.
    for name, want in (("\u00e9" * 65, "\u00e9" * 63), ("a" + "\u00e9" * 65, "a" + "\u00e9" * 63), ("x\n\x1b\x7fy", "x___y")):
        src.rename(d / name)
        r = sits("seal", "--quiet", "--json", "--key", key, d / name, d / "named.sits")
        tap.check(f"the name is made an id: {want[:4]!r}", r.rc == 0 and r.json["model_id"] == want, r)
        (d / name).rename(src)
        shutil.rmtree(d / "named.sits", ignore_errors=True)

    # One that is being sealed: a file that changes there would not be the one that its manifest is to name.
    (d / "store" / "new.sits.sits-tmp.aB3dE6").mkdir(parents=True)
    (d / "store" / "new.sits.sits-tmp.mine").mkdir()
    for name in ("new.sits.sits-tmp.aB3dE6", "new.sits.sits-tmp.mine"):
        shutil.copy(old / "config.json.sits", d / "store" / name)
    making = (d / "store" / "new.sits.sits-tmp.aB3dE6" / "config.json.sits").read_bytes()
    r = sits("rekey", "--reseal", "--key", key2, "--new-key", key, d / "store")
    tap.check("a directory that is being sealed is left alone", r.rc == 0 and "1 resealed" in r.out and
              (d / "store" / "new.sits.sits-tmp.aB3dE6" / "config.json.sits").read_bytes() == making, r)
    r = sits("rekey", "--reseal", "--key", key2, "--new-key", key, d / "store" / "new.sits.sits-tmp.aB3dE6")
    tap.check("unless it is named", r.rc == 0 and "1 resealed" in r.out, r)
    shutil.rmtree(d / "store")

    # The index says which files the weights are in; others beside them are another form of the same.
    for n in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors"):
        (src / n).write_bytes(os.urandom(5000))
    (src / "model.safetensors").unlink()
    (src / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
    r = sits("seal", "--key", key, src, d / "two.sits")
    tap.check("the index chooses the files of weights", r.rc == 0 and "left out: consolidated.safetensors" in r.err and "5 files" in r.out, r)
    whole = (src / "model.safetensors.index.json").read_text()
    for what, index, words in (("a file that is not there", {"a": "model-00003-of-00002.safetensors"}, "names model-00003-of-00002"),
                               ("a file elsewhere", {"a": "../model.safetensors"}, "names ../model.safetensors"),
                               ("a file of another kind", {"a": "config.json"}, "names config.json"),
                               ("no file", {}, "*.safetensors in it")):
        (src / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        r = sits("seal", "--quiet", "--key", key, src, d / "bad.sits")
        tap.check(f"an index that names {what} is refused", r.rc == 1 and words in r.err and not (d / "bad.sits").exists(), r)
    (src / "model.safetensors.index.json").write_text(whole)
    (src / "model-00001-of-00002.safetensors").rename(d / "part")
    r = sits("seal", "--quiet", "--key", key, src, d / "bad.sits")
    tap.check("so is a directory with a part missing",
              r.rc == 1 and "names model-00001-of-00002.safetensors" in r.err and not (d / "bad.sits").exists(), r)
    (d / "part").rename(src / "model-00001-of-00002.safetensors")
    (src / "model.safetensors.index.json").write_text("[]")
    r = sits("seal", "--key", key, src, d / "bad.sits")
    tap.check("an index that is none is refused", r.rc == 1 and "weight_map" in r.err and not (d / "bad.sits").exists(), r)
    (src / "model.safetensors.index.json").unlink()
    r = sits("seal", "--quiet", "--key", key, src, d / "bad.sits")
    tap.check("several files of weights need one", r.rc == 1 and f"{src}: several" in r.err and "but no model.safetensors.index.json" in r.err and not (d / "bad.sits").exists(), r)
    for n in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (src / n).unlink()
    (src / "consolidated.safetensors").rename(d / "part")
    r = sits("seal", "--quiet", "--key", key, src, d / "bad.sits")
    tap.check("a directory without weights is refused", r.rc == 1 and "*.safetensors in it" in r.err and not (d / "bad.sits").exists(), r)
    (d / "part").rename(src / "consolidated.safetensors")
    for n in ("a\nb.safetensors", "\x1b[31m.safetensors", "n" * 200 + ".safetensors"):
        (src / "consolidated.safetensors").rename(src / n)
        r = sits("seal", "--quiet", "--key", key, src, d / "bad.sits")
        tap.check(f"a name that is no line of the manifest is refused: {n[:4]!r}",
                  r.rc == 1 and "too long, or has control characters" in r.err and "\x1b" not in r.err and not (d / "bad.sits").exists(), r)
        (src / n).rename(src / "consolidated.safetensors")
    (src / "config.json").write_bytes(b"")
    r = sits("seal", "--key", key, src, d / "bad.sits")
    tap.check("an empty file is refused, by name", r.rc == 1 and "config.json: empty" in r.err and not (d / "bad.sits").exists(), r)
    (src / "config.json").unlink()
    r = sits("seal", "--key", key, src, d / "bad.sits")
    tap.check("a directory that is no model is refused", r.rc == 1 and "a GGUF is given as a file" in r.err, r)
    (src / "config.json").write_text("{}")

    # The key of all lies in the directory that is to be replaced, and would go with it.
    inner = f"file:{out}/inner.sits"
    assert sits("key", "new", inner).rc == 0
    r = sits("seal", "--force", "--key", inner, src, out)
    tap.check("a directory with the key in it is not replaced", r.rc == 2 and "the key would be lost" in r.err and
              (out / "inner.sits").exists(), r)
    (out / "inner.sits").unlink()

    # Killed in the middle: nothing at its place, and the next seal removes what was left.
    with open(src / "consolidated.safetensors", "wb") as f:
        f.truncate(1 << 29)

    def caught(name, made, meddle, *args):
        """A seal of the directory as @name with @args that has ended, and what it printed; when @made was there @meddle was called with it."""
        for _ in range(20):
            p = subprocess.Popen([SITS, "seal", "--quiet", *args, "--threads", "1", "--key", key, str(src), str(d / name)],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while p.poll() is None and not list(d.path.glob(made)):
                time.sleep(0.001)
            meddle(p)
            printed = p.communicate()
            if not (d / name).exists():
                break
            shutil.rmtree(d / name)  # it was quicker
        return p.returncode, *printed

    caught("killed.sits", "killed.sits.sits-tmp.*", lambda p: p.send_signal(signal.SIGKILL))
    left = [n for n in os.listdir(d.path) if n.startswith("killed.sits.sits-tmp.")]
    tap.check("killed in the middle it leaves nothing in its place", left and not (d / "killed.sits").exists(), os.listdir(d.path))
    (src / "consolidated.safetensors").write_bytes(os.urandom(5000))
    r = sits("seal", "--key", key, src, d / "killed.sits")
    left = [n for n in os.listdir(d.path) if ".sits-tmp." in n]
    tap.check("the next seal removes what was left", r.rc == 0 and not left, (r, left))
    # What only looks like it is somebody's own.
    for name in ("killed.sits.sits-tmp.mine", "killed.sits.sits-tmp.mine567"):
        (d / name).mkdir()
        shutil.copy(d / "killed.sits" / "config.json.sits", d / name)
    r = sits("seal", "--force", "--key", key, src, d / "killed.sits")
    tap.check("and nothing that it can't have left", r.rc == 0 and
              all((d / n / "config.json.sits").exists() for n in ("killed.sits.sits-tmp.mine", "killed.sits.sits-tmp.mine567")), r)
    for name in ("killed.sits.sits-tmp.mine", "killed.sits.sits-tmp.mine567"):
        shutil.rmtree(d / name)
    (d / "victim").mkdir()
    shutil.copy(d / "killed.sits" / "config.json.sits", d / "victim")
    (d / "killed.sits.sits-tmp.link66").symlink_to(d / "victim")
    r = sits("seal", "--force", "--key", key, src, d / "killed.sits")
    tap.check("nor where a link leads", r.rc == 0 and (d / "victim" / "config.json.sits").exists(), r)
    (d / "killed.sits.sits-tmp.link66").unlink()
    shutil.rmtree(d / "victim")
    for n in (238, 255):
        r = sits("seal", "--quiet", "--key", key, src, d / ("n" * n))
        tap.check(f"a name of {n} bytes is one for a directory, too", r.rc == 0 and sits("verify", "--quiet", "--key", key, d / ("n" * n)).rc == 0, r)
    r = sits("seal", "--quiet", "--key", key, src, d / ("n" * 256))
    tap.check("one of 256 is none", r.rc == 1 and "too long" in r.err, r)
    with open(src / "consolidated.safetensors", "wb") as f:
        f.truncate(1 << 29)
    rc, o, err = caught("stopped.sits", "stopped.sits.sits-tmp.*", lambda p: p.send_signal(signal.SIGTERM))
    tap.check("stopped by a signal it cleans up", rc == 128 + signal.SIGTERM and not [n for n in os.listdir(d.path) if n.startswith("stopped")],
              (rc, err, os.listdir(d.path)))
    # Written to after it was sealed, before the last one is: files of two models would be sealed as one.
    with open(src / "consolidated.safetensors", "ab") as f:
        f.truncate(1 << 26)

    def change(p):
        p.send_signal(signal.SIGSTOP)
        (src / "config.json").write_text('{"changed": 1}')
        p.send_signal(signal.SIGCONT)

    rc, o, err = caught("mixed.sits", "mixed.sits.sits-tmp.*/config.json.sits", change, "--json")
    tap.check("a file that was sealed already and changed is noticed", rc == 1 and f"{src}/config.json: changed while" in err and
              '"ESTALE"' in o and not [n for n in os.listdir(d.path) if n.startswith("mixed")], (rc, o, err))
    (src / "config.json").write_text("{}")
    (src / "consolidated.safetensors").write_bytes(b"small again")
    failed = []
    for _ in range(12):
        all_ = [subprocess.Popen([SITS, "seal", "--force", "--quiet", "--key", key, str(src), str(d / "many.sits")], stderr=subprocess.PIPE, text=True)
                for _ in range(8)]
        failed += [err for p, err in [(p, p.communicate()[1]) for p in all_] if p.returncode]
    r = sits("verify", "--key", key, d / "many.sits")
    tap.check("many that seal the same at once do not hinder each other",
              not failed and r.rc == 0 and not [n for n in os.listdir(d.path) if ".sits-tmp." in n], (failed, r, os.listdir(d.path)))

    # File systems where renaming has no flags.
    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]

    def plain_renames():
        RENAMEAT2, FLAGS, EINVAL = 316, 16 + 4 * 8, 22
        steps = (Filter * 6)(Filter(0x20, 0, 0, 0), Filter(0x15, 0, 3, RENAMEAT2), Filter(0x20, 0, 0, FLAGS), Filter(0x15, 1, 0, 0),
                             Filter(0x06, 0, 0, 0x50000 | EINVAL), Filter(0x06, 0, 0, 0x7fff0000))
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.byref(Program(6, steps)), 0, 0):
            raise OSError("no seccomp")

    nfs = d / "nfs.sits"
    names = ["no flags for renaming: a directory is sealed", "what is there is not replaced there", "but with --force",
             "nothing is left beside it there"]
    if platform.machine() != "x86_64":
        for n in names:
            tap.skip(n, "the filter is for x86-64")
    else:
        r = sits("seal", "--quiet", "--key", key, src, nfs, preexec_fn=plain_renames)
        tap.check(names[0], r.rc == 0 and sits("verify", "--quiet", "--key", key, nfs).rc == 0, r)
        before = sits("inspect", "--json", nfs).json["digest"]
        r = sits("seal", "--quiet", "--key", key, src, nfs, preexec_fn=plain_renames)
        tap.check(names[1], r.rc == 1 and "--force" in r.err and sits("inspect", "--json", nfs).json["digest"] == before, r)
        r = sits("seal", "--quiet", "--force", "--key", key, src, nfs, preexec_fn=plain_renames)
        tap.check(names[2], r.rc == 0 and sits("verify", "--quiet", "--key", key, nfs).rc == 0 and
                  sits("inspect", "--json", nfs).json["digest"] != before, r)
        tap.check(names[3], not [n for n in os.listdir(d.path) if ".sits-old." in n or ".sits-tmp." in n], os.listdir(d.path))
tap.done()
