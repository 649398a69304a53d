#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The SM4 benchmark runs, with every mode on every core, and its lines are what tests/bench/run reads. Nothing is measured."""
import json
import os
import subprocess
import sys

PROGRAM = f"{os.environ.get('BUILD', 'build/gcc')}/tests/bench/sm4_bench"
MODES = ["sm4-ctr", "sm4-gcm", "sm4-ecb", "sm4-cbc-dec", "sm4-xts"]
results = []


def check(name, problems):
    problems = list(problems)
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        print("#", p)


def run(*args):
    p = subprocess.run([PROGRAM, *args], capture_output=True, text=True)
    return p.returncode, p.stdout, p.stderr


if not os.path.exists(PROGRAM):
    print(f"1..0 # SKIP {PROGRAM} is not built")
    sys.exit(0)

rc, out, err = run("--smoke")
check("it runs to its end", [] if rc == 0 else [f"exit status {rc}", *err.splitlines()])
lines = [json.loads(line) for line in out.splitlines()]
names = [r["name"] for r in lines]
check("each name comes once", {n for n in names if names.count(n) > 1})
check("every mode is there, in each length", [n for m in MODES for n in [m, *(f"{m}-{s}" for s in (16, 64, 256, 1024, 4096))]
                                              if n not in names])
check("the long runs are there", {"sm4-ctr-256m", "sm4-ctr-256m-in-place", "sm4-gcm-256m", "sm4-gcm-256m-in-place"} - set(names))
check("keys are measured, too", {"sm4-ctr-rekey-64", "sm4-gcm-rekey-64"} - set(names))
cores = [n.removeprefix("sm4-ctr-") for n in names if n.startswith("sm4-ctr-") and not n[len("sm4-ctr-")].isdigit()
         and "rekey" not in n]
check("the portable core is among the cores", [] if "portable" in cores else [cores])
check("every mode is there on each core", [f"{m}-{c}" for m in MODES for c in cores if f"{m}-{c}" not in names])
check("every line has its fields", [r for r in lines if not (r["value"] > 0 and r["unit"] and r["threads"] == 1
                                                             and (r["ratio"] is None or r["ratio"] > 0))])
check("bytes come with cycles", [r for r in lines if r["unit"] == "GB/s" and not r["cycles_per_byte"] > 0])

rc, out, _ = run("--smoke", "--core", "portable", "sm4-xts-4096")
some = [json.loads(line)["name"] for line in out.splitlines()]
check("a prefix picks lines", [] if rc == 0 and some == ["sm4-xts-4096"] else [rc, *some])
rc, out, err = run("--smoke", "--core", "abacus")
check("an unknown core is refused, and the known are named",
      [] if rc == 2 and "abacus" in err and "portable" in err and not out else [rc, out, err])
rc, out, err = run("--smoke", "sm4-rot13")
check("a prefix that nothing has is refused", [] if rc == 1 and "sm4-rot13" in err and not out else [rc, out, err])
print(f"1..{len(results)}")
sys.exit(not all(results))
