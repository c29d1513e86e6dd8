#include "memory.h"

#include <asm-generic/errno.h>
#include <linux/mman.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "syscalls.h"

#ifdef __aarch64__
#define PAGE 65536ul /* the largest that a kernel has there: what is mapped is whole pages with the smaller ones too */
#else
#define PAGE 4096ul
#endif

#if !__STDC_HOSTED__
/* The compiler makes calls of these two out of plain assignments, so they cannot be written as plain assignments. */
void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
	void *result = to;

#ifdef __aarch64__
	for (size_t i = 0; i < size; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
#else
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
#endif
	return result;
}

void *memset(void *to, int value, size_t size)
{
	void *result = to;

#ifdef __aarch64__
	for (size_t i = 0; i < size; i++)
		((volatile char *)to)[i] = (char)value;
#else
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(value) : "memory");
#endif
	return result;
}
#endif

static size_t in_pages(size_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1);
}

static void *map(size_t size, int advice)
{
	long at = sys_call6(__NR_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (sys_is_error(at))
		return NULL;
	if (sys_is_error(sys_call3(__NR_madvise, at, (long)size, advice))) {
		memory_free((void *)at, size);
		return NULL;
	}
	return (void *)at;
}

void *memory_wiped_on_fork(size_t size)
{
	return map(in_pages(size), MADV_WIPEONFORK);
}

void memory_free(void *memory, size_t size)
{
	sys_call3(__NR_munmap, (long)memory, (long)in_pages(size), 0);
}

void *memory_grow(void *memory, size_t old_size, size_t new_size)
{
	size_t old_pages = in_pages(old_size), new_pages = in_pages(new_size);
	long at;

	if (new_size == 0) {
		if (memory)
			memory_free(memory, old_size);
		return NULL;
	}
	if (!memory)
		return map(new_pages, MADV_DONTFORK);
	if (new_size > old_size)
		memset((char *)memory + old_size, 0, (new_size < old_pages ? new_size : old_pages) - old_size);
	if (new_pages == old_pages)
		return memory;
	at = sys_call4(__NR_mremap, (long)memory, (long)old_pages, (long)new_pages, MREMAP_MAYMOVE);
	return sys_is_error(at) ? NULL : (void *)at;
}

/*
 * The kernel copies, so that a wild pointer gives an error and no crash. Where these calls are forbidden (a seccomp
 * profile) the copy is a plain one: a wild pointer then crashes the process that passed it.
 */
static int copy(long number, void *ours, uint64_t theirs, size_t size)
{
	static _Atomic bool is_forbidden;
	struct sys_iovec here = { (uint64_t)(uintptr_t)ours, size }, there = { theirs, size };
	long count;

	if (!atomic_load_explicit(&is_forbidden, memory_order_relaxed)) {
		count = sys_call6(number, sys_getpid(), (long)&here, 1, (long)&there, 1, 0);
		if (count == (long)size)
			return 0;
		if (count != -EPERM && count != -ENOSYS)
			return -1;
		atomic_store_explicit(&is_forbidden, true, memory_order_relaxed);
	}
	if (number == __NR_process_vm_readv)
		memcpy(ours, (const void *)(uintptr_t)theirs, size);
	else
		memcpy((void *)(uintptr_t)theirs, ours, size);
	return 0;
}

int memory_copy_in(void *to, uint64_t from, size_t size)
{
	return copy(__NR_process_vm_readv, to, from, size);
}

int memory_copy_out(uint64_t to, const void *from, size_t size)
{
	return copy(__NR_process_vm_writev, (void *)(uintptr_t)from, to, size);
}
