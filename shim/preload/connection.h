/*
 * The one connection of this process to the agent: packets out and in, whatever they contain. One caller at a time.
 *
 * A child of fork leaves the inherited descriptor open and never speaks on it: it inherits the control files as well, which
 * keep the memory allocated just as long, and both go with its end or its exec.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"

struct connection {
	_Atomic int32_t fd_and_one; /* 0: none */
	uint64_t inode;
	uint32_t sequence;
};

struct connection_question {
	struct protocol_question head;
	struct protocol_holding holdings[PROTOCOL_CARDS];
};

/* Open, and still our socket: the program may have closed every descriptor there is and opened others. */
bool connection_is_open(const struct connection *connection);
bool connection_open(struct connection *connection);
void connection_close(struct connection *connection);
/* Never waits. False: not sent, and the connection is closed unless it was only full. */
bool connection_send(struct connection *connection, enum protocol_kind kind, struct connection_question *question);
/* The answer to the last packet sent. False: none until `until_ms`, or none will come, and then it is closed. */
bool connection_receive(struct connection *connection, struct protocol_answer *answer, int64_t until_ms);

#endif
