# SPDX-License-Identifier: MIT
"""What the tests of `sits seal` and its sisters share: TAP, a directory, running the command."""
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

BUILD = os.environ.get("BUILD", "build/gcc")
SITS = os.path.abspath(f"{BUILD}/sits")
PATIENCE = 300  # seconds until what must end counts as hanging


class Tap:
    def __init__(self):
        self.count, self.failed = 0, 0

    def check(self, name, ok, detail=""):
        self.count += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.count} - {name}", flush=True)
        if not ok and detail != "":
            for line in str(detail).splitlines():
                print("#", line)
        return ok

    def skip(self, name, reason):
        self.count += 1
        print(f"ok {self.count} - {name} # SKIP {reason}", flush=True)

    def done(self):
        print(f"1..{self.count}")
        sys.exit(bool(self.failed))


class Result:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def __str__(self):
        return f"exit {self.rc}\nstdout: {self.out}\nstderr: {self.err}"

    @property
    def json(self):
        return json.loads(self.out)


def sits(*args, **kw):
    p = subprocess.run([SITS, *map(str, args)], capture_output=True, text=True, errors="surrogateescape", timeout=PATIENCE,
                       **kw)
    return Result(p.returncode, p.stdout, p.stderr)


class Dir:
    """A temporary directory, gone at the end; with a seeded random generator. In memory, where that is to be had, for what writes
    to the disk so often that it would take minutes."""

    def __init__(self, memory=False):
        shm = "/dev/shm" if memory and os.access("/dev/shm", os.W_OK | os.X_OK) else None
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="sits-test-", dir=shm))
        seed = int(os.environ.get("SITS_TEST_SEED", "0"), 0) or random.SystemRandom().getrandbits(64)
        print(f"# SITS_TEST_SEED={seed:#x}", flush=True)
        self.rng = random.Random(seed)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        shutil.rmtree(self.path)

    def __truediv__(self, name):
        return self.path / name

    def plain(self, name, size):
        p = self.path / name
        p.write_bytes(self.rng.randbytes(size))
        return p

    def state(self):
        """What is here: names and contents."""
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "" for p in self.path.iterdir()}
