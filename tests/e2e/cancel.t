#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Requests that end early, on the real model: Ctrl-C, time-outs, during the prompt and the answer, with others unharmed."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import PATIENCE, read_some, run_tests  # noqa: E402

# About 6000 tokens: many steps of prefill.
LONG = "The quick brown fox jumps over the lazy dog while seven wizards mix potions. " * 350
QUESTION = "What is the capital of France? Answer in one sentence."


def ctrl_c_ends_the_answer_and_frees_at_once(place):
    d = place.shared()
    before = d.wait_active(0)["counters"]["ended"]["cancelled"]
    p = d.popen("-n", "8000", "--ignore-eos", QUESTION)
    read_some(p.stdout)
    p.send_signal(signal.SIGINT)
    assert p.wait(PATIENCE) == 130
    assert b"(cancel, " in p.stderr.read()
    i = d.wait_active(0)
    assert i["counters"]["ended"]["cancelled"] == before + 1
    assert i["queue"]["pending"] <= 1  # the question itself


def ctrl_c_with_json_gives_what_had_come(place):
    import json
    d = place.shared()
    p = d.popen("--json", "-n", "8000", "--ignore-eos", QUESTION)
    d.wait_running(1)
    generated = d.info()["engine"]["generated_tokens"]
    while d.info()["engine"]["generated_tokens"] < generated + 5:
        pass
    p.send_signal(signal.SIGINT)
    out = p.stdout.read()
    assert p.wait(PATIENCE) == 130
    o = json.loads(out)
    assert o["finish_reason"] == "cancel" and o["text"] and o["completion_tokens"] >= 5
    d.wait_active(0)


def ctrl_c_during_prefill_frees_at_once(place):
    d = place.shared()
    d.wait_active(0)
    done = d.info()["engine"]["generated_tokens"]
    p = d.popen("-n", "4", "-", stdin=open(write(place, LONG)))
    i = d.wait_running(1)
    p.send_signal(signal.SIGINT)
    assert p.wait(PATIENCE) == 130
    assert p.stdout.read().strip() == b""
    i = d.wait_active(0)
    # It was the prompt that was cut short: no token of it was ever drawn.
    assert i["engine"]["generated_tokens"] == done


def write(place, text):
    path = place.path("prompt.txt")
    with open(path, "w") as f:
        f.write(text)
    return path


def timeout_ends_it_with_status_1(place):
    d = place.shared()
    p = d.run("--timeout", "0.3", "-n", "8000", "--ignore-eos", QUESTION)
    assert p.returncode == 1 and "not done within the time given" in p.stderr, p
    d.wait_active(0)


def killed_client_is_noticed_in_prefill(place):
    d = place.shared()
    p = d.popen("-n", "4", "-", stdin=open(write(place, LONG)))
    d.wait_running(1)
    p.kill()
    p.wait()
    d.wait_active(0)


def others_are_not_harmed_by_a_cancel(place):
    d = place.shared()
    want = d.run_json("-n", "40", QUESTION)
    doomed = [d.popen("-n", "8000", "--ignore-eos", f"{QUESTION} {i}") for i in range(4)]
    for p in doomed:
        read_some(p.stdout)
    keeper = d.popen("--json", "--quiet", "-n", "40", QUESTION)
    for i, p in enumerate(doomed):
        p.send_signal(signal.SIGINT if i % 2 else signal.SIGKILL)
    for i, p in enumerate(doomed):
        assert p.wait(PATIENCE) == (130 if i % 2 else -signal.SIGKILL)
    import json
    got = json.loads(keeper.stdout.read())
    assert keeper.wait(PATIENCE) == 0 and got["text"] == want["text"]
    d.wait_active(0)


run_tests(ctrl_c_ends_the_answer_and_frees_at_once, ctrl_c_with_json_gives_what_had_come, ctrl_c_during_prefill_frees_at_once,
          timeout_ends_it_with_status_1, killed_client_is_noticed_in_prefill, others_are_not_harmed_by_a_cancel)
