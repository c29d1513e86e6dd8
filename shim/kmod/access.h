/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Who may touch the nodes, beyond their modes. */
#ifndef ACCESS_H
#define ACCESS_H

struct file;
struct instance;

/*
 * Writing: who opened the node and who writes both have CAP_SYS_ADMIN in the initial user namespace, and the writer is
 * nobody's. 0 or -EPERM, which is logged.
 */
int access_to_write(const struct file *file);
/*
 * Reading what tells of an instance, or of all (NULL): managed tasks read of their own only; who is nobody's needs
 * CAP_SYS_ADMIN in the initial user namespace. 0 or -EACCES.
 */
int access_to_read(const struct instance *instance);

#endif
