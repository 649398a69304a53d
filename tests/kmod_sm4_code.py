#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The vector cores of SM4 in a kernel module are those that userspace is tested with: instruction by instruction.

usage: kmod_sm4_code.py MODULE.ko OBJECT.o...

Compared is what each instruction does: its name and operands, where in the function it jumps to, whom it calls, the bytes of the
constants that it reads. Not compared: addresses, padding, and what the kernel wants of entries and returns (endbr64, return
thunks). Prints what differs; exit 1 where anything does.
"""
import re
import struct
import subprocess
import sys

PREFIX = re.compile(r"sits_sm4_\w*(aesni|gfni)")
PADDING = re.compile(r"(nop[wl]?|data16|cs nop[wl]?|int3|endbr64|xchg +%ax,%ax)\b")
RETURN = re.compile(r"(ret|retq)\b|jmp\s.*<__x86_return_thunk")
CONSTANT_BYTES = 64


class Object:
    """An ELF relocatable file, x86-64, as far as needed."""

    def __init__(self, path):
        self.path = path
        self.data = d = open(path, "rb").read()
        shoff, = struct.unpack_from("<Q", d, 40)
        shentsize, shnum, shstrndx = struct.unpack_from("<HHH", d, 58)
        raw = [struct.unpack_from("<IIQQQQIIQQ", d, shoff + i * shentsize) for i in range(shnum)]
        self.sections = [{"name": self.string(raw[shstrndx], s[0]), "type": s[1], "off": s[4], "size": s[5], "link": s[6],
                          "info": s[7]} for s in raw]
        self.symbols = []
        symtab = next(s for s in self.sections if s["type"] == 2)
        strtab = raw[symtab["link"]]
        for off in range(symtab["off"], symtab["off"] + symtab["size"], 24):
            name, info, _, shndx, value, size = struct.unpack_from("<IBBHQQ", d, off)
            self.symbols.append({"name": self.string(strtab, name), "type": info & 15, "shndx": shndx, "value": value, "size": size})
        self.relocs = {}  # (section index, offset) -> (symbol, addend)
        for s in self.sections:
            if s["type"] == 4:
                for off in range(s["off"], s["off"] + s["size"], 24):
                    where, info, addend = struct.unpack_from("<QQq", d, off)
                    self.relocs[s["info"], where] = (self.symbols[info >> 32], addend)
        self.functions = {s["name"]: s for s in self.symbols if s["type"] == 2 and s["size"] and PREFIX.match(s["name"])}

    def string(self, section, off):
        begin = section[4] + off
        return self.data[begin:self.data.index(b"\0", begin)].decode()

    def name_at(self, shndx, value):
        return next((s["name"] for s in self.symbols if s["shndx"] == shndx and s["value"] == value and s["type"] == 2),
                    f"{self.sections[shndx]['name']}+{value:#x}")

    def code(self, name):
        """What a function does, instruction by instruction: (text, constants read or None)."""
        f = self.functions[name]
        section = self.sections[f["shndx"]]["name"]
        out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-j", section, f"--start-address={f['value']}",
                              f"--stop-address={f['value'] + f['size']}", self.path], capture_output=True, text=True, check=True).stdout
        insns = [(int(m[1], 16), m[2].split("#")[0].strip()) for m in re.finditer(r"^\s*([0-9a-f]+):\s+(\S.*)$", out, re.M)]
        ends = [a for a, _ in insns[1:]] + [f["value"] + f["size"]]
        kept, index = [], {}
        for (at, text), end in zip(insns, ends):
            index[at] = len(kept)
            if not PADDING.match(text):
                kept.append((at, end, text))
        return [self.meaning(f, index, *insn) for insn in kept]

    def meaning(self, f, index, at, end, text):
        reloc = next((self.relocs[f["shndx"], o] + (o,) for o in range(at, end) if (f["shndx"], o) in self.relocs), None)
        words = text.split(None, 1)
        if RETURN.match(text) or (reloc and reloc[0]["name"] == "__x86_return_thunk"):
            return "ret", None
        if words[0].startswith(("j", "call")):
            if reloc:
                symbol, addend, where = reloc
                value = symbol["value"] + addend + end - where
                to = symbol["name"] if symbol["type"] != 3 else self.name_at(symbol["shndx"], value)
            else:
                value = int(words[1].split()[0], 16)
                inside = f["value"] <= value < f["value"] + f["size"]
                to = f"instruction {index[value]}" if inside else self.name_at(f["shndx"], value)
            return f"{words[0]} {to}", None
        if reloc:
            symbol, addend, where = reloc
            s = self.sections[symbol["shndx"]]
            off = symbol["value"] + addend + end - where
            return re.sub(r"-?(0x)?[0-9a-f]+\(%rip\)", "constant", text), self.data[s["off"] + off:s["off"] + min(off + CONSTANT_BYTES, s["size"])]
        assert "(%rip)" not in text, f"{self.path}: {f['name']}: {text}: without a relocation"
        return re.sub(r"\s+", " ", text), None


def differences(module, user, name):
    a, b = module.code(name), user.code(name)
    if len(a) != len(b):
        yield f"{name}: {len(a)} instructions in the module, {len(b)} in {user.path}"
    for i, ((in_module, const_m), (in_user, const_u)) in enumerate(zip(a, b)):
        n = min(len(const_m or b""), len(const_u or b""))
        if in_module.replace("  ", " ") != in_user.replace("  ", " ") or (const_m is None) != (const_u is None) or \
                (n and const_m[:n] != const_u[:n]):
            yield f"{name}: instruction {i}: {in_module}, {const_m} in the module, {in_user}, {const_u} in {user.path}"
            return


def main():
    module, users = Object(sys.argv[1]), [Object(p) for p in sys.argv[2:]]
    problems, seen = [], set()
    for user in users:
        for name in user.functions:
            seen.add(name)
            problems += differences(module, user, name) if name in module.functions else [f"{name} is not in the module"]
    problems += [f"{name} is in the module alone" for name in sorted(set(module.functions) - seen)]
    if len(seen) < 8:
        problems.append(f"only {len(seen)} functions found in {' '.join(sys.argv[2:]) or 'no objects'}")
    # It can tell one function from another.
    if len(seen) > 1:
        first, second = sorted(seen, key=lambda n: module.functions.get(n, {"size": 0})["size"])[-2:]
        if first in module.functions and second in module.functions and module.code(first) == module.code(second):
            problems.append(f"{first} and {second} are told to be the same")
    print("\n".join(problems) if problems else f"{len(seen)} functions, "
          f"{sum(len(module.code(n)) for n in seen)} instructions")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
