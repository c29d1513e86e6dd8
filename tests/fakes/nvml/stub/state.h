/*
 * What the stub answers. It reads the state file at every call, so a test or a person can change the machine
 * while a program runs on it. The file is lines of words; names of cards, which have blanks, end a line:
 *
 *   driver 615.71.09
 *   confidential 1                                       confidential computing is on
 *   gpu UUID MINOR PCI_BUS_ID MIB NAME                   NVML's index is the place in the file
 *   mig_mode UUID                                        this card is cut, perhaps into nothing
 *   mig PARENT_UUID SLOT GI CI UUID MIB NAME
 *   health UUID RECOVERY REMAP_PENDING REMAP_FAILED RETIREMENT_PENDING UNCORRECTED    -1: the call is not supported
 *   process UUID PID BYTES
 *   sample UUID PID TIMESTAMP SM                         of the use of compute; as many as there were
 *   fault FUNCTION|* UUID|* error CODE | hang 0          the first that matches; a hang lasts while it stands here
 *   xid SEQUENCE UUID|- NUMBER GI CI                     told once each, in order
 */
#ifndef VRAMPACK_STUB_STATE_H
#define VRAMPACK_STUB_STATE_H

#include <stddef.h>

#define UUID_LENGTH 96
#define NAME_LENGTH 96

enum { MAX_GPUS = 32, MAX_MIGS = 128, MAX_PROCESSES = 512, MAX_SAMPLES = 512, MAX_FAULTS = 64, MAX_XIDS = 256 };

struct gpu {
	char uuid[UUID_LENGTH];
	unsigned int minor;
	char pci[32];
	unsigned long long mib;
	char name[NAME_LENGTH];
	int is_cut;
};

struct mig {
	char parent[UUID_LENGTH];
	unsigned int slot;
	unsigned int gpu_instance;
	unsigned int compute_instance;
	char uuid[UUID_LENGTH];
	unsigned long long mib;
	char name[NAME_LENGTH];
};

/* Negative: not supported, as all of it is of a card without such a line. */
struct health {
	char uuid[UUID_LENGTH];
	int recovery_action;
	int remap_pending;
	int remap_failed;
	int retirement_pending;
	long long uncorrected;
};

struct process {
	char uuid[UUID_LENGTH];
	unsigned int pid;
	unsigned long long bytes;
};

struct sample {
	char uuid[UUID_LENGTH];
	unsigned int pid;
	unsigned long long timestamp;
	unsigned int sm;
};

struct fault {
	char function[64];
	char uuid[UUID_LENGTH];
	char kind[8];
	int code;
};

struct xid {
	unsigned long long sequence;
	char uuid[UUID_LENGTH];
	unsigned long long number;
	unsigned int gpu_instance;
	unsigned int compute_instance;
};

struct state {
	char driver[80];
	unsigned int confidential;
	struct gpu gpus[MAX_GPUS];
	size_t gpu_count;
	struct mig migs[MAX_MIGS];
	size_t mig_count;
	struct health healths[MAX_GPUS];
	size_t health_count;
	struct process processes[MAX_PROCESSES];
	size_t process_count;
	struct sample samples[MAX_SAMPLES];
	size_t sample_count;
	struct fault faults[MAX_FAULTS];
	size_t fault_count;
	struct xid xids[MAX_XIDS];
	size_t xid_count;
};

/* The path of the state file, or of a file beside it when `suffix` is not empty. */
void state_path(char *path, size_t size, const char *suffix);

/* The state now; free it. NULL when there is no such file: a machine without a driver. */
struct state *state_read(void);

const struct gpu *state_gpu(const struct state *state, const char *uuid);
const struct mig *state_mig(const struct state *state, const char *uuid);
/* What the card says of its health; never NULL. */
const struct health *state_health(const struct state *state, const char *uuid);
const struct fault *state_fault(const struct state *state, const char *function, const char *uuid);

#endif
