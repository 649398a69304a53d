#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sitsd's standard descriptors: where they are closed no socket or file takes their place and gets its log; what is printed is out, or
it failed; a limit of file sizes is an error, not an end without words."""
import os
import resource
import signal
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


def what_can_not_be_printed_is_a_failure(place):
    d = Daemon(place, place.tiny(), wait=False)
    for args in (["--help"], ["--version"], ["--config", d.config_path, "--check"], ["--config", d.config_path, "--show-config"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([SITSD, *args], stdout=full, stderr=subprocess.PIPE, text=True)
        assert p.returncode == 1 and "standard output: No space left on device" in p.stderr, (args, p)


def a_limit_of_file_sizes_is_told(place):
    d = Daemon(place, place.tiny(), wait=False)
    p = subprocess.run([SITSD, "--config", d.config_path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1)))
    assert p.returncode == 1 and "File too large" in p.stdout, (p.returncode == -signal.SIGXFSZ, p)


run_tests(it_serves_without_standard_descriptors, what_can_not_be_printed_is_a_failure, a_limit_of_file_sizes_is_told)
