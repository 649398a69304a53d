#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every file says its licence in its first lines, and it is the one its room has to have."""
import re
import subprocess
import sys

# Files that can't or need not carry one: data, prose, licence texts.
EXEMPT = re.compile(r"^(LICENSES/|\.gitignore$|README\.md$|docs/|.*/README\.md$|scripts/model\.lock$"
                    r"|tests/(vectors|golden)/.*|tests/fuzz/corpus/|.*\.map$|.*\.config$)")
ROOMS = [
    (r"^(kmod/|Kbuild$)", "GPL-2.0"),
    (r"^crypto/", "GPL-2.0 OR MIT"),
    (r"^include/uapi/", "(GPL-2.0 WITH Linux-syscall-note) OR MIT"),
    # Modules that tests load link with the kernel.
    (r"^tests/vm/.*/kmod/.*\.h$", "GPL-2.0 OR MIT"),  # their programs include them, too
    (r"^tests/vm/.*/kmod/", "GPL-2.0"),
    (r"", "MIT"),
]

files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
files = [f for f in files if f and (not EXEMPT.match(f) or f.endswith((".py", ".c", ".h", ".sh")))]
bad = []
for f in files:
    try:
        head = open(f, encoding="utf-8", errors="replace").read(600)
    except FileNotFoundError:
        continue  # deleted, not committed yet
    found = re.search(r"SPDX-License-Identifier: (.*?)\s*(\*/)?$", head, re.M)
    want = next(lic for pattern, lic in ROOMS if re.match(pattern, f))
    got = found[1] if found else "none"
    if got.removesuffix("-only") != want:
        bad.append(f"{f}: SPDX is {got!r}, {want!r} expected")
print("1..2")
print(f"{'ok' if len(files) > 20 else 'not ok'} 1 - {len(files)} files looked at")
print(f"{'not ok' if bad else 'ok'} 2 - every file names its licence")
for b in bad:
    print("#", b)
sys.exit(bool(bad))
