/*
 * malformed COUNT SEED: so many calls of the watched numbers with whatever stands there: any size, any direction, wild and null
 * pointers, random bytes, sometimes with handles and classes that are real. Now and then it opens the file anew, gets some
 * memory, says `waiting`, and waits for a line while it holds that, and whatever else it happened to get.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rm.h"

enum { BYTES = 512, PAGE = 4096, FIELDS = 6, PIECES = 60, STOPS = 10, OPEN_AGAIN = 512, MIB = 1 << 20 };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

