# SPDX-License-Identifier: MIT
"""What the guest boots from: files, their shared libraries, busybox, kernel modules, as a cpio archive."""
import functools
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile


class Missing(Exception):
    """Something to be packed is not there; the text says what to do."""


@functools.cache
def shared_libraries(program):
    """Paths that the dynamic linker would load for a program."""
    p = subprocess.run(["ldd", program], capture_output=True, text=True)
    if p.returncode:
        return ()  # static, or a script
    absent = re.findall(r"(\S+) => not found", p.stdout)
    if absent:
        raise Missing(f"{program} needs {', '.join(absent)}, which ldd does not find")
    return tuple(re.findall(r"(?:=> |^\s+)(/\S+) \(", p.stdout, re.M))


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def is_program(path):
    return path.is_file() and is_elf(path)


class Initramfs:
    """Guest path -> (mode, content). Content is a host path, bytes, or for a symlink its target."""

    def __init__(self):
        self.entries = {}

    def directory(self, path):
        path = path.strip("/")
        if path and path not in self.entries:
            self.directory(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | 0o755, b"")

    def add(self, path, content, mode):
        self.directory(os.path.dirname(path))
        self.entries[path.strip("/")] = (mode, content)

    def text(self, path, text, mode=0o644):
        self.add(path, text.encode(), stat.S_IFREG | mode)

    def symlink(self, path, target):
        self.add(path, target.encode(), stat.S_IFLNK | 0o777)

    def file(self, path, host):
        """A file of the host, with the libraries that it needs if it is a program."""
        host = pathlib.Path(host)
        if not host.is_file():
            raise Missing(f"{host} is not there: build it first (make tests)")
        if path.strip("/") in self.entries:
            return
        self.add(path, host, stat.S_IFREG | (0o755 if os.access(host, os.X_OK) else 0o644))
        if is_elf(host):
            for lib in shared_libraries(str(host)):
                self.file(lib, lib)

    def program(self, name):
        """A program of the host, found by PATH, put into /usr/bin."""
        host = shutil.which(name)
        if not host:
            raise Missing(f"{name} is not installed here (see scripts/install-deps test)")
        self.file(f"/usr/bin/{name}", os.path.realpath(host))

    def busybox(self):
        host = shutil.which("busybox")
        if not host or shared_libraries(os.path.realpath(host)):
            raise Missing("the guest needs a static busybox (Debian: busybox-static)")
        self.file("/bin/busybox", os.path.realpath(host))
        applets = subprocess.run([host, "--list-full"], capture_output=True, text=True, check=True).stdout.split()
        for applet in applets:
            # Not over itself, and not before a program of the host's, wherever PATH looks first.
            if applet not in self.entries and f"usr/bin/{os.path.basename(applet)}" not in self.entries:
                self.symlink(applet, "/bin/busybox")
        self.symlink("/bin/sh", "/bin/busybox")

    def write(self, path):
        """In the "newc" format. Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst."""
        with open(path, "wb") as out:
            for ino, (name, (mode, content)) in enumerate(sorted(self.entries.items()), 1):
                data = content.read_bytes() if isinstance(content, pathlib.Path) else content
                self.write_entry(out, ino, mode, name, data)
            # The kernel opens /dev/console for init before anything is mounted.
            self.write_entry(out, 0, stat.S_IFCHR | 0o600, "dev/console", b"", (5, 1))
            self.write_entry(out, 0, 0, "TRAILER!!!", b"")

    @staticmethod
    def write_entry(out, ino, mode, name, data, rdev=(0, 0)):
        raw = name.encode() + b"\0"
        fields = (ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(raw), 0)
        head = b"070701" + "".join(f"{n:08X}" for n in fields).encode() + raw
        out.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))


class Modules:
    """Kernel modules for the guest: ours, and those of the image that are asked for, each with what it needs."""

    def __init__(self, kernel, ours):
        self.kernel = kernel
        self.ours = {module_name(p): pathlib.Path(p) for p in ours}
        self.stock, self.stock_needs = {}, {}
        for line in (kernel.modules / "modules.dep").read_text().splitlines():
            path, _, needs = line.partition(":")
            self.stock[module_name(path)] = kernel.modules / path
            self.stock_needs[module_name(path)] = [module_name(n) for n in needs.split()]
        self.builtin = {module_name(p) for p in (kernel.modules / "modules.builtin").read_text().split()}
        self.soft = {}
        softdep = kernel.modules / "modules.softdep"
        for line in softdep.read_text().splitlines() if softdep.exists() else ():
            if m := re.match(r"softdep (\S+) (.*)", line):
                self.soft.setdefault(module_name(m[1]), []).append(m[2])
        # "crypto-gcm" and its like, which soft dependencies go by; no patterns.
        self.aliases = {}
        for line in (kernel.modules / "modules.alias").read_text().splitlines():
            if (m := re.match(r"alias (\S+) (\S+)", line)) and "*" not in m[1]:
                self.aliases.setdefault(module_name(m[1]), []).append(m[2])
        self.chosen = {}

    def needs(self, name):
        """Names of modules that a module needs, or would like to have, loaded."""
        if name in self.ours:
            info = {f: subprocess.run(["modinfo", "-F", f, self.ours[name]], capture_output=True, text=True,
                                      check=True).stdout for f in ("depends", "softdep")}
            hard, soft = info["depends"].replace(",", " ").split(), info["softdep"].split()
        else:
            hard, soft = self.stock_needs[name], " ".join(self.soft.get(name, ())).split()
        return [module_name(n) for n in hard], [module_name(n) for n in soft if not n.endswith(":")]

    def want(self, name, asked=True):
        name = module_name(name)
        if name in self.chosen or name in self.builtin:
            return
        path = self.ours.get(name) or self.stock.get(name)
        if not path:
            if asked:
                raise Missing(f"no module {name}: not among ours ({', '.join(sorted(self.ours)) or 'none'}) and not in "
                              f"the kernel {self.kernel.release}")
            return
        self.chosen[name] = path
        hard, soft = self.needs(name)
        for n in hard:
            self.want(n)
        for n in soft:
            for real in self.aliases.get(n, [n]):
                self.want(real, asked=False)

    def pack(self, image):
        """Put those chosen, and an index of them alone, into the image."""
        base = f"lib/modules/{self.kernel.release}"
        with tempfile.TemporaryDirectory(prefix="sits-vm-") as tmp:
            root = pathlib.Path(tmp) / base
            for sub in ("kernel", "extra"):
                (root / sub).mkdir(parents=True)
            for name, path in self.chosen.items():
                data = path.read_bytes()
                # Unpacked here, once, and not by an emulated processor.
                if path.suffix == ".xz":
                    data = lzma.decompress(data)
                (root / ("extra" if name in self.ours else "kernel") / f"{name}.ko").write_bytes(data)
            for f in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
                if (self.kernel.modules / f).exists():
                    shutil.copy(self.kernel.modules / f, root)
            subprocess.run(["depmod", "-b", tmp, self.kernel.release], check=True)
            for p in sorted(root.rglob("*")):
                if p.is_file():
                    image.add(f"/{base}/{p.relative_to(root)}", p.read_bytes(), stat.S_IFREG | 0o644)


def module_name(path):
    return re.sub(r"\.ko(\.\w+)?$", "", os.path.basename(str(path))).replace("-", "_")
