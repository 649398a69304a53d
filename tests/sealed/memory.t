#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""Sealing, inspecting and verifying need the same memory for a file of any size."""
import os

from tap import SITS, Dir, Tap, sits

tap = Tap()
with Dir() as d:
    key = f"file:{d / 'kek.key'}"
    sits("key", "new", key)

    def peak_kib(*args):
        """Peak resident memory of one run, but not below that of this interpreter, which it starts as."""
        pid = os.fork()
        if not pid:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.execv(SITS, [SITS, *map(str, args)])
        _, status, usage = os.wait4(pid, 0)
        assert status == 0, (args, status)
        return usage.ru_maxrss

    sizes = {}
    for mib in (16, 112):
        plain, out = d / f"{mib}.plain", d / f"{mib}.sits"
        # With holes: read as zeros without being on the disk.
        with open(plain, "wb") as f:
            f.truncate(mib << 20)
        sizes[mib] = {
            "seal": peak_kib("seal", "--threads", 2, "--key", key, plain, out),
            "seal --chunk-size 4K": peak_kib("seal", "--force", "--threads", 2, "--chunk-size", "4K", "--key", key, plain, out),
            "inspect": peak_kib("inspect", out),
            "verify": peak_kib("verify", "--threads", 2, "--key", key, out),
        }
        os.unlink(out)
    print(f"# peak KiB: {sizes}")
    for what, small in sizes[16].items():
        tap.check(f"{what}: seven times the file, the same memory", sizes[112][what] < small + 2048, sizes)
        tap.check(f"{what}: under 32 MiB", sizes[112][what] < 32 << 10, sizes)
tap.done()
