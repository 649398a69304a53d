#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TLS 1.3 with TLS_SM4_GCM_SM3 (RFC 8998) through the OpenSSL provider, on a libssl that has the suite, against itself and against that
library's own SM4. Debian 12's OpenSSL 3.0 does not have it; the one inside PyPI's cryptography package is a 4.0."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

BUILD = os.environ.get("BUILD", "build/gcc")
MODULE = pathlib.Path(BUILD).resolve() / "ossl-modules/sits.so"
PACKAGES = ["cryptography==50.0.2", "pyopenssl==26.4.0"]
HERE = pathlib.Path(__file__).parent
CONFIG = """openssl_conf = openssl_init
[openssl_init]
providers = providers
alg_section = algorithms
[providers]
default = default_provider
sits = sits_provider
[default_provider]
activate = 1
[sits_provider]
module = {spy}
activate = 1
[algorithms]
default_properties = ?provider=sits
"""
results = []


def check(name, problems):
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} {len(results)} - {name}")
    for p in problems:
        for line in str(p).splitlines():
            print("#", line)


def skip(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


def start(tmp, role, sock, ours):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp}/site", "OPENSSL_CONF": "/dev/null"}
    args = []
    if ours:
        env |= {"OPENSSL_CONF": f"{tmp}/openssl.cnf", "SPIED_MODULE": str(MODULE)}
        args = [f"{tmp}/spy.so"]
    return subprocess.Popen([sys.executable, HERE / "provider_tls_peer.py", role, str(sock.fileno()), *args], env=env,
                            pass_fds=[sock.fileno()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def connect(tmp, server_ours, client_ours):
    """What both ends say, or why it went wrong."""
    a, b = socket.socketpair()
    with a, b:
        ends = [start(tmp, "server", a, server_ours), start(tmp, "client", b, client_ours)]
    said = []
    for p in ends:
        out, err = p.communicate(timeout=300)
        if p.returncode == 77:
            skip(f"the libssl of {PACKAGES[0]} does not have TLS_SM4_GCM_SM3")
        said.append(json.loads(out) if p.returncode == 0 else {"error": err})
    return said


if not MODULE.exists():
    skip(f"{MODULE} is not built: OpenSSL's headers are missing")
if b"__asan_" in subprocess.run(["nm", "-D", MODULE], capture_output=True).stdout:
    skip("the module was built with a sanitizer, which the python command has not")
tmp = tempfile.mkdtemp()
try:
    p = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location",
                        "--only-binary", ":all:", "--target", f"{tmp}/site", *PACKAGES], capture_output=True, text=True)
    if p.returncode:
        skip(f"pip could not install {' '.join(PACKAGES)}: {(p.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", f"{tmp}/spy.so", HERE / "provider_spy.c"], check=True)
    pathlib.Path(f"{tmp}/openssl.cnf").write_text(CONFIG.format(spy=f"{tmp}/spy.so"))
    for name, server_ours, client_ours in (("both ends", True, True), ("the server, a client on the library's own SM4", True, False),
                                           ("the client, a server on the library's own SM4", False, True)):
        ends = connect(tmp, server_ours, client_ours)
        problems = [e for e in ends if "error" in e or e["suite"] != "TLS_SM4_GCM_SM3" or e["protocol"] != "TLSv1.3" or not e["right"]]
        # A megabyte each way, and the handshake.
        problems += [e for e, ours in zip(ends, (server_ours, client_ours)) if ours and e.get("bytes", 0) < 2 << 20]
        if not problems and len(results) == 0:
            print("#", re.sub(r"\s\d+ \w+ \d+$", "", ends[0]["library"]))
        check(f"the provider on {name}", problems)
finally:
    shutil.rmtree(tmp)
print(f"1..{len(results)}")
sys.exit(not all(results))
