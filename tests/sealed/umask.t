#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""A umask that takes files away even from who makes them: what was sealed well is reported so."""
import os
import subprocess

from tap import SITS, Dir, Result, Tap, sits

tap = Tap()
# To root all files are open, unless it gives that up.
AS_OWNER = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def as_owner(*args):
    p = subprocess.run([*AS_OWNER, SITS, *map(str, args)], capture_output=True, text=True, preexec_fn=lambda: os.umask(0o777))
    return Result(p.returncode, p.stdout, p.stderr)


with Dir() as d:
    key = f"file:{d / 'kek.key'}"
    plain, src = d.plain("plain", 100_000), d / "model"
    src.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (src / name).write_bytes(b"{}" * 1000)
    names = ["a key is made, and used", "a file is sealed, and described", "nobody may read it", "its description is what inspect says",
             "it replaces another", "a directory is sealed, and described", "nobody may look into that",
             "its description is what inspect says of it", "nothing is left beside them"]
    probe = subprocess.run([*AS_OWNER, "true"], capture_output=True, text=True)
    if probe.returncode:
        for n in names:
            tap.skip(n, f"root can't give up its rights to files here: {probe.stderr.strip()}")
        tap.done()
    r = as_owner("key", "new", key)
    tap.check(names[0], r.rc == 0, r)
    out, out_dir = d / "out.sits", d / "dir.sits"
    made = as_owner("seal", "--json", "--key", key, plain, out)
    tap.check(names[1], made.rc == 0 and made.json["ok"] is True, made)
    tap.check(names[2], os.stat(out).st_mode & 0o777 == 0 and as_owner("inspect", out).rc == 1)
    os.chmod(out, 0o400)
    r = sits("inspect", "--json", "--key", key, out)
    tap.check(names[3], r.rc == 0 and r.json == made.json, f"{made}\n{r}")
    r = as_owner("seal", "--force", "--key", key, plain, out)
    tap.check(names[4], r.rc == 0 and "authentic" in r.out, r)
    made = as_owner("seal", "--json", "--key", key, src, out_dir)
    tap.check(names[5], made.rc == 0 and made.json["ok"] is True and len(made.json["files"]) == 3, made)
    tap.check(names[6], os.stat(out_dir).st_mode & 0o777 == 0)
    os.chmod(out_dir, 0o700)
    for p in out_dir.iterdir():
        os.chmod(p, 0o400)
    r = sits("inspect", "--json", "--key", key, out_dir)
    tap.check(names[7], r.rc == 0 and r.json == made.json and sits("verify", "--quiet", "--key", key, out_dir).rc == 0, f"{made}\n{r}")
    tap.check(names[8], sorted(os.listdir(d.path)) == ["dir.sits", "kek.key", "model", "out.sits", "plain"], os.listdir(d.path))
tap.done()
