# SPDX-License-Identifier: MIT
"""The guest in Bochs, whose emulated processor has AVX-512 and GFNI, which QEMU's has not.

Bochs has no way to load a kernel, and what unpacks one there takes a minute. So the kernel is unpacked here, and a disk made of it: the
boot sector of tests/vm/boot.S, the boot parameters with page tables behind them, the kernel, the initramfs, each where a table in the
boot sector says. Source: the kernel's Documentation/arch/x86/boot.rst, zero-page.rst; the ELF specification; Bochs' user manual.
"""
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import termios
import threading
import time
import tty

import initramfs
import kernels

BOCHS = "bochs"
BIOS, VGA_BIOS = "/usr/share/bochs/BIOS-bochs-latest", "/usr/share/bochs/VGABIOS-lgpl-latest"
SERIES = "6.1"         # whose command line is below
CPU = "tigerlake"      # AVX-512 F, BW, DQ, VL, VBMI, VNNI, but no BF16; GFNI, VAES, VPCLMULQDQ
MEMORY = 1 << 30
IPS = 20_000_000       # instructions that a second of the guest has; Bochs does as many in one to two seconds of ours
PATIENCE = 4           # times the usual limits; the guest adds 7 times for a boot that always takes it 70 seconds

# No ACPI, no PCI, one processor and the old interrupt controller: what boots in the fewest instructions. What is cleared, Bochs 2.7
# describes wrongly: the place of PKRU and the size of compacted states in CPUID leaf 13 (without AVX-512's registers then, Linux says),
# and fast copying, which MSR_IA32_MISC_ENABLE says is off: with FSRM but no ERMS, Linux' memmove() of less than 32 bytes has no end.
# The last word goes to the environment: to resolve a function when it is first called, ld.so uses XSAVEC, after which XRSTOR faults.
COMMAND_LINE = ("console=ttyS0 panic=-1 oops=panic printk_devkmsg=on loglevel=7 nokaslr mitigations=off nosmp noapic nolapic acpi=off "
                "pci=off no_timer_check i8042.nokbd i8042.noaux tsc=unstable clearcpuid=pku,xsaves,xsavec,fsrm LD_BIND_NOW=1")
TAINT = "S"            # of clearcpuid

SECTOR = 512
PIECE = 64 * SECTOR    # as in boot.S
HEADS, SECTORS_PER_TRACK = 16, 63
# In boot.S, from its end: the signature, three parts of three words, and three words more.
TABLE = SECTOR - 2 - 12 * 4

# The first part, at LOW: boot parameters, command line, and tables that map 4 GiB to themselves.
LOW, LINE_AT, TABLES_AT = 0x20000, 0x1000, 0x2000
# Offsets into the boot parameters, and into the kernel's file, whose header goes there.
SETUP_SECTS, HEADER_JUMP, TYPE_OF_LOADER, RAMDISK, LINE_POINTER, PAYLOAD = 0x1f1, 0x201, 0x210, 0x218, 0x228, 0x248
E820_ENTRIES, E820_TABLE, RAM, RESERVED = 0x1e8, 0x2d0, 1, 2
PT_LOAD = 1


def check():
    """Raises kernels.Unavailable where Bochs can't run."""
    for what in (BOCHS, BIOS, VGA_BIOS):
        if not shutil.which(what) and not os.path.exists(what):
            raise kernels.Unavailable(f"{what} is not there (see scripts/install-deps avx512)")


def unpack(vmlinuz):
    """The ELF file in a kernel."""
    sectors = vmlinuz[SETUP_SECTS] or 4
    offset, length = struct.unpack_from("<II", vmlinuz, PAYLOAD)
    start = (sectors + 1) * SECTOR + offset
    try:  # the size unpacked comes after it
        elf = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(vmlinuz[start:start + length])
    except lzma.LZMAError as e:
        raise kernels.Unavailable(f"the kernel is not packed with xz: {e}") from e
    if elf[:4] != b"\x7fELF":
        raise kernels.Unavailable("what is packed in the kernel is no ELF file")
    return elf


def memory_image(elf):
    """(entry, first address, bytes, end of what it takes), physical."""
    entry, headers = struct.unpack_from("<QQ", elf, 24)
    size, count = struct.unpack_from("<HH", elf, 54)
    parts = [struct.unpack_from("<IIQQQQQ", elf, headers + i * size) for i in range(count)]
    parts = [(offset, at, in_file, in_memory) for kind, _, offset, _, at, in_file, in_memory in parts if kind == PT_LOAD]
    first = min(at for _, at, _, _ in parts)
    image = bytearray(max(at + in_file for _, at, in_file, _ in parts) - first)
    for offset, at, in_file, _ in parts:
        image[at - first:at - first + in_file] = elf[offset:offset + in_file]
    return entry, first, bytes(image), max(at + in_memory for _, at, _, in_memory in parts)


def boot_parameters(vmlinuz, ramdisk_at, ramdisk_len):
    low = bytearray(PIECE)
    end = HEADER_JUMP + 1 + vmlinuz[HEADER_JUMP]
    low[SETUP_SECTS:end] = vmlinuz[SETUP_SECTS:end]
    low[TYPE_OF_LOADER] = 0xff
    struct.pack_into("<II", low, RAMDISK, ramdisk_at, ramdisk_len)
    struct.pack_into("<I", low, LINE_POINTER, LOW + LINE_AT)
    line = COMMAND_LINE.encode() + b"\0"
    low[LINE_AT:LINE_AT + len(line)] = line
    # Not the last MiB, where the BIOS has its tables.
    areas = [(0, 0x9f000, RAM), (0x9f000, 0x61000, RESERVED), (1 << 20, MEMORY - (2 << 20), RAM)]
    low[E820_ENTRIES] = len(areas)
    for i, area in enumerate(areas):
        struct.pack_into("<QQI", low, E820_TABLE + 20 * i, *area)
    present_writable, large = 3, 0x80
    directory = LOW + TABLES_AT + 0x1000
    struct.pack_into("<Q", low, TABLES_AT, directory | present_writable)
    for i in range(4):
        struct.pack_into("<Q", low, TABLES_AT + 0x1000 + 8 * i, directory + 0x1000 * (i + 1) | present_writable)
    for i in range(4 * 512):
        struct.pack_into("<Q", low, TABLES_AT + 0x2000 + 8 * i, i << 21 | large | present_writable)
    return bytes(low)


def write_disk(path, boot_sector, vmlinuz, ramdisk):
    """Return its cylinders."""
    entry, first, image, end = memory_image(unpack(vmlinuz))
    ramdisk_at = -(-end // (2 << 20)) * (2 << 20)
    parts = [(LOW, boot_parameters(vmlinuz, ramdisk_at, len(ramdisk))), (first, image), (ramdisk_at, ramdisk)]
    sector = bytearray(boot_sector)
    struct.pack_into("<III", sector, TABLE, entry, LOW, LOW + TABLES_AT)
    at, cylinder = 1, SECTOR * HEADS * SECTORS_PER_TRACK
    with open(path, "wb") as disk:
        disk.seek(SECTOR)
        for i, (address, data) in enumerate(parts):
            pieces = -(-len(data) // PIECE)
            struct.pack_into("<III", sector, TABLE + 12 * (i + 1), address, pieces, at)
            disk.write(data + bytes(pieces * PIECE - len(data)))
            at += pieces * (PIECE // SECTOR)
        cylinders = -(-disk.tell() // cylinder)
        disk.truncate(cylinders * cylinder)
        disk.seek(0)
        disk.write(sector)
    return cylinders


def without_gfni_fault(program, to):
    """A copy of a program that gives in Bochs 2.7 what the program gives on a processor; without what is for debuggers.

    There the affine maps of GFNI give the complement of each bit, since parity_byte() in cpu/gf2.cc is 1 for an even number of ones (upstream
    12ce649b4 of 2023-11-18, "fix GFNI instructions emulation"). The last byte of such an instruction is xored to its result.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["objcopy", "--strip-debug", program, to], check=True)
    sections = []
    for line in subprocess.run(["objdump", "-h", "-w", to], capture_output=True, text=True, check=True).stdout.splitlines():
        f = line.split()
        if len(f) > 6 and f[0].isdigit():
            sections.append((int(f[3], 16), int(f[2], 16), int(f[5], 16)))  # address, size, place in the file
    data, map_before = bytearray(to.read_bytes()), None
    with subprocess.Popen(["objdump", "-d", "-w", "--no-show-raw-insn", to], stdout=subprocess.PIPE, text=True) as p:
        for m in filter(None, map(re.compile(r"\s*([0-9a-f]+):\s+(\S+)\s*(?:\$(\w+))?").match, p.stdout)):
            last = int(m[1], 16) - 1
            if map_before is not None:
                place = next(offset + last - at for at, size, offset in sections if at <= last < at + size)
                if data[place] != map_before:
                    raise initramfs.Missing(f"{program}: the instruction before {m[1]} does not end with {map_before:#x}")
                data[place] ^= 0xff
            map_before = int(m[3], 0) if "gf2p8affine" in m[2] else None
    to.write_bytes(data)
    return to


def drain_screen(proc, errors):
    """Bochs shows its screen on a terminal that it makes itself, and stands still once that is full: read it, for nobody."""
    screen = None
    while not screen and proc.poll() is None:
        screen = re.search(rb'connected to screen "(/dev/pts/\d+)"', os.pread(errors.fileno(), 65536, 0))
        time.sleep(0.2)
    try:
        fd = os.open(screen[1], os.O_RDONLY | os.O_NOCTTY)
        tty.setraw(fd)
        while os.read(fd, 65536):
            pass
        os.close(fd)
    except (OSError, TypeError, termios.error):
        pass  # it is gone


def start(disk, cylinders, folder, log, errors):
    """A process with the guest's report as its standard output."""
    report, report_in = os.pipe()
    config, commands = pathlib.Path(folder) / "bochsrc", pathlib.Path(folder) / "commands"
    config.write_text(f"""\
display_library: term
romimage: file={BIOS}
vgaromimage: file={VGA_BIOS}
memory: guest={MEMORY >> 20}, host={MEMORY >> 20}
cpu: model={CPU}, count=1, ips={IPS}, reset_on_triple_fault=0
clock: sync=none
boot: disk
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, mode=flat, path={disk}, cylinders={cylinders}, heads={HEADS}, spt={SECTORS_PER_TRACK}
com1: enabled=1, mode=file, dev={log}
com2: enabled=1, mode=file, dev=/proc/self/fd/{report_in}
log: {pathlib.Path(folder) / 'bochs.log'}
panic: action=fatal
error: action=report
""")
    commands.write_text("c\n")  # Debian's Bochs starts in its debugger
    env = {**os.environ, "TERM": "vt100", "LINES": "30", "COLUMNS": "90"}
    proc = subprocess.Popen([BOCHS, "-q", "-unlock", "-f", config, "-rc", commands], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=errors, pass_fds=(report_in,), env=env)
    os.close(report_in)
    threading.Thread(target=drain_screen, args=(proc, errors), daemon=True).start()
    proc.stdout = os.fdopen(report, "rb", 0)
    return proc
