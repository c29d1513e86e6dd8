/* A program that uses a GPU's memory, as a CUDA one would: see HELP. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

static const char HELP[] =
	"app [options] MIB... takes that much memory, one allocation each, and says what cudaMalloc would.\n"
	"  --hold           stays until SIGTERM or SIGINT, then ends well\n"
	"  --then MIB       one more afterwards; refused or not, it goes on (may be repeated)\n"
	"  --total          says the size of the card; --free: what cuMemGetInfo says\n"
	"  --loop N         takes and frees each MIB N times instead, refusals counted\n"
	"  --dup            takes, duplicates, frees the first handle, then says what is left\n"
	"  --share          lets other processes have it, and says by which name: CLIENT:HANDLE\n"
	"  --take NAME      has that memory of another process too, before its own\n"
	"  --subtree        frees the whole device after taking, makes it again and takes again\n"
	"  --fork           the program ends after taking, its child holds on\n"
	"  --managed        as cudaMallocManaged: maps that much of nvidia-uvm\n"
	"  --pool           as cuCtxCreate: a semaphore pool of that much, mapped; then freed, and mapped again as --managed does\n"
	"  --control PATH   the control file, /dev/nvidiactl; the others lie beside it\n"
	"  --driver BRANCH  515 to 595: the shapes of the calls; else RM_BRANCH of the environment, else 580\n"
	"  --minor N        that card, not the first that can be opened\n"
	"  --pages 4k|64k|2m  what sizes are rounded up to, 64k\n"
	"  --raw            system calls past libc; --xfer: wrapped; --short: short form; --heap: by the heap call\n"
	"  --surface        by the heap call's function for surfaces, which 515 to 525 have; less than 4096 MIB each\n";

enum { MIB_SHIFT = 20, MISUSE = 2, AMOUNTS = 64 };
enum { UVM_FREE = 34, UVM_ALLOC_SEMAPHORE_POOL = 68, UVM_VALIDATE_VA_RANGE = 72 };

struct amounts {
	uint64_t mib[AMOUNTS];
	int count;
};

struct wishes {
	struct amounts first, then;
	const char *taken;
	long loops;
	bool is_holding, is_shared, says_total, says_free, is_dup, is_subtree, is_fork, is_managed, is_pool;
};

static void say_sizes(const struct rm *rm, const struct wishes *wishes)
{
	static const uint32_t indices[] = { NV_TOTAL_RAM, NV_HEAP_FREE };
	uint32_t kib[2], status = 0;

	if (wishes->says_total || wishes->says_free)
		status = rm_report(rm, indices, kib, 2);
	if (status != 0)
		rm_die("FB_GET_INFO", status);
	if (wishes->says_total)
		printf("Total amount of global memory: %u MBytes (%llu bytes)\n", kib[0] >> 10, (unsigned long long)kib[0] << 10);
	if (wishes->says_free)
		printf("free %u MiB of %u MiB\n", kib[1] >> 10, kib[0] >> 10);
}

static void *keep_free(void *at, size_t bytes)
{
	int fixed = at ? MAP_FIXED : 0;
	void *kept = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);

	if (kept == MAP_FAILED)
		rm_die("mmap", 0);
	return kept;
}

/* A mapping of nvidia-uvm is at the offset of its address, which was kept free for it. */
static char *map_uvm(int uvm, void *kept, size_t bytes)
{
	char *at = mmap(kept, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, uvm, (intptr_t)kept);

	if (at != MAP_FAILED)
		at[0] = 1;
	return at;
}

static bool take_managed(int uvm, void *kept, uint64_t mib)
{
	if (map_uvm(uvm, kept, mib << MIB_SHIFT) == MAP_FAILED) {
		printf("error %s\n", errno == EADDRINUSE ? "1: cudaErrorInvalidValue" : "999: cudaErrorUnknown");
		return false;
	}
	printf("allocated %llu MiB managed\n", (unsigned long long)mib);
	return true;
}

/* The parameters begin with base and length. Where the others have their status depends on the branch: UVM_VALIDATE_VA_RANGE tells. */
static uint32_t uvm_range(int uvm, unsigned long command, void *base, size_t bytes)
{
	static uint64_t params[2048];

	memset(params, 0, sizeof(params));
	params[0] = (uintptr_t)base;
	params[1] = bytes;
	if (ioctl(uvm, command, params) != 0)
		rm_die("nvidia-uvm", (uint32_t)command);
	return (uint32_t)params[2];
}

/* nvidia-uvm frees no pool that is still mapped. */
static bool take_pool(int uvm, void *kept, uint64_t mib)
{
	size_t bytes = mib << MIB_SHIFT;

	uvm_range(uvm, UVM_ALLOC_SEMAPHORE_POOL, kept, bytes);
	if (uvm_range(uvm, UVM_VALIDATE_VA_RANGE, kept, bytes) != 0 || map_uvm(uvm, kept, bytes) == MAP_FAILED)
		rm_die("a semaphore pool", 0);
	printf("mapped %llu MiB of semaphores\n", (unsigned long long)mib);
	keep_free(kept, bytes);
	uvm_range(uvm, UVM_FREE, kept, bytes);
	if (uvm_range(uvm, UVM_VALIDATE_VA_RANGE, kept, bytes) == 0)
		rm_die("a freed semaphore pool", 0);
	return take_managed(uvm, kept, mib);
}

static void run_loop(const struct rm *rm, const struct wishes *wishes)
{
	unsigned long given = 0, refused = 0;
	uint32_t object, status;

	for (long i = 0; i < wishes->loops; i++) {
		for (int j = 0; j < wishes->first.count; j++) {
			status = rm_take(rm, wishes->first.mib[j] << MIB_SHIFT, &object);
			given += status == 0;
			refused += status == NV_NO_MEMORY;
			if (status != 0 && status != NV_NO_MEMORY)
				rm_die("RM_ALLOC", status);
			status = status == 0 ? rm_free(rm, object) : 0;
			if (status != 0)
				rm_die("RM_FREE", status);
		}
	}
	printf("%lu given, %lu refused\n", given, refused);
}

static void turn_over(const struct rm *rm, uint32_t object)
{
	uint32_t copy = 0;

	if (rm_dup(rm, rm->client, object, &copy) != 0 || rm_free(rm, object) != 0)
		rm_die("RM_DUP_OBJECT", 1);
	puts("duplicated, and the first handle freed");
}

static void share(const struct rm *rm, uint32_t object)
{
	uint32_t status = rm_share(rm, object);

	if (status != 0)
		rm_die("RM_SHARE", status);
	printf("shared %x:%x\n", rm->client, object);
}

static bool take_shared(const struct rm *rm, const char *name)
{
	uint32_t client, object, copy = 0, status;

	if (sscanf(name, "%x:%x", &client, &object) != 2)
		rm_die("--take wants CLIENT:HANDLE", 0);
	status = rm_dup(rm, client, object, &copy);
	if (status == 0)
		puts("taken");
	else
		printf("error 1: cudaErrorInvalidValue (status 0x%x)\n", status);
	return status == 0;
}

static void start_over(struct rm *rm)
{
	if (rm_free(rm, rm->device) != 0)
		rm_die("RM_FREE", 1);
	close(rm->card);
	close(rm->control);
	rm->client = rm->device = rm->subdevice = 0;
	rm_start(rm);
	puts("freed the device with all below it");
}

static int take_all(struct rm *rm, const struct wishes *wishes)
{
	uint32_t object;

	if (wishes->taken && !take_shared(rm, wishes->taken))
		return EXIT_FAILURE;
	for (int i = 0; i < wishes->first.count; i++) {
		if (wishes->is_managed || wishes->is_pool) {
			bool (*take)(int uvm, void *kept, uint64_t mib) = wishes->is_pool ? take_pool : take_managed;

			if (!take(rm_open_uvm(rm), keep_free(NULL, wishes->first.mib[i] << MIB_SHIFT), wishes->first.mib[i]))
				return EXIT_FAILURE;
			continue;
		}
		if (!rm_take_aloud(rm, wishes->first.mib[i], &object))
			return EXIT_FAILURE;
		if (wishes->is_shared)
			share(rm, object);
		if (wishes->is_dup)
			turn_over(rm, object);
		if (!wishes->is_subtree)
			continue;
		start_over(rm);
		if (!rm_take_aloud(rm, wishes->first.mib[i], &object))
			return EXIT_FAILURE;
	}
	for (int i = 0; i < wishes->then.count; i++)
		rm_take_aloud(rm, wishes->then.mib[i], &object);
	return EXIT_SUCCESS;
}

static void hold(void)
{
	sigset_t ends;
	int received;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	puts("holding");
	sigwait(&ends, &received);
}

static int run(struct rm *rm, const struct wishes *wishes)
{
	int code;

	rm_start(rm);
	if (wishes->loops) {
		run_loop(rm, wishes);
		return EXIT_SUCCESS;
	}
	code = take_all(rm, wishes);
	say_sizes(rm, wishes);
	if (code != EXIT_SUCCESS)
		return code;
	if (wishes->is_fork && fork() != 0)
		return EXIT_SUCCESS;
	if (wishes->is_holding || wishes->is_fork)
		hold();
	return code;
}

static void add(struct amounts *amounts, const char *text)
{
	char *end;
	uint64_t mib = strtoull(text, &end, 10);

	if (end == text || *end || amounts->count == AMOUNTS) {
		fputs(HELP, stderr);
		exit(MISUSE);
	}
	amounts->mib[amounts->count++] = mib;
}

static uint32_t pages(const char *text)
{
	if (strcmp(text, "4k") == 0)
		return NV_ATTR_4K;
	return strcmp(text, "2m") == 0 ? NV_ATTR_2M : NV_ATTR_64K;
}

static void parse_option(int option, struct rm *rm, struct wishes *wishes)
{
	switch (option) {
	case 't': add(&wishes->then, optarg); break;
	case 'A': wishes->taken = optarg; break;
	case 'E': wishes->is_shared = true; break;
	case 'l': wishes->loops = atol(optarg); break;
	case 'c': rm->path = optarg; break;
	case 'b': rm->branch = (unsigned)atoi(optarg); break;
	case 'm': rm->minor = atoi(optarg); break;
	case 'p': rm->attr = pages(optarg); break;
	case 'H': wishes->is_holding = true; break;
	case 'T': wishes->says_total = true; break;
	case 'F': wishes->says_free = true; break;
	case 'D': wishes->is_dup = true; break;
	case 'S': wishes->is_subtree = true; break;
	case 'K': wishes->is_fork = true; break;
	case 'M': wishes->is_managed = true; break;
	case 'P': wishes->is_pool = true; break;
	case 'R': rm->is_raw = true; break;
	case 'X': rm->is_wrapped = true; break;
	case 'O': rm->is_short = true; break;
	case 'V': rm->is_heap = true; break;
	case 'W': rm->is_surface = true; break;
	default:
		fputs(HELP, option == 'h' ? stdout : stderr);
		exit(option == 'h' ? EXIT_SUCCESS : MISUSE);
	}
}

static const struct option OPTIONS[] = {
	{ "then", 1, NULL, 't' }, { "loop", 1, NULL, 'l' }, { "control", 1, NULL, 'c' }, { "driver", 1, NULL, 'b' },
	{ "minor", 1, NULL, 'm' }, { "pages", 1, NULL, 'p' }, { "hold", 0, NULL, 'H' }, { "total", 0, NULL, 'T' },
	{ "free", 0, NULL, 'F' }, { "dup", 0, NULL, 'D' }, { "subtree", 0, NULL, 'S' }, { "fork", 0, NULL, 'K' },
	{ "managed", 0, NULL, 'M' }, { "pool", 0, NULL, 'P' }, { "raw", 0, NULL, 'R' }, { "xfer", 0, NULL, 'X' }, { "short", 0, NULL, 'O' },
	{ "heap", 0, NULL, 'V' }, { "surface", 0, NULL, 'W' }, { "share", 0, NULL, 'E' }, { "take", 1, NULL, 'A' }, { "help", 0, NULL, 'h' }, { 0 },
};

int main(int count, char **words)
{
	struct rm rm = rm_plain();
	struct wishes wishes = { 0 };
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((option = getopt_long(count, words, "h", OPTIONS, NULL)) != -1)
		parse_option(option, &rm, &wishes);
	for (int i = optind; i < count; i++)
		add(&wishes.first, words[i]);
	return run(&rm, &wishes);
}
