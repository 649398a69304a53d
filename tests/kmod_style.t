#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# side by side
"""The kernel's own checkpatch on the modules and on their interface, with --strict.

It is in no package of headers: three files of Debian's linux-source-6.1 are taken out of the package, once, into
the cache (the folder checkpatch beside that of tests/vm/kernels.py). Nothing is installed.
"""
import fnmatch
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "vm"))
import kernels  # noqa: E402

PACKAGE = "linux-source-6.1"
FILES = ("scripts/checkpatch.pl", "scripts/spelling.txt", "scripts/const_structs.checkpatch")
DOWNLOAD_SECONDS = 300
SOURCES = sorted([*pathlib.Path("kmod").glob("*.[ch]"), pathlib.Path("include/uapi/linux/sits.h")])

# What is not heeded: type, files, why. One that is not needed any more fails.
EXCEPTIONS = [
    ("LINUX_VERSION_CODE", "kmod/compat.h", "built outside the kernel's tree, for several kernels: here, and nowhere else"),
    ("CONSTANT_COMPARISON", "kmod/compat.h", "takes LINUX_VERSION_CODE for a constant on the wrong side"),
    ("PARENTHESIS_ALIGNMENT", "kmod/trace.h", "tracing macros are laid out as in all of the kernel's trace headers"),
    ("OPEN_ENDED_LINE", "kmod/trace.h", "likewise"),
    ("UNCOMMENTED_DEFINITION", "kmod/*", "members are described in the kernel-doc above their struct"),
    ("BIT_MACRO", "kmod/region.h", "sizes, not bits"),
    ("MACRO_ARG_REUSE", "kmod/stats.c", "the argument is a name"),
]
results = []


def check(name, problems):
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        print("#", p)


def skip_all(reason):
    print(f"1..0 # SKIP {reason}")
    sys.exit(0)


def extract(deb, into):
    """Take FILES out of the package, which is read as far as needed."""
    left = set(FILES)
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        with tarfile.open(fileobj=p.stdout, mode="r|") as package:
            archive = next(m for m in package if m.name.endswith(".tar.xz"))
            with tarfile.open(fileobj=package.extractfile(archive), mode="r|xz") as source:
                for m in source:
                    name = m.name.partition("/")[2]
                    if name in left:
                        (into / pathlib.Path(name).name).write_bytes(source.extractfile(m).read())
                        left.discard(name)
                    if not left:
                        break
        p.kill()
    if left:
        raise kernels.Unavailable(f"{PACKAGE} has no {', '.join(sorted(left))}")


def fetch(where):
    version = kernels.candidate(PACKAGE)
    if not version:
        kernels.update_lists()
        version = kernels.candidate(PACKAGE)
    if not version:
        raise kernels.Unavailable(f"apt knows no package {PACKAGE}")
    record = kernels.query("apt-cache", "show", f"{PACKAGE}={version}")
    digest = re.search(r"^SHA256: ([0-9a-f]{64})$", record, re.M)
    if not digest:
        raise kernels.Unavailable(f"apt has no SHA-256 of {PACKAGE} {version}")
    print(f"# fetching {PACKAGE} {version} (140 MB, once)", flush=True)
    with tempfile.TemporaryDirectory(dir=where.parent, prefix=".checkpatch-") as tmp:
        tmp = pathlib.Path(tmp)
        cmd = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=30",
               f"{PACKAGE}={version}"]
        try:
            p = subprocess.run(cmd, cwd=tmp, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DOWNLOAD_SECONDS)
        except subprocess.TimeoutExpired:
            raise kernels.Unavailable(f"{PACKAGE} {version} took longer than {DOWNLOAD_SECONDS} s to download") from None
        debs = list(tmp.glob("*.deb"))
        if p.returncode or not debs:
            why = next((line for line in p.stdout.splitlines() if line.startswith("E:")), p.stdout.strip())
            raise kernels.Unavailable(f"{PACKAGE} {version} could not be downloaded: {why}")
        with open(debs[0], "rb") as f:
            got = hashlib.file_digest(f, "sha256").hexdigest()
        if got != digest[1]:
            raise kernels.Unavailable(f"{debs[0].name} has the SHA-256 {got}, the archive says {digest[1]}")
        new = tmp / "checkpatch"
        new.mkdir()
        extract(debs[0], new)
        shutil.rmtree(where, ignore_errors=True)
        try:
            new.rename(where)
        except OSError:
            if not where.exists():  # else another run was as quick
                raise


def checkpatch():
    """Where checkpatch.pl is, with its word lists beside it."""
    where = kernels.cache_dir().parent / "checkpatch"
    if not all((where / pathlib.Path(f).name).exists() for f in FILES):
        where.parent.mkdir(parents=True, exist_ok=True)
        fetch(where)
    return where / "checkpatch.pl"


for tool, package in (("perl", "perl"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")):
    if not shutil.which(tool):
        skip_all(f"{package} is not installed")
try:
    script = checkpatch()
except (kernels.Unavailable, OSError, tarfile.TarError) as e:
    skip_all(f"the kernel's checkpatch can't be had: {e}")

with tempfile.TemporaryDirectory(prefix="sits-style-") as tmp:
    bad = pathlib.Path(tmp) / "bad.c"
    bad.write_text("// SPDX-License-Identifier: GPL-2.0\nint f(void)\n{\n    return(0);\n}\n")
    cmd = ["perl", script, "--no-tree", "--strict", "--show-types", "--terse", "--no-summary", "--color=never",
           "--max-line-length=100", "-f", *SOURCES, bad]
    p = subprocess.run(cmd, capture_output=True, text=True)
found, needed, proof = p.stderr.splitlines(), set(), []
for line in p.stdout.splitlines():
    m = re.match(r"(\S+?):(\d+): (ERROR|WARNING|CHECK):(\w+): ", line)
    if m and m[1] == str(bad):
        proof.append(m[4])
    elif m and (excused := [e for e in EXCEPTIONS if e[0] == m[4] and fnmatch.fnmatch(m[1], e[1])]):
        needed.update(excused)
    elif not line.startswith("total:"):
        found.append(line)

check("checkpatch finds what is wrong with a file that has it",
      [] if {"LEADING_SPACE", "RETURN_PARENTHESES"} <= set(proof) else [f"only {proof}, exit status {p.returncode}"])
check(f"checkpatch --strict has nothing to say of {len(SOURCES)} files beyond the exceptions",
      found if len(SOURCES) > 10 else ["too few files"])
check("every exception is needed", [f"{e[0]} in {e[1]} ({e[2]})" for e in EXCEPTIONS if e not in needed])
print(f"1..{len(results)}")
sys.exit(not all(results))
