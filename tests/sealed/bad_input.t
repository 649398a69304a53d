#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""What was cut, changed, swapped, exchanged or is too old, given to the real command: a clear message, exit status 1,
and nothing changed or left behind. The same in bulk, through the library, is tests/unit/libsits/weights_test.c."""
import os

from tap import Dir, Tap, sits

tap = Tap()
CHUNK = 65536
N = 10
with Dir() as d:
    key, other = f"file:{d / 'kek.key'}", f"file:{d / 'other.key'}"
    plain = d.plain("plain", (N - 1) * CHUNK + 1000)
    out = d / "model.sits"
    sits("key", "new", key)
    sits("key", "new", other)
    for name in ("model.sits", "twin.sits"):
        r = sits("seal", "--key", key, "--chunk-size", CHUNK, "--model-version", 4, plain, d / name)
        assert r.rc == 0, r
    good, twin = out.read_bytes(), (d / "twin.sits").read_bytes()
    tags, data = 4096, 8192
    assert len(good) == data + plain.stat().st_size

    def refused(name, content, words, error="EBADMSG", k=key, args=()):
        out.write_bytes(content)
        before = d.state()
        r = sits("verify", "--key", k, *args, out)
        tap.check(name, r.rc == 1 and words in r.err and "model.sits" in r.err and r.err.startswith("sits verify: ") and
                  r.err.count("\n") == 1 and r.out == "" and d.state() == before, r)
        r = sits("verify", "--json", "--key", k, *args, out)
        tap.check(f"{name} --json", r.rc == 1 and r.json["ok"] is False and r.json["error"] == error and
                  words in r.json["message"] and d.state() == before, r)

    def flip(at):
        b = bytearray(good)
        b[at] ^= 1 << d.rng.randrange(8)
        return bytes(b)

    def swap(*pairs):
        b = bytearray(good)
        for i, j, n in pairs:
            b[i:i + n], b[j:j + n] = b[j:j + n], b[i:i + n]
        return bytes(b)

    refused("empty file", b"", "header: the file is empty")
    refused("cut in the header", good[:4095], "header: the file is too short")
    refused("header alone", good[:4096], "tag table: cut")
    refused("cut in the tag table", good[:4096 + 16 * N - 1], "tag table: cut")
    refused("cut before the first chunk", good[:data], "chunk 0 ")
    refused("cut at a chunk's border", good[:data + 3 * CHUNK], "chunk 3 ")
    refused("cut by one byte", good[:-1], f"chunk {N - 1} ")
    refused("one byte more", good + b"\0", "1 more than its header says")
    refused("twice the file", good + good, "more than its header says")
    refused("magic", flip(3), "header: ")
    refused("salt", flip(41), "header: ")
    refused("wrapped key", flip(4070), "header: ")
    refused("header tag", flip(4095), "header: ")
    refused("reserved bytes", flip(2000), "header: ")
    refused("version", good[:8] + b"\x02" + good[9:], "header: version", "EPROTONOSUPPORT")
    refused("suite", good[:12] + b"\x02" + good[13:], "header: suite", "EPROTONOSUPPORT")
    refused("a byte between tag table and ciphertext", flip(8191), "tag table: byte 8191")
    refused("not a sealed file", plain.read_bytes(), "no sealed file")
    i = d.rng.randrange(N)
    refused("a tag", flip(tags + 16 * i + d.rng.randrange(16)), f"chunk {i} ")
    i = d.rng.randrange(N - 1)
    refused("a ciphertext bit", flip(data + CHUNK * i + d.rng.randrange(CHUNK)), f"chunk {i} ")
    refused("the last byte", flip(len(good) - 1), f"chunk {N - 1} ")
    refused("two changes: the first is named", swap((data + CHUNK * 5, data + CHUNK * 6, 1),
                                                    (data + CHUNK * 2, data + CHUNK * 8, 16)), "chunk 2 ")
    refused("swapped chunks", swap((data + CHUNK, data + 4 * CHUNK, CHUNK)), "chunk 1 ")
    refused("swapped chunks with their tags", swap((data + CHUNK, data + 4 * CHUNK, CHUNK), (tags + 16, tags + 64, 16)),
            "chunk 1 ")
    refused("a chunk of another file", good[:tags + 48] + twin[tags + 48:tags + 64] + good[tags + 64:data + 3 * CHUNK] +
            twin[data + 3 * CHUNK:data + 4 * CHUNK] + good[data + 4 * CHUNK:], "chunk 3 ")
    refused("the header of another file", twin[:4096] + good[4096:], "chunk 0 ")
    refused("an older model version", good, "model version 4 is older than 5", "EKEYEXPIRED", args=("--min-version", 5))
    refused("wrong key", good, "wrong key", "ENOKEY", k=other)

    out.write_bytes(good)
    os.chmod(d / "kek.key", 0o644)
    for cmd in (["verify", "--key", key, out], ["inspect", "--key", key, out], ["seal", "--key", key, plain, d / "new.sits"],
                ["rekey", "--key", key, "--new-key", other, out], ["rekey", "--key", other, "--new-key", key, out],
                ["key", "id", key]):
        before = d.state()
        r = sits(*cmd)
        tap.check(f"{cmd[0]}: key file of mode 0644", r.rc == 1 and "0644" in r.err and
                  f"chmod 600 {d / 'kek.key'}" in r.err and r.out == "" and d.state() == before, r)
    os.chmod(d / "kek.key", 0o600)

    for name, content in (("empty", ""), ("short", "0123"), ("letters", "z" * 32), ("long", "0" * 64)):
        (d / "bad.key").write_text(content)
        os.chmod(d / "bad.key", 0o600)
        r = sits("verify", "--key", f"file:{d / 'bad.key'}", out)
        tap.check(f"{name} key file", r.rc == 1 and "32 hexadecimal digits" in r.err and r.err.count("\n") == 1, r)
    os.unlink(d / "bad.key")
    secret = (d / "kek.key").read_text().strip()
    r = sits("verify", "--key", secret, out)
    tap.check("a key given in place of its file is not repeated", r.rc == 1 and secret not in r.err + r.out and
              "file:PATH" in r.err, r)
    r = sits("verify", "--key", f"file:{d / 'none.key'}", out)
    tap.check("a key file that is not there", r.rc == 1 and "none.key" in r.err and "sits key new" in r.err, r)

    for cmd, words in (
            (["seal", "--key", key, d / "none", d / "x.sits"], "none: No such file"),
            (["seal", "--key", key, d.path, d / "x.sits"], "is a directory"),
            (["seal", "--key", key, plain, d.path], "is a directory"),
            (["seal", "--key", key, plain, d / "no/such/x.sits"], "can't open the directory"),
            (["seal", "--key", key, plain, plain], "same file"),
            (["seal", "--force", "--key", key, plain, plain], "same file"),
            (["seal", "--key", key, plain, out], "exists already"),
            (["verify", "--key", key, d.path], "is a directory"),
            (["inspect", d / "none"], "No such file"),
            (["rekey", "--key", key, "--new-key", other, plain], "no sealed file"),
    ):
        before = d.state()
        r = sits(*cmd)
        tap.check(f"{cmd[0]}: {words}", r.rc == 1 and words in r.err and r.err.count("\n") == 1 and d.state() == before, r)

    r = sits("verify", "--key", key, out)
    tap.check("after all that, the good file is good", r.rc == 0, r)
tap.done()
