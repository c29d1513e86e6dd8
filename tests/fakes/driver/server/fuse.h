/*
 * The FUSE protocol, as <linux/fuse.h> has it, without a library. Two threads: one reads requests and answers all that is
 * only about files; the other does opens, releases and ioctls, in their order. So an ioctl may touch a page of the caller
 * that is itself a page of nvidia-uvm: the first thread serves the fault.
 */
#ifndef FAKE_FUSE_H
#define FAKE_FUSE_H

#include "folder.h"

struct fuse;

/* Mounts the folder there and starts the threads. NULL: said why on stderr. */
struct fuse *fuse_start(struct folder *folder, const char *where);

/* Unmounts. Processes that still hold files get ENOTCONN from then on. */
void fuse_stop(struct fuse *fuse);

#endif
