#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A safetensors model through sitsd and sits run, sealed as a directory, or made a GGUF by sits quantize: the answers of the same
model as a GGUF."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import Daemon, run_tests  # noqa: E402

MODELS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "arch" / "models.py"
PROMPTS = ("ab", "what is it?", "x" * 60)


def make(place, name):
    """NAME/ and NAME.gguf of random weights, once for each place."""
    if not os.path.exists(place.path(f"{name}.gguf")):
        subprocess.run([sys.executable, "-B", str(MODELS), str(place.dir), name], check=True, stdout=subprocess.DEVNULL)
    return place.path(name), place.path(f"{name}.gguf")


def answers(d):
    return [d.run_json("--raw", "--temp", "0", "-n", "12", "--ignore-eos", p)["text"] for p in PROMPTS]


def directory_answers_as_the_gguf_does(place):
    # No row of this architecture is reordered in a GGUF, so both compute the same, bit for bit.
    for name in ("qwen3", "qwen3moe"):
        directory, gguf = make(place, name)
        one = Daemon(place, place.seal(gguf, f"{name}-gguf.sits", name), name=f"{name}-gguf")
        want = answers(one)
        one.stop()
        two = Daemon(place, place.seal(directory, f"{name}-dir.sits", name, 4), name=f"{name}-dir")
        assert answers(two) == want, name
        model = two.info()["model"]
        assert (model["id"], model["version"], model["architecture"]) == (name, 4, name), model
        two.stop()
        made = place.path(f"{name}-made.gguf")
        place.sits("quantize", "--quiet", "--force", "--type", "keep", directory, made)
        three = Daemon(place, place.seal(made, f"{name}-made.sits", name), name=f"{name}-made")
        assert answers(three) == want, name
        three.stop()


def directory_of_mixed_files_is_not_served(place):
    directory, _ = make(place, "qwen3")
    a = place.seal(directory, "a.sits", "m", 2)
    b = place.seal(directory, "b.sits", "m", 2)
    shutil.copy(os.path.join(b, "config.json.sits"), os.path.join(a, "config.json.sits"))
    d = Daemon(place, a, wait=False)
    d.start_fails()
    assert "config.json.sits: has another digest than manifest.sits says" in d.log(), d.log()


run_tests(directory_answers_as_the_gguf_does, directory_of_mixed_files_is_not_served)
