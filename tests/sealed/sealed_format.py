# SPDX-License-Identifier: MIT
"""The sealed file, version 1, written down a second time from docs/sealed-file.md and the standards.

Shares no code with crypto/ and libsits: what these two agree on is what the format says. SM4 in counter
mode is taken from the `cryptography` package where there is one with SM4 (about 20 MB/s a core with the
GHASH below), else done here in Python (about 0.3 MB/s a core). SM3 is taken from hashlib where OpenSSL has it.
"""
import hashlib
import struct

try:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    Cipher(algorithms.SM4(bytes(16)), modes.CTR(bytes(16))).encryptor().update(b'x')
    HAVE_FAST_SM4 = True
except Exception:		# no package, or none with SM4
    HAVE_FAST_SM4 = False

PAGE = 4096
MAGIC = b'\x89SITS\r\n\x1a'
GCM, ECB = 1, 240


class Refused(Exception):
    """The file is no sealed file, was changed, or is not for this key."""


# --- SM4: GB/T 32907-2016 ---------------------------------------------------------------------------

def _make_sbox():
    def mul(a, b):
        r = 0
        while b:
            r ^= a if b & 1 else 0
            a = a << 1 ^ (0x1f5 if a & 0x80 else 0)
            b >>= 1
        return r

    def affine(x):
        return sum((bin(x & (0xd3 >> i | 0xd3 << (8 - i)) & 255).count('1') & 1) << (7 - i) for i in range(8)) ^ 0xd3

    inverse = [0] * 256
    for a in range(1, 256):
        inverse[a] = next(b for b in range(1, 256) if mul(a, b) == 1)
    return [affine(inverse[affine(x)]) for x in range(256)]


def _rol(x, n):
    n &= 31
    return (x << n | x >> (32 - n)) & 0xffffffff


SBOX = _make_sbox()


def _linear(b):
    return b ^ _rol(b, 2) ^ _rol(b, 10) ^ _rol(b, 18) ^ _rol(b, 24)


_T = [[_linear(SBOX[x] << shift) for x in range(256)] for shift in (24, 16, 8, 0)]


def sm4_round_keys(key):
    k = [a ^ b for a, b in zip(struct.unpack('>4I', key), (0xa3b1bac6, 0x56aa3350, 0x677d9197, 0xb27022dc))]
    for i in range(32):
        x = k[i + 1] ^ k[i + 2] ^ k[i + 3]
        x ^= sum(((4 * i + j) * 7 & 255) << (24 - 8 * j) for j in range(4))
        b = sum(SBOX[x >> s & 255] << s for s in (24, 16, 8, 0))
        k.append(k[i] ^ b ^ _rol(b, 13) ^ _rol(b, 23))
    return k[4:]


def sm4_block(round_keys, block):
    """One block; for decryption the round keys are given in reverse."""
    a, b, c, d = struct.unpack('>4I', block)
    t0, t1, t2, t3 = _T
    for rk in round_keys:
        x = b ^ c ^ d ^ rk
        a, b, c, d = b, c, d, a ^ t0[x >> 24] ^ t1[x >> 16 & 255] ^ t2[x >> 8 & 255] ^ t3[x & 255]
    return struct.pack('>4I', d, c, b, a)


def sm4_ecb(key, data, decrypt=False):
    if HAVE_FAST_SM4:
        cipher = Cipher(algorithms.SM4(key), modes.ECB())
        c = cipher.decryptor() if decrypt else cipher.encryptor()
        return c.update(data) + c.finalize()
    rk = sm4_round_keys(key)
    if decrypt:
        rk.reverse()
    return b''.join(sm4_block(rk, data[i:i + 16]) for i in range(0, len(data), 16))


def _ctr32(key, nonce, first, data):
    """Counter mode as GCM has it: nonce || 32-bit counter."""
    if not data:
        return b''
    blocks = (len(data) + 15) // 16
    assert first + blocks <= 1 << 32
    if HAVE_FAST_SM4:
        return Cipher(algorithms.SM4(key), modes.CTR(nonce + struct.pack('>I', first))).encryptor().update(data)
    rk = sm4_round_keys(key)
    stream = b''.join(sm4_block(rk, nonce + struct.pack('>I', first + i)) for i in range(blocks))
    n = len(data)
    return (int.from_bytes(data, 'big') ^ int.from_bytes(stream[:n], 'big')).to_bytes(n, 'big')


# --- GCM: NIST SP 800-38D, RFC 8998 -----------------------------------------------------------------

def _bit(x, i):			# coefficient of t^i: the standard counts from the most significant bit
    return x >> (127 - i) & 1


def _gf_mul(x, y):
    z = 0
    for i in range(128):
        if _bit(x, i):
            z ^= y
        y = y >> 1 ^ (0xe1 << 120 if y & 1 else 0)
    return z


class Ghash:
    """Many blocks at once as one long integer, 256 bits apart, each in the upper half of its lane: times t^i is then
    a shift of all lanes by i to the right, and the lower halves are reduced afterwards. A text of 2 n blocks is
    folded to n: first half times H^n, plus second half."""

    PIECE = 1024		# blocks folded together

    def __init__(self, h):
        self.powers = [int.from_bytes(h, 'big')]		# H^(2^k)
        while len(self.powers) < 13:
            self.powers.append(_gf_mul(self.powers[-1], self.powers[-1]))
        self.low = {}

    def _times(self, lanes, n, h):
        if n not in self.low:
            self.low[n] = int.from_bytes((bytes(16) + b'\xff' * 16) * n, 'big')
        few = [0]		# lanes times each sum of 1, t, t^2, t^3, indexed by four bits of h
        for i in (3, 2, 1, 0):
            few += [x ^ lanes >> i for x in few]
        z = 0
        for i in range(0, 128, 4):
            nibble = h >> (124 - i) & 15
            if nibble:
                z ^= few[nibble] >> i
        for _ in range(2):		# t^128 = t^7 + t^2 + t + 1
            low = z & self.low[n]
            up = low << 128
            z ^= low ^ up ^ up >> 1 ^ up >> 2 ^ up >> 7
        return z

    def _fold(self, blocks):
        """Sum of blocks[i] H^(n - i), n a power of two."""
        n = len(blocks) // 16
        spread, blocks = memoryview(bytearray(32 * n)).cast('Q'), memoryview(blocks).cast('Q')
        spread[0::4], spread[1::4] = blocks[0::2], blocks[1::2]
        lanes = int.from_bytes(spread.cast('B'), 'big')
        while n > 1:
            n //= 2
            first = lanes >> 256 * n
            lanes = self._times(first, n, self.powers[n.bit_length() - 1]) ^ lanes ^ first << 256 * n
        return self._times(lanes, 1, self.powers[0]) >> 128

    def update(self, y, data):
        """The hash of what y is the hash of, and data, padded with zeros to a whole block."""
        data = bytes(data) + bytes(-len(data) % 16)
        at = 0
        while at < len(data):
            n = min(self.PIECE, 1 << ((len(data) - at) // 16).bit_length() - 1)
            piece = bytearray(data[at:at + 16 * n])
            piece[:16] = (int.from_bytes(piece[:16], 'big') ^ y).to_bytes(16, 'big')
            y = self._fold(piece)
            at += 16 * n
        return y


class Gcm:
    def __init__(self, key):
        self.key = key
        self.ghash = Ghash(sm4_block(sm4_round_keys(key), bytes(16)))

    def _tag(self, nonce, aad, ciphertext):
        y = self.ghash.update(self.ghash.update(0, aad), ciphertext)
        y = self.ghash.update(y, struct.pack('>QQ', 8 * len(aad), 8 * len(ciphertext)))
        mask = _ctr32(self.key, nonce, 1, bytes(16))
        return (y ^ int.from_bytes(mask, 'big')).to_bytes(16, 'big')

    def seal(self, nonce, aad, plaintext):
        ciphertext = _ctr32(self.key, nonce, 2, plaintext)
        return ciphertext, self._tag(nonce, aad, ciphertext)

    def open(self, nonce, aad, ciphertext, tag):
        """The plaintext, or None where the tag is wrong."""
        if self._tag(nonce, aad, ciphertext) != tag:
            return None
        return _ctr32(self.key, nonce, 2, ciphertext)


# --- SM3: GB/T 32905-2016 ---------------------------------------------------------------------------

def sm3_python(data):
    v = [0x7380166f, 0x4914b2b9, 0x172442d7, 0xda8a0600, 0xa96f30bc, 0x163138aa, 0xe38dee4d, 0xb0fb0e4e]
    msg = data + b'\x80' + bytes(-(len(data) + 9) % 64) + struct.pack('>Q', 8 * len(data))
    for at in range(0, len(msg), 64):
        w = list(struct.unpack('>16I', msg[at:at + 64]))
        for j in range(16, 68):
            x = w[j - 16] ^ w[j - 9] ^ _rol(w[j - 3], 15)
            w.append(x ^ _rol(x, 15) ^ _rol(x, 23) ^ _rol(w[j - 13], 7) ^ w[j - 6])
        a, b, c, d, e, f, g, h = v
        for j in range(64):
            t = 0x79cc4519 if j < 16 else 0x7a879d8a
            ss1 = _rol(_rol(a, 12) + e + _rol(t, j) & 0xffffffff, 7)
            ff = a ^ b ^ c if j < 16 else a & b | a & c | b & c
            gg = e ^ f ^ g if j < 16 else e & f | ~e & g
            tt1 = ff + d + (ss1 ^ _rol(a, 12)) + (w[j] ^ w[j + 4]) & 0xffffffff
            tt2 = gg + h + ss1 + w[j] & 0xffffffff
            a, b, c, d = tt1, a, _rol(b, 9), c
            e, f, g, h = tt2 ^ _rol(tt2, 9) ^ _rol(tt2, 17), e, _rol(f, 19), g
        v = [x ^ y for x, y in zip(v, (a, b, c, d, e, f, g, h))]
    return struct.pack('>8I', *v)


def sm3(data):
    try:
        return hashlib.new('sm3', data).digest()
    except ValueError:
        return sm3_python(data)


# --- the file: docs/sealed-file.md ------------------------------------------------------------------

def key_id(kek):
    return sm3(b'SITS key id v1' + kek)[:16]


def read_key(path):
    """A key file: 32 hexadecimal digits, or 16 raw bytes."""
    with open(path, 'rb') as f:
        raw = f.read(256)
    if len(raw) == 16:
        return raw
    try:
        key = bytes.fromhex(raw.decode('ascii'))
    except ValueError:
        key = b''
    if len(key) != 16:
        raise Refused(f'{path}: holds neither 32 hexadecimal digits nor 16 bytes')
    return key


class Header:
    """What a header page says, its form checked, and authenticated under the key."""

    def __init__(self, page, kek):
        def refuse(field):
            raise Refused(f'header: {field}')

        if len(page) != PAGE or page[:8] != MAGIC:
            refuse('not a sealed file')
        version, self.suite, self.chunk_bytes, zero, self.plain_bytes, self.model_version = \
            struct.unpack('<IIIIQQ', page[8:40])
        if version != 1 or self.suite not in (GCM, ECB):
            refuse(f'unknown version {version} or suite {self.suite}')
        if not 4096 <= self.chunk_bytes <= 16 << 20 or self.chunk_bytes & (self.chunk_bytes - 1):
            refuse('chunk size')
        if self.plain_bytes > self.chunk_bytes << 32:
            refuse('plaintext length')
        self.salt = page[40:48]
        if zero or any(page[48:64]) or any(page[220:4064]) or (self.suite == ECB and any(self.salt)):
            refuse('reserved bytes')
        model_id, _, rest = page[64:192].partition(b'\0')
        if len(model_id) == 128 or any(rest) or any(c < 32 or c == 127 for c in model_id):
            refuse('model id')
        self.model_id = model_id.decode('utf-8', 'replace')
        self.key_id = page[192:208]
        if self.key_id != key_id(kek):
            refuse(f'sealed under another key, {self.key_id.hex()}')
        self.file_key = Gcm(kek).open(page[208:220], page[:4064], page[4064:4080], page[4080:])
        if self.file_key is None:
            refuse('does not verify: it was changed')
        self.digest = sm3(page[:192])
        self.chunks = -(-self.plain_bytes // self.chunk_bytes)
        self.tags_bytes, self.data_bytes = 0, -(-self.plain_bytes // 16) * 16
        if self.suite == GCM:
            self.chunks = max(self.chunks, 1)
            self.tags_bytes, self.data_bytes = 16 * self.chunks, self.plain_bytes
        self.data_off = -(-(PAGE + self.tags_bytes) // PAGE) * PAGE

    def nonce(self, i):
        return self.salt + struct.pack('>I', i)

    def aad(self, i):
        return self.digest + struct.pack('<QB7x', i, i == self.chunks - 1)


def make_page(kek, suite, chunk_bytes, plain_bytes, model_id, model_version, salt, file_key, wrap_nonce):
    page = MAGIC + struct.pack('<IIIIQQ8s16x128s16s12s', 1, suite, chunk_bytes, 0, plain_bytes, model_version, salt,
                               model_id.encode(), key_id(kek), wrap_nonce)
    page += bytes(4064 - len(page))
    wrapped, tag = Gcm(kek).seal(wrap_nonce, page, file_key)
    return page + wrapped + tag


def seal(plaintext, kek, chunk_bytes, model_id, model_version, salt, file_key, wrap_nonce):
    """A whole suite 1 file as bytes (small files: the tests' second opinion on the writer)."""
    page = make_page(kek, GCM, chunk_bytes, len(plaintext), model_id, model_version, salt, file_key, wrap_nonce)
    header, gcm, tags, data = Header(page, kek), Gcm(file_key), b'', b''
    for i in range(header.chunks):
        ciphertext, tag = gcm.seal(header.nonce(i), header.aad(i), plaintext[i * chunk_bytes:(i + 1) * chunk_bytes])
        tags, data = tags + tag, data + ciphertext
    return page + tags + bytes(header.data_off - PAGE - len(tags)) + data
