"""The parsers of all commands, by the words that a user writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from vrampack.cli.arguments import CommandParser
from vrampack.cli.main import COMMANDS
from vrampack.cli.simulate import replay_flags


def list_parsers() -> Mapping[str, CommandParser]:
    """`card`, `config`, `config check` and so on. It imports every command."""
    return dict(_list_parsers())


def _list_parsers() -> Iterator[tuple[str, CommandParser]]:
    for name, (module, _) in COMMANDS.items():
        try:
            parser = import_module(module).build_parser()
        except ModuleNotFoundError:
            if name != "agent":  # of which the extender's image has no part
                raise
            continue
        yield name, parser
        for action in parser.list_arguments():
            if isinstance(action.choices, dict):
                yield from ((f"{name} {word}", each) for word, each in action.choices.items())
    yield "simulate replay", replay_flags.build_parser()
