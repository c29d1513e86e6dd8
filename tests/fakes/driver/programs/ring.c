/*
 * A program that lets io_uring open the driver's files, by its bare system calls:
 *
 *      ring WAY MIB|close...    says which thread opened them, then for each MIB what cudaMalloc would;
 *                               `close`: lets it close them, and starts over
 *
 *      now       this thread, as by open(2)          worker    one of the kernel's, by IORING_OP_OPENAT
 *      worker2   the same by IORING_OP_OPENAT2       poller    the one that looks after the ring (IORING_SETUP_SQPOLL)
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rm.h"

enum { MISUSE = 2, IDLE_MILLISECONDS = 10000, NAME_BYTES = 16 };

struct way {
	const char *name;
	uint8_t operation, flags;	/* of the entry */
	uint32_t setup;			/* of the ring */
	const char *thread;		/* how the kernel names the opening thread */
};

static const struct way WAYS[] = {
	{ "now", IORING_OP_OPENAT, 0, 0, "ring" },
	{ "worker", IORING_OP_OPENAT, IOSQE_ASYNC, 0, "iou-wrk-" },
	{ "worker2", IORING_OP_OPENAT2, IOSQE_ASYNC, 0, "iou-wrk-" },
	{ "poller", IORING_OP_OPENAT, 0, IORING_SETUP_SQPOLL, "iou-sqp-" },
};

/* Of one entry. */
struct ring {
	const struct way *way;
	int file;
	struct io_uring_sqe *entry;
	_Atomic uint32_t *tail, *flags, *done_head;
	const struct io_uring_cqe *answers;
	uint32_t answer_mask;
};

static struct ring ring;

static void *map(size_t bytes, uint64_t offset)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.file, (off_t)offset);

	if (at == MAP_FAILED)
		rm_die("mmap of io_uring", 0);
	return at;
}

static void start_ring(const struct way *way)
{
	struct io_uring_params params = { .flags = way->setup, .sq_thread_idle = IDLE_MILLISECONDS };
	char *asked, *answered;

	ring.way = way;
	ring.file = (int)syscall(SYS_io_uring_setup, 1, &params);
	if (ring.file < 0)
		rm_die("io_uring_setup", 0);
	asked = map(params.sq_off.array + params.sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
	answered = map(params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
	ring.entry = map(params.sq_entries * sizeof(*ring.entry), IORING_OFF_SQES);
	ring.tail = (_Atomic uint32_t *)(asked + params.sq_off.tail);
	ring.flags = (_Atomic uint32_t *)(asked + params.sq_off.flags);
	ring.done_head = (_Atomic uint32_t *)(answered + params.cq_off.head);
	ring.answers = (const struct io_uring_cqe *)(answered + params.cq_off.cqes);
	ring.answer_mask = params.cq_entries - 1;
}

/* The array of numbers in the ring stays zero: every request is entry 0. */
static int answer_of(const struct io_uring_sqe *entry)
{
	unsigned flags = IORING_ENTER_GETEVENTS | (ring.way->setup ? IORING_ENTER_SQ_WAKEUP : 0);
	uint32_t head = atomic_load(ring.done_head);
	int answer;

	*ring.entry = *entry;
	atomic_fetch_add(ring.tail, 1);
	while (syscall(SYS_io_uring_enter, ring.file, 1, 1, flags, NULL, 0) < 0)
		if (errno != EINTR)
			rm_die("io_uring_enter", 0);
	answer = ring.answers[head & ring.answer_mask].res;
	atomic_store(ring.done_head, head + 1);
	return answer;
}

static int open_by_ring(const char *path)
{
	struct open_how how = { .flags = O_RDWR | O_CLOEXEC };
	struct io_uring_sqe entry = {
		.opcode = ring.way->operation, .flags = ring.way->flags, .fd = AT_FDCWD, .addr = (uintptr_t)path,
	};
	int answer;

	if (ring.way->operation == IORING_OP_OPENAT2) {
		entry.len = sizeof(how);
		entry.off = (uintptr_t)&how;
	} else {
		entry.open_flags = O_RDWR | O_CLOEXEC;
	}
	answer = answer_of(&entry);
	if (answer >= 0)
		return answer;
	errno = -answer;
	return -1;
}

static void close_by_ring(int file)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_CLOSE, .flags = ring.way->flags, .fd = file };

	if (answer_of(&entry) != 0)
		rm_die("IORING_OP_CLOSE", 0);
}

/* Whose name begins so. A worker without work stays for some seconds. */
static int has_thread(const char *beginning)
{
	char path[300], name[NAME_BYTES] = "";
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	int found = 0;

	while (tasks && (task = readdir(tasks))) {
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		comm = fopen(path, "re");
		if (!comm)
			continue;
		found |= fgets(name, sizeof(name), comm) && strncmp(name, beginning, strlen(beginning)) == 0;
		fclose(comm);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

static void start(struct rm *rm)
{
	rm->client = rm->device = rm->subdevice = 0;
	rm_start(rm);
	printf("opened by %s\n", has_thread(ring.way->thread) ? ring.way->thread : "another thread");
}

static void start_over(struct rm *rm)
{
	close_by_ring(rm->card);
	close_by_ring(rm->control);
	start(rm);
}

int main(int count, char **words)
{
	struct rm rm = rm_plain();
	uint32_t object;

	for (size_t i = 0; count > 1 && i < sizeof(WAYS) / sizeof(*WAYS); i++)
		if (strcmp(words[1], WAYS[i].name) == 0)
			start_ring(&WAYS[i]);
	if (!ring.way)
		return MISUSE;
	rm.open = open_by_ring;
	start(&rm);
	for (int i = 2; i < count; i++) {
		if (strcmp(words[i], "close") == 0)
			start_over(&rm);
		else
			rm_take_aloud(&rm, strtoull(words[i], NULL, 10), &object);
	}
	return EXIT_SUCCESS;
}
