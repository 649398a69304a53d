#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""A disk that is full, and a limit on file sizes: a clear message, and nothing left or changed."""
import json
import os
import re
import resource
import shlex
import subprocess

from tap import SITS, Dir, Tap, sits

tap = Tap()
with Dir() as d:
    key, other = f"file:{d / 'kek.key'}", f"file:{d / 'other.key'}"
    sits("key", "new", key)
    sits("key", "new", other)
    plain = d.plain("plain", 3 << 20)
    small = d.plain("small", 100_000)
    disk = d / "disk"
    disk.mkdir()

    def on_small_disk(script):
        """Run a script in a mount namespace of its own, where @disk has 2 MiB."""
        setup = f"mount -t tmpfs -o size=2m,nr_inodes=64 none {shlex.quote(str(disk))} || exit 99\n"
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        return subprocess.run(["unshare", "--mount", *root, "bash", "-c", setup + script, SITS], capture_output=True, text=True,
                              env={**os.environ, "SITS": SITS, "D": str(d.path), "KEY": key, "OTHER": other})

    LIST = 'ls -A "$D/disk" | tr "\\n" " "\n'
    names = ["sealing onto a full disk", "the disk fills up only with the output", "replacing on a full disk",
             "a key on a full disk", "rekeying on a full disk", "rotating a key on a full disk",
             "rotating on a disk that is full but for the key, and going on when there is room",
             "a directory whose files fit one by one, but not together", "and in JSON", "in place of one that is there",
             "a directory that just fits"]
    probe = on_small_disk("exit 0")
    if probe.returncode:
        for n in names:
            tap.skip(n, f"no small disk can be mounted here: {probe.stderr.strip() or probe.returncode}")
    else:
        fill = 'cat /dev/zero >"$D/disk/fill" 2>/dev/null\n'
        p = on_small_disk(fill + '$SITS seal --key "$KEY" "$D/small" "$D/disk/out"; echo "rc $?"\n' + LIST)
        tap.check(names[0], p.stdout.split() == ["rc", "1", "fill"] and "not enough free space" in p.stderr, p)
        p = on_small_disk('$SITS seal --key "$KEY" "$D/plain" "$D/disk/out"; echo "rc $?"\n' + LIST)
        tap.check(names[1], p.stdout.split() == ["rc", "1"] and "not enough free space" in p.stderr and "disk/out" in p.stderr, p)
        p = on_small_disk('$SITS seal --quiet --key "$KEY" "$D/small" "$D/disk/out" || exit 1\n' + fill +
                          '$SITS seal --force --key "$KEY" "$D/small" "$D/disk/out"; echo "rc $?"\n' + LIST +
                          '$SITS verify --quiet --key "$KEY" "$D/disk/out" && echo good\n')
        tap.check(names[2], p.stdout.split() == ["rc", "1", "fill", "out", "good"] and "not enough free space" in p.stderr, p)
        p = on_small_disk(fill + '$SITS key new "file:$D/disk/key"; echo "rc $?"\n' + LIST)
        tap.check(names[3], p.stdout.split() == ["rc", "1", "fill"] and "No space left" in p.stderr, p)
        p = on_small_disk('$SITS seal --quiet --key "$KEY" "$D/small" "$D/disk/out" || exit 1\n' + fill +
                          'a=$(sha256sum <"$D/disk/out")\n'
                          '$SITS rekey --key "$KEY" --new-key "$OTHER" "$D/disk/out"; echo "rc $?"\n' + LIST +
                          '[ "$a" = "$(sha256sum <"$D/disk/out")" ] && echo same\n'
                          '$SITS verify --quiet --key "$KEY" "$D/disk/out" && echo good\n')
        tap.check(names[4], p.stdout.split() == ["rc", "1", "fill", "out", "same", "good"] and "No space left" in p.stderr, p)
        # Three models and their key there.
        models = 'cp "$D/kek.key" "$D/disk/kek"\nfor i in 1 2 3; do $SITS seal --quiet --key "$KEY" "$D/small" "$D/disk/$i.sits" || exit 1; done\n'
        check = 'for i in 1 2 3; do $SITS verify --quiet --key "file:$D/disk/$1" "$D/disk/$i.sits" && echo "good $1"; done\n'
        p = on_small_disk(models + fill + '$SITS key rotate "file:$D/disk/kek" "$D/disk"; echo "rc $?"\n' + LIST + "set kek\n" + check)
        tap.check(names[5], p.stdout.split() == ["rc", "1", "1.sits", "2.sits", "3.sits", "fill", "kek"] + ["good", "kek"] * 3 and
                  p.stderr.count("No space left") == 1, p)
        # The next key waits there already: so each file fails by itself, its journal having no room.
        p = on_small_disk(models + 'cp "$D/other.key" "$D/disk/kek.next"\n' + fill + '$SITS key rotate "file:$D/disk/kek" "$D/disk"; echo "rc $?"\n' +
                          LIST + "set kek\n" + check + 'rm "$D/disk/fill"\n$SITS key rotate --quiet "file:$D/disk/kek" "$D/disk"; echo "rc $?"\n' +
                          check)
        tap.check(names[6], "0 rewrapped, 0 under the new key already, 3 failed\n" in p.stdout and
                  p.stdout.count("good kek") == 6 and "rc 1\n" in p.stdout and "rc 0\n" in p.stdout and ".sits-" not in p.stdout and
                  p.stderr.count("No space left") == 3, p)
        # Of 0.7 MiB each: two fit, the third doesn't; that is known before the first is sealed.
        model = d / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        (model / "tokenizer.json").write_text("{}")
        parts = [f"{n}.safetensors" for n in "abc"]
        for n in parts:
            (model / n).write_bytes(d.rng.randbytes(700 << 10))
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {n: n for n in parts}}))
        seal = '$SITS seal --quiet --key "$KEY" "$D/model" "$D/disk/m"'
        p = on_small_disk(seal + '; echo "rc $?"\n' + LIST)
        told = re.search(r"disk/m: it takes 2\.1 MiB \((\d+) bytes\), but the filesystem has not enough free space: 2\.0 MiB \((\d+) bytes\)", p.stderr)
        tap.check(names[7], p.stdout.split() == ["rc", "1"] and told and int(told[1]) > int(told[2]), p)
        p = on_small_disk(seal + " --json")
        tap.check(names[8], p.returncode == 1 and json.loads(p.stdout)["error"] == "ENOSPC" and "not enough free space" in json.loads(p.stdout)["message"], p)
        (model / "c.safetensors").write_bytes(bytes(5000))
        p = on_small_disk(seal + ' || exit 1\na=$(cat "$D/disk/m/"* | sha256sum)\n' + seal + ' --force; echo "rc $?"\n' + LIST +
                          '[ "$a" = "$(cat "$D/disk/m/"* | sha256sum)" ] && echo same\n')
        tap.check(names[9], p.stdout.split() == ["rc", "1", "m", "same"] and "not enough free space" in p.stderr, p)
        p = on_small_disk(seal + ' || exit 1\nused=$(du -s -B1 "$D/disk/m" | cut -f1)\nrm -r "$D/disk/m"\n'
                          'head -c $(($(stat -f -c "%f * %S" "$D/disk") - used)) /dev/zero >"$D/disk/fill" || exit 1\n' + seal + '; echo "rc $?"\n')
        tap.check(names[10], p.stdout.split() == ["rc", "0"], p)
    disk.rmdir()

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    before = d.state()
    r = sits("seal", "--key", key, plain, d / "out", preexec_fn=limited)
    tap.check("a limit on file sizes", r.rc == 1 and "ulimit -f" in r.err and d.state() == before, r)
    if (d / "model").exists():
        (d / "model" / "c.safetensors").write_bytes(bytes(1 << 20))
        before = d.state()
        r = sits("seal", "--key", key, d / "model", d / "m.sits", preexec_fn=limited)
        tap.check("the same of a directory's files", r.rc == 1 and "ulimit -f" in r.err and d.state() == before, r)
    r = sits("seal", "--key", key, small, d / "out", preexec_fn=limited)
    tap.check("and a file below it", r.rc == 0, r)
tap.done()
