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

/*
 * An ioctl of the server's own on a file of the folder: which one that is. Answered without any driver, by another thread than
 * the driver's: it may be asked while a call is under way.
 */
bool request_is_question(const struct fuse_in_header *header, const char *body, size_t size);
/* Asks it of that descriptor of this process. NULL: of no device. */
struct rm_file *request_ask(int file);

void request_answer(const struct server *server, const struct request *request);
void request_fail(const struct server *server, const struct request *request, int error);

#endif
