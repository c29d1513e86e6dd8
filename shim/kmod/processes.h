/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * The processes of a budget that have opened control files, and what each uses: a process is the `owner` that the
 * core charges. It lives while it has a file or a charge, and keeps its budget alive.
 */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <linux/types.h>

#include "budgets.h"

struct process;
struct seq_file;

/*
 * Adds a file of that process (by its pid in the initial namespace), which takes over the reference on the budget.
 * ERR_PTR: no memory, or -EMFILE: too many processes have files.
 */
struct process *processes_add_file(struct budget *budget, pid_t pid);
/* Removes a file, which may free the process. */
void processes_drop_file(struct process *process);

/*
 * The callbacks of core_ops. CORE_ONLY_CARD is the budget's one card; where it has several or none, and on a card that
 * it was never given, nothing can be charged and there is no usage.
 */
bool processes_try_charge(struct process *process, u32 card, u64 bytes);
void processes_settle_charge(struct process *process, u32 card, u64 more_bytes);
void processes_uncharge(struct process *process, u32 card, u64 bytes);
bool processes_usage(struct process *process, u32 card, u64 *limit, u64 *used);

/* Frees those that were kept because their sums were wrong, once all files are closed. */
void processes_end(struct budget *budget);

/*
 * Under the budget's lock: writes a line for each process that uses memory of it: `before`, its pid, `between`, its
 * bytes.
 */
void processes_show(struct seq_file *to, const struct card_budget *card_budget, const char *before,
		    const char *between);

#endif
