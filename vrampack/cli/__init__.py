"""The command line: composes the other rooms and dispatches. Terminals, arguments and exit codes live here."""
