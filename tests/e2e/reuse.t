#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What sitsd does not compute twice: shared beginnings by user and tag, guessed tokens, a draft model; answers stay as they are."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import Daemon, run_tests  # noqa: E402
from tiny_gguf import tiny_gguf  # noqa: E402

PROMPT = "A text that is some pages long, since it is said again and again. " * 3
LONG = ("--raw", "--ignore-eos", "-n", "40")


def equal_beginnings_are_computed_once(place):
    d = Daemon(place, place.tiny())
    first, second, tagged, again = (d.run_json(*LONG, *tag, PROMPT) for tag in ((), (), ("--tag", "a"), ("--tag", "a")))
    assert first["cached_tokens"] == 0 and tagged["cached_tokens"] == 0, (first, tagged)
    # All full pages, and most of what was begun.
    assert second["cached_tokens"] >= (len(PROMPT) - 1) // 32 * 32 and again["cached_tokens"] == second["cached_tokens"]
    assert first["text"] == second["text"] == tagged["text"] == again["text"]
    e = d.info()["engine"]
    assert e["prefix_cache_hits"] == 2 * second["cached_tokens"] and e["prefix_cache_queries"] == 4 * len(PROMPT), e
    assert e["kv_pages_used"] == 0 and e["kv_pages_cached"] > 0, e
    d.stop()


def without_a_cache_nothing_outlives_a_request(place):
    d = Daemon(place, place.tiny(), engine={"prefix_cache": "off"})
    a, b = (d.run_json(*LONG, PROMPT) for _ in range(2))
    assert a["cached_tokens"] == b["cached_tokens"] == 0 and a["text"] == b["text"]
    e = d.info()["engine"]
    assert e["kv_pages_cached"] == e["kv_pages_used"] == e["prefix_cache_queries"] == 0, e
    d.stop()


def guesses_change_no_answer(place):
    model = place.tiny()
    # A model that guesses needs no chat template.
    tiny_gguf(place.path("draft.gguf"), chat=None)
    draft = place.seal(place.path("draft.gguf"), "draft.sits", "draft")
    ways = {"off": {"speculation": "off"}, "lookup": {"speculation": "lookup"}, "draft": {"speculation": "draft"}}
    got = {}
    for name, engine in ways.items():
        d = Daemon(place, model, engine=engine, model={"draft_path": draft} if name == "draft" else {})
        got[name] = [d.run_json(*LONG, *more, PROMPT)["text"] for more in ((), ("--temp", "0.7", "--seed", "3"))]
        e = d.info()["engine"]
        if name == "draft":
            # The same model: it is right, but for what lies behind an end.
            assert e["draft_tokens"] > 0 and e["draft_accepted"] == e["draft_tokens"], e
            assert "chat requests" not in d.log(), d.log()
        elif name == "off":
            assert e["draft_tokens"] == 0, e
        before = e["draft_tokens"]
        assert d.run_json(*LONG, "--no-speculation", PROMPT)["text"] == got[name][0]
        assert d.info()["engine"]["draft_tokens"] == before
        d.stop()
    assert got["off"] == got["lookup"] == got["draft"], got


def a_draft_model_must_be_there_and_be_asked_for(place):
    for model, engine, words in (({}, {"speculation": "draft"}, "model.draft_path"),
                                 ({"draft_path": "/x"}, {"speculation": "off"}, "model.draft_path"),
                                 ({"draft_path": "/nowhere.sits"}, {"speculation": "draft"}, "error: model.draft_path /nowhere.sits: No such file")):
        d = Daemon(place, place.tiny(), wait=False, model=model, engine=engine)
        status, log = d.start_fails()
        assert status in (1, 2) and words in log, log


def a_tag_that_does_not_fit_is_refused(place):
    for tag, n in (("", 0), ("x" * 65, 65), ("\u00e9" * 33, 66)):
        p = place.sits("run", "--tag", tag, "x", check=False)
        assert p.returncode == 2 and f"--tag: has {n} bytes; 1 to 64" in p.stderr, p


def keys_and_values_in_bytes_serve_too(place):
    half, small = (Daemon(place, place.tiny(), engine={"kv_type": t}) for t in ("f16", "int8"))
    for d in (half, small):
        assert len(d.run_json(*LONG, PROMPT)["text"]) > 0
    a, b = (d.info()["engine"]["kv_page_bytes"] for d in (half, small))
    assert b < a * 0.75, (a, b)
    half.stop()
    small.stop()


def heads_keep_a_part_where_that_is_asked_for(place):
    model = place.tiny()
    got = {}
    for keep in (0, 64, 256):
        d = Daemon(place, model, engine={"kv_keep": keep})
        got[keep] = [d.run_json(*LONG, "--temp", "2", "--seed", "3", *more, PROMPT)["text"]
                     for more in ((), (), ("--no-speculation",))]
        e = d.info()["engine"]
        assert e["kv_keep"] == keep and (e["kv_pages_given_up"] > 0) == (keep == 64) and e["kv_pages_used"] == 0, e
        assert ("keeps 64 tokens" in place.sits("info", "--run-dir", d.run_dir).stdout) == (keep == 64)
        d.stop()
    # Whoever begins alike and however it guesses, an answer is the same.
    assert all(len(set(texts)) == 1 for texts in got.values()), got
    assert got[0] == got[256], got
    d = Daemon(place, model, wait=False, engine={"kv_keep": 63})
    status, log = d.start_fails()
    assert status in (1, 2) and "engine.kv_keep: 63 is less than 64 tokens" in log, log


run_tests(equal_beginnings_are_computed_once, without_a_cache_nothing_outlives_a_request, guesses_change_no_answer,
          a_draft_model_must_be_there_and_be_asked_for, a_tag_that_does_not_fit_is_refused, keys_and_values_in_bytes_serve_too,
          heads_keep_a_part_where_that_is_asked_for)
