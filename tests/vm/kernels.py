#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kernels for the guest: Debian's own, found where they are installed, else fetched by package name into the cache;
and one built for finding faults, from Debian's source.

Nothing is installed. The cache is $SITS_CACHE_DIR/kernels, else $XDG_CACHE_HOME/sits/kernels, else
~/.cache/sits/kernels, with a folder for each release that holds what `dpkg -x` makes of its packages.
"""
import contextlib
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SERIES = ("6.1", "6.12")
DEBUG = "6.1-debug"  # never chosen but by name: it takes long to build, and the tests take long on it
DEBUG_CONFIG = pathlib.Path(__file__).resolve().parent / "debug.config"
os.environ["PATH"] += ":/usr/sbin:/sbin"  # depmod and its like, for those who are not root


class Unavailable(Exception):
    """No such kernel can be had here; the text says why."""


class Kernel:
    def __init__(self, series, release, root, kdir, patience=1):
        self.series, self.release, self.root = series, release, pathlib.Path(root)
        self.patience = patience  # how many times as long as usual it may take for everything
        self.kdir = pathlib.Path(kdir)  # its headers, for building modules
        self.vmlinuz = self.root / "boot" / f"vmlinuz-{release}"
        self.modules = self.root / "lib/modules" / release


def cache_dir():
    # The same rule as in scripts/fetch-model.
    if os.environ.get("SITS_CACHE_DIR"):
        return pathlib.Path(os.environ["SITS_CACHE_DIR"]) / "kernels"
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "sits" / "kernels"


def release_pattern(series):
    # "6.1.0-57-amd64", "6.12.117+deb12-amd64"; not the cloud and rt flavours.
    return re.compile(rf"{re.escape(series)}\.\d+([-+][\w.]+)?-amd64")


def by_version(releases):
    return sorted(releases, key=lambda r: [int(n) for n in re.findall(r"\d+", r)], reverse=True)


def query(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True)
    return p.stdout if p.returncode == 0 else ""


def candidate(package):
    """The version that apt would install, or ""."""
    m = re.search(r"Candidate: (\S+)", query("apt-cache", "policy", package))
    return m[1] if m and m[1] != "(none)" else ""


@functools.cache
def update_lists():
    # A stale package list is the usual reason for a failed download.
    if os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def download(packages, into):
    """Download packages, each NAME=VERSION, and unpack them into a folder. Return "" or what went wrong."""
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".deb-") as tmp:
        cmd = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages]
        p = subprocess.run(cmd, cwd=tmp, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if p.returncode:
            return next((line for line in p.stdout.splitlines() if line.startswith("E:")), p.stdout.strip())
        for deb in pathlib.Path(tmp).glob("*.deb"):
            p = subprocess.run(["dpkg", "-x", deb, into], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if p.returncode:
                return p.stdout.strip()
    return ""


def fetch(release, version, headers):
    """Put the image of a release into the cache, with its headers where asked. Return its folder there."""
    where = cache_dir() / release
    have = (where / ".version").read_text() if (where / ".version").exists() else ""
    if have == version and (not headers or (where / "usr/src").exists()):
        return where
    wanted = []
    if headers:
        wanted.append(f"linux-headers-{release}={version}")
        m = re.search(r"Depends:(.*)", query("apt-cache", "show", wanted[0]))
        wanted += re.findall(r"\b(linux-headers-[^ ,]*-common|linux-kbuild-[^ ,]+)", m[1] if m else "")
    problem = ""
    # The unsigned image is the same kernel without the signature, and without the signed one's delay in the archive.
    for image in (f"linux-image-{release}-unsigned", f"linux-image-{release}"):
        tmp = pathlib.Path(tempfile.mkdtemp(dir=cache_dir(), prefix=".kernel-"))
        try:
            print(f"vm: fetching {image} {version}", file=sys.stderr, flush=True)
            problem = download([f"{image}={version}", *wanted], tmp)
            if problem:
                continue
            relocate_headers(tmp)
            subprocess.run(["depmod", "-b", tmp, release], check=True)
            (tmp / ".version").write_text(version)
            tmp.chmod(0o755)
            shutil.rmtree(where, ignore_errors=True)
            tmp.rename(where)
            drop_older(release)
            return where
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    raise Unavailable(f"linux-image-{release} {version} could not be downloaded: {problem}")


def drop_older(release):
    """Each takes 400 MB. Those of another series stay."""
    series = re.match(r"\d+\.\d+", release)[0]
    for old in cache_dir().iterdir():
        if release_pattern(series).fullmatch(old.name) and old.name != release:
            shutil.rmtree(old, ignore_errors=True)


def relocate_headers(root):
    """Headers name their common part by its absolute path."""
    for makefile in root.glob("usr/src/linux-headers-*/Makefile"):
        text = makefile.read_text()
        if len(text) < 1000:
            makefile.write_text(text.replace("include /usr/src/", "include $(dir $(lastword $(MAKEFILE_LIST)))../"))


def installed(series):
    """Releases of the series whose headers are installed, newest first."""
    found = [d.parent.name for d in pathlib.Path("/lib/modules").glob("*/build") if (d / "Makefile").exists()]
    return by_version(r for r in found if release_pattern(series).fullmatch(r))


def from_installed_headers(series, release):
    kdir = f"/lib/modules/{release}/build"
    if os.access(f"/boot/vmlinuz-{release}", os.R_OK) and os.path.exists(f"/lib/modules/{release}/modules.dep"):
        return Kernel(series, release, "/", kdir)
    version = query("dpkg-query", "-W", "-f", "${Version}", f"linux-headers-{release}")
    return Kernel(series, release, fetch(release, version or candidate(f"linux-headers-{release}"), False), kdir)


def from_archive(series):
    """The newest release that apt knows."""
    names = query("apt-cache", "pkgnames", f"linux-headers-{series}.").split()
    releases = [n.removeprefix("linux-headers-") for n in names]
    for release in by_version(r for r in releases if release_pattern(series).fullmatch(r)):
        version = candidate(f"linux-headers-{release}")
        if version:
            root = fetch(release, version, True)
            return Kernel(series, release, root, root / "usr/src" / f"linux-headers-{release}")
    raise Unavailable(f"apt knows no package linux-headers-{series}.*-amd64")


def run_make(source, *args):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "O", "CC")}
    p = subprocess.run(["make", "-s", "-C", source, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    if p.returncode:
        tail = "\n".join(p.stdout.strip().splitlines()[-20:])
        raise Unavailable(f"the debug kernel could not be built: make {' '.join(args)}:\n{tail}")


def build_debug(version, where):
    """Debian's source with tests/vm/debug.config on top of the smallest configuration."""
    package = "linux-source-6.1"
    print(f"vm: building a debug kernel from {package} {version}: 15 minutes of processor time, 3 GB, once",
          file=sys.stderr, flush=True)
    problem = download([f"{package}={version}"], where)
    if problem:
        raise Unavailable(f"{package} {version} could not be downloaded: {problem}")
    archive = where / "usr/src" / f"{package}.tar.xz"
    subprocess.run(["tar", "-xf", archive, "-C", where], check=True)
    archive.unlink()
    source, out = where / package, where / "build"
    out.mkdir()
    run_make(source, f"O={out}", "tinyconfig")
    subprocess.run([source / "scripts/kconfig/merge_config.sh", "-m", "-O", out, out / ".config", DEBUG_CONFIG],
                   cwd=source, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run_make(source, f"O={out}", "olddefconfig")
    run_make(source, f"O={out}", f"-j{os.cpu_count()}", "bzImage", "modules")
    run_make(source, f"O={out}", f"INSTALL_MOD_PATH={where}", "modules_install")
    release = (out / "include/config/kernel.release").read_text().strip()
    (where / "boot").mkdir()
    shutil.copy(out / "arch/x86/boot/bzImage", where / "boot" / f"vmlinuz-{release}")


def debug_kernel():
    for tool, package in (("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("gcc", "gcc"), ("xz", "xz-utils")):
        if not shutil.which(tool):
            raise Unavailable(f"building the debug kernel needs {package} (and libelf-dev)")
    version = candidate("linux-source-6.1")
    if not version:
        raise Unavailable("apt knows no package linux-source-6.1")
    stamp = f"{version} {hashlib.sha256(DEBUG_CONFIG.read_bytes()).hexdigest()}"
    where = cache_dir() / DEBUG
    if not (where / ".version").exists() or (where / ".version").read_text() != stamp:
        # Headers name this folder in absolute paths: it can't be made elsewhere and then renamed.
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        build_debug(version, where)
        (where / ".version").write_text(stamp)
    release = (where / "build/include/config/kernel.release").read_text().strip()
    return Kernel(DEBUG, release, where, where / "build", patience=6)


@contextlib.contextmanager
def cache_lock():
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def locate(series):
    """A kernel of the series, with headers of the same version. Raises Unavailable."""
    if series == DEBUG:
        with cache_lock():
            return debug_kernel()
    if not re.fullmatch(r"\d+\.\d+", series):
        raise Unavailable(f"{series} is no kernel series; choose among {', '.join((*SERIES, DEBUG))}")
    for tool in ("apt-get", "dpkg", "depmod"):
        if not shutil.which(tool):
            raise Unavailable(f"{tool} is not there: the guest runs Debian's kernels (see scripts/install-deps test)")
    with cache_lock():
        problems = []
        for attempt in range(2):
            ways = [lambda r=r: from_installed_headers(series, r) for r in installed(series)]
            for way in (*ways, lambda: from_archive(series)):
                try:
                    return way()
                except Unavailable as e:
                    problems.append(str(e))
            if attempt == 0:
                update_lists()
        raise Unavailable("; ".join(dict.fromkeys(problems)))


def main():
    """tests/vm/kernels.py SERIES: the folder of headers to build modules with, on standard output."""
    if len(sys.argv) != 2 or sys.argv[1] not in (*SERIES, DEBUG):
        sys.exit(f"usage: tests/vm/kernels.py {'|'.join((*SERIES, DEBUG))}")
    try:
        print(locate(sys.argv[1]).kdir)
    except Unavailable as e:
        sys.exit(f"kernels.py: {e}")


if __name__ == "__main__":
    main()
