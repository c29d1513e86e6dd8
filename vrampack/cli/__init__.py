"""The command line: combines the other packages and dispatches commands. Terminals, arguments and exit codes belong here."""
