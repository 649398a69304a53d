#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""sits key, seal, inspect, verify, rekey as people and scripts use them."""
import ctypes
import os
import pathlib
import pty
import resource
import signal
import subprocess

from tap import SITS, Dir, Tap, sits

tap = Tap()


def unlink_key(name):
    """Take sits:NAME of type logon out of the user keyring."""
    lib, user = ctypes.CDLL("libkeyutils.so.1"), -4
    serial = lib.keyctl_search(user, b"logon", f"sits:{name}".encode(), 0)
    return serial > 0 and lib.keyctl_unlink(serial, user) == 0


with Dir() as d:
    key, key2 = f"file:{d / 'kek.key'}", f"file:{d / 'new.key'}"
    plain = d.plain("model.gguf", 3_000_001)
    out = d / "model.sits"

    r = sits("key", "new", key)
    kid = r.out.strip()
    tap.check("key new makes a key of mode 0600 and prints its id",
              r.rc == 0 and len(kid) == 32 and (d / "kek.key").stat().st_mode & 0o7777 == 0o600, r)
    secret = (d / "kek.key").read_text().strip()
    r = sits("key", "id", key)
    tap.check("key id prints the same id", r.rc == 0 and r.out.strip() == kid, r)
    r = sits("key", "id", key, "--json")
    tap.check("key id --json is one object", r.rc == 0 and r.json == {"ok": True, "key_id": kid, "key": key}, r)
    r = sits("key", "new", key)
    tap.check("key new leaves a key that exists as it is",
              r.rc == 1 and "exists already" in r.err and (d / "kek.key").read_text().strip() == secret, r)
    sits("key", "new", key2)

    name = f"test-cli-{os.getpid()}-{os.urandom(4).hex()}"
    r = sits("key", "install", key, f"keyring:{name}")
    if "Function not implemented" in r.err or "Operation not permitted" in r.err:
        tap.skip("key install puts it into the kernel's keyring", "no kernel keyrings here")
    else:
        tap.check("key install puts it into the kernel's keyring and prints its id", r.rc == 0 and r.out.strip() == kid, r)
        r = sits("key", "install", key2, f"keyring:{name}")
        tap.check("key install leaves what is there as it is", r.rc == 1 and "exists already" in r.err and r.out == "", r)
        r = sits("key", "id", f"keyring:{name}")
        tap.check("a key of type logon has no id outside of the kernel", r.rc == 1 and "logon" in r.err and r.out == "", r)
        r = sits("inspect", "--key", f"keyring:{name}", d / "kek.key")
        tap.check("nor can it be used there", r.rc == 1 and "logon" in r.err, r)
        tap.check("it can be taken out again", unlink_key(name))
    r = sits("key", "install", key, key2)
    tap.check("key install wants a keyring", r.rc == 1 and "keyring:NAME" in r.err, r)

    r = sits("seal", "--key", key, "--model-version", "3", "--model-id", "test/model", plain, out)
    tap.check("seal describes what it wrote", r.rc == 0 and "test/model" in r.out and kid in r.out, r)
    tap.check("the key is in no output", secret not in r.out + r.err)
    r = sits("inspect", out)
    tap.check("inspect without a key says that nothing is authentic", r.rc == 0 and "not authenticated" in r.out, r)
    r = sits("inspect", "--json", "--key", key, out)
    want = {"file": str(out), "ok": True, "format_version": 1, "suite": 1, "suite_name": "SM4-GCM",
            "chunk_bytes": 1 << 20, "chunks": 3, "plain_bytes": 3_000_001, "file_bytes": 8192 + 3_000_001,
            "model_id": "test/model", "model_version": 3, "key_id": kid, "authenticated": True}
    got = r.json
    digest = got.pop("digest", "")
    tap.check("inspect --json is one object with all fields", r.rc == 0 and got == want and len(digest) == 64, r)
    r = sits("verify", "--json", "--key", key, "--min-version", 3, out)
    tap.check("verify --json gives the same facts", r.rc == 0 and r.json == {**want, "digest": digest}, r)
    r = sits("verify", "--key", key, "--buffered", "--threads", 3, out)
    tap.check("verify --buffered --threads", r.rc == 0 and "every chunk verified" in r.out and r.err == "", r)
    r = sits("verify", "--quiet", "--key", key, out)
    tap.check("verify --quiet says nothing", r.rc == 0 and r.out == r.err == "", r)

    r = sits("seal", "--json", "--key", key, plain, out)
    tap.check("seal --json on an output that exists",
              r.rc == 1 and r.json["ok"] is False and r.json["error"] == "EEXIST" and "exists already" in r.err, r)
    r = sits("seal", "--json", "--force", "--chunk-size", "64K", "--key", key, plain, out)
    tap.check("seal --force --chunk-size", r.rc == 0 and r.json["chunk_bytes"] == 65536 and r.json["chunks"] == 46, r)
    tap.check("seal takes the input's name for an id", r.json["model_id"] == "model.gguf", r)

    before = out.read_bytes()
    r = sits("rekey", "--key", key, "--new-key", key2, "--json", out)
    after = out.read_bytes()
    tap.check("rekey rewrites the header only", r.rc == 0 and r.json["authenticated"] and r.json["key_id"] != kid and
              before[4096:] == after[4096:] and before[:192] == after[:192] and before[:4096] != after[:4096], r)
    r = sits("verify", "--key", key, out)
    tap.check("the old key opens it no more, and both keys are named",
              r.rc == 1 and "wrong key" in r.err and kid in r.err and r.err.count("\n") == 1, r)
    r = sits("verify", "--key", key2, out)
    tap.check("the new key opens it", r.rc == 0, r)
    r = sits("rekey", "--key", key, "--new-key", key2, "--quiet", out)
    tap.check("the same rekey again changes nothing", r.rc == 0 and "already" in r.err and out.read_bytes() == after, r)
    r = sits("rekey", "--key", key, "--new-key", key, out)
    tap.check("rekey with a wrong key changes nothing", r.rc == 1 and "wrong key" in r.err and out.read_bytes() == after, r)

    out.write_bytes(after + b"more")
    r = sits("rekey", "--key", key2, "--new-key", key, "--json", out)
    tap.check("a file that is too long is under the new key nevertheless, and that is said", r.rc == 1 and "4 more than its header says" in r.err and
              r.json["error"] == "EBADMSG" and "is under the new key now" in r.json["message"] and
              sits("rekey", "--quiet", "--key", key2, "--new-key", key, out).err.count("is under the new key already") == 1, r)
    out.write_bytes(after)

    r = sits("rekey", "--reseal", "--key", key2, "--new-key", key2, "--json", out)
    tap.check("rekey --reseal encrypts all of it anew", r.rc == 0 and r.json["authenticated"] and
              r.json["model_id"] == "model.gguf" and sum(a == b for a, b in zip(after[8192:], out.read_bytes()[8192:])) < 30000, r)
    r = sits("verify", "--key", key2, out)
    tap.check("and it verifies", r.rc == 0, r)

    # Resealed by one who may not give the new file to its owner: it stays in the group, and that is said.
    name = "rekey --reseal keeps the group where it can't keep the owner, and says so"
    other = {"user": 65534, "group": 65534, "extra_groups": [4321]}
    try:
        os.chmod(d.path, 0o777)
        probe = subprocess.run([SITS, "--version"], stdout=subprocess.DEVNULL, **other).returncode
    except (OSError, PermissionError) as e:
        probe = e
    if probe != 0:
        tap.skip(name, f"can't run the command as another user: {probe}")
    else:
        k, shared = f"file:{d / 'other.key'}", d / "shared.sits"
        sits("key", "new", k, **other)
        r2 = sits("seal", "--quiet", "--key", k, plain, shared, **other)
        os.chown(shared, 0, 4321)
        shared.chmod(0o640)
        r = sits("rekey", "--quiet", "--reseal", "--key", k, "--new-key", k, shared, **other)
        st = shared.stat()
        tap.check(name, r.rc == 0 and (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (65534, 4321, 0o640) and
                  "was of user 0 and group 4321" in r.err, f"{r2} {r} {st}")
        for p in (shared, d / "other.key"):
            p.unlink()
    os.chmod(d.path, 0o700)

    for cmd in ("seal", "verify", "inspect", "rekey", "key"):
        r = sits(cmd, "--help")
        tap.check(f"{cmd} --help", r.rc == 0 and r.out.startswith(f"usage: sits {cmd}") and r.err == "", r)
        r = sits(cmd, "--no-such-flag", "x")
        tap.check(f"{cmd} refuses unknown flags", r.rc == 2 and "--no-such-flag" in r.err and r.out == "", r)
        r = sits(cmd, "-Z")
        tap.check(f"{cmd} refuses unknown short flags", r.rc == 2 and "'-Z'" in r.err, r)
    for args in (["seal", plain, out], ["verify", out], ["rekey", out], ["rekey", "--key", key2, out]):
        r = sits(*args)
        tap.check(f"{args[0]} without a key shows an example ({len(args)})",
                  r.rc == 2 and "key file:/etc/sits/model.key" in r.err, r)
    for args, words in (
            (["seal", "--key", key, plain], "1 were given"),
            (["seal", "--key", key, plain, out, out], "3 were given"),
            (["seal", "--key"], "needs an argument"),
            (["seal", "--force=yes", "--key", key, plain, out], "takes no argument"),
            (["seal", "--key", key, "--chunk-size", "5000", plain, out], "5000"),
            (["seal", "--key", key, "--chunk-size", "32M", plain, out], "32M"),
            (["seal", "--key", key, "--model-id", "", plain, out], "--model-id has 0 bytes"),
            (["seal", "--key", key, "--model-id", "x" * 128, plain, out], "--model-id has 128 bytes"),
            (["seal", "--key", key, "--model-version", "-1", plain, out], "-1"),
            (["seal", "--key", key, "--model-version", "1x", plain, out], "1x"),
            (["seal", "--key", key, "--model-version", "7M", plain, out], "7M"),
            (["verify", "--key", key, "--min-version", "1K", out], "1K"),
            (["seal", "--key", key, "--threads", "0", plain, out], "'0'"),
            (["verify", "--key", key, "--min-version", "99999999999999999999", out], "99999999999999999999"),
            (["verify", "--key", key], "0 were given"),
            (["inspect"], "0 were given"),
            (["key"], "new, import, id, install or rotate"),
            (["key", "make", key], "new, import, id, install or rotate"),
            (["key", "new"], "0 were given"),
            (["key", "new", key, key], "2 were given"),
            (["seal", "--key", key, plain, ""], "argument 2 is empty"),
            (["inspect", ""], "argument 1 is empty"),
            (["rekey", "--key", key, "--new-key", key2, out, ""], "argument 2 is empty"),
            (["key", "rotate", key, "--new-key", key2, ""], "argument 3 is empty"),
    ):
        r = sits(*args)
        tap.check("wrong usage: " + " ".join(os.path.basename(str(a)) for a in args), r.rc == 2 and words in r.err and r.out == "", r)

    r = sits("--help")
    tap.check("--help lists the commands", r.rc == 0 and all(f"  {c} " in r.out for c in ("seal", "verify", "key")), r)
    for name in ("sits", "sits-model"):
        def program(*args, name=name):
            return subprocess.run([pathlib.Path(SITS).with_name(name), *args], capture_output=True, text=True)

        p = program()
        tap.check(f"{name} without a command is wrong usage", p.returncode == 2 and p.stderr.startswith(f"usage: {name} ") and not p.stdout, p)
        for arg in ("--help", "-h"):
            p = program(arg)
            tap.check(f"{name} {arg} lists the commands", p.returncode == 0 and p.stdout.startswith(f"usage: {name} ") and
                      "\n  quantize   " in p.stdout and not p.stderr, p)
        for arg in ("--version", "-V"):
            p = program(arg)
            tap.check(f"{name} {arg}", p.returncode == 0 and p.stdout.startswith(f"{name} ") and not p.stderr, p)
        for arg in ("frobnicate", "--frobnicate"):
            p = program(arg)
            tap.check(f"{name} {arg} is wrong usage", p.returncode == 2 and f"'{arg}'" in p.stderr and not p.stdout, p)

    with open("/dev/full", "w") as full:
        p = subprocess.run([SITS, "inspect", str(out)], stdout=full, stderr=subprocess.PIPE, text=True)
    tap.check("a standard output that is full is a failure", p.returncode == 1 and "standard output" in p.stderr, p)

    # Closed descriptors: what is printed must not go into the files that are opened in their place.
    def closed(what, *args):
        return subprocess.run(["bash", "-c", f'"$@" {what}', "-", SITS, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)

    before = out.read_bytes()
    for what in ("2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        p = closed(what, "rekey", "--key", key, "--new-key", key2, out)
        tap.check(f"a rekey that warns, with {what}, writes no word into the file", p.returncode == (what != "2>&-") and
                  out.read_bytes() == before, p)
        p = closed(what, "seal", "--force", "--key", key2, plain, d / "closed.sits")
        r = sits("verify", "--quiet", "--key", key2, d / "closed.sits")
        tap.check(f"what is sealed with {what} verifies", p.returncode == (what != "2>&-") and r.rc == 0, f"{p} {r}")
    p = closed(">&-", "inspect", out)
    tap.check("a standard output that is closed is a failure", p.returncode == 1 and "standard output" in p.stderr, p)
    (d / "closed.sits").unlink()

    # A bar on a terminal, and none elsewhere; what is left on the line after it is nothing.
    main, term = pty.openpty()
    p = subprocess.run([SITS, "verify", "--quiet", "--key", key2, str(out)], stderr=term)
    os.set_blocking(main, False)

    def shown():
        data = b""
        try:
            while True:
                data += os.read(main, 65536)
        except BlockingIOError:
            return data.decode()

    quiet = shown()
    p = subprocess.run([SITS, "verify", "--key", key2, str(out)], stdout=subprocess.PIPE, stderr=term)
    drawn = shown()
    os.close(term)
    os.close(main)
    tap.check("progress is drawn on a terminal", p.returncode == 0 and "verifying" in drawn and "100%" in drawn, repr(drawn))
    tap.check("and wiped at the end", drawn.endswith("\r\x1b[K"), repr(drawn))
    tap.check("and not drawn with --quiet", quiet == "", repr(quiet))

    # A process with keys dumps no core. The bar shows that it is at work.
    def dumps_core(cmd, wait):
        main, term = pty.openpty()
        p = subprocess.Popen(cmd, cwd=d.path, stdout=subprocess.DEVNULL, stderr=term,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)))
        os.close(term)
        shown = os.read(main, 100) if wait else b""
        os.kill(p.pid, signal.SIGABRT)
        status = os.waitpid(p.pid, 0)[1]
        p.returncode = -signal.SIGABRT	# it has been waited for
        os.close(main)
        for core in d.path.glob("core*"):
            core.unlink()
        return os.WIFSIGNALED(status) and os.WCOREDUMP(status), os.WIFSIGNALED(status), shown

    name = "killed at work, it dumps no core"
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if not dumps_core(["sleep", "1000"], False)[0]:
        tap.skip(name, "no core dumps here")
    else:
        big = d.plain("big", 24 << 20)
        r = sits("seal", "--quiet", "--key", key2, big, d / "big.sits")
        for _ in range(50):  # it may end before it is its turn to be killed
            core, killed, shown = dumps_core([SITS, "verify", "--threads", "1", "--key", key2, d / "big.sits"], True)
            if killed:
                break
        tap.check(name, r.rc == 0 and killed and not core and b"verifying" in shown, (r, core, killed, shown))
        for p in (big, d / "big.sits"):
            p.unlink()

    # Names that would break a terminal or JSON.
    (d / "bad\udcff.sits").write_bytes(bytes(5000))
    r = sits("verify", "--json", "--key", key2, d / "bad\udcff.sits")
    tap.check("JSON can't name a file that is no UTF-8, and says what is wrong with it all the same", r.rc == 1 and r.json["file"] is None and
              "bad?.sits: header: magic" in r.json["message"] and "bad\udcff.sits: header: magic" in r.err, r)
    (d / "bad\udcff.sits").unlink()
    odd = d / "odd\x1b[31m\udcff.gguf"
    odd.write_bytes(b"x" * 100)
    r = sits("seal", "--key", key, odd, d / "odd.sits")
    tap.check("a file name with control characters gives a model id without", r.rc == 0 and "odd_[31m" in r.out and "\x1b" not in r.out,
              repr(str(r)))
    r = sits("seal", "--force", "--key", key, "--model-id", "odd\n", odd, d / "odd.sits")
    tap.check("a model id with control characters is refused", r.rc == 1 and "control characters" in r.err and r.err.count("\n") == 1, r)

    # A key is no output.
    os.link(d / "kek.key", d / "hard.key")
    for path in (d / "kek.key", d / "hard.key"):
        r = sits("seal", "--force", "--key", key, plain, path)
        tap.check(f"the key's own file is no output: {path.name}", r.rc == 2 and "the key" in r.err and path.read_text().strip() == secret, r)
    (d / "hard.key").unlink()

    tap.check("nothing else was left", set(d.state()) ==
              {"kek.key", "new.key", "model.gguf", "model.sits", odd.name, "odd.sits"}, d.state())
tap.done()
