#include "fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <unistd.h>

#include "caller.h"
#include "requests.h"

enum { REQUEST_BYTES = FUSE_LARGEST + 4096 };

struct queued {
	struct queued *next;
	struct request request;
	char body[];
};

struct fuse {
	struct server server;
	pthread_t reader, worker;
	pthread_mutex_t lock;
	pthread_cond_t arrived;
	struct queued *first, **last;
};

static bool queue(struct fuse *fuse, const struct request *request)
{
	struct queued *queued = malloc(sizeof(*queued) + request->size + 1);

	if (!queued)
		return false;
	queued->next = NULL;
	queued->request = *request;
	memcpy(queued->body, request->body, request->size);
	queued->body[request->size] = '\0';
	queued->request.body = queued->body;
	pthread_mutex_lock(&fuse->lock);
	*fuse->last = queued;
	fuse->last = &queued->next;
	pthread_cond_signal(&fuse->arrived);
	pthread_mutex_unlock(&fuse->lock);
	return true;
}

static struct queued *dequeue(struct fuse *fuse)
{
	struct queued *queued;

	pthread_mutex_lock(&fuse->lock);
	while (!fuse->first)
		pthread_cond_wait(&fuse->arrived, &fuse->lock);
	queued = fuse->first;
	fuse->first = queued->next;
	if (!fuse->first)
		fuse->last = &fuse->first;
	pthread_mutex_unlock(&fuse->lock);
	return queued;
}

static void *work(void *with)
{
	struct fuse *fuse = with;

	for (;;) {
		struct queued *queued = dequeue(fuse);

		request_answer(&fuse->server, &queued->request);
		free(queued);
	}
	return NULL;
}

/* What touches the driver itself. */
static bool is_slow(const struct fuse_in_header *header)
{
	return header->opcode == FUSE_OPEN || header->opcode == FUSE_RELEASE || header->opcode == FUSE_IOCTL
	       || (header->opcode == FUSE_WRITE && header->nodeid == NODE_REFUSE);
}

static void take_in(struct fuse *fuse, char *bytes, size_t size)
{
	struct request request;

	memcpy(&request.header, bytes, sizeof(request.header));
	request.body = bytes + sizeof(request.header);
	request.size = size - sizeof(request.header);
	bytes[size] = '\0';
	if (!is_slow(&request.header) || request_is_question(&request.header, request.body, request.size))
		request_answer(&fuse->server, &request);
	else if (!queue(fuse, &request))
		request_fail(&fuse->server, &request, -ENOMEM);
}

static void *read_requests(void *with)
{
	struct fuse *fuse = with;
	char *bytes = malloc(REQUEST_BYTES + 1);

	while (bytes) {
		ssize_t size = read(fuse->server.device, bytes, REQUEST_BYTES);

		if (size >= (ssize_t)sizeof(struct fuse_in_header))
			take_in(fuse, bytes, (size_t)size);
		else if (size >= 0 || (errno != EINTR && errno != ENOENT && errno != EAGAIN))
			break;		/* unmounted from outside */
	}
	free(bytes);
	kill(getpid(), SIGTERM);
	return NULL;
}

static bool mount_at(const struct server *server)
{
	char options[128];

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server->device);
	return mount("fake-nvidia", server->where, "fuse.fake-nvidia", MS_NOSUID | MS_NODEV, options) == 0;
}

static bool start_threads(struct fuse *fuse)
{
	return pthread_create(&fuse->reader, NULL, read_requests, fuse) == 0
	       && pthread_create(&fuse->worker, NULL, work, fuse) == 0;
}

struct fuse *fuse_start(struct folder *folder, const char *where)
{
	struct fuse *fuse = calloc(1, sizeof(*fuse));

	if (!fuse)
		return NULL;
	fuse->server = (struct server){ .folder = folder, .where = where };
	fuse->last = &fuse->first;
	pthread_mutex_init(&fuse->lock, NULL);
	pthread_cond_init(&fuse->arrived, NULL);
	fuse->server.device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse->server.device < 0) {
		perror("fake-driver: /dev/fuse");
		goto undo_fuse;
	}
	if (!mount_at(&fuse->server)) {
		perror("fake-driver: mount");
		goto undo_device;
	}
	if (!start_threads(fuse)) {
		perror("fake-driver: thread");
		goto undo_mount;
	}
	return fuse;

undo_mount:
	umount2(where, MNT_DETACH);
undo_device:
	close(fuse->server.device);
undo_fuse:
	free(fuse);
	return NULL;
}

void fuse_stop(struct fuse *fuse)
{
	umount2(fuse->server.where, MNT_DETACH);
}
