#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: MIT
"""Sealing that is killed or stopped at random moments: no output, the old one, or a whole new one; and the next run
leaves nothing of the dead. (At every system call, in turn: tests/unit/libsits/seal_crash_test.c.)"""
import signal
import subprocess
import time

from tap import PATIENCE, SITS, Dir, Tap, sits

ROUNDS = 25
tap = Tap()
with Dir() as d:
    key = f"file:{d / 'kek.key'}"
    sits("key", "new", key)
    plain = d.plain("plain", 6 << 20)
    out = d / "out.sits"
    start = time.monotonic()
    r = sits("seal", "--key", key, plain, out)
    whole = time.monotonic() - start
    assert r.rc == 0, r
    rest = {"kek.key", "plain"}

    def verifies():
        return sits("verify", "--quiet", "--key", key, out).rc == 0

    def run_and_send(sig, *flags):
        """Start sealing, send @sig at a random moment of its run. Return its exit status and messages."""
        global whole
        begun = time.monotonic()
        p = subprocess.Popen([SITS, "seal", "--quiet", "--key", key, *flags, str(plain), str(out)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            p.wait(d.rng.uniform(0, whole * 1.2))
            # The first run may have been a slow one.
            whole = (whole + time.monotonic() - begun) / 2
        except subprocess.TimeoutExpired:
            p.send_signal(sig)
        err = p.communicate(timeout=PATIENCE)[1]
        return p.returncode, err

    for force in (False, True):
        bad, killed, found = [], 0, 0
        for n in range(40 * ROUNDS):
            # On a busy machine it may have ended each time before it was its turn to be killed.
            if n >= ROUNDS and killed:
                break
            if force:
                out.write_bytes(b"old")
            elif out.exists():
                out.unlink()
            rc, err = run_and_send(signal.SIGKILL, *(["--force"] if force else []))
            killed += rc == -signal.SIGKILL
            old = force and out.exists() and out.read_bytes() == b"old"
            if rc not in (0, -signal.SIGKILL):
                bad.append(f"round {n}: exit {rc}: {err}")
            elif not out.exists() and (force or rc == 0):
                bad.append(f"round {n}: exit {rc}, and no output")
            elif out.exists() and not old:
                found += 1
                if not verifies():
                    bad.append(f"round {n}: exit {rc}, and an output that does not verify")
        print(f"# force {force}: killed {killed} of {n} times, {found} outputs found whole")
        tap.check(f"killed at {ROUNDS} random moments{', replacing an output' if force else ''}", not bad and killed, "\n".join(bad))
        r = sits("seal", "--quiet", "--force", "--key", key, plain, out)
        tap.check("the next run ends the work and leaves nothing of the dead", r.rc == 0 and verifies() and
                  set(d.state()) == rest | {"out.sits"}, f"{r}\n{d.state()}")

    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        bad, stopped = [], 0
        for n in range(10):
            out.write_bytes(b"old")
            rc, err = run_and_send(sig, "--force")
            names = set(d.state())
            # Before its handlers are there, or after the work, a signal ends it as any program.
            if rc in (128 + sig, -sig):
                stopped += 1
                fine = (names == rest | {"out.sits"}) and (out.read_bytes() == b"old" or verifies())
                fine = fine and (rc < 0 or "stopped by signal" in err)
            else:
                fine = rc == 0 and names == rest | {"out.sits"} and verifies()
            if not fine:
                bad.append(f"round {n}: exit {rc}: {err}: {names}")
        print(f"# {sig.name}: stopped {stopped} of 10 times")
        tap.check(f"{sig.name} stops it and leaves nothing", not bad, "\n".join(bad))
tap.done()
