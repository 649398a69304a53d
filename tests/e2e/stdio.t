#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sitsd started without standard input, output and error: no socket or file takes their place and gets its log."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from e2e import SITSD, Daemon, run_tests  # noqa: E402


class Closed(Daemon):
    """A daemon without the standard descriptors."""

    def spawn(self):
        r, w = os.pipe()
        self.proc = subprocess.Popen(["bash", "-c", 'exec "$@" <&- >&- 2>&-', "-", SITSD, "--config", self.config_path,
                                      "--ready-fd", str(w)], pass_fds=[w])
        os.close(w)
        return r


def it_serves_without_standard_descriptors(place):
    d = Closed(place, place.tiny())
    for fd in range(3):
        assert os.readlink(f"/proc/{d.pid}/fd/{fd}") == "/", os.readlink(f"/proc/{d.pid}/fd/{fd}")
    p = d.run("--raw", "--ignore-eos", "-n", "4", "x")
    assert p.returncode == 0, p


run_tests(it_serves_without_standard_descriptors)
