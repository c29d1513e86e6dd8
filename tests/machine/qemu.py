"""QEMU's command line: a machine with two processors, two serial lines and nothing else."""

from __future__ import annotations

from pathlib import Path

PARAMETERS = (
    "console=ttyS0 loglevel=5 panic=-1 oops=panic reboot=t rdinit=/bin/init log_buf_len=4M no_timer_check tsc=reliable "
    "lpj=10000000 mitigations=off random.trust_cpu=on audit=0 watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120"
)
"""Warnings go to the console, and a panic ends QEMU. A processor that stalls for seconds may only lack time on the host; after
two minutes it counts as stuck. The other parameters make the boot faster."""


def command(
    vmlinuz: Path, initramfs: Path, *, console: Path, line: int, memory_mib: int, is_parallel: bool, parameters: str
) -> list[str]:
    """`line`: descriptor of the socket that becomes ttyS1. Without KVM. QEMU is killed when its parent process ends."""
    machine = [
        "-machine",
        "pc",
        "-accel",
        f"tcg,thread={'multi' if is_parallel else 'single'}",
        "-cpu",
        "max",
        "-smp",
        "2,sockets=2",
        "-m",
        str(memory_mib),
    ]
    bare = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    chardevs = ["-chardev", f"file,id=console,path={console},append=on", "-chardev", f"socket,id=line,fd={line}"]
    lines = [*chardevs, "-serial", "chardev:console", "-serial", "chardev:line"]
    boot = ["-kernel", str(vmlinuz), "-initrd", str(initramfs), "-append", f"{PARAMETERS} {parameters}".strip()]
    return ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *machine, *bare, *lines, *boot]
