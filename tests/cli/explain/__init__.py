"""What explain says, against an API server and, for the words, without one."""
