#include "process.h"

#include "memory.h"
#include "log.h"
#include "syscalls.h"

#define GROUPS_PER_CARD 64 /* channel groups; the module's max_groups is initially the same */

struct process *_Atomic process_made;

static void lock_core(void *context)
{
	lock_acquire(&((struct process *)context)->core_lock);
}

static void unlock_core(void *context)
{
	lock_release(&((struct process *)context)->core_lock);
}

static void *grow(void *context, void *memory, size_t old_size, size_t new_size)
{
	(void)context;
	return memory_grow(memory, old_size, new_size);
}

static int copy_in(void *context, void *to, uint64_t from, size_t size)
{
	(void)context;
	return memory_copy_in(to, from, size);
}

static int copy_out(void *context, uint64_t to, const void *from, size_t size)
{
	(void)context;
	return memory_copy_out(to, from, size);
}

/* The owner is always this process: the agent knows by itself which container that is. */
static bool try_charge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	(void)owner;
	return quota_try_charge(&((struct process *)context)->quota, card, bytes);
}

static void settle_charge(void *context, void *owner, uint32_t card, uint64_t more_bytes)
{
	(void)owner;
	quota_settle_charge(&((struct process *)context)->quota, card, more_bytes);
}

static void uncharge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	(void)owner;
	quota_uncharge(&((struct process *)context)->quota, card, bytes);
}

static bool usage(void *context, void *owner, uint32_t card, uint64_t *limit, uint64_t *used)
{
	(void)owner;
	return quota_usage(&((struct process *)context)->quota, card, limit, used);
}

/* Two threads may make it at once; one of them wins. */
static struct process *make(void)
{
	struct process *made = memory_wiped_on_fork(sizeof(*made)), *other = NULL;

	if (!made) {
		log_once(LOG_KERNEL, "no memory that a fork wipes (needs Linux 4.14): GPU memory is refused");
		return NULL;
	}
	if (atomic_compare_exchange_strong(&process_made, &other, made))
		return made;
	memory_free(made, sizeof(*made));
	return other;
}

struct process *process_here(void)
{
	struct process *process = process_known();
	int pid = sys_getpid(), found = 0;

	if (!process)
		process = make();
	if (!process)
		return NULL;
	if (!atomic_compare_exchange_strong(&process->pid, &found, pid) && found != pid)
		return NULL;
	return process;
}

/* Of this process alone: the agent is not asked. */
static uint32_t groups_most(void *context)
{
	return quota_cards(&((struct process *)context)->quota) * GROUPS_PER_CARD;
}

static enum process_mode meet(struct process *process)
{
	static const struct core_ops ops = {
		.copy_in = copy_in, .copy_out = copy_out, .lock = lock_core, .unlock = unlock_core, .grow = grow,
		.try_charge = try_charge, .settle_charge = settle_charge, .uncharge = uncharge, .usage = usage,
		.groups_most = groups_most,
	};

	switch (quota_meet_agent(&process->quota)) {
	case QUOTA_NO_AGENT:
		log_once(LOG_NO_AGENT, "no agent answers at " PROTOCOL_SOCKET ": GPU memory is refused until one does");
		return PROCESS_NEW;
	case QUOTA_UNLIMITED:
		return PROCESS_ASIDE;
	case QUOTA_LIMITED:
		break;
	}
	if (core_begin(&process->core, &ops, process, process->quota.driver_version))
		return PROCESS_LIMITED;
	log_once(LOG_DRIVER, "this version of the NVIDIA driver is not known to vrampack: GPU memory is refused");
	return PROCESS_REFUSING;
}

enum process_mode process_begin(struct process *process)
{
	enum process_mode mode = process_mode(process);

	if (mode == PROCESS_NEW) {
		lock_acquire(&process->begin);
		mode = process_mode(process);
		if (mode == PROCESS_NEW) {
			mode = meet(process);
			atomic_store_explicit(&process->mode, mode, memory_order_release);
		}
		lock_release(&process->begin);
	} else if (mode == PROCESS_LIMITED && atomic_load(&process->quota.is_unlimited)) {
		mode = PROCESS_ASIDE;
		atomic_store_explicit(&process->mode, mode, memory_order_release);
	}
	return mode;
}
