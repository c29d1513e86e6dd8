/*
 * The four functions of libc that lead to the driver. What is not watched passes through in a few instructions.
 *
 *      ioctl   core decides about the watched numbers on the driver's files
 *      close   the last descriptor of a control file: the driver has freed what was made through it, and the quota is told
 *      mmap    of nvidia-uvm is refused where it would make managed memory, which takes the card's memory without any call
 *              that could be counted
 *
 * `next` is what the name would mean without this library; the system call itself where that is not known yet (before
 * the constructor, while dlsym runs) or never (no dlsym in the program).
 */
#include <asm-generic/errno.h>
#include <linux/mman.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../core/core.h"
#include "../core/layouts.h"
#include "files.h"
#include "process.h"
#include "syscalls.h"

#if __STDC_HOSTED__
#define EXPORTED(name) __asm__("__wrap_" #name) /* in a test program, whose own calls the linker sends here */
#else
#define EXPORTED(name) __asm__(#name) __attribute__((visibility("default")))
#endif

/* As all callers encode it, _IOWR('F', ESC_CONTROL, 32 bytes): its argument is a pointer then. */
#define CONTROL_REQUEST (0xC0004600ul | CONTROL_BYTES_MOST << 16 | ESC_CONTROL)

#define UVM_VALIDATE_VA_RANGE 72

#define RTLD_NEXT ((void *)-1l)

extern void *dlsym(void *handle, const char *name) __attribute__((weak));
extern int *__errno_location(void) __attribute__((weak, const));

typedef int ioctl_function(int fd, unsigned long request, ...);
typedef int close_function(int fd);
typedef void *mmap_function(void *at, size_t size, int protection, int flags, int fd, int64_t offset);

/* Without `...`: saving the registers that it stands for would cost more than all the rest of a passed call. */
int hook_ioctl(int fd, unsigned long request, uint64_t argument) EXPORTED(ioctl);
int hook_close(int fd) EXPORTED(close);
void *hook_mmap(void *at, size_t size, int protection, int flags, int fd, int64_t offset) EXPORTED(mmap);
void *hook_mmap64(void *at, size_t size, int protection, int flags, int fd, int64_t offset) EXPORTED(mmap64);

static ioctl_function *_Atomic next_ioctl;
static close_function *_Atomic next_close;
static mmap_function *_Atomic next_mmap;

static void set_error(long error)
{
	if (__errno_location)
		*__errno_location() = (int)error;
}

static long from_raw(long result)
{
	if (!sys_is_error(result))
		return result;
	set_error(-result);
	return -1;
}

/* dlsym may allocate, and an allocator may call mmap: calls that come here meanwhile use the system call. */
static __attribute__((constructor)) void find_next(void)
{
	static atomic_flag is_looking = ATOMIC_FLAG_INIT;

	if (!dlsym || atomic_flag_test_and_set(&is_looking))
		return;
	atomic_store(&next_ioctl, (ioctl_function *)dlsym(RTLD_NEXT, "ioctl"));
	atomic_store(&next_close, (close_function *)dlsym(RTLD_NEXT, "close"));
	atomic_store(&next_mmap, (mmap_function *)dlsym(RTLD_NEXT, "mmap"));
}

static __attribute__((noinline, cold)) int raw_ioctl(int fd, unsigned long request, uint64_t argument)
{
	find_next();
	return (int)from_raw(sys_call3(__NR_ioctl, fd, (long)request, (long)argument));
}

static __attribute__((always_inline)) inline int call_next_ioctl(int fd, unsigned long request, uint64_t argument)
{
	ioctl_function *next = atomic_load_explicit(&next_ioctl, memory_order_relaxed);

	return next ? next(fd, request, argument) : raw_ioctl(fd, request, argument);
}

static int call_next_close(int fd)
{
	close_function *next = atomic_load_explicit(&next_close, memory_order_relaxed);

	if (next)
		return next(fd);
	find_next();
	return (int)from_raw(sys_close(fd));
}

/*
 * Can it allocate memory, or the handles that memory belongs to? In a process that cannot be managed these are
 * refused.
 */
static bool can_allocate(unsigned long request)
{
	unsigned long number = request & 0xFF;

	return number == ESC_ALLOC_MEMORY || number == ESC_ALLOC || number == ESC_VID_HEAP_CONTROL ||
	       number == ESC_XFER_CMD;
}

static int refuse(long error)
{
	set_error(error);
	return -1;
}

static void leave(struct process *process, struct open_file *file)
{
	if (!files_leave(&process->files, file))
		return;
	core_release(&process->core, &file->core);
	files_forget(&process->files, file);
}

/* The descriptor was a control file, and was replaced without close(2), e.g. by dup2(2). */
static void forget_stale(int fd)
{
	struct process *process = process_here();
	struct open_file *file = process ? files_detach(&process->files, fd, sys_getpid()) : NULL;

	if (file)
		leave(process, file);
}

/*
 * The file that a transfer's descriptor refers to now; the driver has looked it up, or will. Entered; NULL: it is not
 * the driver's, or there are too many.
 */
static struct open_file *meet_file(struct process *process, struct core_call *call)
{
	int fd = call->transfer.descriptor;
	struct open_file *file = NULL;

	if (files_number(&process->files, fd) || files_is_drivers(fd))
		file = files_enter(&process->files, fd, sys_getpid());
	core_meets_file(&process->core, call, file ? &file->core : NULL);
	return file;
}

static int decide(struct process *process, struct open_file *file, int fd, unsigned long request, uint64_t argument)
{
	struct open_file *met = NULL;
	struct core_call call;
	long error = 0;
	int result;

	if (core_before(&process->core, &file->core, &call, (uint32_t)request, argument) == CORE_ANSWERED)
		return (int)from_raw(call.answer);
	if (core_is_transfer(&call))
		met = meet_file(process, &call);
	result = call_next_ioctl(fd, request, argument);
	if (result < 0)
		error = __errno_location && *__errno_location() > 0 ? *__errno_location() : EFAULT;
	core_after(&process->core, &file->core, &call, -error);
	if (met)
		leave(process, met);
	return result;
}

static __attribute__((noinline)) int ioctl_watched(int fd, unsigned long request, uint64_t argument)
{
	struct process *process = process_known();
	bool is_known = process && files_number(&process->files, fd);
	enum process_mode mode;
	struct open_file *file;
	int result;

	if (process && process_mode(process) == PROCESS_ASIDE)
		return call_next_ioctl(fd, request, argument);
	if ((!is_known || (request & 0xFF) == ESC_ALLOC) && !files_is_drivers(fd)) {
		if (is_known)
			forget_stale(fd);
		return call_next_ioctl(fd, request, argument);
	}
	process = process_here();
	if (!process && !process_known() && can_allocate(request))
		return refuse(ENOMEM);
	if (!process)
		return call_next_ioctl(fd, request, argument);
	mode = (request & 0xFF) == ESC_FREE ? process_mode(process) : process_begin(process);
	if (mode == PROCESS_ASIDE)
		return call_next_ioctl(fd, request, argument);
	if (mode != PROCESS_LIMITED)
		return can_allocate(request) ? refuse(EPERM) : call_next_ioctl(fd, request, argument);
	file = files_enter(&process->files, fd, sys_getpid());
	if (!file)
		return refuse(EMFILE);
	result = decide(process, file, fd, request, argument);
	leave(process, file);
	return result;
}

/*
 * Most calls of CUDA are controls, and next to none of them are reports. The driver is asked first: afterwards what the
 * argument points to has been read and written by it, and can be read here without asking the kernel.
 */
static __attribute__((noinline)) int ioctl_control(int fd, uint64_t argument)
{
	int result = call_next_ioctl(fd, CONTROL_REQUEST, argument);
	struct process *process = process_known();
	struct open_file *file, *met = NULL;
	struct core_call call;

	if (result != 0 || !process || process_mode(process) != PROCESS_LIMITED)
		return result;
	if (!files_number(&process->files, fd) && !files_is_drivers(fd))
		return result;
	if (!core_watches_control(*(const uint32_t *)(uintptr_t)(argument + process->core.layout->control_command)))
		return result;
	if (!process_here() || process_begin(process) != PROCESS_LIMITED)
		return result;
	file = files_enter(&process->files, fd, sys_getpid());
	if (!file)
		return result;
	if (core_before(&process->core, &file->core, &call, CONTROL_REQUEST, argument) == CORE_FORWARD) {
		if (core_is_transfer(&call))
			met = meet_file(process, &call);
		core_after(&process->core, &file->core, &call, 0);
	}
	if (met)
		leave(process, met);
	leave(process, file);
	return result;
}

int hook_ioctl(int fd, unsigned long request, uint64_t argument)
{
	if (request == CONTROL_REQUEST)
		return ioctl_control(fd, argument);
	if (core_watches((uint32_t)request))
		return ioctl_watched(fd, request, argument);
	return call_next_ioctl(fd, request, argument);
}

static __attribute__((noinline)) int close_watched(struct process *process, int fd)
{
	struct open_file *file;
	int result;

	if (process_here() != process)
		return call_next_close(fd);
	/* Programs that close everything mean their own descriptors; they are told that this one is not open. */
	if (process_owns(process, fd))
		return refuse(EBADF);
	file = files_detach(&process->files, fd, sys_getpid());
	result = call_next_close(fd);
	if (file)
		leave(process, file);
	return result;
}

int hook_close(int fd)
{
	struct process *process = process_known();

	if (process && (files_number(&process->files, fd) || process_owns(process, fd)))
		return close_watched(process, fd);
	return call_next_close(fd);
}

/*
 * Has nvidia-uvm exactly this range already? Then mapping it makes no managed memory: it is a semaphore pool, which every
 * CUDA context has and which is the machine's memory, or memory that was charged before, or the mapping fails (uvm_mmap).
 */
static bool uvm_has_range(int fd, int64_t base, size_t size)
{
	struct { uint64_t base, length; uint32_t status, end; } range = { (uint64_t)base, size, 0, 0 };

	return sys_call3(__NR_ioctl, fd, UVM_VALIDATE_VA_RANGE, (long)&range) == 0 && range.status == 0;
}

void *hook_mmap(void *at, size_t size, int protection, int flags, int fd, int64_t offset)
{
	mmap_function *next = atomic_load_explicit(&next_mmap, memory_order_relaxed);
	struct process *process;

	/* MAP_SHARED and MAP_SHARED_VALIDATE have this bit, MAP_PRIVATE has not. */
	if (fd >= 0 && (flags & MAP_SHARED)) {
		process = process_known();
		if (process && process_mode(process) == PROCESS_LIMITED && files_is_uvm(fd) && !uvm_has_range(fd, offset, size)) {
			set_error(EADDRINUSE);
			return (void *)-1l;
		}
	}
	if (next)
		return next(at, size, protection, flags, fd, offset);
	find_next();
	return (void *)from_raw(sys_call6(__NR_mmap, (long)at, (long)size, protection, flags, fd, offset));
}

void *hook_mmap64(void *at, size_t size, int protection, int flags, int fd, int64_t offset)
{
	return hook_mmap(at, size, protection, flags, fd, offset);
}
