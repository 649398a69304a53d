#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""sits and the independent decoder: each opens what the other writes, and both refuse the same."""
import os
import subprocess

import sealed_format as sf
from tap import Dir, Tap, sits

UNSEAL, MAKE_ECB = (os.path.abspath(f"tests/sealed/{n}.py") for n in ("unseal", "make_ecb"))
# Without the cryptography package SM4 in Python makes 0.3 MB/s.
BIG = 3 << 20 if sf.HAVE_FAST_SM4 else 200_000
tap = Tap()
with Dir() as d:
    keyfile, newfile = d / "kek.key", d / "new.key"
    key, new = f"file:{keyfile}", f"file:{newfile}"
    sits("key", "new", key)
    sits("key", "new", new)
    kid = sits("key", "id", key).out.strip()
    kek = sf.read_key(keyfile)
    tap.check("both have the same id for a key", kid == sf.key_id(kek).hex(), kid)
    out, opened = d / "x.sits", d / "opened"

    def unseal(k=keyfile, *flags):
        opened.unlink(missing_ok=True)
        return subprocess.run(["python3", "-B", UNSEAL, *flags, str(out), str(k), str(opened)], capture_output=True, text=True)

    rng = d.rng
    sizes = [0, 1, 4095, 4096, 4097, 8192, 65536, rng.randrange(1, 50_000), rng.randrange(50_000, 200_000), BIG + rng.randrange(4096)]
    for size in sizes:
        chunk = rng.choice(["4K", "8K", "64K"]) if size < BIG else "1M"
        plain = d.plain("plain", size)
        r = sits("seal", "--force", "--key", key, "--chunk-size", chunk, "--model-version", size, plain, out)
        p = unseal()
        tap.check(f"the decoder opens {size} bytes in chunks of {chunk}", r.rc == 0 and p.returncode == 0 and
                  opened.read_bytes() == plain.read_bytes(), f"{r}\n{p}")

    before = sits("inspect", "--json", out).json
    r = sits("rekey", "--key", key, "--new-key", new, "--json", out)
    p, q = unseal(newfile), unseal()
    tap.check("and after a rekey, under the new key alone", p.returncode == 0 and q.returncode == 1, f"{r}\n{p}\n{q}")
    tap.check("the digest outlives a rekey", r.json["digest"] == before["digest"], r)
    r = sits("rekey", "--reseal", "--key", new, "--new-key", key, "--json", out)
    q, p = unseal(newfile), unseal()
    tap.check("and after resealing", p.returncode == 0 and q.returncode == 1 and opened.read_bytes() == plain.read_bytes(),
              f"{r}\n{p}\n{q}")

    data = out.read_bytes()
    header = sf.Header(data[:sf.PAGE], kek)
    want = sf.sm3(data[:192] + data[sf.PAGE:sf.PAGE + header.tags_bytes]).hex()
    tap.check("the digest is SM3 of immutable header and tag table", r.json["digest"] == want, r)

    for size in (0, 1, 4096, 10_000):
        plain = rng.randbytes(size)
        out.write_bytes(sf.seal(plain, kek, 4096, "from Python", 7, rng.randbytes(8), rng.randbytes(16), rng.randbytes(12)))
        r = sits("verify", "--json", "--key", key, out)
        tap.check(f"sits opens {size} bytes that Python sealed", r.rc == 0 and r.json["model_id"] == "from Python" and
                  r.json["model_version"] == 7 and r.json["plain_bytes"] == size, r)

    good = out.read_bytes()
    for name, at in (("header", rng.randrange(8, 4096)), ("tag", 4096 + rng.randrange(48)),
                     ("padding", 4096 + 48 + rng.randrange(4048)), ("ciphertext", 8192 + rng.randrange(10_000))):
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        out.write_bytes(bad)
        r, p = sits("verify", "--key", key, out), unseal()
        tap.check(f"both refuse a changed {name}", r.rc == 1 and p.returncode == 1 and not opened.exists(), f"{r}\n{p}")

    for size in (1, 4096, 10_001):
        plain = d.plain("plain", size)
        subprocess.run(["python3", "-B", MAKE_ECB, "--chunk", "4096", str(plain), str(keyfile), str(out)], check=True)
        r = sits("verify", "--key", key, out)
        tap.check(f"suite 240, {size} bytes: refused without its flag", r.rc == 1 and "SM4-ECB" in r.err, r)
        r = sits("verify", "--allow-ecb", "--json", "--key", key, out)
        p = unseal(keyfile, "--allow-ecb")
        tap.check(f"suite 240, {size} bytes: read with it", r.rc == 0 and r.json["suite"] == 240 and
                  p.returncode == 0 and opened.read_bytes() == plain.read_bytes(), f"{r}\n{p}")
        r = sits("rekey", "--reseal", "--key", key, "--new-key", key, out)
        tap.check(f"suite 240, {size} bytes: not resealed", r.rc == 1 and "SM4-ECB" in r.err, r)
tap.done()
