/*
 * The packets between the library and the agent, over one SOCK_SEQPACKET connection per process. Little endian,
 * every message one packet. All figures are absolute, so a question asked twice is answered twice and counted once.
 */
#ifndef VRAMPACK_PROTOCOL_H
#define VRAMPACK_PROTOCOL_H
#include <stdint.h>

#define PROTOCOL_SOCKET "/var/lib/vrampack/preload/agent.sock"
#define PROTOCOL_VERSION 1
#define PROTOCOL_ONLY_CARD 0xFFFFFFFFu
#define PROTOCOL_CARDS 32	/* holdings in one message at most */

enum protocol_kind {
	PROTOCOL_HELLO = 1,	/* the first of a connection: everything this process holds, which is a fact and not a wish */
	PROTOCOL_HOLD = 2,	/* one card: may this process hold so much there from now on? */
	PROTOCOL_GIVE = 3,	/* one card: it holds so much, less than before; not answered */
	PROTOCOL_LOOK = 4,	/* one card: held as it is; what is the limit, what is used? */
};

struct protocol_holding {
	uint32_t minor;		/* N of /dev/nvidiaN, or PROTOCOL_ONLY_CARD */
	uint32_t zero;
	uint64_t held_bytes;
};

struct protocol_question {	/* 16 bytes, followed by count holdings */
	uint16_t version;
	uint16_t kind;
	uint32_t sequence;	/* comes back in the answer */
	uint32_t count;		/* HELLO: 0 .. PROTOCOL_CARDS; the others: 1 */
	uint32_t zero;
};

enum protocol_verdict {
	PROTOCOL_YES = 0,
	PROTOCOL_NO = 1,		/* over the limit: what is held stays as it was */
	PROTOCOL_UNLIMITED = 2,		/* this process has no limit: the library steps aside for its life */
	PROTOCOL_NO_SUCH_CARD = 3,	/* not a card of this container, or several and none was named */
	PROTOCOL_NOT_UNDERSTOOD = 4,	/* version or shape; the agent hangs up after it */
};

struct protocol_answer {	/* 64 bytes */
	uint16_t version;
	uint16_t verdict;
	uint32_t sequence;
	uint32_t cards;			/* how many cards the container has */
	uint32_t zero;
	uint64_t limit_bytes;		/* of the container on that card */
	uint64_t used_bytes;		/* by all processes of the container there, this one included */
	char driver_version[32];	/* "580.95.05"; in answers to HELLO, zeros otherwise */
};
#endif
