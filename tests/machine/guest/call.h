/* System calls for the host. */
#ifndef GUEST_CALL_H
#define GUEST_CALL_H

#include <stdio.h>

#define CALL "/bin/call"

/* The words of call.c, ended by NULL: 0, or the errno. */
int call(char **words, FILE *input, FILE *output);

#endif
