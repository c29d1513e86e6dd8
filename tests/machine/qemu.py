"""QEMU's command line: a machine of two processors, two serial lines, and nothing else."""

from __future__ import annotations

from pathlib import Path

PARAMETERS = (
    "console=ttyS0 loglevel=5 panic=-1 oops=panic reboot=t rdinit=/bin/init log_buf_len=4M no_timer_check tsc=reliable "
    "lpj=10000000 mitigations=off random.trust_cpu=on audit=0 watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120"
)
"""Warnings are said on the console, a panic is its end. A processor that stood still for seconds may have got no time outside;
for two minutes, it is stuck. The rest is what a boot need not spend its seconds on."""


def command(
    vmlinuz: Path, initramfs: Path, *, console: Path, line: int, memory_mib: int, is_parallel: bool, parameters: str
) -> list[str]:
    """`line`: the descriptor of the socket that becomes ttyS1. Without KVM, and killed with the process that started it."""
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
