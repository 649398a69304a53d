#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The main job, and the commands before it, where a stack may have 64 KiB (ulimit -s): what computes brings a stack of its own, and
no function of the others has much on theirs."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import e2e  # noqa: E402
from e2e import Daemon, Skip, run_tests  # noqa: E402
from tiny_gguf import tiny_gguf  # noqa: E402

SMALL_KIB = 64
MODELS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "arch" / "models.py"


def small(place, name):
    """A program of the build, started with such a limit."""
    script = pathlib.Path(place.path(f"small-{name}"))
    script.write_text(f'#!/bin/sh\nulimit -s {SMALL_KIB}\nexec "{e2e.BUILD}/{name}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def main_job_with_a_small_stack(place):
    if e2e.SANITIZED:
        raise Skip("sanitizers need more of a stack")
    directory, text = place.path("qwen3moe"), place.path("text")
    subprocess.run([sys.executable, "-B", str(MODELS), str(place.dir), "qwen3moe"], check=True, stdout=subprocess.DEVNULL)
    pathlib.Path(text).write_text("It was the best of times, it was the worst of times. " * 30)
    tiny_gguf(place.path("tiny.gguf"), embd=256, ff=512)
    e2e.SITS, e2e.SITSD = small(place, "sits"), small(place, "sitsd")
    # Products of many rows, of quantised weights: those have the most on the stack.
    place.sits("quantize", "--quiet", "--type", "q4_0", "--perplexity", text, place.path("tiny.gguf"), place.path("q4.gguf"))
    place.sits("quantize", "--quiet", "--type", "awq-int8", "--calibration", text, "--dense", place.path("tiny.gguf"), place.path("awq.gguf"))
    place.sits("pack", "--quiet", place.path("q4.gguf"), place.path("packed.gguf"))
    for sealed in (place.seal(place.path("packed.gguf"), "packed.sits", "m"), place.seal(directory, "dir.sits", "m")):
        place.sits("verify", "--key", place.key, sealed)
        place.sits("inspect", "--key", place.key, sealed)
        d = Daemon(place, sealed)
        assert d.run_json("--raw", "--temp", "0", "-n", "8", "--ignore-eos", "x" * 300)["completion_tokens"] == 8
        d.info()
        d.stop()
    place.sits("key", "new", f"file:{place.path('new')}")
    place.sits("rekey", "--reseal", "--key", place.key, "--new-key", f"file:{place.path('new')}", place.path("packed.sits"))
    p = place.sits("seal", "--key", place.key, directory, place.path("dir.sits"), check=False)
    assert p.returncode == 1 and "--force replaces a sealed directory" in p.stderr, p


run_tests(main_job_with_a_small_stack)
