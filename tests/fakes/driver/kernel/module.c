/*
 * nvidia.ko without a GPU: `insmod nvidia.ko cards=UUID:MIB:MINOR,.. reserved=MIB`, as fake-driver's arguments. Which version
 * it is of, and so which devices it registers and which shapes calls have, is decided when it is built (NVIDIA_VERSION).
 */
#include <linux/kernel.h>
#include <linux/module.h>

#include "call.h"
#include "nvidia.h"

enum { MIB_SHIFT = 20, UUID_LENGTH = 40, OLDEST_BRANCH = 515 };

struct nvidia nvidia = {
	.lock = __MUTEX_INITIALIZER(nvidia.lock),
	.stall = __WAIT_QUEUE_HEAD_INITIALIZER(nvidia.stall),
};

static char *cards[RM_CARDS] = { "GPU-11111111-2222-3333-4444-555555555555:16130:0" };
static unsigned int card_count = 1;
module_param_array(cards, charp, &card_count, 0444);
MODULE_PARM_DESC(cards, "UUID:MIB:MINOR of each");

static ulong reserved = 256;
module_param(reserved, ulong, 0444);
MODULE_PARM_DESC(reserved, "MiB of each card that are never given out");

struct rm_file *nvidia_uvm_open(void)
{
	struct rm_file *file;

	mutex_lock(&nvidia.lock);
	file = rm_open(nvidia.rm, RM_UVM, 0);
	mutex_unlock(&nvidia.lock);
	return file;
}
EXPORT_SYMBOL_GPL(nvidia_uvm_open);

void nvidia_uvm_release(struct rm_file *file)
{
	mutex_lock(&nvidia.lock);
	rm_release(nvidia.rm, file);
	mutex_unlock(&nvidia.lock);
}
EXPORT_SYMBOL_GPL(nvidia_uvm_release);

long nvidia_uvm_ioctl(struct rm_file *file, unsigned int command, unsigned long argument)
{
	const struct rm_caller caller = { .host = &nvidia_host };
	int answer;

	mutex_lock(&nvidia.lock);
	answer = rm_call(nvidia.rm, file, &caller, command, argument);
	mutex_unlock(&nvidia.lock);
	return answer;
}
EXPORT_SYMBOL_GPL(nvidia_uvm_ioctl);

/* Without the driver's lock: callers of mmap hold their own, which the driver takes below its own. */
bool nvidia_uvm_has_pool(const struct rm_file *file, u64 base, u64 length)
{
	return uvm_has_pool(file, base, length);
}
EXPORT_SYMBOL_GPL(nvidia_uvm_has_pool);

static int __init parse_card(const char *text, struct rm_card *card)
{
	unsigned long long mib;
	int end = 0;

	if (sscanf(text, "%40[^:]:%llu:%u%n", card->uuid, &mib, &card->minor, &end) != 3 || text[end])
		return -EINVAL;
	if (strncmp(card->uuid, "GPU-", 4) || strlen(card->uuid) != UUID_LENGTH || card->minor >= NVIDIA_CARD_MINORS)
		return -EINVAL;
	if (!mib || reserved > mib)
		return -EINVAL;
	card->total = mib << MIB_SHIFT;
	card->reserved = (u64)reserved << MIB_SHIFT;
	return 0;
}

/* An unknown version has the shapes of the newest one before it. */
static const struct layout * __init layout_before(unsigned int branch)
{
	const struct layout *layout = NULL;

	while (!layout && branch > OLDEST_BRANCH)
		layout = layout_of(branch--);
	return layout ? layout : layout_of(OLDEST_BRANCH);
}

static int __init nvidia_init_module(void)
{
	int error;

	if (sscanf(NVIDIA_VERSION, "%u.", &nvidia.branch) != 1)
		return -EINVAL;
	for (; nvidia.card_count < card_count; nvidia.card_count++) {
		error = parse_card(cards[nvidia.card_count], &nvidia.cards[nvidia.card_count]);
		if (error)
			return error;
	}
	nvidia.rm = rm_new(&nvidia_host, layout_before(nvidia.branch), nvidia.cards, nvidia.card_count);
	if (!nvidia.rm)
		return -ENOMEM;
	error = nvidia_texts_start();
	if (error)
		goto end_rm;
	error = nvidia_devices_start();
	if (error)
		goto stop_texts;
	return 0;
stop_texts:
	nvidia_texts_stop();
end_rm:
	rm_end(nvidia.rm);
	return error;
}

static void __exit nvidia_exit_module(void)
{
	nvidia_devices_stop();
	nvidia_texts_stop();
	rm_end(nvidia.rm);
}

module_init(nvidia_init_module);
module_exit(nvidia_exit_module);

MODULE_DESCRIPTION("An NVIDIA driver without a GPU, for tests");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NVIDIA_VERSION);
MODULE_ALIAS_CHARDEV_MAJOR(NVIDIA_MAJOR);
