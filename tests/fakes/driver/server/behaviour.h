/*
 * What the driver does, apart from how it is reached: which calls there are, what they check, what they answer and what
 * memory they take. No libc but memcpy and memset; memory and the caller's pages come through `struct rm_host`, so a
 * server in user space and a kernel module can share these files. The caller serialises: one call at a time.
 *
 * docs/gpu-verification.md lists, as D1 and on, what is assumed here, from where, and whether a GPU has confirmed it.
 */
#ifndef FAKE_BEHAVIOUR_H
#define FAKE_BEHAVIOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

enum { RM_CARDS = 32, RM_EFAULT = 14, RM_ENOMEM = 12, RM_EINVAL = 22 };

struct rm;
struct rm_file;

/* The calling process. `context` is the host's. */
struct rm_caller {
	const struct rm_host *host;
	void *context;
};

struct rm_host {
	void *(*take)(size_t bytes);		/* zeroed, or NULL */
	void (*give)(void *memory);
	bool (*read)(const struct rm_caller *caller, void *to, uint64_t from, size_t bytes);
	/* The same for what a pointer inside a parameter names: the driver has a function of its own for that. */
	bool (*read_parameters)(const struct rm_caller *caller, void *to, uint64_t from, size_t bytes);
	bool (*write)(const struct rm_caller *caller, uint64_t to, const void *from, size_t bytes);
	uint32_t (*process)(const struct rm_caller *caller);	/* its pid: the whole process, not the thread */
	bool (*is_admin)(const struct rm_caller *caller);
	bool (*is_control)(const struct rm_caller *caller, int32_t descriptor);	/* is it an open nvidiactl? */
	/*
	 * The control file behind a descriptor, and what give_control ends. NULL: it is none. Without this callback nothing is
	 * exported.
	 */
	struct rm_file *(*take_control)(const struct rm_caller *caller, int32_t descriptor, void **kept);
	void (*give_control)(void *kept);
	/* Has it a file of that card open? Without this callback everyone has. */
	bool (*has_card)(const struct rm_caller *caller, uint32_t card);
};

struct rm_card {
	char uuid[48];			/* GPU-... as people write it */
	uint32_t minor;
	uint64_t total, reserved;	/* bytes; `reserved` of them are never given out */
	uint64_t used, peak;
};

enum rm_kind { RM_CONTROL, RM_CARD, RM_UVM };

/* `cards` stay the caller's and are kept up to date. NULL: no memory. */
struct rm *rm_new(const struct rm_host *host, const struct layout *layout, struct rm_card *cards, uint32_t count);

/* When every file is closed. */
void rm_end(struct rm *rm);

/* One open file: `card` is an index and matters for RM_CARD only. */
struct rm_file *rm_open(struct rm *rm, enum rm_kind kind, uint32_t card);
void rm_release(struct rm *rm, struct rm_file *file);

/* 0 or a negative errno. */
int rm_call(struct rm *rm, struct rm_file *file, const struct rm_caller *caller, uint32_t command, uint64_t argument);

/* Every physical allocation once, with the process it counts for (0: only uvm has it). */
typedef void rm_holding(void *to, uint32_t card, uint32_t pid, uint64_t bytes);
void rm_each_holding(const struct rm *rm, rm_holding *tell, void *to);

/* The next so many allocations of the card's memory end in that status, whatever room there is. */
void rm_refuse(struct rm *rm, uint32_t status, uint32_t times);

struct rm_counts {
	uint64_t clients, objects, files, refused, calls;
};
struct rm_counts rm_count(const struct rm *rm);

#endif
