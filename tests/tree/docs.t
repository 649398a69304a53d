#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the documentation says is there, is there: flags of --help and man pages agree, man pages are well
formed, links between documents and the make targets that they name exist."""
import os
import pathlib
import re
import subprocess
import sys

BUILD = os.environ.get("BUILD", "build/gcc")
results = []


def check(name, problems):
    problems = list(problems)
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        print("#", p)


def run(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr


def flags(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def man_text(page):
    text = pathlib.Path(page).read_text()
    return text.replace("\\-", "-").replace("\\(hy", "-")


def man_flags(page):
    # mdoc writes "--json" as "Fl -json".
    text = man_text(page)
    mdoc = {f"--{f.removeprefix('-')}" for f in re.findall(r"Fl (-[a-z][a-z0-9-]+)", text)}
    return mdoc | flags(text)


pages = sorted(pathlib.Path("man").glob("*.[1-8]"))
check("there are man pages", [] if len(pages) > 10 else [f"{len(pages)} only"])

problems = []
for page in pages:
    _, out, err = run("mandoc", "-T", "lint", "-W", "warning", str(page))
    problems += [line for line in (out + err).splitlines() if ": ERROR:" in line or ": WARNING:" in line
                 or ": UNSUPP:" in line]
check("man pages are well formed", problems)

_, out, _ = run(f"{BUILD}/sits", "--help")
commands = re.findall(r"^  ([a-z]+) {2,}\S", out, re.M)
have = {p.stem.removeprefix("sits-") for p in pages if p.match("sits-*.1")}
check("sits --help lists the subcommands that there are man pages of",
      [f"{c} is in {'--help' if c in commands else 'man/'} alone" for c in sorted(have ^ set(commands))])

problems = []
programs = [([f"{BUILD}/sits", c], f"man/sits-{c}.1") for c in commands] + [([f"{BUILD}/sitsd"], "man/sitsd.8")]
for cmd, page in programs:
    rc, out, err = run(*cmd, "--help")
    if rc or not out.startswith("usage: ") or err:
        problems.append(f"{' '.join(cmd)} --help: exit {rc}, {len(out)} bytes on standard output, {len(err)} on standard error")
        continue
    if not os.path.exists(page):
        problems.append(f"{page} is missing")
        continue
    for f in sorted(flags(out) ^ man_flags(page)):
        where = "--help" if f in flags(out) else page
        problems.append(f"{' '.join(cmd[1:]) or 'sitsd'}: {f} is in {where} alone")
check("--help and man pages name the same flags", problems)

problems = []
for cmd, _ in programs:
    rc, _, err = run(*cmd, "--no-such-flag")
    if rc != 2 or "no-such-flag" not in err:
        problems.append(f"{' '.join(cmd)} --no-such-flag: exit {rc}: {err!r}")
check("unknown flags are refused by name with exit status 2", problems)

problems = []
tracked = run("git", "ls-files", "*.md")[1].split()
for md in tracked:
    text = pathlib.Path(md).read_text()
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        if not (pathlib.Path(md).parent / target).exists():
            problems.append(f"{md}: link to {target}, which does not exist")
    for path in re.findall(r"`((?:crypto|daemon|docs|include|kernels|kmod|libsits|man|packaging|scripts|tests|tools)"
                           r"/[\w./-]+)`", text):
        # tools/sits/cmd_NAME.c and the like stand for many.
        if not re.search(r"[A-Z]{3,}", path.replace("README", "")) and not os.path.exists(path) and not list(pathlib.Path().glob(path)):
            problems.append(f"{md}: names {path}, which does not exist")
check("links and paths in documents exist", problems)

problems = []
for md in tracked:
    for target in re.findall(r"`make ([a-z][a-z0-9-]*)", pathlib.Path(md).read_text()):
        if run("make", "-n", "-q", target)[0] == 2:
            problems.append(f"{md}: make {target}: no such target")
check("make targets in documents exist", problems)

# What `make help` names for a target to take must be no name of the build's own: it would be overridden, and a file of that name made.
problems = []
text = run("make", "-s", "help")[1]
names = sorted(set(re.findall(r"\b([A-Z_]+)=", text.partition("\nVariables:")[0])))
for name in names if len(names) > 5 else ["none"]:
    out = run("make", "-pnq", "help", f"{name}=/sits-probe")[1]
    if f"{name} = /sits-probe" not in out.splitlines():
        problems.append(f"make: {name} was not seen")
    problems += [f"make {name}=: {line[:100]}" for line in out.splitlines() if re.search(r"^[^#\t]*/sits-probe.*:(?!=)", line)]
check("variables that make help names are used for nothing else", problems)

print(f"1..{len(results)}")
sys.exit(not all(results))
