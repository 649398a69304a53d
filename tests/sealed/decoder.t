#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The independent decoder: right by the standards' vectors, agrees with docs/sealed-file.md, opens what is sound
and what `sits seal` writes, and refuses what was changed."""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import sealed_format as sf  # noqa: E402
from tap import SITS, Tap  # noqa: E402

unhex = bytes.fromhex
KEY = unhex("0123456789abcdeffedcba9876543210")
seed = int(os.environ.get("SITS_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
rng = random.Random(seed)
print("# SITS_TEST_SEED", seed)
tap = Tap()


def vectors():
    tap.check("SM4: GB/T 32907-2016 A.1", sf.sm4_block(sf.sm4_round_keys(KEY), KEY).hex() == "681edf34d206965e86b3e94f536e4246")
    abcd = b"abcd" * 16
    want = "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732"
    tap.check("SM3: GB/T 32905-2016 A.2", sf.sm3_python(abcd).hex() == want and sf.sm3(abcd).hex() == want)
    text = b"".join(bytes([b]) * 8 for b in unhex("aabbccddeeffeeaa"))
    ciphertext, tag = sf.Gcm(KEY).seal(unhex("00001234567800000000abcd"),
                                       unhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"), text)
    tap.check("GCM: RFC 8998 A.1", tag.hex() == "83de3541e4c2b58177e065a9bf7b62ec" and ciphertext[:4].hex() == "17f399f0")


def reference_ghash(h, data):
    y, h = 0, int.from_bytes(h, "big")
    for i in range(0, len(data), 16):
        y = sf._gf_mul(y ^ int.from_bytes(data[i:i + 16].ljust(16, b"\0"), "big"), h)
    return y


def own_parts():
    bad = []
    for n in [0, 1, 15, 16, 17, 31, 32, 48, 1000, 16 * 1024 - 1, 16 * 1024 + 16]:
        h, data = rng.randbytes(16), rng.randbytes(n)
        if sf.Ghash(h).update(0, data) != reference_ghash(h, data):
            bad.append(n)
    tap.check("GHASH of many blocks at once is that of one by one", not bad, bad)
    if not sf.HAVE_FAST_SM4:
        tap.skip("SM4 in Python is that of the cryptography package", "no cryptography package with SM4")
        return
    data, key, nonce = rng.randbytes(1000), rng.randbytes(16), rng.randbytes(12)
    fast = sf._ctr32(key, nonce, 7, data), sf.sm4_ecb(key, data[:992]), sf.sm4_ecb(key, data[:992], True)
    sf.HAVE_FAST_SM4 = False
    slow = sf._ctr32(key, nonce, 7, data), sf.sm4_ecb(key, data[:992]), sf.sm4_ecb(key, data[:992], True)
    sf.HAVE_FAST_SM4 = True
    tap.check("SM4 in Python is that of the cryptography package", fast == slow)


EXAMPLE = bytes(i % 251 for i in range(4101))


def example():
    return sf.seal(EXAMPLE, KEY, 4096, "example-1b", 3, unhex("a0a1a2a3a4a5a6a7"), bytes(range(16)),
                   unhex("c0c1c2c3c4c5c6c7c8c9cacb"))


def document(file):
    text = pathlib.Path("docs/sealed-file.md").read_text().split("<!-- example -->")[1]
    rows = re.findall(r"^([0-9a-f]{6})  ((?:[0-9a-f]{2} ?)+)$", text, re.M)
    bad = [at for at, row in rows if file[int(at, 16):][:len(unhex(row))] != unhex(row)]
    tap.check("the document's rows are in the file", len(rows) >= 12 and not bad, bad)
    whole = re.search(r"^SM3 of all 12293 bytes +([0-9a-f]{64})$", text, re.M)
    tap.check("the document's digest is the file's", whole and sf.sm3(file).hex() == whole[1])
    zero = bytearray(file)
    for at, row in rows:
        zero[int(at, 16):int(at, 16) + len(unhex(row))] = bytes(len(unhex(row)))
    tap.check("the document leaves out nothing but zeros before the ciphertext", not any(zero[:8192]))


class Room:
    def __init__(self, path):
        self.path = path
        (path / "key").write_text(KEY.hex() + "\n")
        (path / "other").write_bytes(rng.randbytes(16))

    def unseal(self, data, *options, key="key"):
        """Exit status, plaintext or None, message."""
        out = self.path / "out"
        out.unlink(missing_ok=True)
        (self.path / "in").write_bytes(data)
        p = subprocess.run([HERE / "unseal.py", "--jobs", "1", *options, self.path / "in", self.path / key, out],
                           capture_output=True, text=True)
        leftovers = [f for f in os.listdir(self.path) if f.endswith(".part")]
        return p.returncode, out.read_bytes() if out.exists() else None, p.stderr + " ".join(leftovers)


def opens(room, file):
    rc, plain, err = room.unseal(file)
    tap.check("opens the example", rc == 0 and plain == EXAMPLE and not err, err)
    for size in 0, 1, 4096, 8192, 10000:
        plain = rng.randbytes(size)
        sealed = sf.seal(plain, KEY, 4096, "", 0, rng.randbytes(8), rng.randbytes(16), rng.randbytes(12))
        rc, got, err = room.unseal(sealed)
        tap.check(f"opens {size} bytes", rc == 0 and got == plain, err)


def flip(data, at, bit=0):
    data = bytearray(data)
    data[at] ^= 1 << bit
    return bytes(data)


def refuses(room, file):
    def refused(name, data, *options, says, key="key"):
        rc, plain, err = room.unseal(data, *options, key=key)
        tap.check(f"refuses {name}", rc == 1 and plain is None and re.search(says, err) and ".part" not in err,
                  f"{rc} {err}")

    two = sf.seal(EXAMPLE * 2, KEY, 4096, "m", 0, rng.randbytes(8), bytes(range(16)), rng.randbytes(12))
    refused("another key", file, key="other", says="another key")
    refused("a changed tag", flip(file, 4112), says="chunk 1")
    refused("changed ciphertext", flip(file, 8192 + 100, 7), says="chunk 0")
    refused("a changed last byte", flip(file, len(file) - 1), says="chunk 1")
    refused("something between tags and ciphertext", flip(file, 5000), says="not zero")
    refused("a file cut by a byte", file[:-1], says="bytes, the header says")
    refused("a file with a byte more", file + b"x", says="bytes, the header says")
    refused("a cut header", file[:4000], says="not a sealed file")
    refused("an empty file", b"", says="not a sealed file")
    refused("swapped chunks with their tags", two[:4096] + two[4112:4128] + two[4096:4112] + two[4128:8192] +
            two[12288:16384] + two[8192:12288] + two[16384:], says="chunk 0")
    refused("a chunk of another file", two[:4096] + file[4096:4112] + two[4112:8192] + file[8192:12288] + two[12288:],
            says="chunk 0")

    bad = []
    for at in sorted({*range(0, 224), *range(4064, 4096), *rng.sample(range(224, 4064), 100)}):
        try:
            sf.Header(flip(file, at, rng.randrange(8))[:4096], KEY)
            bad.append(at)
        except sf.Refused:
            pass
    tap.check("refuses any changed header byte", not bad, bad)


def ecb(room):
    for size in 0, 1, 16, 5000, 1 << 20 | 5:
        plain = rng.randbytes(size)
        (room.path / "plain").write_bytes(plain)
        subprocess.run([HERE / "make_ecb.py", "--chunk", "4096", room.path / "plain", room.path / "key",
                        room.path / "ecb"], check=True)
        file = (room.path / "ecb").read_bytes()
        rc, got, err = room.unseal(file, "--allow-ecb")
        tap.check(f"suite 240: {size} bytes with the flag", rc == 0 and got == plain, err)
        rc, got, err = room.unseal(file)
        tap.check(f"suite 240: {size} bytes refused without", rc == 1 and got is None and "--allow-ecb" in err, err)


def sits(room):
    """Either program opens what the other wrote."""
    if not os.path.exists(SITS):
        tap.skip("opens what sits seal writes", f"no {SITS}")
        return
    key, plain, sealed, ecb, out = (room.path / n for n in ("key", "plain", "sealed", "ecb", "out"))
    key.chmod(0o600)
    plain.write_bytes(rng.randbytes(4 << 20 | 12345))
    p = subprocess.run([SITS, "seal", "--key", f"file:{key}", plain, sealed], capture_output=True, text=True)
    tap.check("sits seal", p.returncode == 0, p.stderr)
    p = subprocess.run([HERE / "unseal.py", sealed, key, out], capture_output=True, text=True)
    tap.check("opens what sits seal writes", p.returncode == 0 and out.read_bytes() == plain.read_bytes(), p.stderr)
    sealed.write_bytes(example())
    p = subprocess.run([SITS, "verify", "--key", f"file:{key}", sealed], capture_output=True, text=True)
    tap.check("sits verify takes what the independent writer made", p.returncode == 0, p.stderr)
    subprocess.run([HERE / "make_ecb.py", plain, key, ecb], check=True)
    p = subprocess.run([SITS, "verify", "--allow-ecb", "--key", f"file:{key}", ecb], capture_output=True, text=True)
    tap.check("sits verify --allow-ecb takes suite 240", p.returncode == 0, p.stderr)


def main():
    vectors()
    own_parts()
    file = example()
    document(file)
    with tempfile.TemporaryDirectory() as d:
        room = Room(pathlib.Path(d))
        opens(room, file)
        refuses(room, file)
        ecb(room)
        sits(room)
    tap.done()


main()
