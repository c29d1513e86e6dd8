/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What the core asks of the form it is in, answered for the kernel: its context is an instance, its owners are
 * members.
 */
#ifndef FORM_H
#define FORM_H

#include "../core/core.h"

extern const struct core_form form;

#endif
