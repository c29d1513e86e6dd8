/*
 * fake-driver FOLDER VERSION UUID:MIB:MINOR... [--reserved MIB] [--while-stdin]
 *
 * An NVIDIA driver without a GPU: serves nvidiactl, nvidiaN and nvidia-uvm in FOLDER until it is told to end (SIGTERM,
 * SIGINT), is unmounted, or, if asked so, its standard input ends. Says `serving` when the files can be opened. Needs root
 * and /dev/fuse.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caller.h"
#include "fuse.h"

enum { MIB_SHIFT = 20, MISUSE = 2, UUID_LENGTH = 40, DEFAULT_RESERVED_MIB = 256 };

/* Made up, but not zero: a real card keeps some for itself, so that a sum that leaves it out is noticed. */
static uint64_t reserved_mib = DEFAULT_RESERVED_MIB;

/* The process that started us holds the other end: when it ends, for whatever reason, so do we. */
static bool is_while_stdin;

static bool parse_card(const char *text, struct rm_card *card)
{
	uint64_t mib;
	int end = 0;

	if (sscanf(text, "%40[^:]:%" SCNu64 ":%" SCNu32 "%n", card->uuid, &mib, &card->minor, &end) != 3 || text[end])
		return false;
	if (strncmp(card->uuid, "GPU-", 4) != 0 || strlen(card->uuid) != UUID_LENGTH)
		return false;
	card->total = mib << MIB_SHIFT;
	return mib > 0;
}

static bool parse(int count, char **words, struct folder *folder)
{
	for (int i = 0; i < count; i++) {
		if (strcmp(words[i], "--reserved") == 0 && i + 1 < count)
			reserved_mib = strtoull(words[++i], NULL, 10);
		else if (strcmp(words[i], "--while-stdin") == 0)
			is_while_stdin = true;
		else if (folder->card_count == RM_CARDS || !parse_card(words[i], &folder->cards[folder->card_count++]))
			return false;
	}
	for (uint32_t i = 0; i < folder->card_count; i++) {
		folder->cards[i].reserved = reserved_mib << MIB_SHIFT;
		if (folder->cards[i].reserved > folder->cards[i].total)
			return false;
	}
	return folder->card_count > 0;
}

static void *watch_stdin(void *unused)
{
	char bytes[64];

	while (read(STDIN_FILENO, bytes, sizeof(bytes)) > 0)
		;
	kill(getpid(), SIGTERM);
	return unused;
}

static int serve(struct folder *folder, const char *where)
{
	struct fuse *fuse;
	pthread_t watcher;
	sigset_t ends;
	int received;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	fuse = fuse_start(folder, where);
	if (!fuse)
		return EXIT_FAILURE;
	if (is_while_stdin && pthread_create(&watcher, NULL, watch_stdin, NULL) != 0)
		kill(getpid(), SIGTERM);
	puts("serving");
	fflush(stdout);
	sigwait(&ends, &received);
	fuse_stop(fuse);
	return EXIT_SUCCESS;
}

int main(int count, char **words)
{
	static struct folder folder;
	const struct layout *layout = count > 3 ? layout_of((unsigned)atoi(words[2])) : NULL;
	int code;

	if (!layout || !parse(count - 3, words + 3, &folder)) {
		fputs("usage: fake-driver FOLDER VERSION UUID:MIB:MINOR... [--reserved MIB] [--while-stdin]\n", stderr);
		return MISUSE;
	}
	folder.version = words[2];
	folder.rm = rm_new(&caller_host, layout, folder.cards, folder.card_count);
	code = folder.rm ? serve(&folder, words[1]) : EXIT_FAILURE;
	fflush(NULL);
	_exit(code);	/* the threads are in the midst of things: the kernel ends them */
}
