/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Standing in the driver's place: the character device behind the control node gets a table of ours, whose only
 * operation is `open`. An opener that is not managed gets the driver's own table back before the driver's open runs;
 * a managed one gets a managed file.
 *
 *      attached    the driver's module is held
 *      detached    open managed files stay limited, and hold the driver's module themselves
 */
#ifndef ATTACH_H
#define ATTACH_H

#include <linux/types.h>

/*
 * Both under the commands' lock. The node is looked up in the initial mount namespace. -ENODEV: there is no such
 * node, it is not the driver's, or this module is being unloaded; -EBUSY: another module has replaced the table;
 * -EOPNOTSUPP: the driver's layouts are not known.
 */
int attach_begin(const char *control);
/* Waits for opens that are in this module, not for the driver's part of them. Nothing to do when it is not attached. */
void attach_end(void);

/* Under the commands' lock. */
bool attach_is_on(void);
/* While it is attached: the driver's version, and whether one device serves the cards too (up to 535). */
const char *attach_version(void);
bool attach_has_one_device(void);

#endif
