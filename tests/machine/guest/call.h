/* System calls for the host. */
#ifndef GUEST_CALL_H
#define GUEST_CALL_H

#define CALL "/bin/call"

/* The words of call.c, ended by NULL: 0, or the errno. */
int call(char **words);

#endif
