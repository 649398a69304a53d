#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""man/sits.4 against the modules' sources: parameters, counters, tracepoints, fdinfo and requests are described there, all of
them, and nothing that is not there is."""
import pathlib
import re
import sys

results = []
SOURCES = sorted(pathlib.Path("kmod").glob("*.[ch]"))
CODE = "\n".join(re.sub(r"/\*.*?\*/", "", p.read_text(), flags=re.S) for p in SOURCES)
TRACE = pathlib.Path("kmod/trace.h").read_text()
STATS = pathlib.Path("kmod/stats.c").read_text()
UAPI = pathlib.Path("include/uapi/linux/sits.h").read_text()
MAN = pathlib.Path("man/sits.4").read_text().replace("\\-", "-")


def check(name, problems):
    problems = list(problems)
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        print("#", p)


def section(title):
    m = re.search(rf"^\.SH {title}\n(.*?)(?=^\.SH |\Z)", MAN, re.M | re.S)
    return m[1] if m else ""


def items(title):
    """Names of a section's paragraphs with a tag."""
    return re.findall(r"^\.TP\n\.[BI] (\S+)$", section(title), re.M)


def same(what, in_code, title, at_least):
    described = items(title)
    yield from (f"{what} {n} is not described in {title} of man/sits.4" for n in sorted(set(in_code) - set(described)))
    yield from (f"{what} {n} of man/sits.4 is not in kmod/" for n in sorted(set(described) - set(in_code)))
    yield from (f"{what} {n} is described twice" for n in sorted({n for n in described if described.count(n) > 1}))
    if len(set(in_code)) < at_least:
        yield f"only {len(set(in_code))} found in the sources: has their form changed?"


parameters = re.findall(r"^\s*module_param(?:_named)?\(\s*(\w+)", CODE, re.M)
check("module parameters", same("parameter", parameters, "MODULE PARAMETERS", 3))
# Each has one line in modinfo that says what the page says of its default.
check("module parameters have a description", (f"no MODULE_PARM_DESC of {p}" for p in parameters
                                               if not re.search(rf"MODULE_PARM_DESC\(\s*{p},", CODE)))

counters = re.findall(r"^\s*&dev_attr_(\w+)\.attr,", STATS, re.M)
check("counters", same("counter", counters, "COUNTERS", 7))
declared = re.findall(r"^SITS_STAT_ATTR\((\w+)\);|^static DEVICE_ATTR_\w+\((?!name\))(\w+)", STATS, re.M)
declared = [a or b for a, b in declared]
check("every counter that is declared is in the list of attributes",
      (f"{n} is not" for n in sorted(set(declared) ^ set(counters))))

events = re.findall(r"^DEFINE_EVENT\w*\(\s*\w+,\s*(\w+)|^TRACE_EVENT\w*\(\s*(\w+)", TRACE, re.M)
events = [a or b for a, b in events]
check("tracepoints", same("tracepoint", events, "TRACEPOINTS", 10))
check("every tracepoint is used", (f"trace_{e}() is called nowhere" for e in events if not re.search(rf"\btrace_{e}\(", CODE)))

keys = re.findall(r'seq_printf\(\w+,\s*"(sits-[a-z-]+):', CODE) + re.findall(r'seq_puts\(\w+,\s*"(sits-[a-z-]+):', CODE)
check("fdinfo", same("key", keys, "FDINFO", 9))

requests = re.findall(r"^#define (SITS_IOC_\w+)\s+_IO", UAPI, re.M)
served = {r for r in requests if re.search(rf"\b{r}\b", CODE)}
check("requests that the module serves", [*(f"{r} is not in man/sits.4" for r in sorted(served) if not re.search(rf"\b{r}\b", MAN)),
                                          *([] if len(served) > 6 else [f"only {len(served)} found"])])
named = set(re.findall(r"\bSITS_(?:IOC|KIND|CREATE|SEAL|IMPORT|DMA|LOAD|REGION|FEATURE|FETCH|COMMIT|RECV|CHUNK|EV|BAD)_[A-Z_]*[A-Z]\b", MAN))
check("names of man/sits.4 are in the interface", (f"{n} is not" for n in sorted(named) if not re.search(rf"\b{n}\b", UAPI)))

# The page that says how it is built lists all sources, and the tests in the guest.
PAGE = pathlib.Path("docs/kernel-module.md").read_text()
for what, files in (("source", SOURCES), ("test", sorted(pathlib.Path("tests/vm/guest").glob("*_test.c")))):
    check(f"every {what} is in docs/kernel-module.md", (f"{f} is not" for f in files if f.suffix == ".c" and f"`{f.name}`" not in PAGE))
gone = (n for n in sorted(set(re.findall(r"`(\w+_test\.c)`", PAGE)))
        if not any(pathlib.Path(d, n).exists() for d in ("tests/vm/guest", "tests/abi")))
check("every test of that page exists", (f"{n} does not" for n in gone))

print(f"1..{len(results)}")
sys.exit(not all(results))
