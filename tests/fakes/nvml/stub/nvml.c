/*
 * A libnvidia-ml.so.1 without a GPU: every answer is what the state file says at that moment (state.h).
 * Which names it exports is said at link time, so that an older driver can be simulated.
 */
#include "nvml.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"
#include "state.h"

#define MIB (1024ULL * 1024)
#define FIRST_DRIVER_WITH_LIMITS 615

/* The real library sleeps until an event; this one looks, rarely enough to cost nothing beside what is measured. */
enum { MAX_HANDLES = 1024, POLL_MS = 100, MAX_MIG_PER_GPU = 7 };

struct nvml_handle {
	char uuid[UUID_LENGTH];
};

struct nvml_event_set {
	nvmlDevice_t devices[MAX_GPUS];
	size_t count;
};

static struct nvml_handle handles[MAX_HANDLES];
static size_t handle_count;
static unsigned int users;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The same pointer for the same uuid for ever, as a program may keep it. */
static nvmlDevice_t handle_of(const char *uuid)
{
	nvmlDevice_t found = NULL;

	pthread_mutex_lock(&mutex);
	for (size_t at = 0; !found && at < handle_count; at++)
		if (!strcmp(handles[at].uuid, uuid))
			found = &handles[at];
	if (!found && handle_count < MAX_HANDLES) {
		found = &handles[handle_count++];
		snprintf(found->uuid, sizeof(found->uuid), "%s", uuid);
	}
	pthread_mutex_unlock(&mutex);
	return found;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
}

/* Every call begins here: the state, after the fault that stands for it. `*state` is the caller's to free. */
static nvmlReturn_t begin(const char *function, const char *uuid, struct state **state)
{
	for (;;) {
		const struct fault *fault;
		nvmlReturn_t code;

		*state = state_read();
		if (!*state)
			return NVML_ERROR_DRIVER_NOT_LOADED;
		fault = state_fault(*state, function, uuid);
		if (!fault)
			return NVML_SUCCESS;
		code = fault->code;
		if (strcmp(fault->kind, "hang"))
			return code;
		free(*state);
		nap();
	}
}

static nvmlReturn_t begin_call(const char *function, const char *uuid, struct state **state)
{
	*state = NULL;
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	return begin(function, uuid, state);
}

/* As begin_call, for one card or instance: `*gpu` is the card itself, or NULL with `*mig` set. */
static nvmlReturn_t begin_device(const char *function, nvmlDevice_t device, struct state **state,
				 const struct gpu **gpu, const struct mig **mig)
{
	nvmlReturn_t ret;

	*state = NULL;
	if (!device)
		return NVML_ERROR_INVALID_ARGUMENT;
	ret = begin_call(function, device->uuid, state);
	if (ret)
		return ret;
	*gpu = state_gpu(*state, device->uuid);
	*mig = state_mig(*state, device->uuid);
	return *gpu || *mig ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
}

static nvmlReturn_t copy(char *to, unsigned int size, const char *from)
{
	if (strlen(from) + 1 > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	struct state *state = NULL;
	nvmlReturn_t ret = begin("nvmlInit", NULL, &state);

	(void)flags;
	free(state);
	if (!ret)
		__atomic_add_fetch(&users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	if (!users)
		return NVML_ERROR_UNINITIALIZED;
	__atomic_sub_fetch(&users, 1, __ATOMIC_SEQ_CST);
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
	(void)code;
	return "an error of the stub";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
	struct state *state;
	nvmlReturn_t ret = begin_call(__func__, NULL, &state);

	if (!ret)
		ret = copy(version, size, state->driver);
	free(state);
	return ret;
}

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *said)
{
	struct state *state;
	nvmlReturn_t ret = begin_call(__func__, NULL, &state);

	if (!ret)
		*said = (nvmlConfComputeSystemState_t){.ccFeature = state->confidential};
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	struct state *state;
	nvmlReturn_t ret = begin_call(__func__, NULL, &state);

	if (!ret)
		*count = state->gpu_count;
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	struct state *state;
	nvmlReturn_t ret = begin_call("-", NULL, &state);
	const struct fault *fault;

	if (!ret && index >= state->gpu_count)
		ret = NVML_ERROR_INVALID_ARGUMENT;
	if (!ret) {
		*device = handle_of(state->gpus[index].uuid);
		fault = state_fault(state, __func__, (*device)->uuid);
		free(state);
		state = NULL;
		if (fault)
			ret = begin(__func__, (*device)->uuid, &state);
	}
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct state *state;
	nvmlReturn_t ret = begin_call(__func__, uuid, &state);

	if (!ret && !state_gpu(state, uuid) && !state_mig(state, uuid))
		ret = NVML_ERROR_NOT_FOUND;
	if (!ret)
		*device = handle_of(uuid);
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int size)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret)
		ret = copy(uuid, size, device->uuid);
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int size)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret)
		ret = copy(name, size, gpu ? gpu->name : mig->name);
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret && !gpu)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (!ret)
		*minor = gpu->minor;
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret && !gpu)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (!ret) {
		memset(pci, 0, sizeof(*pci));
		snprintf(pci->busId, sizeof(pci->busId), "%s", gpu->pci);
		sscanf(gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	}
	free(state);
	return ret;
}

static unsigned long long used_bytes(const struct state *state, const char *uuid)
{
	unsigned long long used = 0;

	for (size_t at = 0; at < state->process_count; at++)
		if (!strcmp(state->processes[at].uuid, uuid))
			used += state->processes[at].bytes;
	return used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret) {
		memory->total = (gpu ? gpu->mib : mig->mib) * MIB;
		memory->used = used_bytes(state, device->uuid);
		memory->free = memory->total - memory->used;
	}
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlMemory_t plain;
	nvmlReturn_t ret = nvmlDeviceGetMemoryInfo(device, &plain);

	if (!ret) {
		memory->total = plain.total;
		memory->reserved = 0;
		memory->used = plain.used;
		memory->free = plain.free;
	}
	return ret;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_t *infos)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);
	unsigned int room = *count, found = 0;

	for (size_t at = 0; !ret && at < state->process_count; at++) {
		const struct process *process = &state->processes[at];

		if (strcmp(process->uuid, device->uuid))
			continue;
		if (infos && found < room)
			infos[found] = (nvmlProcessInfo_t){process->pid, process->bytes,
							   mig ? mig->gpu_instance : ~0U,
							   mig ? mig->compute_instance : ~0U};
		found++;
	}
	free(state);
	if (ret)
		return ret;
	*count = found;
	return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* What whole cards say of their health; an instance says nothing. */
static nvmlReturn_t begin_health(const char *function, nvmlDevice_t device, struct health *health)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(function, device, &state, &gpu, &mig);

	if (!ret && !gpu)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (!ret)
		*health = *state_health(state, device->uuid);
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	struct health health;
	nvmlReturn_t ret = begin_health(__func__, device, &health);

	for (int at = 0; !ret && at < count; at++) {
		int is_known = values[at].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION && health.recovery_action >= 0;

		values[at].nvmlReturn = is_known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		values[at].value.uiVal = is_known ? health.recovery_action : 0;
	}
	return ret;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
				       unsigned int *is_pending, unsigned int *has_failed)
{
	struct health health;
	nvmlReturn_t ret = begin_health(__func__, device, &health);

	if (!ret && health.remap_pending < 0)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (ret)
		return ret;
	*corrected = *uncorrected = 0;
	*is_pending = health.remap_pending;
	*has_failed = health.remap_failed > 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, int *is_pending)
{
	struct health health;
	nvmlReturn_t ret = begin_health(__func__, device, &health);

	if (!ret && health.retirement_pending < 0)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (!ret)
		*is_pending = health.retirement_pending;
	return ret;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *errors)
{
	struct health health;
	nvmlReturn_t ret = begin_health(__func__, device, &health);

	(void)type;
	(void)counter;
	if (!ret && health.uncorrected < 0)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (!ret)
		*errors = health.uncorrected;
	return ret;
}

/*
 * Samples after a time, of whole cards that are not cut: NVIDIA's reference says NVML_ERROR_NOT_SUPPORTED of those in MIG mode,
 * NVML_ERROR_NOT_FOUND where there is no sample, and that a call without a buffer learns the size.
 */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
					     unsigned int *count, unsigned long long since)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);
	unsigned int room = *count, found = 0;

	if (!ret && (!gpu || gpu->is_cut))
		ret = NVML_ERROR_NOT_SUPPORTED;
	for (size_t at = 0; !ret && at < state->sample_count; at++) {
		const struct sample *sample = &state->samples[at];

		if (strcmp(sample->uuid, device->uuid) || sample->timestamp <= since)
			continue;
		if (samples && found < room)
			samples[found] = (nvmlProcessUtilizationSample_t){
				.pid = sample->pid, .timeStamp = sample->timestamp, .smUtil = sample->sm};
		found++;
	}
	free(state);
	if (ret)
		return ret;
	*count = found;
	if (!found)
		return NVML_ERROR_NOT_FOUND;
	return !samples || found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret && (!gpu || (!strstr(gpu->name, "A100") && !strstr(gpu->name, "H200"))))
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (!ret)
		*current = *pending = gpu->is_cut;
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret)
		*count = gpu && gpu->is_cut ? MAX_MIG_PER_GPU : 0;
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int slot, nvmlDevice_t *instance)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	*instance = NULL;
	for (size_t at = 0; !ret && at < state->mig_count; at++)
		if (!strcmp(state->migs[at].parent, device->uuid) && state->migs[at].slot == slot)
			*instance = handle_of(state->migs[at].uuid);
	free(state);
	if (!ret && !*instance)
		ret = NVML_ERROR_NOT_FOUND;
	return ret;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret && !mig)
		ret = NVML_ERROR_INVALID_ARGUMENT;
	if (!ret)
		*id = mig->gpu_instance;
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	if (!ret && !mig)
		ret = NVML_ERROR_INVALID_ARGUMENT;
	if (!ret)
		*id = mig->compute_instance;
	free(state);
	return ret;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	struct state *state;
	nvmlReturn_t ret = begin_call(__func__, NULL, &state);

	free(state);
	if (ret)
		return ret;
	*set = calloc(1, sizeof(**set));
	return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	free(set);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(__func__, device, &state, &gpu, &mig);

	free(state);
	if (!ret && (types != NVML_EVENT_XID || mig))
		ret = NVML_ERROR_INVALID_ARGUMENT;
	if (!ret && set->count == MAX_GPUS)
		ret = NVML_ERROR_INSUFFICIENT_RESOURCES;
	if (!ret)
		set->devices[set->count++] = device;
	return ret;
}

static int is_watched(const struct nvml_event_set *set, const char *uuid)
{
	if (!strcmp(uuid, "-"))
		return 1;
	for (size_t at = 0; at < set->count; at++)
		if (!strcmp(set->devices[at]->uuid, uuid))
			return 1;
	return 0;
}

/* The last event that was told to anybody, kept beside the state: a restarted program does not hear it again. */
static unsigned long long told(void)
{
	char path[4096];
	unsigned long long last = 0;
	FILE *file;

	state_path(path, sizeof(path), ".told");
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%llu", &last) != 1)
		last = 0;
	fclose(file);
	return last;
}

static void tell(unsigned long long sequence)
{
	char path[4096];
	FILE *file;

	state_path(path, sizeof(path), ".told");
	file = fopen(path, "we");
	if (!file)
		return;
	fprintf(file, "%llu\n", sequence);
	fclose(file);
}

static int next_xid(const struct state *state, const struct nvml_event_set *set, nvmlEventData_t *data)
{
	unsigned long long last = told();

	for (size_t at = 0; at < state->xid_count; at++) {
		const struct xid *xid = &state->xids[at];

		if (xid->sequence <= last || !is_watched(set, xid->uuid))
			continue;
		*data = (nvmlEventData_t){handle_of(xid->uuid), NVML_EVENT_XID, xid->number, xid->gpu_instance,
					  xid->compute_instance};
		tell(xid->sequence);
		return 1;
	}
	return 0;
}

/* Each write of the state makes another file, sometimes with the number of one that is gone. */
static unsigned long long state_file(void)
{
	char path[PATH_MAX];
	struct stat found;

	state_path(path, sizeof(path), "");
	return stat(path, &found) ? 0 : found.st_ino ^ (unsigned long long)found.st_mtim.tv_nsec << 16;
}

/* Who waits costs next to nothing, as in the driver: the state is read again when it is another one. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	for (unsigned int waited = 0;;) {
		unsigned long long file = state_file();
		struct state *state;
		nvmlReturn_t ret = begin_call(__func__, NULL, &state);
		int found = !ret && next_xid(state, set, data);

		free(state);
		if (ret || found)
			return ret;
		do {
			if (waited >= timeout_ms)
				return NVML_ERROR_TIMEOUT;
			nap();
			waited += POLL_MS;
		} while (state_file() == file);
	}
}

/* Limits are there since 615, on whole cards only; older drivers do not have the call. */
static nvmlReturn_t begin_limits(const char *function, nvmlDevice_t device)
{
	struct state *state;
	const struct gpu *gpu;
	const struct mig *mig;
	nvmlReturn_t ret = begin_device(function, device, &state, &gpu, &mig);

	if (!ret && atoi(state->driver) < FIRST_DRIVER_WITH_LIMITS)
		ret = NVML_ERROR_FUNCTION_NOT_FOUND;
	if (!ret && (mig || gpu->is_cut))
		ret = NVML_ERROR_NOT_SUPPORTED;
	free(state);
	return ret;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits)
{
	nvmlReturn_t ret = begin_limits(__func__, device);

	if (ret)
		return ret;
	return limits_set(limits->nameSpace, device->uuid, limits->softLimit, limits->hardLimit);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	nvmlReturn_t ret = begin_limits(__func__, device);
	struct held held;

	if (!ret)
		ret = limits_get(limits->nameSpace, device->uuid, &held);
	if (ret)
		return ret;
	limits->softLimit = held.soft;
	limits->hardLimit = held.hard;
	limits->currentUsed = held.used;
	return NVML_SUCCESS;
}

/* No call of NVML: stands for a process in that cgroup that takes memory of the card, as CUDA would for it. */
nvmlReturn_t vrampack_stub_allocate(const char *cgroup, const char *uuid, unsigned long long mib)
{
	return limits_take(cgroup, uuid, mib * MIB);
}
