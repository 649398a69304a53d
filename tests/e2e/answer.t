#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Answers of the real model through sitsd and sits run: streamed, as JSON, stopped, refused, many at once."""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import BUILD, PATIENCE, Daemon, read_some, run_tests  # noqa: E402

QUESTION = "What is the capital of France? Answer in one sentence."


def question_is_answered_in_english(place):
    d = place.shared()
    p = d.run(QUESTION)
    assert p.returncode == 0, p.stderr
    assert "Paris" in p.stdout and p.stdout.endswith("\n"), p.stdout
    assert "tokens/s" in p.stderr and place.provider in p.stderr, p.stderr
    p = d.run("--quiet", QUESTION)
    assert p.returncode == 0 and p.stderr == "", p.stderr


def json_has_every_field_and_nothing_else_is_printed(place):
    d = place.shared()
    p = d.run("--json", "-n", "12", "--temp", "0.8", "--seed", "42", QUESTION)
    assert p.returncode == 0, p.stderr
    o = json.loads(p.stdout)
    assert p.stdout.count("\n") == 1
    assert o["completion_tokens"] <= 12 and o["prompt_tokens"] > 10
    assert o["provider"] == place.provider and o["model"] == "real" and o["seed"] == 42
    assert o["finish_reason"] in ("stop", "length")
    assert 0 < o["time_to_first_token_s"] <= o["total_s"]
    assert o["text"]
    # The same seed draws the same, another one something else at this temperature.
    long = ("-n", "40", "--temp", "1.5", "--ignore-eos")
    a, b, c = (d.run_json(*long, "--seed", s, QUESTION)["text"] for s in ("7", "7", "8"))
    assert d.run_json(*long, "--seed", "0", QUESTION)["seed"] > 0, "0 is a random one"
    assert a == b and a != c


def text_is_streamed_as_it_comes(place):
    d = place.shared()
    whole = d.run_json("-n", "300", "--ignore-eos", QUESTION)["text"].encode()
    p = d.popen("--quiet", "-n", "8000", "--ignore-eos", QUESTION)
    first = read_some(p.stdout)
    # The request is still running when its first text is here.
    assert d.info()["counters"]["active"] == 1
    text = first + read_some(p.stdout, len(whole) - len(first))
    assert text[:len(whole)] == whole, (text, whole)
    p.send_signal(signal.SIGINT)
    p.stdout.read()
    assert p.wait(PATIENCE) == 130
    d.wait_active(0)


def prompt_comes_from_standard_input_too(place):
    d = place.shared()
    want = d.run_json("-n", "8", QUESTION)
    for args, text in (("-",), QUESTION + "\n"), ((), QUESTION):
        got = d.run_json("-n", "8", *args, input=text)
        assert got["text"] == want["text"] and got["prompt_tokens"] == want["prompt_tokens"]


def raw_prompt_is_continued(place):
    d = place.shared()
    o = d.run_json("--raw", "-n", "8", "The capital of France is")
    assert "Paris" in o["text"], o
    assert o["prompt_tokens"] == 5, o
    # Control tokens are text, unless asked for.
    text = "<|im_start|>user\nHi<|im_end|>\n"
    a, b = d.run_json("--raw", "-n", "1", text), d.run_json("--raw-special", "-n", "1", text)
    assert a["prompt_tokens"] > b["prompt_tokens"] == 6, (a, b)


def system_message_changes_the_prompt(place):
    d = place.shared()
    a = d.run_json("-n", "1", "Hi")["prompt_tokens"]
    b = d.run_json("-n", "1", "--system", "You are a pirate who answers at length.", "Hi")["prompt_tokens"]
    assert a != b


def stop_strings_end_the_answer_and_are_not_in_it(place):
    d = place.shared()
    args = ("-n", "40", "--raw", "--ignore-eos", "One, two, three, four,")
    whole = d.run_json(*args)["text"]
    assert len(whole) > 20
    stop = whole[10:16]
    o = d.run_json("--stop", "never in there", "--stop", stop, *args)
    assert o["finish_reason"] == "stop"
    assert o["text"] == whole[:whole.index(stop)], (o["text"], whole, stop)


def sixteen_clients_get_what_one_alone_gets(place):
    d = place.shared()
    prompts = [f"{QUESTION} {'Be brief. ' * (i % 5)}" for i in range(16)]
    alone = {p: d.run_json("-n", "24", p) for p in set(prompts)}
    got = [None] * 16

    def ask(i):
        got[i] = d.run_json("-n", "24", prompts[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, p in enumerate(prompts):
        assert got[i] and got[i]["text"] == alone[p]["text"], (p, got[i], alone[p])
        assert got[i]["completion_tokens"] == alone[p]["completion_tokens"]


def too_long_prompt_is_refused_with_numbers(place):
    d = Daemon(place, place.real(), engine={"context": 64})
    p = d.run("word " * 200)
    assert p.returncode == 1 and p.stdout == ""
    assert "tokens; the context holds 64" in p.stderr, p.stderr
    for size in 100000, 2 << 20, (4 << 20) - 200:
        p = d.run("-", input="y" * size)
        assert p.returncode == 1 and f"{size} bytes; the context of 64 tokens" in p.stderr, p.stderr
    p = d.run("-", input="y" * (4 << 20))
    assert p.returncode == 1 and "larger than 4 MiB" in p.stderr, p.stderr
    assert d.run_json("-n", "2", "Hi")["completion_tokens"] == 2
    d.stop()


def answer_fills_the_context_and_no_more(place):
    d = Daemon(place, place.real(), engine={"context": 64})
    o = d.run_json("--ignore-eos", "--raw", "a")
    assert o["finish_reason"] == "length"
    assert o["prompt_tokens"] + o["completion_tokens"] == 64, o
    d.stop()


def wrong_usage_is_told_apart(place):
    d = place.shared()
    for args, words in (
            (("--temp", "x", "a"), "--temp"), (("--temp", "-1", "a"), "temperature"), (("--top-p", "0", "a"), "top_p"),
            (("--min-p", "1", "a"), "min_p"), (("--repeat-penalty", "0", "a"), "repeat_penalty"), (("-n", "-1", "a"), "--max-tokens"),
            (("--stop", "", "a"), "--stop"), (("--stop", "y" * 257, "a"), "--stop"), (("--class", "vip", "a"), "--class"),
            (("--seed", "x", "a"), "--seed"), (("--timeout", "0", "a"), "--timeout"), (("a", "b"), "one prompt"),
            (("--no-such", "a"), "--no-such"), (("--raw", "--system", "s", "a"), "--raw"), (("--provider", "x", "a"), "provider"),
    ):
        p = d.run(*args)
        assert p.returncode == 2 and words in p.stderr and p.stdout == "", (args, p)
    p = d.run(*["--stop=x"] * 17, "a")
    assert p.returncode == 2 and "--stop" in p.stderr
    p = d.run(b"caf\xe9 au lait", text=False)
    assert p.returncode == 1 and b"byte 3 (0xe9) is not UTF-8" in p.stderr, p
    p = d.run("--model", "another", "a")
    assert p.returncode == 1 and "model 'another' is not served here; 'real' is" in p.stderr, p
    # None of it reached or harmed the daemon.
    assert d.run_json("-n", "1", "a")["completion_tokens"] == 1


def info_tells_what_is_served(place):
    d = place.shared()
    before = d.wait_active(0)["counters"]
    d.run_json("-n", "3", "--ignore-eos", "Hi")
    i = d.wait_active(0)
    m = i["model"]
    assert (m["id"], m["version"], m["architecture"], m["chat_template"]) == ("real", 1, "llama", "smollm2"), m
    assert 134e6 < m["parameters"] < 135e6 and len(m["digest"]) == 64
    assert i["provider"] == place.provider and i["state"] == "serving" and i["pid"] == d.pid
    assert i["protection"]["sealed"] and i["protection"]["excluded_from_dumps"] and not i["protection"]["core_dumps"]
    assert i["protection"]["no_new_privileges"]
    assert i["counters"]["ended"]["length"] == before["ended"]["length"] + 1
    assert i["counters"]["completion_tokens"] == before["completion_tokens"] + 3
    p = place.sits("info", "--run-dir", d.run_dir)
    assert "Q4_1" in p.stdout and m["digest"] in p.stdout
    if place.provider == "user":
        p = place.sits("stat", "--json", "--provider", "user", "--run-dir", d.run_dir)
        [q] = json.loads(p.stdout)["sockets"]
        assert (q["name"], q["pid"], q["state"]) == ("infer", d.pid, "serving") and q["queue"]["depth"] > 0, q
        assert q["counters"]["completion_tokens"] >= before["completion_tokens"] + 3, q
        p = place.sits("stat", "--run-dir", d.run_dir)
        assert f"infer: sitsd {d.pid} serving; " in p.stdout, p.stdout


def reader_that_goes_away_ends_the_request(place):
    d = place.shared()
    p = d.popen("-n", "4000", "--ignore-eos", QUESTION)
    os.read(p.stdout.fileno(), 1)
    p.stdout.close()
    assert p.wait(PATIENCE) == 141 and p.stderr.read() == b""
    d.wait_active(0)
    with open("/dev/full", "w") as full:
        p = subprocess.run(d.client("-n", "4000", "--ignore-eos", QUESTION), stdout=full, stderr=subprocess.PIPE, text=True)
    assert p.returncode == 1 and "No space left" in p.stderr, p
    d.wait_active(0)


def terminal_gets_no_control_characters(place):
    d = Daemon(place, place.tiny())
    args = ("--quiet", "--raw", "--ignore-eos", "-n", "600", "--temp", "3", "--seed", "3", "x")
    piped = d.run(*args, text=False).stdout
    bad = [b for b in piped if (b < 0x20 and b not in (9, 10)) or b == 0x7f]
    assert bad, "the tiny model said no control character; choose another seed"
    pid, fd = pty.fork()
    if not pid:
        os.execv(d.client()[0], d.client(*args))
    shown = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            piece = b""
        if not piece:
            break
        shown += piece
    assert os.waitpid(pid, 0)[1] == 0
    shown = shown.replace(b"\r\n", b"\n")
    assert shown and not [b for b in shown if (b < 0x20 and b not in (9, 10)) or b == 0x7f], shown
    assert "\N{REPLACEMENT CHARACTER}".encode() in shown
    d.stop()


assert pathlib.Path(BUILD, "sitsd").exists(), f"{BUILD}/sitsd is not built"
run_tests(question_is_answered_in_english, json_has_every_field_and_nothing_else_is_printed, text_is_streamed_as_it_comes,
          prompt_comes_from_standard_input_too, raw_prompt_is_continued, system_message_changes_the_prompt,
          stop_strings_end_the_answer_and_are_not_in_it, sixteen_clients_get_what_one_alone_gets,
          too_long_prompt_is_refused_with_numbers, answer_fills_the_context_and_no_more, wrong_usage_is_told_apart,
          info_tells_what_is_served, reader_that_goes_away_ends_the_request, terminal_gets_no_control_characters)
