/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Calls a driver's function whose entry has a probe. Never through a pointer to the probe's address: in kernels with
 * indirect branch tracking (CONFIG_X86_KERNEL_IBT) it lies behind the ENDBR that marks a function's entry, and a
 * processor that enforces this (Intel's since Tiger Lake and Sapphire Rapids) raises a fault there, which is a kernel
 * BUG. Nor to the entry itself: the kernel removes the ENDBR of functions of which nobody takes the address. A direct
 * call may go anywhere.
 *
 *      DEFINE_STATIC_CALL_NULL(driver_ioctl, ioctl_function);
 *      static_call_update(driver_ioctl, (ioctl_function *)ioctl_probe.addr);
 *      status = static_call(driver_ioctl)(..);
 *
 * The second, which sleeps, after the probe is set and before a call is redirected to the third.
 */
#ifndef DRIVER_CALL_H
#define DRIVER_CALL_H

#include <linux/static_call.h>

#ifndef CONFIG_HAVE_STATIC_CALL
#error "This kernel has no static calls of its own (x86-64 has them since 5.10), so they would go through a pointer"
#endif

#endif
