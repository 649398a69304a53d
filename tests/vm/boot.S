/* SPDX-License-Identifier: MIT */
/*
 * boot.S - boot sector that loads a Linux kernel, already unpacked, and enters it at its 64-bit entry.
 *
 * tests/vm/bochs.py makes the disk: this sector, then the parts that the table at its end names. They are read through the BIOS, piece by
 * piece, and copied to where they belong. The boot parameters and the page tables come from the disk like the kernel.
 *
 * Source: Documentation/arch/x86/boot.rst, "64-bit Boot Protocol"; Intel SDM volume 3A, 10.8.5, "Initializing IA-32e Mode".
 */
#define PIECE_SECTORS	64
#define PIECE_BYTES	(PIECE_SECTORS * 512)
#define BUFFER		0x10000
#define CODE64		0x10	/* __BOOT_CS */
#define DATA		0x18	/* __BOOT_DS */
#define CR0_PE		1
#define CR0_PG		0x80000000
#define CR4_PAE		0x20
#define MSR_EFER	0xc0000080
#define EFER_LME	0x100

	.code16
	.text
	.globl	_start
_start:
	ljmp	$0, $start
start:
	cli
	xor	%ax, %ax
	mov	%ax, %ds
	mov	%ax, %ss
	mov	$0x7c00, %sp
	mov	%dl, drive
	in	$0x92, %al	/* the A20 line */
	or	$2, %al
	out	%al, $0x92
	mov	$parts, %bx
next_part:
	mov	8(%bx), %eax
	mov	%eax, lba
	mov	(%bx), %edi	/* where to */
	mov	4(%bx), %ebp	/* pieces */
next_piece:
	test	%ebp, %ebp
	jz	part_done
	mov	$0x42, %ah	/* extended read */
	mov	drive, %dl
	mov	$packet, %si
	push	%bx
	push	%edi
	push	%ebp
	sti
	int	$0x13
	cli
	pop	%ebp
	pop	%edi
	pop	%bx
	jc	failed
	/* Segments that reach all of memory outlive the way back to real mode. */
	lgdt	gdt_pointer
	mov	%cr0, %eax
	or	$CR0_PE, %al
	mov	%eax, %cr0
	mov	$DATA, %cx
	mov	%cx, %ds
	mov	%cx, %es
	and	$~CR0_PE, %al
	mov	%eax, %cr0
	xor	%cx, %cx
	mov	%cx, %ds
	mov	%cx, %es
	mov	$BUFFER, %esi
	mov	$PIECE_BYTES / 4, %ecx
	cld
	.byte	0x67		/* with addresses of 32 bits */
	rep movsl
	addl	$PIECE_SECTORS, lba
	dec	%ebp
	jmp	next_piece
part_done:
	add	$12, %bx
	cmp	$parts_end, %bx
	jb	next_part

	mov	params, %esi
	mov	entry, %edi
	mov	%cr4, %eax
	or	$CR4_PAE, %al
	mov	%eax, %cr4
	mov	tables, %eax
	mov	%eax, %cr3
	mov	$MSR_EFER, %ecx
	rdmsr
	or	$EFER_LME, %ax
	wrmsr
	lgdt	gdt_pointer
	mov	%cr0, %eax
	or	$CR0_PG | CR0_PE, %eax
	mov	%eax, %cr0
	ljmpl	$CODE64, $long_mode

failed:
	mov	$0xe, %ah
	mov	$'!', %al
	int	$0x10
	hlt
	jmp	failed

	.code64
long_mode:
	mov	$DATA, %eax
	mov	%eax, %ds
	mov	%eax, %es
	mov	%eax, %ss
	jmp	*%rdi

	.balign	8
gdt:
	.quad	0, 0
	.quad	0x00af9b000000ffff	/* code, 64 bits */
	.quad	0x00cf93000000ffff	/* data, 4 GiB */
gdt_pointer:
	.word	. - gdt - 1
	.long	gdt
drive:
	.byte	0x80
	.balign	4
packet:
	.byte	16, 0
	.word	PIECE_SECTORS
	.word	0, BUFFER >> 4
lba:
	.quad	0

	/* Filled in by bochs.py: addresses of the entry, the boot parameters and the page tables; for each part its address, the
	 * number of its pieces, and its first sector. */
	.org	512 - 2 - 48
entry:
	.long	0
params:
	.long	0
tables:
	.long	0
parts:
	.fill	9, 4, 0
parts_end:
	.word	0xaa55
