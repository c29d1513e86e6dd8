#include "process.h"

#include "memory.h"
#include "say.h"
#include "syscalls.h"

struct process *_Atomic process_made;

static void take_core(void *context)
{
	lock_take(&((struct process *)context)->core_lock);
}

static void leave_core(void *context)
{
	lock_leave(&((struct process *)context)->core_lock);
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
	return books_try_charge(&((struct process *)context)->books, card, bytes);
}

static void force_charge(void *context, void *owner, uint32_t card, uint64_t more_bytes)
{
	(void)owner;
	books_force_charge(&((struct process *)context)->books, card, more_bytes);
}

static void uncharge(void *context, void *owner, uint32_t card, uint64_t bytes)
{
	(void)owner;
	books_uncharge(&((struct process *)context)->books, card, bytes);
}

static bool usage(void *context, void *owner, uint32_t card, uint64_t *limit, uint64_t *used)
{
	(void)owner;
	return books_usage(&((struct process *)context)->books, card, limit, used);
}

/* Two threads may make it at once; one of them wins. */
static struct process *make(void)
{
	struct process *made = memory_wiped_on_fork(sizeof(*made)), *other = NULL;

	if (!made) {
		say_once(SAY_KERNEL, "no memory that a fork wipes (needs Linux 4.14): GPU memory is refused");
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

static enum process_mode meet(struct process *process)
{
	static const struct core_ops ops = {
		.copy_in = copy_in, .copy_out = copy_out, .lock = take_core, .unlock = leave_core, .grow = grow,
		.try_charge = try_charge, .force_charge = force_charge, .uncharge = uncharge, .usage = usage,
	};

	switch (books_meet(&process->books)) {
	case BOOKS_ABSENT:
		say_once(SAY_NO_AGENT, "no agent answers at " PROTOCOL_SOCKET ": GPU memory is refused until one does");
		return PROCESS_NEW;
	case BOOKS_UNLIMITED:
		return PROCESS_ASIDE;
	case BOOKS_LIMITED:
		break;
	}
	if (core_begin(&process->core, &ops, process, process->books.driver_version))
		return PROCESS_LIMITED;
	say_once(SAY_DRIVER, "this version of the NVIDIA driver is not known to vrampack: GPU memory is refused");
	return PROCESS_REFUSING;
}

enum process_mode process_begin(struct process *process)
{
	enum process_mode mode = process_mode(process);

	if (mode == PROCESS_NEW) {
		lock_take(&process->begin);
		mode = process_mode(process);
		if (mode == PROCESS_NEW) {
			mode = meet(process);
			atomic_store_explicit(&process->mode, mode, memory_order_release);
		}
		lock_leave(&process->begin);
	} else if (mode == PROCESS_LIMITED && atomic_load(&process->books.is_unlimited)) {
		mode = PROCESS_ASIDE;
		atomic_store_explicit(&process->mode, mode, memory_order_release);
	}
	return mode;
}
