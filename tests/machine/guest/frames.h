/*
 * The protocol between the host and the first process of a virtual machine, in both directions.
 *
 * A frame is a header and `length` bytes of content. The host numbers its programs and calls. Integers are little endian.
 */
#ifndef GUEST_FRAMES_H
#define GUEST_FRAMES_H

#include <stdint.h>

enum frame_kind {
	/* From the host: */
	FRAME_SPAWN = 'S',	/* texts of spawn.c in order, each terminated by a zero byte */
	FRAME_CALL = 'L',	/* words of call.c, each terminated by a zero byte; another zero byte; the input */
	FRAME_INPUT = 'I',	/* for standard input; empty: end of input */
	FRAME_SIGNAL = 'K',	/* one byte: the signal's number */
	FRAME_OFF = 'Q',	/* switch the machine off */
	/* From the virtual machine: */
	FRAME_READY = 'R',	/* once, when frames are accepted */
	FRAME_STARTED = 'P',	/* u32: the pid, or 0 if it could not be started; not sent for calls */
	FRAME_OUT = 'O',	/* from standard output */
	FRAME_ERR = 'E',	/* from standard error */
	FRAME_ENDED = 'X',	/* u32: the exit code, or minus the signal that killed it */
	FRAME_CLOSED = 'C',	/* no process has its outputs open anymore */
	FRAME_TAKEN = 'T',	/* u32: how many more bytes of the host's frames have been read */
};

struct frame {
	uint32_t program;
	uint32_t kind;
	uint32_t length;
};

enum {
	FRAME_MOST = 1 << 14,	/* bytes of content; longer content takes several frames */
};

#endif
