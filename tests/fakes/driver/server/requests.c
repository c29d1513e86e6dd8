#include "requests.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "caller.h"

enum { SECONDS_VALID = 3600, MINOR = 31 };	/* nothing here ever changes its name or kind */

/* Of 0 bytes, and so none of the driver's. */
enum { WHICH_FILE = 0x4657 };

static atomic_bool is_asking;
static struct rm_file *_Atomic asked_about;

/* What a file handle of the kernel stands for. */
struct opened {
	struct rm_file *file;	/* of a device */
	char *text;		/* of a text */
};

/* False: the caller was killed meanwhile, and no process waits. */
static bool answer(const struct server *server, const struct request *request, const void *body, size_t size)
{
	struct fuse_out_header header = { .len = (uint32_t)(sizeof(header) + size), .unique = request->header.unique };
	struct iovec parts[] = { { &header, sizeof(header) }, { (void *)(uintptr_t)body, size } };

	return writev(server->device, parts, size ? 2 : 1) >= 0;
}

void request_fail(const struct server *server, const struct request *request, int error)
{
	struct fuse_out_header header = { .len = sizeof(header), .error = error, .unique = request->header.unique };
	ssize_t written = write(server->device, &header, sizeof(header));

	(void)written;
}

static bool take_body(const struct request *request, void *to, size_t size)
{
	if (request->size < size)
		return false;
	memcpy(to, request->body, size);
	return true;
}

static void on_init(const struct server *server, const struct request *request)
{
	struct fuse_init_in in = { 0 };
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = MINOR, .max_readahead = FUSE_LARGEST, .max_write = FUSE_LARGEST,
		/* Releases come in the background: none may wait behind a bound, or they lose their order. */
		.max_background = UINT16_MAX, .congestion_threshold = UINT16_MAX, .time_gran = 1,
		.max_pages = FUSE_LARGEST / 4096,
	};

	memcpy(&in, request->body, request->size < sizeof(in) ? request->size : sizeof(in));
	out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_NO_OPENDIR_SUPPORT
				| FUSE_PARALLEL_DIROPS);
	answer(server, request, &out, sizeof(out));
}

static void on_lookup(const struct server *server, const struct request *request)
{
	struct fuse_entry_out out = { .entry_valid = SECONDS_VALID, .attr_valid = SECONDS_VALID };

	out.nodeid = request->header.nodeid == NODE_FOLDER ? folder_find(server->folder, request->body) : 0;
	if (!out.nodeid) {
		request_fail(server, request, -ENOENT);
		return;
	}
	out.attr = folder_attributes(out.nodeid);
	answer(server, request, &out, sizeof(out));
}

static void on_getattr(const struct server *server, const struct request *request)
{
	struct fuse_attr_out out = { .attr_valid = SECONDS_VALID };

	out.attr = folder_attributes(request->header.nodeid);
	answer(server, request, &out, sizeof(out));
}

static bool open_node(const struct server *server, uint64_t node, struct opened *opened)
{
	struct folder *folder = server->folder;

	if (folder_is_text(node))
		opened->text = folder_text(folder, node);
	else if (node == NODE_CONTROL)
		opened->file = rm_open(folder->rm, RM_CONTROL, 0);
	else if (node == NODE_UVM)
		opened->file = rm_open(folder->rm, RM_UVM, 0);
	else
		opened->file = rm_open(folder->rm, RM_CARD, (uint32_t)(node - NODE_FIRST_CARD));
	return opened->text || opened->file;
}

static struct opened *opened_by(uint64_t handle)
{
	return (struct opened *)(uintptr_t)handle;
}

static void close_node(const struct server *server, struct opened *opened)
{
	if (opened->file)
		rm_release(server->folder->rm, opened->file);
	free(opened->text);
	free(opened);
}

/* An open that was interrupted is never released: it ends here. */
static void on_open(const struct server *server, const struct request *request)
{
	struct opened *opened = calloc(1, sizeof(*opened));
	struct fuse_open_out out = { .fh = (uintptr_t)opened };

	if (!opened || !open_node(server, request->header.nodeid, opened)) {
		free(opened);
		request_fail(server, request, -ENOMEM);
		return;
	}
	if (request->header.nodeid == NODE_UVM)
		out.open_flags = FOPEN_KEEP_CACHE;	/* can be mapped */
	else
		out.open_flags = FOPEN_DIRECT_IO | FOPEN_NONSEEKABLE * !opened->text;
	if (!answer(server, request, &out, sizeof(out)))
		close_node(server, opened);
}

static void on_release(const struct server *server, const struct request *request)
{
	struct fuse_release_in in;

	if (!take_body(request, &in, sizeof(in)))
		return;
	close_node(server, opened_by(in.fh));
	answer(server, request, NULL, 0);
}

bool request_is_question(const struct fuse_in_header *header, const char *body, size_t size)
{
	struct fuse_ioctl_in in;

	if (!atomic_load(&is_asking) || header->opcode != FUSE_IOCTL || size < sizeof(in))
		return false;
	memcpy(&in, body, sizeof(in));
	return in.cmd == WHICH_FILE;
}

struct rm_file *request_ask(int file)
{
	bool is_answered;

	atomic_store(&is_asking, true);
	is_answered = ioctl(file, WHICH_FILE, NULL) == 0;
	atomic_store(&is_asking, false);
	return is_answered ? atomic_load(&asked_about) : NULL;
}

static void on_ioctl(const struct server *server, const struct request *request)
{
	struct caller context = { (pid_t)request->header.pid, server->where, NODE_CONTROL };
	struct rm_caller caller = { &caller_host, &context };
	struct fuse_ioctl_out out = { 0 };
	struct fuse_ioctl_in in;

	if (!take_body(request, &in, sizeof(in)) || !opened_by(in.fh)->file) {
		request_fail(server, request, -ENOTTY);
		return;
	}
	if (request_is_question(&request->header, request->body, request->size)) {
		atomic_store(&asked_about, opened_by(in.fh)->file);
		answer(server, request, &out, sizeof(out));
		return;
	}
	out.result = rm_call(server->folder->rm, opened_by(in.fh)->file, &caller, in.cmd, in.arg);
	answer(server, request, &out, sizeof(out));
}

static void on_read(const struct server *server, const struct request *request)
{
	static const char zeros[FUSE_LARGEST];
	struct fuse_read_in in;
	const char *text;
	size_t length;

	if (!take_body(request, &in, sizeof(in)) || in.size > FUSE_LARGEST) {
		request_fail(server, request, -EINVAL);
		return;
	}
	text = folder_is_text(request->header.nodeid) ? opened_by(in.fh)->text : NULL;
	if (!text) {
		answer(server, request, zeros, request->header.nodeid == NODE_UVM ? in.size : 0);
		return;
	}
	length = strlen(text);
	if (in.offset >= length)
		length = in.offset = 0;
	length -= in.offset;
	answer(server, request, text + in.offset, length < in.size ? length : in.size);
}

/* An order, or pages of nvidia-uvm that the kernel evicts: they are only ever read again as zeros. */
static void on_write(const struct server *server, const struct request *request)
{
	struct fuse_write_out out = { 0 };
	struct fuse_write_in in;
	bool is_well = take_body(request, &in, sizeof(in));

	if (is_well && request->header.nodeid == NODE_REFUSE)
		is_well = folder_order(server->folder, request->body + sizeof(in));
	else if (request->header.nodeid != NODE_UVM)
		is_well = false;
	if (!is_well) {
		request_fail(server, request, -EINVAL);
		return;
	}
	out.size = in.size;
	answer(server, request, &out, sizeof(out));
}

static size_t add_entry(char *at, size_t room, uint64_t node, const char *name)
{
	struct fuse_dirent entry = { .ino = node, .off = node, .namelen = (uint32_t)strlen(name), .type = DT_REG };
	size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen);

	if (size > room)
		return 0;
	memset(at, 0, size);
	memcpy(at, &entry, FUSE_NAME_OFFSET);
	memcpy(at + FUSE_NAME_OFFSET, name, entry.namelen);
	return size;
}

static void on_readdir(const struct server *server, const struct request *request)
{
	char page[4096], room[32];
	struct fuse_read_in in;
	const char *name;
	size_t used = 0, size = 1;

	if (!take_body(request, &in, sizeof(in))) {
		request_fail(server, request, -EINVAL);
		return;
	}
	if (in.size > sizeof(page))
		in.size = sizeof(page);
	for (uint64_t node = in.offset ? in.offset + 1 : NODE_CONTROL; size; node++) {
		name = folder_name(server->folder, node, room, sizeof(room));
		if (!name)
			break;
		size = add_entry(page + used, in.size - used, node, name);
		used += size;
	}
	answer(server, request, page, used);
}

static void on_statfs(const struct server *server, const struct request *request)
{
	struct fuse_statfs_out out = { .st = { .bsize = 4096, .frsize = 4096, .namelen = 255 } };

	answer(server, request, &out, sizeof(out));
}

static void say_nothing(const struct server *server, const struct request *request)
{
	(void)server;
	(void)request;
}

/* Everything else is answered with "not implemented", which the kernel takes as: do as you would by yourself. */
#define REQUESTS(X) \
	X(FUSE_INIT, on_init) \
	X(FUSE_LOOKUP, on_lookup) \
	X(FUSE_GETATTR, on_getattr) \
	X(FUSE_SETATTR, on_getattr) \
	X(FUSE_OPEN, on_open) \
	X(FUSE_RELEASE, on_release) \
	X(FUSE_IOCTL, on_ioctl) \
	X(FUSE_READ, on_read) \
	X(FUSE_WRITE, on_write) \
	X(FUSE_READDIR, on_readdir) \
	X(FUSE_STATFS, on_statfs) \
	X(FUSE_FORGET, say_nothing) \
	X(FUSE_BATCH_FORGET, say_nothing) \
	X(FUSE_INTERRUPT, say_nothing)

void request_answer(const struct server *server, const struct request *request)
{
	switch (request->header.opcode) {
#define CASE(opcode, function) \
	case opcode: \
		function(server, request); \
		return;
	REQUESTS(CASE)
#undef CASE
	default:
		request_fail(server, request, -ENOSYS);
	}
}
