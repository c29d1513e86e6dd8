/*
 * A tenant that takes channel groups, and stops channels of others.
 *
 *      groups COUNT            makes so many until one is refused
 *      bare COUNT              the same by channels without a group, for each of which the driver makes one
 *      lend                    makes a channel, says its client and handle, and stops it
 *      stop CLIENT CHANNEL     stops that
 *      slice MICROSECONDS      makes a group, sets its time slice, and says what the driver then says
 *      name CLIENT COMMAND SIZE AT     sends a control with SIZE bytes of parameters that name that client at AT
 *
 * `made`, `freed`, `lent`: it waits for a line there, and ends after the last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rm.h"

enum { MISUSE = 2, GROUP = 0xA06C, USERD_BYTES = 64 << 10, MOST = 4096, MOST_BYTES = 256 };
enum { SET_TIMESLICE = 0xA06C0103, GET_TIMESLICE = 0xA06C0104 };
enum { DISABLE_CHANNELS = 0x2080110B, LIST = 64 };

struct nv_group { uint32_t error, error_ecc, va_space, engine; uint8_t is_plugin; };
struct nv_channel_list {
	uint8_t is_disabled;
	uint32_t count;
	uint8_t only_scheduling, rewinds;
	uint64_t event;
	uint32_t clients[LIST], channels[LIST];
};

_Static_assert(sizeof(struct nv_group) == 20 && sizeof(struct nv_channel_list) == 536, "channels");

typedef uint32_t make_function(const struct rm *rm, uint32_t *object);

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

static uint32_t make_group(const struct rm *rm, uint32_t *object)
{
	struct nv_group params = { .engine = NV_GRAPHICS };

	return rm_alloc(rm, rm->device, GROUP, &params, sizeof(params), object);
}

static uint32_t make_channel(const struct rm *rm, uint32_t parent, uint32_t *object)
{
	uint32_t userd;

	must(rm_take(rm, USERD_BYTES, &userd) == 0, "USERD");
	return rm_make_channel(rm, parent, userd, object);
}

static uint32_t make_bare(const struct rm *rm, uint32_t *object)
{
	return make_channel(rm, rm->device, object);
}

static void make(unsigned long count, make_function *make_one)
{
	static uint32_t objects[MOST];
	struct rm rm = rm_plain();
	unsigned long made = 0;
	uint32_t status = 0;

	rm_start(&rm);
	while (made < count && made < MOST && (status = make_one(&rm, &objects[made])) == 0)
		made++;
	printf("%lu, then 0x%x\n", made, status);
	wait_for_line("made");
	if (made)
		must(rm_free(&rm, objects[0]) == 0, "free");
	wait_for_line("freed");
	objects[0] = 0;
	printf("again: 0x%x\n", make_one(&rm, &objects[0]));
}

static uint32_t stop(const struct rm *rm, uint32_t client, uint32_t channel)
{
	struct nv_channel_list list = { .is_disabled = 1, .count = 1, .clients = { client }, .channels = { channel } };

	return rm_control(rm, rm->subdevice, DISABLE_CHANNELS, &list, sizeof(list));
}

static void lend(void)
{
	struct rm rm = rm_plain();
	uint32_t group = 0, channel = 0;

	rm_start(&rm);
	must(make_group(&rm, &group) == 0 && make_channel(&rm, group, &channel) == 0, "channel");
	printf("%u %u\n", rm.client, channel);
	printf("own: 0x%x\n", stop(&rm, rm.client, channel));
	wait_for_line("lent");
}

static void stop_foreign(uint32_t client, uint32_t channel)
{
	struct rm rm = rm_plain();

	rm_start(&rm);
	printf("stopped: 0x%x\n", stop(&rm, client, channel));
}

static void name_client(uint32_t client, uint32_t command, uint32_t size, size_t at)
{
	unsigned char params[MOST_BYTES] = { 0 };
	struct rm rm = rm_plain();

	must(size <= sizeof(params) && at + sizeof(client) <= size, "SIZE and AT");
	rm_start(&rm);
	memcpy(params + at, &client, sizeof(client));
	printf("named: 0x%x\n", rm_control(&rm, rm.subdevice, command, params, size));
}

static void set_slice(uint64_t microseconds)
{
	struct rm rm = rm_plain();
	uint32_t group = 0, status;

	rm_start(&rm);
	must(make_group(&rm, &group) == 0, "group");
	status = rm_control(&rm, group, SET_TIMESLICE, &microseconds, sizeof(microseconds));
	must(rm_control(&rm, group, GET_TIMESLICE, &microseconds, sizeof(microseconds)) == 0, "GET_TIMESLICE");
	printf("0x%x, %llu us\n", status, (unsigned long long)microseconds);
}

static uint32_t number(const char *word)
{
	return (uint32_t)strtoul(word, NULL, 0);
}

int main(int count, char **words)
{
	const char *name = count > 1 ? words[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (strcmp(name, "groups") == 0 && count == 3) {
		make(strtoul(words[2], NULL, 10), make_group);
	} else if (strcmp(name, "bare") == 0 && count == 3) {
		make(strtoul(words[2], NULL, 10), make_bare);
	} else if (strcmp(name, "lend") == 0) {
		lend();
	} else if (strcmp(name, "stop") == 0 && count == 4) {
		stop_foreign(number(words[2]), number(words[3]));
	} else if (strcmp(name, "slice") == 0 && count == 3) {
		set_slice(strtoull(words[2], NULL, 10));
	} else if (strcmp(name, "name") == 0 && count == 6) {
		name_client(number(words[2]), number(words[3]), number(words[4]), number(words[5]));
	} else {
		return MISUSE;
	}
	return EXIT_SUCCESS;
}
