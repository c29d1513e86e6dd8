/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The core's callbacks in the kernel: the context is a budget, the owners are processes. */
#ifndef OPS_H
#define OPS_H

#include "../core/core.h"

extern const struct core_ops kernel_ops;

#endif
