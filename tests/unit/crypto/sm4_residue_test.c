// SPDX-License-Identifier: MIT
/*
 * sm4_residue_test.c - nothing secret is left behind: not on the stack below the caller's, not in vector, mask or scratch
 * registers, and not in the states that a message had.
 *
 * Everything is called on a stack of its own, twice, with the same addresses, lengths and nonces, and different keys and
 * texts. What is on that stack afterwards, and in the registers, has to be the same to the byte: what differs was made of a
 * secret, in whatever form (sliced, mapped, transposed). Ciphertext and tags are no secrets: decrypting, both runs
 * have the same; encrypting, words of it may be left. Registers for integers are looked at after the assembly of cores alone: a
 * compiler uses them for anything at any time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include "tests/unit/crypto/sm4_ops.h"

#include <cmocka.h>

#if defined(__x86_64__)

#define STACK_BYTES	(256u << 10)
#define NR_GPR		9	/* what a function may use up: rax rcx rdx rsi rdi r8 r9 r10 r11 */

/* The assembly below knows the offsets. */
struct probe {
	void (*fn)(void *arg);	/* 0 */
	void *arg;		/* 8 */
	u8 *stack;		/* 16: its end, aligned */
	u64 zmm_there;		/* 24 */
	u64 gpr[NR_GPR];	/* 32 */
	u64 mask[8];		/* 104 */
	u64 lost;		/* 168: what the called changed of the registers that are its caller's; not 0: a fault */
	u64 pad[2];
	u8 vec[32][64];		/* 192 */
};
_Static_assert(offsetof(struct probe, gpr) == 32 && offsetof(struct probe, mask) == 104 &&
	       offsetof(struct probe, vec) == 192, "known to the assembly");

/* Call p->fn(p->arg) on p->stack from cleared registers, and keep what it left in them. */
void probe_call(struct probe *p);

asm(".pushsection .text\n"
    ".type probe_call, @function\n"
    ".globl probe_call\n"
    ".hidden probe_call\n"
    "probe_call:\n"
    "	push %rbx\n	push %rbp\n	push %r12\n	push %r13\n	push %r14\n	push %r15\n"
    "	mov %rdi, %rbx\n"
    "	mov %rsp, %r12\n"
    "	vzeroall\n"
    "	cmpq $0, 24(%rbx)\n"
    "	je 1f\n"
    ".irp n,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "	vpxorq %zmm\\n, %zmm\\n, %zmm\\n\n"
    ".endr\n"
    ".irp n,0,1,2,3,4,5,6,7\n"
    "	kxorq %k\\n, %k\\n, %k\\n\n"
    ".endr\n"
    "1:	mov 16(%rbx), %rsp\n"
    "	mov 8(%rbx), %rdi\n"
    "	xor %eax, %eax\n	xor %ecx, %ecx\n	xor %edx, %edx\n	xor %esi, %esi\n"
    "	xor %r8d, %r8d\n	xor %r9d, %r9d\n	xor %r10d, %r10d\n	xor %r11d, %r11d\n"
    "	mov $0x1111, %ebp\n	mov $0x2222, %r13d\n	mov $0x3333, %r14d\n	mov $0x4444, %r15d\n"
    "	call *(%rbx)\n"
    "	mov %rax, 32(%rbx)\n	mov %rcx, 40(%rbx)\n	mov %rdx, 48(%rbx)\n"
    "	mov %rsi, 56(%rbx)\n	mov %rdi, 64(%rbx)\n	mov %r8, 72(%rbx)\n"
    "	mov %r9, 80(%rbx)\n	mov %r10, 88(%rbx)\n	mov %r11, 96(%rbx)\n"
    "	xor $0x1111, %rbp\n	xor $0x2222, %r13\n	xor $0x3333, %r14\n	xor $0x4444, %r15\n"
    "	or %r13, %rbp\n	or %r14, %rbp\n	or %r15, %rbp\n	mov %rbp, 168(%rbx)\n"
    "	pushfq\n	pop %rbp\n	and $0x400, %ebp\n	or %rbp, 168(%rbx)\n	cld\n"
    "	cmpq $0, 24(%rbx)\n"
    "	jne 2f\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "	vmovdqu %ymm\\n, 192+64*\\n(%rbx)\n"
    ".endr\n"
    "	jmp 3f\n"
    "2:\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "	vmovdqu64 %zmm\\n, 192+64*\\n(%rbx)\n"
    ".endr\n"
    ".irp n,0,1,2,3,4,5,6,7\n"
    "	kmovq %k\\n, 104+8*\\n(%rbx)\n"
    ".endr\n"
    "3:	mov %r12, %rsp\n"
    "	vzeroupper\n"
    "	pop %r15\n	pop %r14\n	pop %r13\n	pop %r12\n	pop %rbp\n	pop %rbx\n"
    "	ret\n"
    ".size probe_call, .-probe_call\n"
    ".popsection\n");

/* Everything at fixed places, so that two runs differ in secrets alone. */
static struct {
	struct probe probe;
	u8 *stack;		/* STACK_BYTES */
	const struct op *op;
	union op_key key;
	struct op_args args;
	struct sits_gcm gcm;
	struct sits_sm4_stream stream;
	u8 raw[32], iv[16], aad[80], src[8192], dst[8192];
	int ret;
} room __attribute__((aligned(64)));

struct left {
	u8 stack[STACK_BYTES];
	struct probe probe;
	int ret;
};

static struct left left[2];

static void nothing_at_all(void *unused)
{
}

static u64 has_avx512(void)
{
	return (sits_cpu_features() & SITS_CPU_AVX512) != 0;
}

static void call(void (*fn)(void *arg), void *arg, struct left *out)
{
	memset(room.stack, 0x5a, STACK_BYTES);
	memset(&room.probe, 0, sizeof(room.probe));
	room.probe.fn = fn;
	room.probe.arg = arg;
	room.probe.stack = room.stack + STACK_BYTES - 256;
	room.probe.zmm_there = has_avx512();
	probe_call(&room.probe);
	assert_int_equal(room.probe.lost, 0);
	memcpy(out->stack, room.stack, STACK_BYTES);
	out->probe = room.probe;
	out->ret = room.ret;
}

/* How deep it went: bytes of the stack that were written at all. */
static size_t depth(const struct left *l)
{
	size_t at = 0;

	while (at < STACK_BYTES && l->stack[at] == 0x5a)
		at++;
	return STACK_BYTES - 256 - at;
}

/* What is public about a run: its ciphertext and tag, where it encrypts. */
struct public {
	u8 text[sizeof(room.dst)];
	u8 tag[16];
	size_t len;
};

static struct public public[2];

/* Are the bytes of a[8] and b[8] that differ the same part of p[0] and p[1], len bytes each? */
static bool is_part(const u8 *a, const u8 *b, const u8 *p[2], size_t len)
{
	for (size_t at = 0; at < len + 7; at++) {	/* p[..][at - 7 + i] is beside a[i] */
		size_t i;

		for (i = 0; i < 8; i++) {
			if (a[i] == b[i])
				continue;
			if (at + i < 7 || at + i - 7 >= len || p[0][at + i - 7] != a[i] || p[1][at + i - 7] != b[i])
				break;
		}
		if (i == 8)
			return true;
	}
	return false;
}

static bool is_public(const u8 *a, const u8 *b)
{
	return public[0].len && (is_part(a, b, (const u8 *[]){ public[0].text, public[1].text }, public[0].len) ||
				 is_part(a, b, (const u8 *[]){ public[0].tag, public[1].tag }, 16));
}

/* Bytes that differ and are not public; *first: the offset of one. */
static size_t secrets(const u8 *a, const u8 *b, size_t n, size_t *first)
{
	size_t nr = 0;

	for (size_t at = 0; at < n; at += 8) {
		if (!memcmp(a + at, b + at, 8) || is_public(a + at, b + at))
			continue;
		if (!nr)
			*first = at;
		for (size_t i = at; i < at + 8; i++)
			nr += a[i] != b[i];
	}
	return nr;
}

static bool integers_count;	/* registers for integers are looked at */

static bool same(const struct left *a, const struct left *b, const char *what)
{
	static const char *const gpr[] = { "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11" };
	char text[512];
	size_t first, n, used = 0;

	n = secrets(a->stack, b->stack, STACK_BYTES, &first);
	if (n)
		used += (size_t)snprintf(text + used, sizeof(text) - used, " %zu bytes of stack, from %zu below;", n,
					 STACK_BYTES - 256 - first);
	for (int i = 0; i < 32; i++) {
		if (secrets(a->probe.vec[i], b->probe.vec[i], 64, &first))
			used += (size_t)snprintf(text + used, sizeof(text) - used, " v%d", i);
	}
	for (int i = 0; i < 8; i++) {
		if (a->probe.mask[i] != b->probe.mask[i])
			used += (size_t)snprintf(text + used, sizeof(text) - used, " k%d", i);
	}
	for (int i = 0; integers_count && i < NR_GPR; i++) {
		if (secrets((const u8 *)&a->probe.gpr[i], (const u8 *)&b->probe.gpr[i], 8, &first))
			used += (size_t)snprintf(text + used, sizeof(text) - used, " %s", gpr[i]);
	}
	if (used)
		print_message("# %s: left of secrets:%s\n", what, text);
	return !used;
}

/*
 * Secrets anew. The nonce and the associated data are public, and stay; so does ciphertext that is given. Tweaks, and the
 * hash that a core goes on from, are secret.
 */
static void new_secrets(int op, size_t len)
{
	test_fill(room.raw, sizeof(room.raw));
	if (!strstr(ops[op].name, "decrypt") && op != OP_GCM_AUTH && op != OP_CORE_GHASH)
		test_fill(room.src, len);
	if ((op >= OP_CORE_XTS_ENCRYPT && op <= OP_CORE_XTS_GB_DECRYPT) || op == OP_CORE_GHASH)
		test_fill(room.iv, sizeof(room.iv));
	memset(room.dst, 0, sizeof(room.dst));
}

static void do_run(void *unused)
{
	room.ret = room.op->run(&room.key, &room.args);
}

static void do_set_key(void *unused)
{
	room.op->set_key(room.args.core, &room.key, room.raw);
}

static void prepare(const struct sits_sm4_core *core, int op, size_t len, uint64_t split)
{
	struct op_args peer;

	room.op = &ops[op];
	room.args = (struct op_args){ .core = core, .raw = room.raw, .iv = room.iv, .iv_len = ops[op].aead ? 12 : 16,
				      .aad = room.aad, .aad_len = ops[op].aead ? sizeof(room.aad) - 3 : 0, .dst = room.dst,
				      .src = room.src, .len = len, .split = split };
	new_secrets(op, len);
	if (op == OP_GCM_DECRYPT || op == OP_GCM_AUTH) {
		peer = room.args;
		peer.dst = room.dst;
		ops[op].peer(&peer);
		memcpy(room.args.tag, peer.tag, 16);
		memset(room.dst, 0, sizeof(room.dst));
	}
	memset(&room.key, 0, sizeof(room.key));
}

static const struct sits_sm4_core *core_tested;

static bool check_op(int op, size_t len, uint64_t split)
{
	static struct left set;
	bool encrypts = strstr(ops[op].name, "encrypt");
	char what[128];

	for (int i = 0; i < 2; i++) {
		prepare(core_tested, op, len, split);
		call(do_set_key, NULL, &set);
		call(do_run, NULL, &left[i]);
		assert_int_equal(left[i].ret, 0);
		memcpy(public[i].text, room.dst, len);
		memcpy(public[i].tag, room.args.tag, 16);
		public[i].len = encrypts ? len + !len : 0;
	}
	snprintf(what, sizeof(what), "%s, %s of %zu bytes%s", core_tested->name, ops[op].name, len, split ? " in pieces" : "");
	return same(&left[0], &left[1], what);
}

/* Making keys ready: of SM4, XTS, GCM. */
static void test_set_key(void **state)
{
	static const int with_key[] = { OP_CTR, OP_XTS_ENCRYPT, OP_GCM_ENCRYPT };
	bool ok = true;

	core_tested = *state;
	integers_count = false;
	for (size_t k = 0; k < sizeof(with_key) / sizeof(with_key[0]); k++) {
		for (int i = 0; i < 2; i++) {
			prepare(core_tested, with_key[k], 0, 0);
			call(do_set_key, NULL, &left[i]);
			public[i].len = 0;
		}
		ok &= same(&left[0], &left[1], ops[with_key[k]].name);
	}
	assert_true(ok);
}

/* The functions of a core alone promise to stay within 4 KiB of stack. Ours on top of them: op_*() of the test. */
#define CORE_STACK	(4096 + 256)

static void test_core(void **state)
{
	static const size_t lens[] = { 16, 48, 256, 512, 1024, 1040, 2048, 4096, 4384, 8192 };
	size_t deepest = 0;
	bool ok = true;

	core_tested = *state;
	integers_count = core_tested != &sits_sm4_portable;
	for (int op = OP_CORE_ENCRYPT; op < NR_OPS; op++) {
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			ok &= check_op(op, lens[i], 0);
			deepest = depth(&left[0]) > deepest ? depth(&left[0]) : deepest;
		}
	}
	print_message("# %s: up to %zu bytes of stack\n", core_tested->name, deepest);
	assert_true(ok);
	if (!OPS_SANITIZED)
		assert_in_range(deepest, 1, CORE_STACK);
}

static void test_modes(void **state)
{
	static const size_t lens[] = { 0, 1, 15, 16, 33, 100, 256, 777, 1024, 2048, 2061, 4500, 8192 };
	bool ok = true;

	core_tested = *state;
	integers_count = false;
	for (int op = 0; op < OP_CORE_ENCRYPT; op++) {
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			size_t len = lens[i] - lens[i] % ops[op].step;

			if (len < ops[op].min_len)
				continue;
			ok &= check_op(op, len, 0);
			if (ops[op].pieces)
				ok &= check_op(op, len, 12345 + i);
		}
	}
	assert_true(ok);
}

/* What refuses a message leaves nothing either: neither of the key, nor what it deciphered meanwhile. */
static void test_refusal(void **state)
{
	bool ok = true;

	core_tested = *state;
	integers_count = false;
	public[0].len = 0;
	for (size_t len = 1; len < 5000; len = 3 * len + 1) {
		for (int i = 0; i < 2; i++) {
			prepare(core_tested, OP_GCM_DECRYPT, len, 0);
			room.args.tag[5] ^= 0x10;
			op_gcm_key(core_tested, &room.key, room.raw);
			call(do_run, NULL, &left[i]);
			assert_int_equal(left[i].ret, -EBADMSG);
			for (size_t j = 0; j < sizeof(room.dst); j++)
				assert_int_equal(room.dst[j], 0);
		}
		ok &= same(&left[0], &left[1], "refusal");
	}
	assert_true(ok);
}

static bool zero(const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (((const u8 *)p)[i])
			return false;
	}
	return true;
}

static void test_states_are_wiped(void **state)
{
	struct sits_gcm *s = &room.gcm;
	union op_key key;
	u8 iv[16], text[100], tag[16];

	core_tested = *state;
	test_fill(iv, 16);
	test_fill(room.raw, 16);
	test_fill(text, sizeof(text));
	op_gcm_key(core_tested, &key, room.raw);
	for (int end = 0; end < 5; end++) {
		test_fill(text, sizeof(text));
		assert_int_equal(sits_gcm_start(s, &key.gcm, iv, 12), 0);
		assert_int_equal(sits_gcm_aad(s, text, 21), 0);
		assert_int_equal(sits_gcm_update_encrypt(s, text, text, 77), 0);
		assert_false(zero(s, sizeof(*s)));
		if (end == 0)
			sits_gcm_final(s, tag);
		else if (end == 1)
			sits_gcm_abandon(s);
		else if (end == 2)	/* of another message */
			assert_int_equal(sits_gcm_verify(s, tag, 16), -EBADMSG);
		else if (end == 3)
			assert_int_equal(sits_gcm_verify(s, tag, 3), -EINVAL);
		else
			assert_int_equal(sits_gcm_verify(s, tag, 17), -EINVAL);
		assert_true(zero(s, sizeof(*s)));
	}
	op_sm4_key(core_tested, &key, room.raw);
	sits_sm4_stream_start(&room.stream, &key.sm4, iv);
	sits_sm4_stream_crypt(&room.stream, text, text, 37);
	assert_false(zero(&room.stream, sizeof(room.stream)));
	sits_sm4_stream_end(&room.stream);
	assert_true(zero(&room.stream, sizeof(room.stream)));
}

/* The probe sees what is left: in a register, and on the stack. */
static __attribute__((noinline)) void leaky(void *unused)
{
	volatile u8 copy[300];

	for (size_t i = 0; i < sizeof(copy); i++)
		copy[i] = room.raw[i % 16];
	asm volatile("vmovdqu %0, %%ymm5" : : "m"(*(const u8 (*)[32])room.raw) : "xmm5");
}

static void test_probe_sees(void **state)
{
	for (int i = 0; i < 2; i++) {
		new_secrets(OP_CTR, 16);
		call(leaky, NULL, &left[i]);
	}
	assert_memory_not_equal(left[0].probe.vec[5], left[1].probe.vec[5], 32);
	assert_memory_not_equal(left[0].stack, left[1].stack, STACK_BYTES);
	for (int i = 0; i < 2; i++) {
		new_secrets(OP_CTR, 16);
		call(nothing_at_all, NULL, &left[i]);
	}
	assert_true(same(&left[0], &left[1], "nothing"));
}

static int setup(void **state)
{
	room.stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return room.stack == MAP_FAILED ? -1 : 0;
}

int main(void)
{
	static char names[40][64];
	struct CMUnitTest tests[40];
	const struct sits_sm4_core *const *cores;
	unsigned int nr, n = 0;

	cmocka_set_message_output(CM_OUTPUT_TAP);
	peer_init();
	test_seed_init();
	test_fill(room.iv, sizeof(room.iv));
	test_fill(room.aad, sizeof(room.aad));
	if (OPS_SANITIZED || !(sits_cpu_features() & SITS_CPU_AVX2)) {
		printf("1..0 # SKIP %s\n", OPS_SANITIZED ? "what instrumented code leaves on the stack is not ours"
						     : "the probe needs AVX");
		return 0;
	}
	cores = sits_sm4_cores(&nr);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_probe_sees);
	for (unsigned int c = 0; c < nr; c++) {
		static const struct {
			const char *name;
			CMUnitTestFunction fn;
		} each[] = {
			{ "functions of the core", test_core },
			{ "making keys", test_set_key },
			{ "modes", test_modes },
			{ "refusal", test_refusal },
			{ "states are wiped", test_states_are_wiped },
		};

		for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", cores[c]->name, each[i].name);
			tests[n] = (struct CMUnitTest){ names[n], each[i].fn, NULL, NULL, (void *)cores[c] };
		}
	}
	return _cmocka_run_group_tests("sm4 residue", tests, n, setup, NULL);
}

#else

int main(void)
{
	printf("1..0 # SKIP the probe is for x86-64\n");
	return 0;
}

#endif
