/* One request of the kernel, and what is answered. */
#ifndef FAKE_REQUESTS_H
#define FAKE_REQUESTS_H

#include "folder.h"

enum { FUSE_LARGEST = 128 << 10 };	/* of data in one request or answer: the kernel's own default */

struct server {
	struct folder *folder;
	const char *where;
	int device;
};

struct request {
	struct fuse_in_header header;
	const char *body;	/* a zero follows it, whatever came */
	size_t size;
};

void request_answer(const struct server *server, const struct request *request);
void request_fail(const struct server *server, const struct request *request, int error);

#endif
