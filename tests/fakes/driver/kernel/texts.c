/*
 * /proc/driver/nvidia: `version` as the driver writes it, and for tests
 *
 *   fake    what has been given out, in the form of the user-space server's `state`; written to, `STATUS TIMES` as in its
 *           `refuse` (the next so many allocations end so), `peak`: from now on the peak is that of what comes, or `stall`:
 *           no open ends until `go`
 *   files   every open file: its name, the pid of the process that opened it, and whether its table of operations is the driver's: own, other
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvidia.h"

enum { ROWS = 8192, ORDER_BYTES = 32 };

struct row {
	u32 card, pid;
	u64 bytes;
};

struct rows {
	struct row *at;
	size_t count;
	bool is_short;
};

static struct proc_dir_entry *folder;

static void add_holding(void *to, u32 card, u32 pid, u64 bytes)
{
	struct rows *rows = to;
	size_t i;

	for (i = 0; i < rows->count; i++) {
		if (rows->at[i].card != card || rows->at[i].pid != pid)
			continue;
		rows->at[i].bytes += bytes;
		return;
	}
	rows->is_short |= rows->count == ROWS;
	if (!rows->is_short)
		rows->at[rows->count++] = (struct row){ card, pid, bytes };
}

static void say_state(struct seq_file *out, const struct rows *rows)
{
	struct rm_counts counts = rm_count(nvidia.rm);
	size_t i;

	for (i = 0; i < nvidia.card_count; i++) {
		const struct rm_card *card = &nvidia.cards[i];

		seq_printf(out, "card %s %u %llu %llu %llu\n", card->uuid, card->minor, card->total, card->used, card->peak);
	}
	for (i = 0; i < rows->count; i++)
		seq_printf(out, "process %s %u %llu\n", nvidia.cards[rows->at[i].card].uuid, rows->at[i].pid,
			   rows->at[i].bytes);
	seq_printf(out, "counts files=%llu clients=%llu objects=%llu refused=%llu calls=%llu\n", counts.files,
		   counts.clients, counts.objects, counts.refused, counts.calls);
}

static int show_fake(struct seq_file *out, void *unused)
{
	struct rows rows = { .at = kvcalloc(ROWS, sizeof(*rows.at), GFP_KERNEL) };

	if (!rows.at)
		return -ENOMEM;
	mutex_lock(&nvidia.lock);
	rm_each_holding(nvidia.rm, add_holding, &rows);
	say_state(out, &rows);
	mutex_unlock(&nvidia.lock);
	kvfree(rows.at);
	return rows.is_short ? -EOVERFLOW : 0;
}

static void forget_peaks(void)
{
	u32 i;

	for (i = 0; i < nvidia.card_count; i++)
		nvidia.cards[i].peak = nvidia.cards[i].used;
}

static ssize_t write_fake(struct file *file, const char __user *from, size_t size, loff_t *offset)
{
	char order[ORDER_BYTES] = "";
	unsigned int status, times;
	ssize_t answer = size;

	if (size >= sizeof(order))
		return -EINVAL;
	if (copy_from_user(order, from, size))
		return -EFAULT;
	mutex_lock(&nvidia.lock);
	if (sysfs_streq(order, "peak"))
		forget_peaks();
	else if (sysfs_streq(order, "stall") || sysfs_streq(order, "go"))
		WRITE_ONCE(nvidia.is_stalled, order[0] == 's');
	else if (sscanf(order, "%x %u", &status, &times) == 2)
		rm_refuse(nvidia.rm, status, times);
	else
		answer = -EINVAL;
	mutex_unlock(&nvidia.lock);
	wake_up_all(&nvidia.stall);
	return answer;
}

static int open_fake(struct inode *inode, struct file *file)
{
	return single_open(file, show_fake, NULL);
}

static const struct proc_ops fake_ops = {
	.proc_open = open_fake,
	.proc_read = seq_read,
	.proc_write = write_fake,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int show_files(struct seq_file *out, void *unused)
{
	nvidia_each_file(out);
	return 0;
}

static int show_version(struct seq_file *out, void *unused)
{
	seq_puts(out, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " NVIDIA_VERSION "  Thu Jan  1 00:00:00 UTC 1970\n");
	seq_puts(out, "GCC version:  gcc version 12.2.0\n");
	return 0;
}

int nvidia_texts_start(void)
{
	folder = proc_mkdir("driver/nvidia", NULL);
	if (!folder)
		return -ENOMEM;
	if (proc_create_single("version", 0444, folder, show_version)
	    && proc_create_single("files", 0444, folder, show_files)
	    && proc_create("fake", 0644, folder, &fake_ops))
		return 0;
	nvidia_texts_stop();
	return -ENOMEM;
}

void nvidia_texts_stop(void)
{
	proc_remove(folder);
}
