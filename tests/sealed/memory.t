#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""Sealing, inspecting and verifying need the same memory for a file of any size, and say so where they do not get it."""
import os
import resource
import subprocess

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
    # A key that could be made, and not be opened then, is not made.
    page = os.sysconf("SC_PAGESIZE")
    limited = ["setpriv", "--bounding-set", "-ipc_lock"] if os.geteuid() == 0 else []
    p = subprocess.run([*limited, SITS, "key", "new", f"file:{d / 'none.key'}"], capture_output=True, text=True,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (page, page)))
    if limited and "setpriv" in p.stderr:
        tap.skip("with little locked memory", f"root can't give up its right to it here: {p.stderr.strip()}")
    else:
        tap.check("with locked memory for half of the work, no key is made", p.returncode == 1 and "RLIMIT_MEMLOCK" in p.stderr and
                  not (d / "none.key").exists(), p)

    # Where address space is short: fewer threads, and with room for none, words. Arenas of malloc() would take it at random.
    def short(mib, *args):
        return sits(*args, env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.arena_max=1"},
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20)))

    plain, out = d / "16.plain", d / "out.sits"
    if short(40, "key", "id", key).rc:
        tap.skip("with little address space", "this build does not start with it")
    else:
        sits("seal", "--quiet", "--key", key, "--chunk-size", "16M", plain, out)
        for cmd in (["seal", "--force", "--key", key, "--chunk-size", "16M", plain, d / "new.sits"], ["verify", "--key", key, out],
                    ["rekey", "--reseal", "--key", key, "--new-key", key, out]):
            before = d.state()
            r = short(40, *cmd, "--threads", 1)
            tap.check(f"{cmd[0]}: no room for the buffers of one thread", r.rc == 1 and "no memory for the buffers of a thread" in r.err and
                      "(ulimit -v) is 40960 KiB" in r.err and r.err.count("\n") == 1 and d.state() == before, r)
        big = d.plain("64.plain", 64 << 20)
        for cmd in (["seal", "--force", "--key", key, "--chunk-size", "16M", big, out], ["verify", "--key", key, out]):
            r = short(110, *cmd, "--threads", 4)
            tap.check(f"{cmd[0]}: room for those of one of four", r.rc == 0, r)
tap.done()
