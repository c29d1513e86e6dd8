/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The processes of an instance that have opened control files, and what each uses: a member is the `owner` that the
 * core charges. It lives as long as it has a file or a charge, and its instance with it.
 */
#ifndef MEMBERS_H
#define MEMBERS_H

#include <linux/types.h>

#include "instances.h"

struct member;
struct seq_file;

/*
 * A file more of that process (its number in the initial namespace). The reference on the instance goes over. ERR_PTR:
 * no memory, or -EMFILE, so many processes have files.
 */
struct member *members_join(struct instance *instance, pid_t pid);
/* A file less. The member may be gone then. */
void members_leave(struct member *member);

/*
 * The budget, as core.h asks for it. CORE_ONLY_CARD is the instance's one card; where it has several or none, as on a
 * card that it was never given, there is no room and nothing to report.
 */
bool members_try_charge(struct member *member, u32 card, u64 bytes);
void members_force_charge(struct member *member, u32 card, u64 more_bytes);
void members_uncharge(struct member *member, u32 card, u64 bytes);
bool members_usage(struct member *member, u32 card, u64 *limit, u64 *used);

/* Those that were kept, as their sums were not true; there are no files any more. */
void members_end(struct instance *instance);

/* Under the instance's lock. */
u32 members_files(const struct instance *instance);
/*
 * Under the instance's lock: a line for each process that uses something of it; before its number, and before its
 * bytes.
 */
void members_show(struct seq_file *to, const struct budget *budget, const char *before, const char *between);

#endif
