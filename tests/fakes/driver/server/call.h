/* One call on its way through the driver's files: behaviour.c receives it, and calls the others. */
#ifndef FAKE_CALL_H
#define FAKE_CALL_H

#include "objects.h"

struct call {
	struct rm *rm;
	struct rm_file *file;
	const struct rm_caller *caller;
};

/* A client may only be used through the file that made it. NULL: there is none, or it is not this file's. */
struct object *call_client(const struct call *call, uint32_t handle);

/* An object below such a client. */
uint32_t call_object(const struct call *call, uint32_t client, uint32_t handle, struct object **found);

/* The caller's memory behind a pointer inside a parameter. */
uint32_t call_read(const struct call *call, void *to, uint64_t from, size_t bytes);
uint32_t call_write(const struct call *call, uint64_t to, const void *from, size_t bytes);

/*
 * behaviour.c: as nvidia_ioctl hands on its own copy of the parameters (kernel-open/nvidia/nv.c and osapi.c, the same shape
 * in 515.43.04 to 595.45.04): `data` is the kernel's memory, and goes back to the caller afterwards. 0, or a status for which
 * the call ends with EINVAL. `file` is the call. A function of its own in every build: a probe on it sees each call.
 */
__attribute__((__noinline__, __noclone__)) uint32_t rm_ioctl(void *stack, struct rm *rm, const struct call *file,
							     uint32_t command, void *data, uint32_t size);

/* alloc.c: these fill in the status field of `at`, as it lies in the caller's structure. */
void alloc_object(const struct call *call, unsigned char *at, bool is_long);
void alloc_host(const struct call *call, unsigned char *at);
void alloc_dup(const struct call *call, unsigned char *at);
void alloc_share(const struct call *call, unsigned char *at);
void alloc_free(const struct call *call, unsigned char *at);

/* heap.c */
void alloc_heap(const struct call *call, unsigned char *at);

/*
 * exports.c: controls of a client that put objects into a control file and make them of it again, and the card's dma-bufs,
 * for which nvidia_ioctl calls a function of its own (kernel-open/nvidia/nv.c): a probe on it sees each.
 */
uint32_t export_one(const struct call *call, const struct object *client, unsigned char *at);
uint32_t export_many(const struct call *call, const struct object *client, unsigned char *at);
uint32_t import_one(const struct call *call, const struct object *client, unsigned char *at);
uint32_t import_many(const struct call *call, const struct object *client, unsigned char *at);
void export_release(struct rm *rm, struct rm_file *file);
__attribute__((__noinline__, __noclone__)) uint32_t nv_dma_buf_export(void *card, void *parameters);

/* control.c */
void control(const struct call *call, unsigned char *at);
uint64_t control_free_bytes(const struct rm_card *card);
uint32_t control_gpu_id(uint32_t index);

/*
 * uvm.c: as the driver exports them to nvidia-uvm (nv_uvm_interface.c, 515.43.04 to 595.45.04): its duplicate has a handle of
 * its own. Functions of their own in every build: a probe on one sees each call.
 */
__attribute__((__noinline__, __noclone__)) uint32_t nvUvmInterfaceDupMemory(struct rm *rm, uint32_t client, uint32_t handle,
								    uint32_t *made, void *info);
__attribute__((__noinline__, __noclone__)) uint32_t nvUvmInterfaceFreeDupedHandle(struct rm *rm, uint32_t handle);

/* uvm.c: 0 or a negative errno */
int uvm_ioctl(const struct call *call, uint32_t command, uint64_t argument);
void uvm_release(struct rm *rm, struct rm_file *file);
bool uvm_has_pool(const struct rm_file *file, uint64_t base, uint64_t length);

#endif
