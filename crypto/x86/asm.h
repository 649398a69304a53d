/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * asm.h - what assembly in crypto/x86/ needs from its surroundings; for .S files only.
 *
 * The same source becomes an object of the kernel module (objtool, IBT, return thunks and kCFI have their say: <linux/linkage.h>)
 * and of libsits. Between the first and the last instruction both have the same code, but for the form of the return.
 *
 *	SITS_FUNC_START(name)		a function that C calls, by name or by pointer
 *	...
 *	SITS_RET
 *	SITS_FUNC_END(name)
 *
 *	SITS_LOCAL_FUNC_START(name)	one that only the same file calls
 *
 *	SITS_FRAME_START(bytes)		room on the stack from %rsp on, 64-byte aligned; %rbp belongs to it
 *	SITS_FRAME_END			before each SITS_RET of such a function; the room is not wiped
 *
 *	SITS_PUSH(reg), SITS_POP(reg)	around such a frame; then SITS_FRAME_END_PUSHED(how many) ends it
 *
 *	SITS_RODATA(align)		constants from here on, reached by name(%rip); labels are local: SITS_LABEL(name)
 *	SITS_TEXT			code from here on
 *
 * SITS_ASM_END stands at the end of each file.
 */
#ifndef SITS_CRYPTO_X86_ASM_H
#define SITS_CRYPTO_X86_ASM_H

#ifdef __KERNEL__

#include <linux/cfi_types.h>
#include <linux/linkage.h>

#define SITS_FUNC_START(name) SYM_TYPED_FUNC_START(name)
#define SITS_FUNC_END(name) SYM_FUNC_END(name)
#define SITS_LOCAL_FUNC_START(name) SYM_FUNC_START_LOCAL(name)
#define SITS_RET RET
#define SITS_CFI(...)
#define SITS_ASM_END

#else

/* Tells the linker that this object is fit for CET, where the compiler makes the others so. */
#ifdef __CET__
#include <cet.h>
#endif

#define SITS_FUNC_START(name)	\
	.globl name;		\
	.hidden name;		\
	SITS_LOCAL_FUNC_START(name)
#define SITS_LOCAL_FUNC_START(name)	\
	.type name, @function;		\
	.balign 64;			\
	name:				\
	.cfi_startproc;			\
	endbr64
#define SITS_FUNC_END(name)	\
	.cfi_endproc;		\
	.size name, . - name
#define SITS_RET ret
#define SITS_CFI(...) __VA_ARGS__
#define SITS_ASM_END .section .note.GNU-stack, "", @progbits

#endif

#define SITS_LABEL(name) .L##name
#define SITS_RODATA(align)		\
	.section .rodata, "a", @progbits;	\
	.balign align
#define SITS_TEXT .text

#define SITS_PUSH(reg)				\
	push reg;				\
	SITS_CFI(.cfi_adjust_cfa_offset 8);	\
	SITS_CFI(.cfi_rel_offset reg, 0)
#define SITS_POP(reg)				\
	pop reg;				\
	SITS_CFI(.cfi_adjust_cfa_offset -8);	\
	SITS_CFI(.cfi_restore reg)

#define SITS_FRAME_START(bytes)			\
	push %rbp;				\
	SITS_CFI(.cfi_adjust_cfa_offset 8);	\
	SITS_CFI(.cfi_rel_offset %rbp, 0);	\
	mov %rsp, %rbp;				\
	SITS_CFI(.cfi_def_cfa_register %rbp);	\
	sub $(bytes), %rsp;			\
	and $-64, %rsp
/* Where code follows in the same function, SITS_FRAME_AGAIN stands after the SITS_RET. */
#define SITS_FRAME_END SITS_FRAME_END_PUSHED(0)
#define SITS_FRAME_END_PUSHED(count)		\
	SITS_CFI(.cfi_remember_state);		\
	mov %rbp, %rsp;				\
	pop %rbp;				\
	SITS_CFI(.cfi_def_cfa %rsp, 8 * (count) + 8)
#define SITS_FRAME_AGAIN SITS_CFI(.cfi_restore_state)

#endif
