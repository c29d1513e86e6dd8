#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PATH "/run/vrampack-nvml/state"

void state_path(char *path, size_t size, const char *suffix)
{
	const char *named = getenv("VRAMPACK_NVML_STATE");

	snprintf(path, size, "%s%s", named && *named ? named : DEFAULT_PATH, suffix);
}

static void read_gpu(struct state *state, const char *words)
{
	struct gpu gpu = {0};

	if (state->gpu_count == MAX_GPUS)
		return;
	if (sscanf(words, "%95s %u %31s %llu %95[^\n]", gpu.uuid, &gpu.minor, gpu.pci, &gpu.mib, gpu.name) == 5)
		state->gpus[state->gpu_count++] = gpu;
}

static void read_mig_mode(struct state *state, const char *words)
{
	char uuid[UUID_LENGTH];

	if (sscanf(words, "%95s", uuid) != 1)
		return;
	for (size_t at = 0; at < state->gpu_count; at++)
		if (!strcmp(state->gpus[at].uuid, uuid))
			state->gpus[at].is_cut = 1;
}

static void read_mig(struct state *state, const char *words)
{
	struct mig mig = {0};

	if (state->mig_count == MAX_MIGS)
		return;
	if (sscanf(words, "%95s %u %u %u %95s %llu %95[^\n]", mig.parent, &mig.slot, &mig.gpu_instance,
		   &mig.compute_instance, mig.uuid, &mig.mib, mig.name) == 7)
		state->migs[state->mig_count++] = mig;
}

static void read_health(struct state *state, const char *words)
{
	struct health health = {0};

	if (state->health_count == MAX_GPUS)
		return;
	if (sscanf(words, "%95s %d %d %d %d %lld", health.uuid, &health.recovery_action, &health.remap_pending,
		   &health.remap_failed, &health.retirement_pending, &health.uncorrected) == 6)
		state->healths[state->health_count++] = health;
}

static void read_process(struct state *state, const char *words)
{
	struct process process = {0};

	if (state->process_count == MAX_PROCESSES)
		return;
	if (sscanf(words, "%95s %u %llu", process.uuid, &process.pid, &process.bytes) == 3)
		state->processes[state->process_count++] = process;
}

static void read_sample(struct state *state, const char *words)
{
	struct sample sample = {0};

	if (state->sample_count == MAX_SAMPLES)
		return;
	if (sscanf(words, "%95s %u %llu %u", sample.uuid, &sample.pid, &sample.timestamp, &sample.sm) == 4)
		state->samples[state->sample_count++] = sample;
}

static void read_fault(struct state *state, const char *words)
{
	struct fault fault = {0};

	if (state->fault_count == MAX_FAULTS)
		return;
	if (sscanf(words, "%63s %95s %7s %d", fault.function, fault.uuid, fault.kind, &fault.code) == 4)
		state->faults[state->fault_count++] = fault;
}

static void read_xid(struct state *state, const char *words)
{
	struct xid xid = {0};

	if (state->xid_count == MAX_XIDS)
		return;
	if (sscanf(words, "%llu %95s %llu %u %u", &xid.sequence, xid.uuid, &xid.number, &xid.gpu_instance,
		   &xid.compute_instance) == 5)
		state->xids[state->xid_count++] = xid;
}

static void read_line(struct state *state, const char *line)
{
	char word[16];
	int used = 0;

	if (sscanf(line, "%15s %n", word, &used) != 1)
		return;
	line += used;
	if (!strcmp(word, "driver"))
		sscanf(line, "%79s", state->driver);
	else if (!strcmp(word, "confidential"))
		sscanf(line, "%u", &state->confidential);
	else if (!strcmp(word, "gpu"))
		read_gpu(state, line);
	else if (!strcmp(word, "mig_mode"))
		read_mig_mode(state, line);
	else if (!strcmp(word, "mig"))
		read_mig(state, line);
	else if (!strcmp(word, "health"))
		read_health(state, line);
	else if (!strcmp(word, "process"))
		read_process(state, line);
	else if (!strcmp(word, "sample"))
		read_sample(state, line);
	else if (!strcmp(word, "fault"))
		read_fault(state, line);
	else if (!strcmp(word, "xid"))
		read_xid(state, line);
}

struct state *state_read(void)
{
	char path[4096], line[512];
	struct state *state;
	FILE *file;

	state_path(path, sizeof(path), "");
	file = fopen(path, "re");
	if (!file)
		return NULL;
	state = calloc(1, sizeof(*state));
	while (state && fgets(line, sizeof(line), file))
		read_line(state, line);
	fclose(file);
	return state;
}

const struct gpu *state_gpu(const struct state *state, const char *uuid)
{
	for (size_t at = 0; at < state->gpu_count; at++)
		if (!strcmp(state->gpus[at].uuid, uuid))
			return &state->gpus[at];
	return NULL;
}

const struct mig *state_mig(const struct state *state, const char *uuid)
{
	for (size_t at = 0; at < state->mig_count; at++)
		if (!strcmp(state->migs[at].uuid, uuid))
			return &state->migs[at];
	return NULL;
}

const struct health *state_health(const struct state *state, const char *uuid)
{
	static const struct health unsupported = {"", -1, -1, -1, -1, -1};

	for (size_t at = 0; at < state->health_count; at++)
		if (!strcmp(state->healths[at].uuid, uuid))
			return &state->healths[at];
	return &unsupported;
}

static int names(const char *pattern, const char *name)
{
	return !strcmp(pattern, "*") || (name && !strcmp(pattern, name));
}

const struct fault *state_fault(const struct state *state, const char *function, const char *uuid)
{
	for (size_t at = 0; at < state->fault_count; at++)
		if (names(state->faults[at].function, function) && names(state->faults[at].uuid, uuid))
			return &state->faults[at];
	return NULL;
}
