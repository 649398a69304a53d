#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The OpenSSL provider as a module: the openssl command finds, lists and uses it; a configuration file makes it the one that is
asked; it depends on nothing of OpenSSL; make install puts it where libcrypto looks."""
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.environ.get("BUILD", "build/gcc")
MODULES = pathlib.Path(BUILD).resolve() / "ossl-modules"
MODULE = MODULES / "sits.so"
CORES = {"portable", "aesni-avx2", "gfni-avx2", "gfni-avx512"}
KEY = "0123456789abcdeffedcba9876543210"
IV = "000102030405060708090a0b0c0d0e0f"
OURS = ["-provider-path", str(MODULES), "-provider", "sits"]
BOTH = [*OURS, "-provider", "default", "-propquery", "?provider=sits"]
results = []


def check(name, problems):
    problems = list(problems)
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        for line in str(p).splitlines():
            print("#", line)


def openssl(*args, stdin=b"", config="/dev/null", **env):
    p = subprocess.run(["openssl", *args], input=stdin, capture_output=True, env={"PATH": os.environ["PATH"], "OPENSSL_CONF": str(config), **env})
    return p.returncode, p.stdout, p.stderr.decode(errors="replace")


def must(*args, **kw):
    rc, out, err = openssl(*args, **kw)
    if rc:
        raise RuntimeError(f"openssl {' '.join(args)}: exit status {rc}\n{err}")
    return out


def skip(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


if not shutil.which("openssl"):
    skip("there is no openssl command")
if not re.match(r"OpenSSL ([3-9]|\d\d)\.", subprocess.run(["openssl", "version"], capture_output=True, text=True).stdout):
    skip("the openssl command is not OpenSSL 3")
if not MODULE.exists():
    skip(f"{MODULE} is not built: OpenSSL's headers are missing")
if b"__asan_" in subprocess.run(["nm", "-D", MODULE], capture_output=True).stdout:
    skip("the module was built with a sanitizer, which the openssl command has not")

out = must("list", "-providers", "-verbose", *OURS).decode()
check("it is loaded, active and says which core it has",
      [] if "SITS SM4 and SM3" in out and "status: active" in out
      and (re.search(r"build info: (\S+)", out) or [0, 0])[1] in CORES else [out])
out = must("list", "-cipher-algorithms", "-digest-algorithms", *OURS).decode()
listed = set(re.findall(r"\b(SM4-\w+|SM3)\b[^\n]*@ sits", out))
check("its algorithms are listed", {"SM4-ECB", "SM4-CBC", "SM4-CTR", "SM4-GCM", "SM4-XTS", "SM3"} ^ listed)

block = bytes.fromhex(KEY)
out = must("enc", "-sm4-ecb", "-nopad", "-K", KEY, *OURS, stdin=block)
check("GB/T 32907-2016, example 1", [] if out.hex() == "681edf34d206965e86b3e94f536e4246" else [out.hex()])
out = must("dgst", "-sm3", "-binary", *OURS, stdin=b"abc")
check("GB/T 32905-2016, example 1",
      [] if out.hex() == "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0" else [out.hex()])

seed = random.randrange(1 << 32)
print("# seed:", seed)
rng = random.Random(seed)
problems = []
for mode in ("ecb", "cbc", "ctr"):
    for n in (0, 1, 15, 16, 17, 8191, 8192, 1 << 20, rng.randrange(1 << 20)):
        data = rng.randbytes(n)
        args = ["enc", f"-sm4-{mode}", "-K", KEY] + ([] if mode == "ecb" else ["-iv", IV])
        mine, theirs = must(*args, *OURS, stdin=data), must(*args, stdin=data)
        if mine != theirs:
            problems.append(f"{mode}, {n} bytes: {hashlib.sha256(mine).hexdigest()} against {hashlib.sha256(theirs).hexdigest()}")
        elif must(*args, "-d", *OURS, stdin=mine) != data:
            problems.append(f"{mode}, {n} bytes: decrypts to something else")
check("openssl enc gives what the default provider gives, and gets it back", problems)

rc, _, err = openssl("enc", "-d", "-sm4-cbc", "-K", KEY, "-iv", IV, *OURS, stdin=b"\0" * 32)
check("what fails says why, in words", [] if rc and "wrong padding" in err else [rc, err])

problems = []
for name in ("SM4-CTR", "SM4-GCM", "SM4-XTS", "SM4-CBC", "SM3"):
    rc, out, err = openssl("speed", "-seconds", "1", "-bytes", "4096", *BOTH, "-evp", name)
    rate = re.search(rf"^{name}\s+([\d.]+)k", out.decode(), re.M)
    if rc or not rate or float(rate[1]) <= 0:
        problems.append(f"{name}: exit status {rc}\n{out.decode()}{err}")
check("openssl speed runs", problems)

with tempfile.TemporaryDirectory() as tmp:
    # The file that docs/provider.md has.
    text = pathlib.Path("docs/provider.md").read_text()
    config = pathlib.Path(tmp) / "openssl.cnf"
    config.write_text(re.search(r"^    openssl_conf = .*?^    default_properties = \S+$", text, re.M | re.S)[0].replace("\n    ", "\n").strip() + "\n")
    env = {"OPENSSL_MODULES": str(MODULES)}
    out = must("list", "-providers", config=config, **env).decode()
    check("the documented configuration loads both providers", [] if "SITS" in out and "OpenSSL Default" in out else [out])
    out = must("enc", "-sm4-ctr", "-K", KEY, "-iv", IV, config=config, stdin=block, **env)
    check("a program under it works as before", [] if out == must("enc", "-sm4-ctr", "-K", KEY, "-iv", IV, stdin=block) else [out.hex()])
    rc, out, err = openssl("speed", "-seconds", "1", "-bytes", "64", "-evp", "SM4-XTS", config=config, **env)
    check("and has what only this provider may have", [] if rc == 0 else [err])

    p = subprocess.run(["make", "-s", "--no-print-directory", f"O={BUILD}", f"DESTDIR={tmp}", "install-provider"], capture_output=True, text=True)
    where = must("version", "-m").decode().split('"')[1]
    check("make install puts it where libcrypto looks", [] if p.returncode == 0 and os.path.exists(f"{tmp}{where}/sits.so")
          else [p.stderr, where, *map(str, pathlib.Path(tmp).rglob("sits.so"))])

out = subprocess.run(["readelf", "-dW", MODULE], capture_output=True, text=True, check=True).stdout
needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
check("it depends on nothing of OpenSSL", [n for n in needed if not re.match(r"libc\.so|ld-linux", n)])
out = subprocess.run(["nm", "-D", "--defined-only", MODULE], capture_output=True, text=True, check=True).stdout
symbols = {line.split()[-1] for line in out.splitlines()}
check("it exports its entry alone", symbols ^ {"OSSL_provider_init"})

print(f"1..{len(results)}")
sys.exit(not all(results))
