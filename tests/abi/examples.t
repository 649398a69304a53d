#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The programs in the EXAMPLES of man pages compile without a warning, and run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.environ.get("BUILD", "build/gcc")
# What each prints.
WANT = {"dcu_flash_attn3_forward.3": r"1 1\.5 2 2\.5\n",
        "sits_cipher_create.3": r"at dawn, by (portable|aesni-avx2|gfni-avx2|gfni-avx512)\n"}
results = []


def check(name, problems):
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        for line in p.splitlines():
            print("#", line)


def programs(page):
    """The examples that are whole programs, as a reader of the page would copy them."""
    text = page.read_text()
    examples = re.search(r"^\.SH EXAMPLES$(.*?)^\.SH ", text, re.M | re.S)
    blocks = re.findall(r"^\.EX$\n(.*?)^\.EE$", examples[1] if examples else "", re.M | re.S)
    return [b.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "") for b in blocks if "int main(" in b]


if b"__asan_" in subprocess.run(["nm", f"{BUILD}/libsits.a"], capture_output=True).stdout:
    print(f"1..0 # SKIP the library in {BUILD} was built with a sanitizer")
    sys.exit(0)
found = set()
tmp = tempfile.mkdtemp()
try:
    for page in sorted(pathlib.Path("man").glob("*.3")):
        for source in programs(page):
            found.add(page.name)
            cmd = ["gcc", "-D_DEFAULT_SOURCE", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-x", "c", "-", "-x", "none", "-o",
                   f"{tmp}/example", f"{BUILD}/libsits.a", f"{BUILD}/libsits-kernels.so", f"-Wl,-rpath,{os.path.abspath(BUILD)}",
                   "-luring", "-lkeyutils", "-pthread"]
            p = subprocess.run(cmd, input=source, capture_output=True, text=True)
            check(f"{page.name}: the example compiles", [p.stderr] if p.returncode else [])
            if p.returncode:
                continue
            p = subprocess.run([f"{tmp}/example"], capture_output=True, text=True)
            want = WANT.get(page.name, r"")
            check(f"{page.name}: it runs", [] if p.returncode == 0 and re.fullmatch(want, p.stdout)
                  else [f"exit status {p.returncode}", p.stdout, p.stderr])
finally:
    shutil.rmtree(tmp)
check("every example that is known was found", sorted(WANT.keys() - found))
print(f"1..{len(results)}")
sys.exit(not all(results))
