#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where keys, weights and prompts must not be: command lines, environments, logs, files, memory after the load, core dumps."""
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import ENDLESS, PATIENCE, REAL_MODEL, SANITIZED, SITSD, Daemon, Skip, need_root, run_tests  # noqa: E402


def key_bytes(place):
    """The key in every form that it may have in a file."""
    stored = pathlib.Path(place.path("key")).read_bytes()
    raw = stored if len(stored) == 16 else bytes.fromhex(stored.decode().strip())
    return [raw, raw.hex().encode(), raw.hex().upper().encode()]


def search_files(root, needles, leave_out):
    for dirpath, _, names in os.walk(root):
        for n in names:
            path = pathlib.Path(dirpath, n)
            if path.is_file() and str(path) not in leave_out:
                data = path.read_bytes()
                for x in needles:
                    assert x not in data, f"{path} holds a secret"


def search_process(pid, needles):
    for name in ("cmdline", "environ"):
        data = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
        assert data or name == "environ"
        for x in needles:
            assert x not in data, f"/proc/PID/{name} holds the key"


def search_memory(pid, needles):
    """All that is mapped and can be read. Return the bytes looked at."""
    seen = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            where, perms = line.split()[:2]
            if perms[0] != "r" or "[v" in line:
                continue
            start, end = (int(x, 16) for x in where.split("-"))
            if SANITIZED and end - start > 1 << 30:
                continue  # the sanitizer's shadow: terabytes of it
            tail = b""
            while start < end:
                n = min(end - start, 1 << 22)
                try:
                    mem.seek(start)
                    data = mem.read(n)
                except OSError:
                    break
                for x in needles:
                    assert x not in tail + data, f"the key is in memory at {line.strip()}"
                tail = data[-64:]
                seen += n
                start += n
    return seen


def the_key_is_nowhere_but_in_its_file(place):
    need_root()
    needles = key_bytes(place)
    d = Daemon(place, place.tiny(), log={"level": "debug"})
    p = d.run("--raw", "-n", "4", "x")
    search_process(d.pid, needles)
    assert search_memory(d.pid, needles) > 1 << 20
    d.stop()
    search_files(place.dir, needles, {place.path("key")})
    for x in needles:
        assert x not in (p.stdout + p.stderr).encode()


def a_key_given_in_place_of_its_file_is_not_repeated(place):
    hexkey = key_bytes(place)[1].decode()
    d = Daemon(place, place.tiny(), wait=False, model={"key": hexkey})
    status, log = d.start_fails()
    assert status == 2 and "model.key" in log and hexkey not in log, log
    d = Daemon(place, place.tiny(), wait=False, model={"key": f"keyring:{hexkey}"})
    status, log = d.start_fails()
    assert status == 1, log


def weights_are_in_no_file_but_the_sealed_one_and_the_source(place):
    gguf = REAL_MODEL or place.path("tiny.gguf")
    sealed = place.real() if REAL_MODEL else place.tiny()
    data = pathlib.Path(gguf).read_bytes()
    needles = []
    while len(needles) < 64:
        at = random.randrange(len(data) // 2, len(data) - 64)
        piece = data[at:at + 32]
        if len(set(piece)) > 8:  # not padding
            needles.append(piece)
    d = Daemon(place, sealed)
    d.run("--raw", "-n", "4", "x")
    search_files(place.dir, needles, {place.path("tiny.gguf")})
    d.stop()
    search_files(place.dir, needles, {place.path("tiny.gguf")})
    for x in needles:
        assert x not in pathlib.Path(sealed).read_bytes()


def prompts_and_answers_are_not_logged(place):
    d = Daemon(place, place.tiny(), log={"level": "debug"})
    mark = "a-prompt-that-nobody-else-may-see"
    out = d.run_json("--raw", "-n", "40", "--ignore-eos", mark)["text"]
    d.run("--raw", "--model", "nope", mark)
    d.stop()
    assert mark not in d.log() and "completion tokens" in d.log()
    assert out not in d.log()


def crash_leaves_no_core(place):
    if SANITIZED:
        raise Skip("a sanitizer catches the crash")
    d = Daemon(place, place.tiny(), wait=False)

    def allow_cores():
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    r, w = os.pipe()
    with open(d.log_path, "ab") as log:
        d.proc = subprocess.Popen([SITSD, "--config", d.config_path, "--ready-fd", str(w)], stdout=log, stderr=log, pass_fds=[w],
                                  preexec_fn=allow_cores, cwd=place.dir)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        assert f.readline() == b"READY\n", d.log()
    limits = pathlib.Path(f"/proc/{d.pid}/limits").read_text()
    line = next(x for x in limits.splitlines() if x.startswith("Max core file size"))
    assert line.split()[4:6] == ["0", "0"], line
    d.signal(signal.SIGSEGV)
    _, status = os.waitpid(d.pid, 0)
    d.proc.returncode = -1
    assert os.WIFSIGNALED(status) and not os.WCOREDUMP(status)


def others_of_the_same_user_cannot_look_in(place):
    if SANITIZED:
        raise Skip("builds with sanitizers stay dumpable")
    if os.geteuid():
        raise Skip("needs root to start the daemon as another user")
    d = Daemon(place, place.tiny(), wait=False)
    os.chmod(place.dir, 0o755)
    os.makedirs(d.run_dir)
    os.makedirs(d.config["state_dir"])
    for path in (place.path("key"), place.path("tiny.sits"), d.run_dir, d.config["state_dir"]):
        os.chown(path, 65534, 65534)
    os.chmod(d.config_path, 0o644)
    as_nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    r, w = os.pipe()
    with open(d.log_path, "ab") as log:
        d.proc = subprocess.Popen([SITSD, "--config", d.config_path, "--ready-fd", str(w)], stdout=log, stderr=log, pass_fds=[w],
                                  **as_nobody)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        assert f.readline() == b"READY\n", d.log()
    for name in ("mem", "environ", "maps", "fd/0"):
        p = subprocess.run(["head", "-c", "1", f"/proc/{d.pid}/{name}"], capture_output=True, text=True, **as_nobody)
        assert p.returncode and p.stdout == "", (name, p)
    d.stop()
    for path in (place.path("key"), place.path("tiny.sits")):
        os.chown(path, 0, 0)


def client_does_not_keep_prompts_in_its_command_line_where_told(place):
    """A prompt on standard input is in no command line."""
    d = Daemon(place, place.endless())
    mark = b"only-through-standard-input"
    p = d.popen(*ENDLESS, "-", stdin=subprocess.PIPE)
    p.stdin.write(mark)
    p.stdin.close()
    d.wait_running(1)
    assert mark not in pathlib.Path(f"/proc/{p.pid}/cmdline").read_bytes()
    p.send_signal(signal.SIGINT)
    p.stdout.read()
    assert p.wait(PATIENCE) == 130
    d.stop()


run_tests(the_key_is_nowhere_but_in_its_file, a_key_given_in_place_of_its_file_is_not_repeated,
          weights_are_in_no_file_but_the_sealed_one_and_the_source, prompts_and_answers_are_not_logged, crash_leaves_no_core,
          others_of_the_same_user_cannot_look_in, client_does_not_keep_prompts_in_its_command_line_where_told)
