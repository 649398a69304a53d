#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/run counts what programs print, and of one that fails it shows why, wherever in its output that is."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, "tests")
sys.dont_write_bytecode = True
from excerpt import excerpt  # noqa: E402

results = []


def check(name, good, detail=""):
    results.append(bool(good))
    print(f"{'ok' if good else 'not ok'} {len(results)} - {name}")
    if not good:
        for line in str(detail).splitlines():
            print("#", line)


def run(script):
    """Of a program that prints what @script says: what tests/run says of it."""
    with tempfile.TemporaryDirectory(prefix="sits-runner-") as tmp:
        path = os.path.join(tmp, "fake")
        with open(path, "w") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        p = subprocess.run(["tests/run", "-o", tmp, path], capture_output=True, text=True)
        return p.returncode, p.stdout


many = [f"ok {i} - fine" for i in range(1, 301)]
check("a short output is shown whole", excerpt(many[:60], 60) == many[:60])
lines = [*many[:10], "not ok 11 - bad", "# because", *many]
got = excerpt(lines, 60)
check("a long one without what passed, and with its end", got == ["not ok 11 - bad", "# because", *many[-20:]], got)
check("lines of a guest's test count the same", "#   # because" in excerpt([f"#   {line}" for line in lines], 60))
got = excerpt([f"# {i}" for i in range(1000)], 60)
check("no more than asked for: the first and the last", len(got) == 60 and got[0] == "# 0" and got[39:41] == ["# 979", "# 980"]
      and got[-1] == "# 999", got)

rc, text = run("echo not ok 1 - bad; echo '# because'; seq -f 'ok %g - fine' 2 300; echo 1..300")
check("a failure fails", rc == 1 and text.endswith("299 passed, 1 failed, 0 skipped\n"), text)
check("and its reason is shown, though much passed after it", "| # because" in text and "ok 100 " not in text, text)
rc, text = run("echo 1..2; echo ok 1 - fine; echo '# skip: no disk'; echo 'ok 2 # SKIP two'")
check("a skip is no pass, and has its reason", rc == 0 and ": two: no disk" in text
      and text.endswith("1 passed, 0 failed, 1 skipped\n"), text)
for script, words in {"echo 1..2; echo ok 1": "planned 2 tests, ran 1", "echo ok 1": "printed no TAP plan",
                      "echo 1..1; echo ok 1; exit 3": "exit status 3", "echo 1..1; echo ok 1; kill -9 $$": "killed by SIGKILL",
                      "echo 1..1; echo ok 1; echo 'Bail out! no disk'": "Bail out! no disk"}.items():
    rc, text = run(script)
    check(f"a program fails that does: {script}", rc == 1 and words in text, text)


def alongside(says, patience):
    """Of two programs that wait @patience seconds for each other, with @says in their first lines: what tests/run says of them."""
    with tempfile.TemporaryDirectory(prefix="sits-runner-") as tmp:
        paths = [os.path.join(tmp, f"fake{i}") for i in range(2)]
        for i, path in enumerate(paths):
            os.mkfifo(f"{path}.here")
            with open(path, "w") as f:
                f.write(f"#!/bin/bash\n# {says}\necho 1..1\n"
                        f"echo >{path}.here & timeout {patience} cat {paths[1 - i]}.here && wait && echo ok 1\n")
            os.chmod(path, 0o755)
        p = subprocess.run(["tests/run", "-o", tmp, *paths], capture_output=True, text=True)
        return p.returncode, p.stdout


rc, text = alongside("side by side", 60)
check("scripts that say so run at the same time", rc == 0 and text.endswith("2 passed, 0 failed, 0 skipped\n"), text)
rc, text = alongside("nothing of that kind", 0.1)
check("and others one after the other", rc == 1 and "2 passed" not in text, text)
print(f"1..{len(results)}")
sys.exit(not all(results))
