#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sitsd from start to end: readiness, refusals to start, drain, reload, locks. On a tiny model of random weights."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import ENDLESS, PATIENCE, SITS, SITSD, Daemon, Skip, read_some, run_tests, wait_for  # noqa: E402


def sitsd(*args):
    return subprocess.run([SITSD, *args], capture_output=True, text=True)


def options_are_checked(place):
    p = sitsd("--version")
    assert p.returncode == 0 and p.stdout.startswith("sitsd "), p
    p = sitsd("--help")
    assert p.returncode == 0 and "--config" in p.stdout, p
    for args, words in (("--nope",), "nope"), (("x",), "unexpected argument 'x'"), (("--ready-fd", "99"), "not an open descriptor"), \
            (("--set", "novalue"), "KEY=VALUE"):
        p = sitsd(*args)
        assert p.returncode == 2 and words in p.stderr, p


def check_names_file_line_and_key(place):
    path = place.path("bad.yaml")
    pathlib.Path(path).write_text("model:\n  path: /x\n  key: file:/y\nqueue:\n  depth: lots\n  nmae: q\n")
    p = sitsd("--config", path, "--check")
    assert p.returncode == 2 and f"{path}:6: queue.nmae: unknown key" in p.stderr, p
    pathlib.Path(path).write_text("model:\n  path: /x\n  key: file:/y\nqueue:\n  depth: lots\nlog: {level: loud}\n")
    p = sitsd("--config", path, "--check")
    assert p.returncode == 2, p
    assert f"{path}:5: queue.depth: 'lots'" in p.stderr and f"{path}:6: log.level: 'loud'" in p.stderr, p
    pathlib.Path(path).write_text("model:\n  path: /x\n  key: file:/y\n")
    p = sitsd("--config", path, "--check")
    assert p.returncode == 0 and p.stdout == f"{path}: ok\n", p
    p = sitsd("--config", path, "--show-config", "--threads", "3", "--set", "queue.depth=7", "--set", "queue.per_client=7")
    assert p.returncode == 0 and "  threads: 3\n" in p.stdout and "  depth: 7\n" in p.stdout, p
    p = sitsd("--config", place.path("missing.yaml"), "--check")
    assert p.returncode == 2 and "missing.yaml: No such file" in p.stderr and "--config" in p.stderr, p


def refused(place, sealed, *words, status=1, **config):
    d = Daemon(place, sealed, name="refused", wait=False, **config)
    got, log = d.start_fails()
    assert got == status, (got, log)
    for w in words:
        assert w in log, (w, log)
    assert not os.path.exists(f"{d.run_dir}/infer.sock"), "a refused daemon left a socket"
    return log


def wrong_key_is_refused(place):
    sealed = place.tiny()
    place.sits("key", "new", f"file:{place.path('other')}")
    refused(place, sealed, "sealed under another key", model={"key": f"file:{place.path('other')}"})
    refused(place, sealed, "sits key new", model={"key": f"file:{place.path('none')}"})
    os.chmod(place.path("other"), 0o644)
    refused(place, sealed, "0600", model={"key": f"file:{place.path('other')}"})


def older_version_is_refused(place):
    new, old = place.tiny("v7.sits", 7), place.tiny("v6.sits", 6)
    state = place.path("common-state")
    Daemon(place, old, name="first", state_dir=state).stop()
    Daemon(place, new, name="second", state_dir=state).stop()
    refused(place, old, "model version 6 is older than 7", state_dir=state)
    refused(place, new, "older than 9", "model.min_version 9", model={"min_version": 9})


def missing_model_is_named_by_its_key(place):
    tiny, none = place.tiny(), place.path("none.sits")
    log = refused(place, none, f"model.path {none}: No such file")
    assert log.count(none) == 1, f"told twice: {log}"
    log = refused(place, tiny, f"model.draft_path {none}: No such file", model={"draft_path": none}, engine={"speculation": "draft"})
    assert log.count(" error: ") == 1, f"told twice: {log}"
    log = refused(place, tiny, f"model.key: key file {none}: No such file", model={"key": f"file:{none}"})
    assert log.count(none) == 1, f"told twice: {log}"


def damaged_model_is_refused(place):
    whole = bytearray(pathlib.Path(place.tiny()).read_bytes())
    for at in (20, 4096, len(whole) // 2, len(whole) - 1):
        whole[at] ^= 1
        pathlib.Path(place.path("bad.sits")).write_bytes(whole)
        whole[at] ^= 1
        refused(place, place.path("bad.sits"), "bad.sits")
    for cut in (0, 100, 4096, len(whole) - 1):
        pathlib.Path(place.path("bad.sits")).write_bytes(whole[:cut])
        refused(place, place.path("bad.sits"), "bad.sits")
    refused(place, place.path("tiny.gguf"), "tiny.gguf")
    refused(place, place.path("nowhere.sits"), "nowhere.sits")


def second_daemon_on_the_directory_is_refused(place):
    d = Daemon(place, place.tiny())
    other = Daemon(place, place.tiny(), name="other", wait=False, run_dir=d.run_dir)
    status, log = other.start_fails()
    assert status == 1 and f"another sitsd (pid {d.pid}) serves {d.run_dir}" in log, log
    assert d.run_json("--raw", "-n", "1", "x")["completion_tokens"] == 1
    d.stop()


def run_directory_that_all_may_write_is_refused(place):
    d = Daemon(place, place.tiny(), wait=False)
    os.mkdir(d.run_dir)
    os.chmod(d.run_dir, 0o777)
    status, log = d.start_fails()
    assert status == 1 and "may be written by everybody" in log, log


def systemd_is_told(place):
    path = place.path("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(PATIENCE)
        d = Daemon(place, place.tiny(), env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"})
        seen = ""

        def hear(word):
            nonlocal seen
            while word not in seen:
                seen += s.recv(4096).decode() + "\n"
            seen = seen[seen.index(word) + len(word):]

        hear("STATUS=loading weights")
        hear("READY=1")
        hear("WATCHDOG=1")
        d.signal(signal.SIGHUP)
        hear("RELOADING=1")
        hear("READY=1")
        d.signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert d.wait() == 0


def without_a_daemon_the_client_says_how_to_start_one(place):
    p = subprocess.run([*Daemon(place, "x", wait=False).client("hello")], capture_output=True, text=True)
    assert p.returncode == 1 and "no daemon serves queue 'infer'" in p.stderr and "sitsd --config" in p.stderr, p
    p = place.sits("info", "--run-dir", place.path("nowhere"))
    assert "daemon: none" in p.stdout and f"provider {place.provider}" in p.stdout, p


def term_lets_the_running_request_finish(place):
    d = Daemon(place, place.tiny(), drain_timeout="1h")
    p = d.popen_running("--json", "--quiet", "--raw", "--ignore-eos", "-n", "16000", "x")
    d.signal(signal.SIGTERM)
    wait_for("the drain to begin", lambda: "stopping: 1 requests" in d.log())
    late = d.run("--raw", "x")
    assert late.returncode == 1 and ("shutting down" in late.stderr or "no daemon" in late.stderr), late
    import json
    o = json.loads(p.stdout.read())
    assert p.wait(PATIENCE) == 0 and o["completion_tokens"] == 16000 and o["finish_reason"] == "length", o
    assert d.wait() == 0 and "stopped" in d.log()


def drain_timeout_ends_what_takes_longer(place):
    d = Daemon(place, place.endless(), drain_timeout="100ms")
    ps = [d.popen(*ENDLESS, "x") for _ in range(3)]
    d.wait_running(3)
    d.signal(signal.SIGTERM)
    for p in ps:
        p.stdout.read()
        assert p.wait(PATIENCE) == 1
        assert b"shutting down" in p.stderr.read()
    assert d.wait() == 0 and "3 requests are ended" in d.log(), d.log()


def second_term_ends_it_at_once(place):
    d = Daemon(place, place.endless(), drain_timeout="1h")
    p = d.popen(*ENDLESS, "x")
    d.wait_running(1)
    d.signal(signal.SIGTERM)
    wait_for("the drain to begin", lambda: "stopping: 1 requests" in d.log())
    d.signal(signal.SIGTERM)
    assert d.wait() == 128 + signal.SIGTERM
    p.stdout.read()
    assert p.wait(PATIENCE) == 1 and b"the daemon went away" in p.stderr.read()


def term_while_loading_ends_well(place):
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.05):
        d = Daemon(place, place.tiny(), wait=False)
        os.close(d.spawn())
        # At once it may not have its handlers yet, and dies of the signal: that is an end, too.
        time.sleep(delay)
        d.signal(signal.SIGTERM)
        assert d.wait() in (0, -signal.SIGTERM), d.log()
    d = Daemon(place, place.tiny())
    d.stop()


def hup_takes_over_what_it_can(place):
    d = Daemon(place, place.tiny())
    assert d.run("--raw", "-n", "5", "x").returncode == 0
    d.write_config(limits={"max_tokens": 4}, log={"level": "debug"}, engine={"max_seqs": 3}, drain_timeout="5s")
    d.signal(signal.SIGHUP)
    wait_for("the reload", lambda: "reload: done" in d.log())
    log = d.log()
    assert "reload: limits.max_tokens: 4, was auto" in log and "reload: drain_timeout: 5s, was 30s" in log, log
    assert "engine.max_seqs has changed to 3; that needs a restart" in log, log
    p = d.run("--raw", "-n", "5", "x")
    assert p.returncode == 1 and "at most 4" in p.stderr, p
    i = d.info()
    assert i["limits"]["max_tokens"] == 4 and i["engine"]["max_seqs"] == 64, i
    assert d.run_json("--raw", "x", "--ignore-eos")["completion_tokens"] == 4
    d.stop()


def hup_with_a_broken_file_changes_nothing(place):
    d = Daemon(place, place.tiny(), limits={"max_tokens": 6})
    pathlib.Path(d.config_path).write_text("limits:\n  max_tokens: 2\nqueue:\n  depht: 3\n")
    d.signal(signal.SIGHUP)
    wait_for("the refusal", lambda: "the configuration is left as it was" in d.log())
    assert f"{d.config_path}:4: queue.depht: unknown key" in d.log(), d.log()
    assert d.info()["limits"]["max_tokens"] == 6
    os.unlink(d.config_path)
    d.signal(signal.SIGHUP)
    wait_for("the second refusal", lambda: d.log().count("left as it was") == 2)
    assert d.run_json("--raw", "-n", "6", "--ignore-eos", "x")["completion_tokens"] == 6
    d.stop()


def hup_while_serving_harms_no_request(place):
    d = Daemon(place, place.tiny())
    p = d.popen_running("--json", "--quiet", "--raw", "--ignore-eos", "-n", "4000", "x")
    for _ in range(10):
        d.signal(signal.SIGHUP)
    import json
    assert json.loads(p.stdout.read())["completion_tokens"] == 4000
    assert p.wait(PATIENCE) == 0
    d.stop()


def log_is_json_where_asked(place):
    import json
    d = Daemon(place, place.tiny(), log={"format": "json", "level": "debug"})
    d.run("--raw", "-n", "2", "x")
    d.stop()
    for line in d.log().splitlines():
        o = json.loads(line)
        assert set(o) == {"time", "level", "message"}, o
    assert any("ready" in json.loads(x)["message"] for x in d.log().splitlines())


def requests_beyond_the_bound_are_refused_as_busy(place):
    d = Daemon(place, place.endless(), queue={"depth": 2, "per_client": 2})
    a, b = d.popen(*ENDLESS, "x"), d.popen(*ENDLESS, "x")
    # INFO is a request as well: with the queue full it is refused like any other, and so counts the two.
    wait_for("the queue to be full", lambda: d.info() is None)
    p = d.run("--raw", "x")
    assert p.returncode == 1 and "busy" in p.stderr, p
    for q in (a, b):
        q.send_signal(signal.SIGINT)
        q.stdout.read()
        assert q.wait(PATIENCE) == 130
    assert wait_for("room", lambda: d.run("--raw", "-n", "1", "x").returncode == 0)
    d.stop()


def it_serves_as_an_ordinary_user(place):
    if os.geteuid():
        raise Skip("not root: everything here runs as an ordinary user anyway")
    d = Daemon(place, place.tiny(), wait=False)
    os.chmod(place.dir, 0o755)
    for name in ("key", "tiny.sits"):
        os.chown(place.path(name), 65534, 65534)
    os.makedirs(d.run_dir)
    os.makedirs(d.config["state_dir"])
    for path in (d.run_dir, d.config["state_dir"]):
        os.chown(path, 65534, 65534)
    os.chmod(d.config_path, 0o644)
    r, w = os.pipe()
    with open(d.log_path, "ab") as log:
        d.proc = subprocess.Popen([SITSD, "--config", d.config_path, "--ready-fd", str(w)], stdout=log, stderr=log, pass_fds=[w],
                                  user=65534, group=65534, extra_groups=[])
    os.close(w)
    with os.fdopen(r, "rb") as f:
        assert f.readline() == b"READY\n", d.log()
    assert d.run_json("--raw", "-n", "3", "--ignore-eos", "x")["completion_tokens"] == 3
    d.stop()
    for name in ("key", "tiny.sits"):
        os.chown(place.path(name), 0, 0)


def shortest_timeout_is_not_none(place):
    d = Daemon(place, place.endless())
    p = d.run("--timeout", "1e-12", *ENDLESS, "x", timeout=PATIENCE)
    assert p.returncode == 1 and "--timeout" in p.stderr, p
    d.stop()


def empty_input_is_no_prompt(place):
    d = Daemon(place, place.tiny())
    for text in "", "\n":
        p = d.run("-n", "1", "-", input=text)
        assert p.returncode == 2 and "standard input is empty" in p.stderr and not p.stdout, p
    assert d.run("--raw", "-n", "1", "-", input="").returncode == 0  # where a text starts
    assert d.run("-n", "1", "").returncode == 0
    d.stop()


def stuck_daemon_is_told_apart(place):
    d = Daemon(place, place.tiny())
    d.freeze()
    p = d.run("--raw", "-n", "1", "x", timeout=PATIENCE)
    d.signal(signal.SIGCONT)
    assert p.returncode == 1 and "it is stuck, or overloaded" in p.stderr and p.stderr.count("queue 'infer'") == 1, p
    d.stop()


def where_threads_are_is_told(place):
    for pin, nodes, words in ("true", 1, "1 threads (pinned, on 1 NUMA node)"), ("false", 0, "1 threads (not pinned)"):
        d = Daemon(place, place.tiny(), engine={"pin": pin, "threads": 1})
        e = d.info()["engine"]
        assert e["thread_nodes"] == nodes and words in d.log(), (e, d.log())
        p = subprocess.run([SITS, "info", "--run-dir", d.run_dir, "--provider", place.provider], capture_output=True, text=True)
        assert words in p.stdout, p
        d.stop()


def mode_bits_of_the_queue_decide_who_connects(place):
    if os.geteuid():
        raise Skip("needs root to be two users")
    for mode, allowed in ("0660", False), ("0666", True):
        d = Daemon(place, place.tiny(), queue={"mode": mode})
        os.chmod(place.dir, 0o755)
        p = d.run("--raw", "-n", "1", "x", user=65534, group=65534, extra_groups=[])
        assert p.returncode == (0 if allowed else 1), p
        assert allowed or "permission denied" in p.stderr and "queue.mode" in p.stderr, p
        d.stop()


run_tests(options_are_checked, check_names_file_line_and_key, wrong_key_is_refused, older_version_is_refused,
          missing_model_is_named_by_its_key,
          damaged_model_is_refused, second_daemon_on_the_directory_is_refused, run_directory_that_all_may_write_is_refused,
          systemd_is_told, without_a_daemon_the_client_says_how_to_start_one, term_lets_the_running_request_finish,
          drain_timeout_ends_what_takes_longer, second_term_ends_it_at_once, term_while_loading_ends_well,
          hup_takes_over_what_it_can, hup_with_a_broken_file_changes_nothing, hup_while_serving_harms_no_request,
          log_is_json_where_asked, requests_beyond_the_bound_are_refused_as_busy, it_serves_as_an_ordinary_user,
          where_threads_are_is_told, mode_bits_of_the_queue_decide_who_connects, shortest_timeout_is_not_none,
          empty_input_is_no_prompt, stuck_daemon_is_told_apart)
