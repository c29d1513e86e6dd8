/*
 * One check of a GPU's driver per run, through CUDA's driver API alone: `cuda CHECK [MIB]`. No toolkit is needed to build
 * it: the few declarations it uses are written out, and libcuda is opened when it runs, as a statically linked runtime does.
 *
 *   view            what the card looks like: name, total, free, uuid
 *   take MIB        allocate so much in pieces of 256 MiB, then GiB by GiB until refused, and go on afterwards
 *   hold MIB        allocate, say so, and wait for the end of standard input
 *   managed MIB     cuMemAllocManaged, touched on the card
 *   pool MIB        cuMemAllocAsync
 *   virtual MIB     cuMemCreate, mapped, written
 *   ipc MIB         a child process opens this one's memory
 *   fault           a kernel writes where nothing is mapped
 *   churn ROUNDS    allocate and free 64 MiB, nanoseconds per round
 *
 * It prints one line of JSON. Exit 0: the check ran, whatever it found; 1: a call failed that nothing should refuse.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define PIECE (256 * MIB)
#define CUDA_ERROR_OUT_OF_MEMORY 2
#define MAX_PIECES 4096

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef uint64_t CUdeviceptr;

struct ipc_handle {
	char reserved[64];
};

/* CUmemAllocationProp and CUmemAccessDesc of CUDA 11 and later. */
struct allocation_property {
	int type, requested_handle_types;
	struct {
		int type, id;
	} location;
	void *win32;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct access_description {
	struct {
		int type, id;
	} location;
	int flags;
};

/* Every entry point that is called, once: name in the library, parameters. */
#define ENTRY_POINTS(X) \
	X(cuInit, (unsigned int)) \
	X(cuDeviceGet, (CUdevice *, int)) \
	X(cuDeviceGetName, (char *, int, CUdevice)) \
	X(cuDeviceTotalMem_v2, (size_t *, CUdevice)) \
	X(cuDriverGetVersion, (int *)) \
	X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
	X(cuCtxSetCurrent, (CUcontext)) \
	X(cuCtxSynchronize, (void)) \
	X(cuMemGetInfo_v2, (size_t *, size_t *)) \
	X(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
	X(cuMemFree_v2, (CUdeviceptr)) \
	X(cuMemsetD8_v2, (CUdeviceptr, unsigned char, size_t)) \
	X(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int)) \
	X(cuMemAllocAsync, (CUdeviceptr *, size_t, void *)) \
	X(cuMemFreeAsync, (CUdeviceptr, void *)) \
	X(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
	X(cuModuleLoadData, (void **, const void *)) \
	X(cuModuleGetFunction, (void **, void *, const char *)) \
	X(cuLaunchKernel, (void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
			   unsigned int, void *, void **, void **)) \
	X(cuMemCreate, (unsigned long long *, size_t, const struct allocation_property *, unsigned long long)) \
	X(cuMemMap, (CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long)) \
	X(cuMemSetAccess, (CUdeviceptr, size_t, const struct access_description *, size_t)) \
	X(cuIpcGetMemHandle, (struct ipc_handle *, CUdeviceptr)) \
	X(cuIpcOpenMemHandle_v2, (CUdeviceptr *, struct ipc_handle, unsigned int))

#define DECLARE(name, parameters) static CUresult(*name) parameters;
ENTRY_POINTS(DECLARE)
#undef DECLARE

static void must(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "cuda: %s: error %d\n", what, result);
	exit(EXIT_FAILURE);
}

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library) {
		fprintf(stderr, "cuda: %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
#define FIND(name, parameters) *(void **)&name = dlsym(library, #name);
	ENTRY_POINTS(FIND)
#undef FIND
}

static CUdevice begin(void)
{
	CUcontext context;
	CUdevice device;

	must(cuInit(0), "cuInit");
	must(cuDeviceGet(&device, 0), "cuDeviceGet");
	must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	return device;
}

static void view(CUdevice device)
{
	size_t total, free_now, all;
	char name[128];
	int version;

	must(cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
	must(cuDeviceTotalMem_v2(&total, device), "cuDeviceTotalMem");
	must(cuMemGetInfo_v2(&free_now, &all), "cuMemGetInfo");
	must(cuDriverGetVersion(&version), "cuDriverGetVersion");
	printf("{\"name\":\"%s\",\"cuda\":%d,\"total_mib\":%zu,\"info_total_mib\":%zu,\"info_free_mib\":%zu}\n", name, version,
	       total >> 20, all >> 20, free_now >> 20);
}

/* As much as was asked, the last piece smaller; how many bytes were given. */
static uint64_t take_pieces(uint64_t bytes, CUdeviceptr *pieces, size_t *count, CUresult *last)
{
	uint64_t taken = 0;

	for (*last = 0; taken < bytes && *count < MAX_PIECES; (*count)++) {
		uint64_t piece = bytes - taken < PIECE ? bytes - taken : PIECE;

		*last = cuMemAlloc_v2(&pieces[*count], piece);
		if (*last)
			return taken;
		must(cuMemsetD8_v2(pieces[*count], 1, piece), "cuMemsetD8");
		taken += piece;
	}
	return taken;
}

static void take(uint64_t mib)
{
	static CUdeviceptr pieces[MAX_PIECES];
	size_t count = 0, free_now, all;
	CUresult first, refusal = 0, again;
	uint64_t taken = take_pieces(mib * MIB, pieces, &count, &first), more = 0;

	while (!refusal && count < MAX_PIECES) {
		refusal = cuMemAlloc_v2(&pieces[count], 1024 * MIB);
		if (!refusal) {
			count++;
			more += 1024;
		}
	}
	must(cuMemFree_v2(pieces[0]), "cuMemFree after a refusal");
	again = cuMemAlloc_v2(&pieces[0], mib * MIB < PIECE ? mib * MIB : PIECE);
	must(cuCtxSynchronize(), "cuCtxSynchronize after a refusal");
	must(cuMemGetInfo_v2(&free_now, &all), "cuMemGetInfo after a refusal");
	printf("{\"taken_mib\":%llu,\"error\":%d,\"more_mib\":%llu,\"refused_with\":%d,\"after_free\":%d,"
	       "\"info_total_mib\":%zu,\"info_free_mib\":%zu}\n",
	       (unsigned long long)(taken >> 20), first, (unsigned long long)more, refusal, again, all >> 20, free_now >> 20);
}

static void hold(uint64_t mib)
{
	static CUdeviceptr pieces[MAX_PIECES];
	size_t count = 0;
	CUresult last;
	uint64_t taken = take_pieces(mib * MIB, pieces, &count, &last);
	char byte;

	printf("{\"pid\":%d,\"taken_mib\":%llu,\"error\":%d}\n", getpid(), (unsigned long long)(taken >> 20), last);
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
}

static void managed(uint64_t mib)
{
	CUdeviceptr at = 0;
	CUresult result = cuMemAllocManaged(&at, mib * MIB, 1);
	CUresult touched = result ? -1 : cuMemsetD8_v2(at, 1, mib * MIB);
	CUdeviceptr plain = 0;

	printf("{\"managed\":%d,\"touched\":%d,\"plain_afterwards\":%d}\n", result, touched, cuMemAlloc_v2(&plain, 16 * MIB));
}

static void pool(uint64_t mib)
{
	CUdeviceptr at = 0, too_much = 0;
	CUresult given = cuMemAllocAsync(&at, mib * MIB, NULL), refused;

	must(cuCtxSynchronize(), "cuCtxSynchronize");
	refused = cuMemAllocAsync(&too_much, 1ull << 40, NULL);
	printf("{\"given\":%d,\"a_tebibyte\":%d,\"freed\":%d}\n", given, refused, given ? -1 : cuMemFreeAsync(at, NULL));
}

static void virtual_memory(uint64_t mib, CUdevice device)
{
	struct allocation_property property = { .type = 1, .location = { 1, device } };
	struct access_description access = { .location = { 1, device }, .flags = 3 };
	unsigned long long handle;
	CUdeviceptr at;
	CUresult created = cuMemCreate(&handle, mib * MIB, &property, 0);

	if (created) {
		printf("{\"created\":%d}\n", created);
		return;
	}
	must(cuMemAddressReserve(&at, mib * MIB, 0, 0, 0), "cuMemAddressReserve");
	must(cuMemMap(at, mib * MIB, 0, handle, 0), "cuMemMap");
	must(cuMemSetAccess(at, mib * MIB, &access, 1), "cuMemSetAccess");
	must(cuMemsetD8_v2(at, 1, mib * MIB), "cuMemsetD8");
	must(cuCtxSynchronize(), "cuCtxSynchronize");
	printf("{\"created\":%d,\"written\":0}\n", created);
}

/* The child comes before CUDA does, for CUDA does not survive a fork. */
static void ipc(uint64_t mib)
{
	struct ipc_handle handle;
	CUdeviceptr at;
	int pipes[2], status;
	pid_t child;

	if (pipe(pipes))
		exit(EXIT_FAILURE);
	child = fork();
	if (child == 0) {
		close(pipes[1]);
		if (read(pipes[0], &handle, sizeof(handle)) != sizeof(handle))
			_exit(101);
		begin();
		_exit(cuIpcOpenMemHandle_v2(&at, handle, 1));
	}
	begin();
	must(cuMemAlloc_v2(&at, mib * MIB), "cuMemAlloc");
	must(cuIpcGetMemHandle(&handle, at), "cuIpcGetMemHandle");
	if (write(pipes[1], &handle, sizeof(handle)) != sizeof(handle) || waitpid(child, &status, 0) != child)
		exit(EXIT_FAILURE);
	printf("{\"opened_by_another_process\":%d}\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void fault(void)
{
	static const char stray_write[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
					  ".visible .entry stray()\n{\n .reg .b64 %at;\n .reg .b32 %one;\n"
					  " mov.u64 %at, 0x10;\n mov.u32 %one, 1;\n st.global.u32 [%at], %one;\n ret;\n}\n";
	void *module, *kernel;

	must(cuModuleLoadData(&module, stray_write), "cuModuleLoadData");
	must(cuModuleGetFunction(&kernel, module, "stray"), "cuModuleGetFunction");
	must(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel");
	printf("{\"ended_with\":%d}\n", cuCtxSynchronize());
}

static void churn(uint64_t rounds)
{
	struct timespec start, end;
	CUdeviceptr at;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (uint64_t round = 0; round < rounds; round++) {
		/* More than the pool of small pieces holds, so that each round reaches the driver. */
		must(cuMemAlloc_v2(&at, 64 * MIB), "cuMemAlloc");
		must(cuMemFree_v2(at), "cuMemFree");
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("{\"ns_per_round\":%.0f}\n",
	       ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / (double)rounds);
}

int main(int argc, char **argv)
{
	const char *check = argc > 1 ? argv[1] : "view";
	uint64_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	CUdevice device;

	load();
	if (!strcmp(check, "ipc")) {
		ipc(number);
		return EXIT_SUCCESS;
	}
	device = begin();
	if (!strcmp(check, "view"))
		view(device);
	else if (!strcmp(check, "take"))
		take(number);
	else if (!strcmp(check, "hold"))
		hold(number);
	else if (!strcmp(check, "managed"))
		managed(number);
	else if (!strcmp(check, "pool"))
		pool(number);
	else if (!strcmp(check, "virtual"))
		virtual_memory(number, device);
	else if (!strcmp(check, "fault"))
		fault();
	else if (!strcmp(check, "churn"))
		churn(number);
	else
		return 2;
	return EXIT_SUCCESS;
}
