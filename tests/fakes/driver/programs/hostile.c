/*
 * A tenant that tries to block those that wait for it.
 *
 *      read PATH       reads that file into a page that never comes
 *      call            the same with a call on the card's own file: its parameters lie on that page
 *      crowd COUNT     opens it once by each of so many processes, which end and leave their file here
 *      repeat PATH TEXT  writes that for ever
 *      outlive MIB     takes so much, maps it by nvidia-uvm and frees its handle, again and again until it is refused
 *      lend MIB        takes so much and says its client and handle
 *      borrow CLIENT MEMORY  maps that by nvidia-uvm
 *
 * `stuck`, `opened`: it waits for a line there, and ends after it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

enum { UVM_MAP_EXTERNAL = 33, UVM_FREE = 34, UVM_BYTES = 9264, UVM_OLD_BYTES = 1200, UVM_OLD_BRANCH = 545 };
enum { PAGE = 4096, MISUSE = 2, SPARE_FILES = 64 };

/* What is done with the page, by a thread of its own. */
struct deed {
	int file;
	void *page;
	bool is_call;
};

static void must(bool is_so, const char *what)
{
	if (!is_so)
		rm_die(what, 0);
}

static void wait_for_line(const char *after)
{
	char line[16];

	puts(after);
	if (!fgets(line, sizeof(line), stdin))
		exit(EXIT_SUCCESS);
}

/* Touching it waits until a process answers at the file that is returned. */
static int make_absent(void **page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	*page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range = (struct uffdio_range){ (uintptr_t)*page, PAGE };
	must(faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0 && ioctl(faults, UFFDIO_REGISTER, &range) == 0, "userfaultfd");
	return faults;
}

static void *get_stuck(void *given)
{
	const struct deed *deed = given;

	if (deed->is_call)
		ioctl(deed->file, _IOC(_IOC_READ | _IOC_WRITE, 'F', NV_XFER, sizeof(struct nv_xfer)), deed->page);
	else
		must(read(deed->file, deed->page, PAGE) > 0, "read");
	return NULL;
}

static void stick(int file, bool is_call)
{
	struct deed deed = { .file = file, .is_call = is_call };
	struct uffdio_zeropage zero = { 0 };
	struct uffd_msg fault;
	pthread_t thread;
	int faults = make_absent(&deed.page);

	must(file >= 0 && pthread_create(&thread, NULL, get_stuck, &deed) == 0, "start");
	must(read(faults, &fault, sizeof(fault)) == (ssize_t)sizeof(fault), "fault");
	wait_for_line("stuck");
	zero.range = (struct uffdio_range){ (uintptr_t)deed.page, PAGE };
	must(ioctl(faults, UFFDIO_ZEROPAGE, &zero) == 0, "page");
	pthread_join(thread, NULL);
	puts("through");
}

/* The driver asks for nothing here but that both are open: a privileged container's cards are watched from then on. */
static void call_stuck(const char *path)
{
	must(open(path, O_RDWR | O_CLOEXEC) >= 0, path);
	stick(open("/dev/nvidia0", O_RDWR | O_CLOEXEC), true);
}

static int open_and_end(void *path)
{
	_exit(open(path, O_RDWR | O_CLOEXEC) < 0 ? errno : 0);
}

/* In the memory and with the descriptors of its parent, which waits. 0, or why it could not be opened. */
static int open_in_child(const char *path)
{
	static _Alignas(16) char stack[8 * PAGE];
	int status;
	pid_t child = clone(open_and_end, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, (void *)(uintptr_t)path);

	must(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status), "child");
	return WEXITSTATUS(status);
}

static void crowd(const char *path, rlim_t count)
{
	struct rlimit files = { count + SPARE_FILES, count + SPARE_FILES };
	rlim_t opened = 0;
	int error = 0;

	must(setrlimit(RLIMIT_NOFILE, &files) == 0, "limit");
	while (opened < count && !(error = open_in_child(path)))
		opened++;
	printf("%lu, then %d\n", (unsigned long)opened, error);
	wait_for_line("opened");
}

static void repeat(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);

	must(file >= 0, path);
	puts("repeats");
	while (write(file, text, strlen(text)) > 0 || errno == EIO)
		;
	rm_die(path, 0);
}

static uint32_t map_by_uvm(const struct rm *rm, int uvm, uint64_t base, uint32_t client, uint32_t memory)
{
	static unsigned char call[UVM_BYTES];
	size_t size = rm->branch <= UVM_OLD_BRANCH ? UVM_OLD_BYTES : UVM_BYTES;
	uint32_t status;

	memset(call, 0, sizeof(call));
	memcpy(call, &base, sizeof(base));
	memcpy(call + size - 12, &client, sizeof(client));
	memcpy(call + size - 8, &memory, sizeof(memory));
	must(ioctl(uvm, UVM_MAP_EXTERNAL, call) == 0, "map");
	memcpy(&status, call + size - 4, sizeof(status));
	return status;
}

static void outlive(uint64_t mib)
{
	struct rm rm = rm_plain();
	uint64_t kept = 0, call[3] = { 0 };
	uint32_t memory, status;
	int uvm;

	rm_start(&rm);
	uvm = rm_open_uvm(&rm);
	wait_for_line("started");
	while ((status = rm_take(&rm, mib << 20, &memory)) == 0) {
		kept++;
		must(map_by_uvm(&rm, uvm, kept << 40, rm.client, memory) == 0, "map");
		must(rm_free(&rm, memory) == 0, "free");
	}
	printf("kept %llu MiB, then 0x%x\n", (unsigned long long)(kept * mib), status);
	wait_for_line("kept");
	call[0] = (uint64_t)1 << 40;
	must(ioctl(uvm, UVM_FREE, call) == 0, "unmap");
	must(rm_take(&rm, mib << 20, &memory) == 0 && rm_free(&rm, memory) == 0, "again");
	close(rm.card);
	close(rm.control);
	wait_for_line("closed");
}

static void lend(uint64_t mib)
{
	struct rm rm = rm_plain();
	uint32_t memory;

	rm_start(&rm);
	must(rm_take(&rm, mib << 20, &memory) == 0, "take");
	printf("%u %u\n", rm.client, memory);
	wait_for_line("lent");
}

static void borrow(uint32_t client, uint32_t memory)
{
	struct rm rm = rm_plain();

	rm_start(&rm);
	printf("borrowed: 0x%x\n", map_by_uvm(&rm, rm_open_uvm(&rm), 1 << 20, client, memory));
}

int main(int count, char **words)
{
	const char *control = rm_plain().path, *name = count > 1 ? words[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(name, "read") == 0 && count == 3) {
		stick(open(words[2], O_RDONLY | O_CLOEXEC), false);
	} else if (strcmp(name, "call") == 0) {
		call_stuck(control);
	} else if (strcmp(name, "crowd") == 0 && count == 3) {
		crowd(control, strtoul(words[2], NULL, 10));
	} else if (strcmp(name, "outlive") == 0 && count == 3) {
		outlive(strtoul(words[2], NULL, 10));
	} else if (strcmp(name, "lend") == 0 && count == 3) {
		lend(strtoul(words[2], NULL, 10));
	} else if (strcmp(name, "borrow") == 0 && count == 4) {
		borrow((uint32_t)strtoul(words[2], NULL, 10), (uint32_t)strtoul(words[3], NULL, 10));
	} else if (strcmp(name, "repeat") == 0 && count == 4) {
		repeat(words[2], words[3]);
	} else {
		return MISUSE;
	}
	return EXIT_SUCCESS;
}
