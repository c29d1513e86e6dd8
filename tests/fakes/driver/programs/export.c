/*
 * A tenant that puts memory into control files by descriptors, and frees its handles.
 *
 *      keep MIB          takes so much, exports it and frees the handle, again and again until it is refused
 *      many MIB          the same, four pieces to a file
 *      channel MIB       gives it to a channel for its USERD instead
 *      import MIB        exports so much, frees the handle, makes it its own again and closes the file
 *      race ROUNDS       exports 2 MiB to a descriptor that another thread leads to one of two files, and closes the first
 *      lend MIB PATH     exports so much and passes the file to the process that connects to that socket
 *      borrow PATH       makes what it is given there its own
 *      dmabuf MIB        takes so much and exports it as a dma-buf, by the card's file
 *
 * `kept`, `closed`, `imported`, `lent`: it waits for a line there, and ends after the last.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rm.h"

enum { MISUSE = 2, MANY = 4, FILES = 4096, RM_OBJECT = 1, ROUND_BYTES = 2 << 20 };
enum { EXPORT = 0x3D05, IMPORT = 0x3D06, EXPORT_MANY = 0x3D0B };
enum { DMABUF = 217, DMABUF_BYTES = 2608, DMABUF_OLD_BYTES = 2600, DMABUF_BRANCH = 570 };

struct nv_export { uint32_t type, device, parent, object; int32_t file; uint32_t flags; };
struct nv_import { int32_t file; uint32_t type, device, parent, object; };
struct nv_exports {
	int32_t file;
	uint32_t device;
	uint16_t most;
	uint8_t metadata[64];
	uint32_t objects[512];
	uint16_t count, index;
};

_Static_assert(sizeof(struct nv_export) == 24 && sizeof(struct nv_import) == 20, "one object");
_Static_assert(sizeof(struct nv_exports) == 2128, "many objects");

static int files[FILES];
static unsigned file_count;

static void must(bool is_so, const char *what)
{
	if (!is_so)
		rm_die(what, 0);
}

static void wait_for_line(const char *after)
{
	char line[16];

	puts(after);
	if (!fgets(line, sizeof(line), stdin))
		exit(EXIT_SUCCESS);
}

static int open_file(const struct rm *rm)
{
	int file = open(rm->path, O_RDWR | O_CLOEXEC);

	must(file >= 0 && file_count < FILES, rm->path);
	files[file_count++] = file;
	return file;
}

static uint32_t export_one(const struct rm *rm, uint32_t object, int file)
{
	struct nv_export params = { .type = RM_OBJECT, .object = object, .file = file };

	return rm_control(rm, rm->client, EXPORT, &params, sizeof(params));
}

static uint32_t import_one(const struct rm *rm, int file, uint32_t *object)
{
	struct nv_import params = { .file = file, .type = RM_OBJECT, .parent = rm->device, .object = 0x5C00AAAA };
	uint32_t status = rm_control(rm, rm->client, IMPORT, &params, sizeof(params));

	*object = params.object;
	return status;
}

static uint32_t keep_one(const struct rm *rm, uint64_t bytes)
{
	uint32_t memory, status = rm_take(rm, bytes, &memory);

	if (status)
		return status;
	must(export_one(rm, memory, open_file(rm)) == 0, "export");
	must(rm_free(rm, memory) == 0, "free");
	return 0;
}

static void must_export(uint32_t status)
{
	if (status != 0)
		rm_die("export", status);
}

static uint32_t keep_many(const struct rm *rm, uint64_t bytes)
{
	static struct nv_exports params;
	uint32_t status = 0;

	params = (struct nv_exports){ .most = MANY, .file = open_file(rm), .device = rm->device };
	while (params.count < MANY && (status = rm_take(rm, bytes / MANY, &params.objects[params.count])) == 0)
		params.count++;
	must_export(rm_control(rm, rm->client, EXPORT_MANY, &params, sizeof(params)));
	for (uint16_t i = 0; i < params.count; i++)
		must(rm_free(rm, params.objects[i]) == 0, "free");
	return status;
}

static uint32_t keep_by_channel(const struct rm *rm, uint64_t bytes)
{
	uint32_t userd, channel = 0, status = rm_take(rm, bytes, &userd);

	if (status)
		return status;
	must(rm_make_channel(rm, rm->device, userd, &channel) == 0, "channel");
	must(rm_free(rm, userd) == 0, "free");
	return 0;
}

static void keep(uint64_t mib, uint32_t (*keep_some)(const struct rm *rm, uint64_t bytes))
{
	struct rm rm = rm_plain();
	uint64_t kept = 0;
	uint32_t status;

	rm_start(&rm);
	while ((status = keep_some(&rm, mib << 20)) == 0)
		kept += mib;
	printf("kept %llu MiB, then 0x%x\n", (unsigned long long)kept, status);
	wait_for_line("kept");
	if (!file_count)
		return;
	close(files[0]);
	wait_for_line("closed");
}

static void import(uint64_t mib)
{
	struct rm rm = rm_plain();
	uint32_t memory;

	rm_start(&rm);
	must(keep_one(&rm, mib << 20) == 0, "keep");
	must(import_one(&rm, files[0], &memory) == 0, "import");
	close(files[0]);
	wait_for_line("imported");
	must(rm_free(&rm, memory) == 0, "free");
	wait_for_line("freed");
}

/* `ends` are the two files, and the descriptor that leads to one of them. */
struct turning {
	int ends[2], turned;
	atomic_bool is_turning, is_over;
};

static void *turn(void *given)
{
	struct turning *turning = given;

	for (unsigned i = 1; !atomic_load(&turning->is_over); i++) {
		must(dup2(turning->ends[i & 1], turning->turned) >= 0, "dup2");
		atomic_store(&turning->is_turning, true);
	}
	return NULL;
}

static uint32_t race_once(const struct rm *rm)
{
	struct turning turning = { .ends = { open_file(rm), open_file(rm) } };
	uint32_t memory, status;
	pthread_t thread;

	turning.turned = fcntl(turning.ends[0], F_DUPFD_CLOEXEC, 0);
	must(turning.turned >= 0 && rm_take(rm, ROUND_BYTES, &memory) == 0, "take");
	must(pthread_create(&thread, NULL, turn, &turning) == 0, "thread");
	while (!atomic_load(&turning.is_turning))
		sched_yield();
	status = export_one(rm, memory, turning.turned);
	atomic_store(&turning.is_over, true);
	pthread_join(thread, NULL);
	must(rm_free(rm, memory) == 0, "free");
	close(turning.turned);
	close(turning.ends[0]);
	return status;
}

static void race(unsigned rounds)
{
	struct rlimit most = { FILES + 64, FILES + 64 };
	struct rm rm = rm_plain();
	unsigned given = 0;

	must(setrlimit(RLIMIT_NOFILE, &most) == 0, "limit");
	rm_start(&rm);
	for (unsigned i = 0; i < rounds; i++)
		given += race_once(&rm) == 0;
	printf("%u of %u exported\n", given, rounds);
	wait_for_line("kept");
}

static int open_socket(const char *path, bool is_lender)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int socket_file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), taken;

	strncpy(at.sun_path, path, sizeof(at.sun_path) - 1);
	must(socket_file >= 0, "socket");
	if (!is_lender) {
		must(connect(socket_file, (struct sockaddr *)&at, sizeof(at)) == 0, path);
		return socket_file;
	}
	unlink(path);
	must(bind(socket_file, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(socket_file, 8) == 0, path);
	puts("lends");
	taken = accept(socket_file, NULL, NULL);
	must(taken >= 0, "accept");
	close(socket_file);
	return taken;
}

static struct msghdr message_of(void *room, size_t size, struct iovec *part)
{
	return (struct msghdr){ .msg_iov = part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = size };
}

static void lend(uint64_t mib, const char *path)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { (char[]){ 'f' }, 1 };
	struct msghdr message = message_of(room, sizeof(room), &part);
	struct rm rm = rm_plain();
	int taken;

	rm_start(&rm);
	must(keep_one(&rm, mib << 20) == 0, "keep");
	taken = open_socket(path, true);
	*CMSG_FIRSTHDR(&message) = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &files[0], sizeof(int));
	must(sendmsg(taken, &message, 0) == 1, "send");
	wait_for_line("lent");
}

static void borrow(const char *path)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
	struct iovec part = { (char[1]){ 0 }, 1 };
	struct msghdr message = message_of(room, sizeof(room), &part);
	struct rm rm = rm_plain();
	uint32_t memory;
	int file;

	rm_start(&rm);
	must(recvmsg(open_socket(path, false), &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message), "receive");
	memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(file));
	printf("borrowed: 0x%x\n", import_one(&rm, file, &memory));
}

static void dmabuf(uint64_t mib)
{
	static unsigned char call[DMABUF_BYTES];
	struct rm rm = rm_plain();
	bool is_old = rm.branch < DMABUF_BRANCH;
	uint32_t size = is_old ? DMABUF_OLD_BYTES : DMABUF_BYTES, memory, status, one = 1;
	uint64_t bytes = mib << 20;
	int32_t none = -1;

	rm_start(&rm);
	must(rm_take(&rm, bytes, &memory) == 0, "take");
	memcpy(call, &none, sizeof(none));
	memcpy(call + 4, &rm.client, sizeof(rm.client));
	memcpy(call + 8, &one, sizeof(one));
	memcpy(call + 12, &one, sizeof(one));
	memcpy(call + 24, &bytes, sizeof(bytes));
	memcpy(call + (is_old ? 32 : 36), &memory, sizeof(memory));
	memcpy(call + (is_old ? 1568 : 1576), &bytes, sizeof(bytes));
	must(rm_ioctl(&rm, rm.card, DMABUF, call, size) == 0, "dma-buf");
	memcpy(&status, call + size - 8, sizeof(status));
	printf("dma-buf: 0x%x\n", status);
	must(rm_free(&rm, memory) == 0, "free");
	wait_for_line("kept");
}

int main(int count, char **words)
{
	const char *name = count > 1 ? words[1] : "", *first = count > 2 ? words[2] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(name, "keep") == 0 && count == 3)
		keep(strtoul(first, NULL, 10), keep_one);
	else if (strcmp(name, "many") == 0 && count == 3)
		keep(strtoul(first, NULL, 10), keep_many);
	else if (strcmp(name, "channel") == 0 && count == 3)
		keep(strtoul(first, NULL, 10), keep_by_channel);
	else if (strcmp(name, "import") == 0 && count == 3)
		import(strtoul(first, NULL, 10));
	else if (strcmp(name, "race") == 0 && count == 3)
		race((unsigned)strtoul(first, NULL, 10));
	else if (strcmp(name, "lend") == 0 && count == 4)
		lend(strtoul(first, NULL, 10), words[3]);
	else if (strcmp(name, "borrow") == 0 && count == 3)
		borrow(first);
	else if (strcmp(name, "dmabuf") == 0 && count == 3)
		dmabuf(strtoul(first, NULL, 10));
	else
		return MISUSE;
	return EXIT_SUCCESS;
}
