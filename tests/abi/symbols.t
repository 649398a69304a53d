#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The shared library exports what libsits.map lists, and that is what the public headers declare."""
import os
import pathlib
import re
import subprocess

BUILD = os.environ.get("BUILD", "build/gcc")
results = []


def check(name, problems):
    problems = sorted(problems)
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        print("#", p)


def declared():
    """Functions that the preprocessed headers declare, by asking the compiler for the text of sits/ alone."""
    names = set()
    for header in pathlib.Path("include/sits").glob("*.h"):
        text = subprocess.run(["gcc", "-E", "-P", "-x", "c", "-Iinclude", "-"], input=f'#include "sits/{header.name}"\n',
                              capture_output=True, text=True, check=True).stdout
        # Parameters may hold one level of parentheses: callbacks.
        names |= set(re.findall(r"\b(sits_\w+)\s*\((?:[^()]|\([^()]*\))*\)\s*;", text))
    return names


def exported(lib):
    out = subprocess.run(["nm", "-D", "--defined-only", lib], capture_output=True, text=True, check=True).stdout
    symbols = {}
    for line in out.splitlines():
        kind, name = line.split()[-2:]
        symbols[name] = kind
    return symbols


lib = f"{BUILD}/libsits.so"
symbol_map = pathlib.Path("libsits/libsits.map").read_text()
symbol_map = re.sub(r"#.*", "", symbol_map)
stanzas = re.findall(r"^(SITS_[\d.]+)", symbol_map, re.M)
mapped = set(re.findall(r"^\s+(sits_\w+);", symbol_map, re.M))
symbols = exported(lib)
versions = {n for n in symbols if n in stanzas}
functions = {n.split("@")[0] for n in symbols if n not in stanzas}
functions = {f for f in functions if not re.match(r"(_?_asan|__ubsan|__sanitizer|__odr_asan)", f)}

check("the map has a stanza for this release", [] if stanzas else ["none found"])
check("headers and map agree", [f"declared, not in the map: {n}" for n in declared() - mapped]
      + [f"in the map, not declared: {n}" for n in mapped - declared()])
check("library and map agree", [f"in the map, not exported: {n}" for n in mapped - functions]
      + [f"exported, not in the map: {n}" for n in functions - mapped])
check("only functions are exported", [f"{n} is {k}" for n, k in symbols.items() if k != "T" and n not in stanzas
                                      and n.split("@")[0] in mapped])
check("every export has a version", [n for n in symbols if n not in stanzas and "@" not in n and n in mapped])

out = subprocess.run(["readelf", "-dW", lib], capture_output=True, text=True, check=True).stdout
soname = re.search(r"SONAME.*\[(.*)\]", out)
check("the soname carries the major version", [] if soname and soname.group(1) == "libsits.so.0" else [out])
needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
allowed = re.compile(r"lib(c|m|uring|keyutils|pthread|asan|ubsan|clang_rt.*)\.so.*|ld-linux.*")
check("no dependency but the documented ones", [n for n in needed if not allowed.match(n)])

# The library never prints and never exits: it does not even know how.
out = subprocess.run(["nm", "-D", "--undefined-only", lib], capture_output=True, text=True, check=True).stdout
undefined = {line.split()[-1].split("@")[0] for line in out.splitlines()}
forbidden = {"exit", "_exit", "quick_exit", "printf", "puts", "putchar", "perror", "stdout", "syslog", "system", "popen"}
check("the library neither prints nor exits", undefined & forbidden)

# libsits.a brings its own names only: all of them begin with the prefix.
out = subprocess.run(["nm", "-g", "--defined-only", f"{BUILD}/libsits.a"], capture_output=True, text=True, check=True).stdout
names = {line.split()[-1] for line in out.splitlines() if len(line.split()) == 3}
check("every global name begins with sits_", [n for n in names if not n.startswith("sits_") and not n.startswith("__")])

# The kernels' library: the same, with its own prefix, map and header.
lib = f"{BUILD}/libsits-kernels.so"
symbol_map = re.sub(r"#.*", "", pathlib.Path("kernels/libsits-kernels.map").read_text())
mapped = set(re.findall(r"^\s+(dcu_\w+);", symbol_map, re.M))
text = subprocess.run(["gcc", "-E", "-P", "-x", "c", "-Iinclude", "-"], input='#include "sits/dcu.h"\n', capture_output=True,
                      text=True, check=True).stdout
header = set(re.findall(r"\b(dcu_\w+)\s*\([^()]*\)\s*;", text))
symbols = exported(lib)
functions = {n.split("@")[0]: k for n, k in symbols.items() if n.startswith("dcu_") or n.startswith("sits_")}
check("kernels: header, map and library agree", [f"{n}: not in all three" for n in (mapped | header | set(functions))
                                                if n not in mapped or n not in header or functions.get(n) != "T"])
check("kernels: every export has a version", [n for n in symbols if n.startswith("dcu_") and "@" not in n])
out = subprocess.run(["readelf", "-dW", lib], capture_output=True, text=True, check=True).stdout
soname = re.search(r"SONAME.*\[(.*)\]", out)
check("kernels: the soname carries the major version", [] if soname and soname[1] == "libsits-kernels.so.0" else [out])
check("kernels: no dependency but the documented ones", [n for n in re.findall(r"NEEDED.*\[(.*)\]", out) if not allowed.match(n)])
out = subprocess.run(["nm", "-D", "--undefined-only", lib], capture_output=True, text=True, check=True).stdout
check("kernels: the library neither prints nor exits", {line.split()[-1].split("@")[0] for line in out.splitlines()} & forbidden)
print(f"1..{len(results)}")
