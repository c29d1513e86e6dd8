/*
 * A program that does one thing after the other, as its arguments say, on one control file:
 *
 *      take MIB    says what cudaMalloc would        free        the last one that was taken
 *      open        control file, client, device      close       that control file
 *      dup         goes on with a duplicate          overwrite   puts /dev/null on the control file's number
 *      wait        says so, and reads a line         sweep       closes every number from 3 to 2000
 *      fork        a child does the next three       leave       a child stays until its input ends
 *      vfork       a child closes the control file   exec        the rest by a new program
 *      race N      N threads take and free at once   kill        ends by SIGKILL
 *      host CLASS  by RM_ALLOC_MEMORY, in hex        uvm         initialises nvidia-uvm for this process
 *      wrap        every call from now on by XFER    device      one more device
 *      shut        closes the card's file            drop        closes the control file and keeps the card's
 *      send PATH   waits at that socket, and gives the process that connects its files and handles
 *      receive PATH  goes on with those
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rm.h"

enum { MIB_SHIFT = 20, HIGHEST = 2000, RACES = 200, RACE_MIB = 1500, FORK_STEPS = 3, MISUSE = 2 };

static struct rm rm;
static uint32_t last;
static int original = -1; /* the control file before it was duplicated */

static void take(const char *mib)
{
	uint32_t object;

	if (rm_take_aloud(&rm, strtoull(mib, NULL, 10), &object))
		last = object;
}

static void wait_for_line(void)
{
	char line[16];

	puts("waiting");
	if (!fgets(line, sizeof(line), stdin))
		exit(EXIT_SUCCESS);
}

static void *take_and_free(void *given)
{
	uint32_t object, status;

	for (int i = 0; i < RACES; i++) {
		status = rm_take(&rm, (uint64_t)RACE_MIB << MIB_SHIFT, &object);
		if (status == 0 && rm_free(&rm, object) == 0)
			++*(unsigned long *)given;
		else if (status != NV_NO_MEMORY)
			rm_die("RM_ALLOC", status);
	}
	return NULL;
}

static void race(int count)
{
	pthread_t threads[16];
	unsigned long given[16] = { 0 }, sum = 0;

	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, take_and_free, &given[i]);
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		sum += given[i];
	}
	printf("raced: %s\n", sum > 0 ? "some were given" : "none was given");
}

static void stop(void)
{
	puts("staying");
	while (getchar() != EOF)
		;
	_exit(EXIT_SUCCESS);
}

/* In the parent's memory, with descriptors of its own: what the analyzer forbids is what is to be seen. */
static void close_in_vfork(void)
{
#ifndef __clang_analyzer__
	pid_t child = vfork();

	if (child == 0)
		_exit(close(rm.control));
	waitpid(child, NULL, 0);
#endif
}

/* The card's file keeps the control file that it was registered with, so both go, unless there is a duplicate. */
static void close_control(void)
{
	if (original < 0)
		close(rm.card);
	printf("closed: %d\n", close(original >= 0 ? original : rm.control));
	original = -1;
}

static void host(const char *class_number)
{
	printf("class 0x%s: status 0x%x\n", class_number, rm_alloc_memory(&rm, (uint32_t)strtoul(class_number, NULL, 16)));
}

static void make_device(void)
{
	struct nv_device params = { 0 };
	uint32_t device = 0;

	printf("device: status 0x%x\n", rm_alloc(&rm, rm.client, NV_DEVICE, &params, sizeof(params), &device));
}

/* The second file must name the first, which the driver knows by its table of operations. */
static void start_uvm(void)
{
	struct nv_uvm_mm_initialize second = { rm_open_uvm(&rm), 0 };

	if (ioctl(rm_open_uvm(&rm), NV_UVM_MM_INITIALIZE, &second) != 0)
		rm_die("UVM_MM_INITIALIZE", 0);
	printf("uvm: status 0x%x\n", second.status);
}

enum { FILES = 2 };

/* One message: the handles, and with them the files. */
struct mail {
	struct msghdr header;
	struct iovec body;
	union {
		struct cmsghdr first;
		char room[CMSG_SPACE(FILES * sizeof(int))];
	} files;
};

static struct msghdr *mail_of(struct mail *mail, struct rm *handles)
{
	mail->body = (struct iovec){ handles, sizeof(*handles) };
	mail->header = (struct msghdr){
		.msg_iov = &mail->body, .msg_iovlen = 1, .msg_control = mail->files.room, .msg_controllen = sizeof(mail->files.room),
	};
	mail->files.first = (struct cmsghdr){ CMSG_LEN(FILES * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	return &mail->header;
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static void send_files(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), files[FILES] = { rm.control, rm.card }, guest;
	struct mail mail = { 0 };
	struct msghdr *message = mail_of(&mail, &rm);

	memcpy(CMSG_DATA(&mail.files.first), files, sizeof(files));
	if (bind(line, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(line, 1) != 0)
		rm_die(path, 0);
	puts("listening");
	guest = accept(line, NULL, NULL);
	if (guest < 0 || sendmsg(guest, message, 0) != (ssize_t)sizeof(rm))
		rm_die(path, 0);
	close(guest);
	close(line);
	puts("sent");
}

/* What the sender was told of its own memory stays behind: `path` is one of its pointers. */
static void receive_files(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), files[FILES];
	struct rm theirs;
	struct mail mail = { 0 };
	struct msghdr *message = mail_of(&mail, &theirs);

	if (connect(line, (struct sockaddr *)&address, sizeof(address)) != 0)
		rm_die(path, 0);
	if (recvmsg(line, message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(theirs) || message->msg_controllen < sizeof(files))
		rm_die(path, 0);
	memcpy(files, CMSG_DATA(&mail.files.first), sizeof(files));
	theirs.path = rm.path;
	theirs.control = files[0];
	theirs.card = files[1];
	rm = theirs;
	close(line);
	puts("received");
}

static char **run(char **step);

/* The child does some steps, the parent those that follow. */
static char **run_in_child(char **step)
{
	pid_t child = fork();

	for (int i = 0; i < FORK_STEPS && *step; i++)
		step = child == 0 ? run(step) : step + (strcmp(*step, "take") == 0 ? 2 : 1);
	if (child == 0) {
		fflush(stdout);
		_exit(EXIT_SUCCESS);
	}
	waitpid(child, NULL, 0);
	return step;
}

static char **run(char **step)
{
	const char *name = *step++;

	if (strcmp(name, "take") == 0) {
		take(*step++);
	} else if (strcmp(name, "free") == 0) {
		printf("freed: %u\n", rm_free(&rm, last));
	} else if (strcmp(name, "open") == 0) {
		rm.client = rm.device = rm.subdevice = 0;
		rm_start(&rm);
	} else if (strcmp(name, "close") == 0) {
		close_control();
	} else if (strcmp(name, "dup") == 0) {
		original = rm.control;
		rm.control = fcntl(original, F_DUPFD_CLOEXEC, 100);
	} else if (strcmp(name, "overwrite") == 0) {
		dup2(open("/dev/null", O_RDWR | O_CLOEXEC), rm.control);
	} else if (strcmp(name, "wait") == 0) {
		wait_for_line();
	} else if (strcmp(name, "sweep") == 0) {
		for (int fd = 3; fd < HIGHEST; fd++)
			if (fd != rm.control)
				close(fd);
	} else if (strcmp(name, "fork") == 0) {
		step = run_in_child(step);
	} else if (strcmp(name, "leave") == 0) {
		if (fork() == 0)
			stop();
	} else if (strcmp(name, "vfork") == 0) {
		close_in_vfork();
	} else if (strcmp(name, "exec") == 0) {
		*--step = "steps";
		execv("/proc/self/exe", step);
	} else if (strcmp(name, "race") == 0) {
		race(atoi(*step++));
	} else if (strcmp(name, "host") == 0) {
		host(*step++);
	} else if (strcmp(name, "uvm") == 0) {
		start_uvm();
	} else if (strcmp(name, "wrap") == 0) {
		rm.is_wrapped = true;
	} else if (strcmp(name, "device") == 0) {
		make_device();
	} else if (strcmp(name, "shut") == 0) {
		close(rm.card);
	} else if (strcmp(name, "drop") == 0) {
		close(rm.control);
	} else if (strcmp(name, "send") == 0) {
		send_files(*step++);
	} else if (strcmp(name, "receive") == 0) {
		receive_files(*step++);
	} else if (strcmp(name, "kill") == 0) {
		raise(SIGKILL);
	} else {
		exit(MISUSE);
	}
	return step;
}

int main(int count, char **words)
{
	(void)count;
	rm = rm_plain();
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (char **step = words + 1; *step;)
		step = run(step);
	return EXIT_SUCCESS;
}
