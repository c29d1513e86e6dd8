/* What the behaviour needs of a kernel: memory, the caller's pages, the calling process and its files. */
#include <linux/capability.h>
#include <linux/fdtable.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvidia.h"
#include "objects.h"

static void *take(size_t bytes)
{
	return kvzalloc(bytes, GFP_KERNEL);
}

static void give(void *memory)
{
	kvfree(memory);
}

static bool read_memory(const struct rm_caller *caller, void *to, u64 from, size_t bytes)
{
	return copy_from_user(to, u64_to_user_ptr(from), bytes) == 0;
}

/*
 * kernel-open/nvidia/os-interface.c, 515.43.04 to 595.45.04: all parameters behind a pointer come in by this (param_copy.c).
 */
noinline u32 os_memcpy_from_user(void *to, const void *from, u32 bytes)
{
	return copy_from_user(to, (const void __user *)from, bytes) ? RM_BAD_ADDRESS : RM_OK;
}

static bool read_parameters(const struct rm_caller *caller, void *to, u64 from, size_t bytes)
{
	return os_memcpy_from_user(to, (const void *)(uintptr_t)from, (u32)bytes) == RM_OK;
}

static bool write_memory(const struct rm_caller *caller, u64 to, const void *from, size_t bytes)
{
	return copy_to_user(u64_to_user_ptr(to), from, bytes) == 0;
}

static u32 process(const struct rm_caller *caller)
{
	return task_tgid_nr(current);
}

static bool is_admin(const struct rm_caller *caller)
{
	return capable(CAP_SYS_ADMIN);
}

static bool is_control(const struct rm_caller *caller, s32 descriptor)
{
	return nvidia_register_control(caller->context, descriptor);
}

static struct rm_file *take_control(const struct rm_caller *caller, s32 descriptor, void **kept)
{
	return nv_get_file_private(descriptor, true, kept);
}

static int is_of_card(const void *card, struct file *file, unsigned int descriptor)
{
	return nvidia_is_file_of_card(file, *(const u32 *)card);
}

/* One of the caller's open files is that card's. */
static bool has_card(const struct rm_caller *caller, u32 card)
{
	return iterate_fd(current->files, 0, is_of_card, &card) != 0;
}

const struct rm_host nvidia_host = {
	.take = take,
	.give = give,
	.read = read_memory,
	.read_parameters = read_parameters,
	.write = write_memory,
	.process = process,
	.is_admin = is_admin,
	.is_control = is_control,
	.take_control = take_control,
	.give_control = nv_put_file_private,
	.has_card = has_card,
};
