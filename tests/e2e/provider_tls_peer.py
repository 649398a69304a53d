# SPDX-License-Identifier: MIT
"""One end of a TLS 1.3 connection with TLS_SM4_GCM_SM3: for provider_tls.t, on a libssl that has that suite.

usage: provider_tls_peer.py server|client FD [SPY]

FD is a stream socket. Both ends send a known megabyte and check the other's. Prints a JSON object; bytes is what the provider SPY
has ciphered.
"""
import ctypes
import datetime
import hashlib
import json
import random
import socket
import sys

from cryptography import x509
from cryptography.hazmat.bindings._rust import _openssl
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

LEN = 1 << 20
server = sys.argv[1] == "server"
context = SSL.Context(SSL.TLS_SERVER_METHOD if server else SSL.TLS_CLIENT_METHOD)
context.set_min_proto_version(SSL.TLS1_3_VERSION)
if _openssl.lib.SSL_CTX_set_ciphersuites(context._context, b"TLS_SM4_GCM_SM3") != 1:
    sys.exit(77)
if server:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sits")])
    now = datetime.datetime.now(datetime.timezone.utc)
    context.use_privatekey(key)
    context.use_certificate(x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
                            .sign(key, hashes.SHA256()))


def data(who):
    return random.Random(who).randbytes(LEN)


tls = SSL.Connection(context, socket.socket(fileno=int(sys.argv[2])))
if server:
    tls.set_accept_state()
else:
    tls.set_connect_state()
tls.do_handshake()


def send():
    mine, at = data(sys.argv[1]), 0
    # Records of many lengths, the longest that there are among them.
    rng = random.Random(7)
    while at < LEN:
        at += tls.send(mine[at:at + rng.choice((1, 15, 16, 17, 1000, 16384, 16384))])


def receive():
    got = bytearray()
    while len(got) < LEN:
        got += tls.recv(LEN - len(got))
    return got


if server:
    send()
    got = receive()
else:
    got = receive()
    send()
tls.shutdown()
print(json.dumps({
    "suite": tls.get_cipher_name(), "protocol": tls.get_protocol_version_name(), "library": SSL.SSLeay_version(SSL.SSLEAY_VERSION).decode(),
    "right": hashlib.sha256(got).digest() == hashlib.sha256(data("client" if server else "server")).digest(),
    "bytes": ctypes.CDLL(sys.argv[3]).spy_bytes() if len(sys.argv) > 3 else 0,
}))
