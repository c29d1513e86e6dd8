"""The parsers of all commands, by the words that a user writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from vrampack.cli.arguments import CommandParser
from vrampack.cli.main import COMMANDS
from vrampack.cli.simulate import replay_flags


@cache
def list_parsers() -> Mapping[str, CommandParser]:
    """`card`, `config check` and so on."""
    found = dict(_list_with_actions())
    found["simulate replay"] = replay_flags.build_parser()
    return found


def _list_with_actions() -> Iterator[tuple[str, CommandParser]]:
    for name, (module, _) in COMMANDS.items():
        parser = import_module(module).build_parser()
        inner = [action.choices for action in parser.list_arguments() if isinstance(action.choices, dict)]
        yield from ((f"{name} {word}", each) for choices in inner for word, each in choices.items())
        if not inner:
            yield name, parser
