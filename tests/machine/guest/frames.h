/*
 * What travels on the line between the host and the first process of a machine, both ways.
 *
 * A frame is a head and so many bytes. Every program has a number that the host gave it. Fields are little endian.
 */
#ifndef GUEST_FRAMES_H
#define GUEST_FRAMES_H

#include <stdint.h>

enum frame_kind {
	/* From the host. */
	FRAME_SPAWN = 'S',	/* texts, each ended by a zero byte: `key=value` of spawn.c, in their order */
	FRAME_CALL = 'L',	/* words of call.c, each ended by a zero byte; one more zero byte; their input */
	FRAME_INPUT = 'I',	/* for standard input; none: its end */
	FRAME_SIGNAL = 'K',	/* one byte: the signal */
	FRAME_OFF = 'Q',	/* the machine goes off */
	/* From the machine. */
	FRAME_READY = 'R',	/* once: it serves */
	FRAME_STARTED = 'P',	/* not of a call; u32: its pid; 0: it could not be started, and FRAME_ENDED says why */
	FRAME_OUT = 'O',	/* what it said */
	FRAME_ERR = 'E',	/* what it complained of */
	FRAME_ENDED = 'X',	/* u32: exit code, or minus the signal that ended it */
	FRAME_CLOSED = 'C',	/* no process has its outputs open any more */
	FRAME_TAKEN = 'T',	/* u32: so many bytes of the host's frames were read */
};

struct frame {
	uint32_t program;
	uint32_t kind;
	uint32_t length;
};

enum {
	FRAME_MOST = 1 << 14,	/* bytes after a head; more is more frames */
};

#endif
