#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""sits key import and rotate, and sits rekey of many files: what is done, said and left; killed, stopped and twice at
once. (At every system call, in turn: tests/unit/libsits/key_rotation_test.c.)"""
import base64
import contextlib
import ctypes
import fcntl
import os
import pty
import shutil
import signal
import subprocess
import time

from tap import PATIENCE, SITS, Dir, Tap, sits

tap = Tap()
ROUNDS = 25


def unlink_key(name, kind):
    lib, user = ctypes.CDLL("libkeyutils.so.1"), -4
    serial = lib.keyctl_search(user, kind, f"sits:{name}".encode(), 0)
    return serial > 0 and lib.keyctl_unlink(serial, user) == 0


def tree(top):
    """All files below, with their contents."""
    return {os.path.relpath(os.path.join(p, n), top): open(os.path.join(p, n), "rb").read()
            for p, _, names in os.walk(top) for n in names if not os.path.islink(os.path.join(p, n))}


with Dir(memory=True) as d:
    key, new = f"file:{d / 'kek'}", f"file:{d / 'other'}"
    kid = sits("key", "new", key).out.strip()
    secret = (d / "kek").read_text().strip()
    raw = bytes.fromhex(secret)

    # ------------------------------------------------------------------ import
    for name, data in (("digits", secret.encode()), ("digits and a newline", secret.encode() + b"\n"),
                       ("base64", base64.b64encode(raw)), ("base64 and CR LF", base64.b64encode(raw) + b"\r\n"), ("bytes", raw)):
        p = subprocess.run([SITS, "key", "import", f"file:{d / 'in'}", "--json"], input=data, capture_output=True)
        st = os.stat(d / "in")
        tap.check(f"import: {name}", p.returncode == 0 and kid.encode() in p.stdout and st.st_mode & 0o7777 == 0o600 and
                  (d / "in").read_text() == secret + "\n" and secret.encode() not in p.stdout + p.stderr, p)
        os.unlink(d / "in")
    for name, data in (("nothing", b""), ("a password", b"correct horse ba"), ("too much", secret.encode() * 2), ("zeros", bytes(16)),
                       ("half of the digits", secret.encode()[:30])):
        before = d.state()
        p = subprocess.run([SITS, "key", "import", f"file:{d / 'in'}"], input=data, capture_output=True)
        tap.check(f"import refuses {name}", p.returncode == 1 and b"the key to import" in p.stderr and not p.stdout and
                  p.stderr.count(b"\n") == 1 and d.state() == before and secret[:8].encode() not in p.stderr, p)
    (d / "given").write_text(secret)
    os.chmod(d / "given", 0o600)
    r = sits("key", "import", f"file:{d / 'in'}", "--from", d / "given")
    tap.check("import --from", r.rc == 0 and r.out.strip() == kid and r.err == "", r)
    os.chmod(d / "given", 0o644)
    r = sits("key", "import", f"file:{d / 'in'}", "--from", d / "given")
    tap.check("import leaves a key that exists, and warns of a key that others may read", r.rc == 1 and "exists already" in r.err and
              "0644" in r.err, r)
    r = sits("key", "import", f"file:{d / 'in'}", "--from", d / "none")
    tap.check("import from a file that is not there", r.rc == 1 and "none: No such file" in r.err, r)
    r = sits("key", "import", f"file:{d / 'in'}", "--json", "--from", d / "none")
    tap.check("and says so in JSON", r.rc == 1 and r.json["ok"] is False and r.json["error"] == "ENOENT" and
              "none: No such file" in r.json["message"] and r.err.count("\n") == 1, r)
    os.unlink(d / "in")
    os.unlink(d / "given")
    main, term = pty.openpty()
    p = subprocess.run([SITS, "key", "import", f"file:{d / 'in'}"], stdin=term, capture_output=True, text=True)
    tap.check("import reads no key from a terminal", p.returncode == 1 and "is a terminal" in p.stderr and "--from" in p.stderr, p)
    p = subprocess.run([SITS, "key", "import", f"file:{d / 'in'}", "--json"], stdin=term, capture_output=True, text=True)
    tap.check("nor does it in JSON", p.returncode == 1 and '"ok": false' in p.stdout and "is a terminal" in p.stdout and
              p.stderr.count("\n") == 1, p)
    os.close(main)
    os.close(term)
    r = sits("key", "import", "tpm:model", stdin=subprocess.DEVNULL)
    tap.check("import of nothing", r.rc == 1, r)
    for verb in (["new", "tpm:model"], ["id", "tpm:model"], ["rotate", key, "--new-key", "tpm:model", d.path]):
        r = sits("key", *verb)
        tap.check(f"{verb[0]} with a TPM says that it is not in this build", r.rc == 1 and "not in this build" in r.err and
                  r.err.count("\n") == 1, r)
    ring = f"test-rotate-{os.getpid()}-{os.urandom(4).hex()}"
    p = subprocess.run([SITS, "key", "import", f"keyring:{ring}"], input=raw, capture_output=True)
    keyrings = p.returncode == 0
    if not keyrings:
        tap.skip("import into the keyring", f"no kernel keyrings here: {p.stderr.decode()}")
    else:
        r = sits("key", "id", f"keyring:{ring}")
        tap.check("import into the keyring", r.rc == 0 and r.out.strip() == kid, r)
        tap.check("as type user", unlink_key(ring, b"user"))
        p = subprocess.run([SITS, "key", "import", "--logon", f"keyring:{ring}"], input=secret, capture_output=True, text=True)
        tap.check("import --logon", p.returncode == 0 and p.stdout.strip() == kid and unlink_key(ring, b"logon"), p)
    r = sits("key", "import", "--logon", new, stdin=subprocess.DEVNULL)
    tap.check("import --logon wants a key first", r.rc == 1, r)

    for args, words in ((["rotate", key], "files under that key"), (["rotate"], "files under that key"), (["import"], "one SPEC"),
                        (["new", key, "--from", "x"], "no option '--from'"), (["id", key, "--dry-run"], "no option '--dry-run'"),
                        (["import", key, "--new-key", "x"], "no option '--new-key'"),
                        (["rotate", key, "x", "--logon"], "no option '--logon'"), (["rotate", key, "x", "--threads", "0"], "'0'"),
                        (["rotate", key, "x", "--wait", "-1"], "'-1'"), (["new", key, "--wait", "1"], "no option '--wait'")):
        r = sits("key", *args)
        tap.check(f"wrong usage: {' '.join(args[:1] + args[2:])}", r.rc == 2 and words in r.err and r.out == "", r)

    # ------------------------------------------------------------------ rotate
    models = d / "models"
    plain = d.plain("plain", 20_000)
    NAMES = ["a.sits", "deep/er/b.sits", "deep/c.sits", "z.sits"]

    kept = {}

    def fresh(*names):
        """Models under the key at @key, which is the only one; what is no model; a link out of there."""
        shutil.rmtree(models, ignore_errors=True)
        for p in d.path.glob("kek*"):
            p.unlink()
        (d / "kek").write_text(secret + "\n")
        os.chmod(d / "kek", 0o600)
        if (d / "other").exists():
            (d / "other").unlink()
        for n in names or NAMES:
            (models / n).parent.mkdir(parents=True, exist_ok=True)
            if n not in kept:
                r = sits("seal", "--quiet", "--key", key, "--chunk-size", "4K", plain, models / n)
                assert r.rc == 0, r
                kept[n] = (models / n).read_bytes()
            (models / n).write_bytes(kept[n])
        (models / "notes.txt").write_text("not sealed")

    def opens(path, spec):
        return sits("verify", "--quiet", "--key", spec, path).rc == 0

    def all_under(spec, names=NAMES):
        return [n for n in names if not opens(models / n, spec)] == []

    def keys():
        return sorted(p.name for p in d.path.glob("kek*")) + [p.name for p in d.path.glob("other")]

    fresh()
    before = tree(d.path)
    r = sits("key", "rotate", "--dry-run", "--json", key, models)
    tap.check("a dry run tells and writes nothing", r.rc == 0 and r.json["changed"] == 4 and r.json["dry_run"] and
              r.json["new_key"]["key_id"] is None and {f["outcome"] for f in r.json["files"]} == {"to rewrap"} and
              tree(d.path) == before, r)
    r = sits("key", "rotate", key, models)
    nid = sits("key", "id", key).out.strip()
    tap.check("rotate puts every *.sits under a new key, in its place", r.rc == 0 and nid != kid and all_under(key) and
              r.out.count("rewrapped") == 5 and "4 rewrapped, 0 under the new key already, 0 failed" in r.out and r.err == "", r)
    tap.check("and keeps the old one under its id, and says where", keys() == ["kek", f"kek.old-{kid}"] and
              sits("key", "id", f"{key}.old-{kid}").out.strip() == kid and f"{key}.old-{kid}" in r.out and kid in r.out, (keys(), r.out))
    tap.check("keys are in no output", secret not in r.out + r.err and (d / "kek").read_text().strip() not in r.out + r.err)
    tap.check("what is no *.sits is not touched", (models / "notes.txt").read_text() == "not sealed")

    # Bad ones among good ones.
    fresh()
    good = (models / "a.sits").read_bytes()
    b = bytearray(good)
    b[4070] ^= 1
    (models / "forged.sits").write_bytes(b)
    (models / "deep/empty.sits").write_bytes(b"")
    (models / "deep/cut.sits").write_bytes(good[:2000])
    os.mkfifo(models / "pipe.sits")
    (models / "dir.sits").mkdir()
    outside = d / "outside.sits"
    sits("seal", "--quiet", "--key", key, plain, outside)
    os.symlink(outside, models / "link.sits")
    os.symlink(d.path, models / "loop")
    r = sits("key", "rotate", "--json", key, models)
    bad = {os.path.basename(f["file"]) for f in r.json["files"] if not f["ok"]}
    tap.check("bad files are named, and do not stop the others", r.rc == 1 and bad == {"forged.sits", "empty.sits", "cut.sits"} and
              (r.json["changed"], r.json["failed"], r.json["ok"]) == (4, 3, False) and all_under(f"{key}.next"), r)
    tap.check("both keys stay where they are, and that is said", keys() == ["kek", "kek.next"] and "keep both keys" in r.err and
              "kek.next" in r.err and r.json["old_key"] == {"key_id": kid, "key": key} and
              r.json["new_key"]["key"] == f"{key}.next", r)
    tap.check("symbolic links in a directory are not followed", opens(outside, key))
    # Whoever seals under the old key meanwhile is not forgotten.
    sits("seal", "--quiet", "--key", key, plain, models / "late.sits")
    for n in ("forged.sits", "deep/empty.sits", "deep/cut.sits"):
        (models / n).unlink()
    r = sits("key", "rotate", "--json", key, models)
    tap.check("the same command goes on, and ends the work", r.rc == 0 and (r.json["changed"], r.json["already"]) == (1, 4) and
              all_under(key, NAMES + ["late.sits"]) and keys() == ["kek", f"kek.old-{kid}"], r)
    r = sits("rekey", "--key", f"{key}.old-{kid}", "--new-key", key, models / "link.sits")
    tap.check("a link that is named is followed", r.rc == 0 and opens(outside, key) and (models / "link.sits").is_symlink(), r)
    outside.unlink()

    # Files under a third key.
    fresh()
    third = f"file:{d / 'third'}"
    sits("key", "new", third)
    sits("rekey", "--quiet", "--key", key, "--new-key", third, models / "a.sits")
    r = sits("key", "rotate", "--quiet", key, models)
    tap.check("a file under a third key is a failure", r.rc == 1 and "wrong key" in r.err and r.out == "" and
              keys() == ["kek", "kek.next"], r)
    r = sits("key", "rotate", "--skip-other-keys", key, models)
    tap.check("or skipped, and counted", r.rc == 0 and "0 rewrapped, 3 under the new key already, 1 under other keys, 0 failed" in r.out and
              "other key  " in r.out and opens(models / "a.sits", third) and all_under(key, NAMES[1:]), r)
    (d / "third").unlink()

    # Keys in two places.
    fresh()
    r = sits("key", "rotate", key, "--new-key", new, models)
    tap.check("rotate --new-key makes the new key there, and both stay", r.rc == 0 and all_under(new) and keys() == ["kek", "other"] and
              sits("key", "id", key).out.strip() == kid, r)
    r = sits("key", "rotate", key, "--new-key", new, models)
    tap.check("and again changes nothing", r.rc == 0 and "4 under the new key already" in r.out, r)
    r = sits("key", "rotate", "--new-key", key, key, models)
    tap.check("the same key twice is refused", r.rc == 1 and "are the same" in r.err, r)
    if keyrings:
        r = sits("key", "rotate", new, "--new-key", f"keyring:{ring}", models)
        tap.check("no new key is made in the keyring", r.rc == 1 and "lost with a restart" in r.err and all_under(new), r)
        sits("key", "new", f"keyring:{ring}")
        r = sits("key", "rotate", new, "--new-key", f"keyring:{ring}", models)
        tap.check("one that is there is used", r.rc == 0 and all_under(f"keyring:{ring}"), r)
        r = sits("key", "rotate", f"keyring:{ring}", models)
        tap.check("it can't be changed in place", r.rc == 1 and "only a key in a file" in r.err, r)
        r = sits("key", "rotate", f"keyring:{ring}", "--new-key", new, models)
        tap.check("but for one in a file", r.rc == 0 and all_under(new), r)
        unlink_key(ring, b"user")
    else:
        tap.skip("keys in the keyring", "no kernel keyrings here")

    # Directories without any, which may be the wrong ones.
    (d / "empty").mkdir()
    fresh()
    r = sits("key", "rotate", "--json", key, models, d / "empty", d / "none")
    tap.check("a directory without sealed files is a failure, as is a name that is not there", r.rc == 1 and r.json["failed"] == 2 and
              "no file *.sits" in r.err and "none: No such file" in r.err and r.json["changed"] == 4, r)
    (d / "empty").rmdir()

    # ------------------------------------------------------------------ rekey of many
    fresh()
    sits("key", "new", new)
    r = sits("rekey", "--key", key, "--new-key", new, models / "a.sits", models / "deep")
    tap.check("rekey takes files and directories", r.rc == 0 and "3 rewrapped" in r.out and all_under(new, NAMES[:3]) and
              opens(models / "z.sits", key), r)
    r = sits("rekey", "--key", key, "--new-key", new, "--dry-run", "--json", models)
    tap.check("rekey --dry-run", r.rc == 0 and (r.json["changed"], r.json["already"]) == (1, 3) and opens(models / "z.sits", key), r)
    r = sits("rekey", "--key", key, "--new-key", new, "--reseal", "--json", models)
    tap.check("rekey --reseal of many leaves those that are under the new key", r.rc == 0 and r.json["mode"] == "reseal" and
              (r.json["changed"], r.json["already"]) == (1, 3) and all_under(new), r)
    before = tree(models)
    r = sits("rekey", "--key", new, "--new-key", new, "--reseal", "--threads", "2", models)
    after = tree(models)
    tap.check("and with the same key twice gives all of them new contents", r.rc == 0 and "4 resealed" in r.out and all_under(new) and
              before.keys() == after.keys() and all(before[n][4096:] != after[n][4096:] for n in NAMES), r)
    r = sits("rekey", "--key", key, "--new-key", new, "--reseal", models / "a.sits")
    tap.check("a reseal of one that is done is no failure", r.rc == 0 and "already" in r.err, r)
    (models / "z.sits").write_bytes(after["z.sits"][:-1] + bytes([after["z.sits"][-1] ^ 1]))
    r = sits("rekey", "--key", new, "--new-key", key, "--reseal", "--json", models)
    tap.check("a changed chunk is found by a reseal, and the file is as it was", r.rc == 1 and r.json["failed"] == 1 and
              r.json["changed"] == 3 and "chunk 4 " in r.err and (models / "z.sits").read_bytes()[:-1] == after["z.sits"][:-1], r)

    # Names that would break a terminal or JSON.
    fresh("ok.sits", "esc\x1b[31m.sits", "bad\udcff.sits")
    r = sits("rekey", "--key", key, "--new-key", new, models) if (d / "other").exists() else None
    sits("key", "new", new)
    r = sits("rekey", "--key", key, "--new-key", new, models)
    tap.check("control characters in names go to no terminal", r.rc == 0 and "3 rewrapped" in r.out and "\x1b" not in r.out + r.err, repr(str(r)))
    r = sits("rekey", "--key", new, "--new-key", key, "--json", models)
    tap.check("names that are no UTF-8 are null in JSON", r.rc == 0 and [f["file"] is None for f in r.json["files"]].count(True) == 1, r)

    # ------------------------------------------------------------------ stopped and killed
    many = [f"m{i:02}.sits" for i in range(12)]
    fresh(*many)
    start = time.monotonic()
    r = sits("key", "rotate", "--quiet", key, models)
    whole = time.monotonic() - start
    assert r.rc == 0, r

    def specs():
        """Every key that there is."""
        return [f"file:{d / n}" for n in keys()]

    def headers_under(spec):
        """Whose headers open under it: one run of the command for all of them."""
        r = sits("rekey", "--dry-run", "--json", "--skip-other-keys", "--key", spec, "--new-key", spec, models)
        return {os.path.basename(f["file"]) for f in r.json["files"] if f.get("outcome") == "to rewrap"}

    def lost():
        return set(many).difference(*(headers_under(s) for s in specs()))

    for sig in (signal.SIGKILL, signal.SIGTERM):
        bad, stopped, between = [], 0, 0
        for n in range(40 * ROUNDS):
            # On a busy machine it may have ended each time before it was its turn to be stopped.
            if n >= ROUNDS and stopped:
                break
            fresh(*many)
            begun = time.monotonic()
            p = subprocess.Popen([SITS, "key", "rotate", key, str(models)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                p.wait(d.rng.uniform(0, whole))
                # The first run may have been a slow one.
                whole = (whole + time.monotonic() - begun) / 2
            except subprocess.TimeoutExpired:
                p.send_signal(sig)
            err = p.communicate(timeout=PATIENCE)[1]
            ended = p.returncode in (-sig, 128 + sig)
            stopped += ended
            between += ended and "kek.next" in keys()
            gone = lost()
            if gone or not (ended or p.returncode == 0):
                bad.append(f"round {n}: exit {p.returncode}: {err}: under no key: {gone}")
            if p.returncode == 128 + sig and "run the same command again" not in err:
                bad.append(f"round {n}: {err}")
            r = sits("key", "rotate", "--quiet", key, models)
            if r.rc or headers_under(key) != set(many) or "kek.next" in keys() or len(tree(models)) != len(many) + 1:
                bad.append(f"round {n}: the next run: {r} {keys()} {sorted(tree(models))}")
        if not all_under(key, many):
            bad.append("in the end: not all verify")
        print(f"# {sig.name}: stopped {stopped} of {n} times, {between} times with both keys in use")
        tap.check(f"{sig.name} at random moments: every file is under a key that is there, and the next run ends the work",
                  not bad and stopped, "\n".join(bad))

    # ------------------------------------------------------------------ two at once
    def start_many(n, *args):
        ps = [subprocess.Popen([SITS, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(n)]
        return [(*p.communicate(timeout=PATIENCE), p.returncode) for p in ps]

    fresh(*many)
    sits("key", "new", new)
    got = start_many(3, "rekey", "--key", key, "--new-key", new, models)
    counts = [int(out.splitlines()[-1].split()[0]) for out, _, _ in got]
    tap.check("three rekeys of the same files share the work", [rc for *_, rc in got] == [0, 0, 0] and sum(counts) == len(many) and
              all_under(new, many) and len(tree(models)) == len(many) + 1, got)
    for n in range(5):
        fresh(*many)
        got = start_many(3, "key", "rotate", key, models)
        done = [rc for *_, rc in got].count(0)
        fine = done and all(rc == 0 or "another rotation" in err for _, err, rc in got) and all_under(key, many) and \
            len(keys()) == 1 + done and "kek.next" not in keys()
        if not fine:
            break
    tap.check("of rotations of one key at once, one goes on", fine, (got, keys()))

    # Whoever can read a file can lock it, for ever.
    fresh()
    with open(models / "a.sits", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        r = sits("key", "rotate", "--wait", "0", "--json", key, models)
        tap.check("a file that somebody has locked does not stop the others", r.rc == 1 and r.json["changed"] == 3 and
                  [f["error"] for f in r.json["files"] if not f["ok"]] == ["EBUSY"] and "a.sits: another process" in r.err and
                  all_under(f"{key}.next", NAMES[1:]) and opens(models / "a.sits", key), r)
        r = sits("rekey", "--wait", "0", "--key", key, "--new-key", f"{key}.next", models / "a.sits")
        tap.check("nor is it waited for longer than that", r.rc == 1 and "another process" in r.err and opens(models / "a.sits", key), r)
        p = subprocess.Popen([SITS, "key", "rotate", key, str(models)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        tap.check("it waits, and says for what", "a.sits: waiting for another process" in p.stderr.readline())
        # It is at work: what is sealed under the old key now is not forgotten.
        r = sits("seal", "--quiet", "--key", key, plain, models / "deep" / "late.sits")
    out, err = p.communicate(timeout=PATIENCE)
    tap.check("and goes on; what came meanwhile is done too", p.returncode == 0 and r.rc == 0 and "2 rewrapped, 3 under the new" in out and
              all_under(key, NAMES + ["deep/late.sits"]) and "kek.next" not in keys(), (out, err))

    # A file that was done is replaced by another under the old key, or written over, before the work ends.
    for way in ((), ("--reseal",)):
        fresh()
        copy = (models / "a.sits").read_bytes()
        with open(models / "a.sits", "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            p = subprocess.Popen([SITS, "key", "rotate", *way, key, str(models)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            said = p.stderr.readline()
            (models / "new").write_bytes(copy)
            os.rename(models / "new", models / "z.sits")
            (models / "deep" / "c.sits").write_bytes(copy)
        out, err = p.communicate(timeout=PATIENCE)
        tap.check(f"{way}: what takes the place of a file that was done is done too", "a.sits: waiting" in said and p.returncode == 0 and
                  out.splitlines()[-1].split()[0] == "6" and all_under(key) and "kek.next" not in keys(), (out, err))

    # Nobody reads what it says.
    fresh(*many)
    back, front = os.pipe()
    os.close(back)
    p = subprocess.run([SITS, "key", "rotate", key, str(models)], stdout=front, stderr=subprocess.PIPE, text=True)
    os.close(front)
    tap.check("a reader of its output that goes away does not stop it", p.returncode == 1 and "standard output" in p.stderr and
              all_under(key, many) and "kek.next" not in keys(), p)

    # ------------------------------------------------------------------ a bar on a terminal
    fresh(*many)
    main, term = pty.openpty()
    p = subprocess.run([SITS, "key", "rotate", key, str(models)], stdout=subprocess.PIPE, stderr=term)
    os.close(term)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed, and all that went through has come out
        while True:
            shown += os.read(main, 65536)
    shown = shown.decode()
    os.close(main)
    tap.check("progress is drawn on a terminal, and wiped", p.returncode == 0 and f"of {len(many)} files" in shown and
              shown.endswith("\r\x1b[K"), repr(shown))

    # ------------------------------------------------------------------ who may not
    other = {"user": 65534, "group": 65534, "extra_groups": []}
    name = "what can't be read is named, and found by a dry run too"
    try:
        os.chmod(d.path, 0o755)
        probe = subprocess.run([SITS, "--version"], stdout=subprocess.DEVNULL, **other).returncode
    except (OSError, PermissionError) as e:
        probe = e
    if probe != 0:
        tap.skip(name, f"can't run the command as another user: {probe}")
    else:
        fresh()
        home = d / "home"
        home.mkdir()
        os.chown(home, 65534, 65534)
        shutil.copy(d / "kek", home / "kek")
        os.chown(home / "kek", 65534, 65534)
        os.chmod(home / "kek", 0o600)
        (models / "secret").mkdir(mode=0o700)
        r = sits("key", "rotate", "--dry-run", "--json", f"file:{home / 'kek'}", models, **other)
        tap.check(name, r.rc == 1 and r.json["failed"] == 5 and "secret: Permission denied" in r.err and
                  r.err.count("can't be written") == 4, r)
        r = sits("key", "rotate", "--json", f"file:{home / 'kek'}", models, **other)
        tap.check("and then nothing is changed", r.rc == 1 and r.json["failed"] == 5 and all_under(key) and
                  sorted(p.name for p in home.iterdir()) == ["kek", "kek.next"], r)
        shutil.rmtree(home)
    os.chmod(d.path, 0o700)

    shutil.rmtree(models)
    for p in d.path.glob("kek*"):
        p.unlink()
    tap.check("nothing else was left", set(d.state()) <= {"plain", "other"}, d.state())
tap.done()
