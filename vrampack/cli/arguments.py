"""What the parsers of all commands have in common: suggestions for what was mistyped, and the parsers of values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

NODE_KINDS = ("node", "nodes", "no")
"""Spellings of the kind that kubectl accepts before the name, as in `node/gpu-0`."""
STDIN = Path("/dev/stdin")
"""What `-` means where a file is read."""

_INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)'")
_UNKNOWN_FLAGS = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)


class CommandParser(argparse.ArgumentParser):
    """Ends with a suggestion where a flag or a choice was mistyped."""

    def parse_known_args(  # type: ignore[override]  # its overloads are about the namespace, which stays as it is
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does; before Python 3.13 that makes an empty list of the value in `--flag=--`."""
        for text in args or ():
            if text.startswith("--") and text.endswith("=--"):
                self.error(f"argument {text.removesuffix('=--')}: '--' is no value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with the message, and with what may have been meant."""
        meant = "".join(f"; did you mean {each}?" for each in self._suggest(message))
        super().error(message + meant)

    def list_arguments(self) -> Sequence[argparse.Action]:
        """Every flag and positional argument."""
        return self._actions

    def _suggest(self, message: str) -> Iterator[str]:
        for text in _INVALID_CHOICE.findall(message):
            yield from find_near_name(text, [str(each) for action in self._actions for each in action.choices or ()])
        for rest in _UNKNOWN_FLAGS.findall(message):
            flags = [text.partition("=")[0] for text in rest.split() if text.startswith("-")]
            known = [flag for action in self._actions for flag in action.option_strings]
            for flag in flags:
                yield from find_near_name(flag, known)


def find_near_name(text: str, known: Sequence[str]) -> list[str]:
    """The known text that is nearest to a mistyped one, if one is near."""
    return get_close_matches(text, known, n=1)


def parse_number_between(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers in ASCII digits. It raises `ArgumentTypeError`."""

    def parse(text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(high))
        if not is_number or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def parse_node_name(text: str) -> str:
    """`gpu-0`, or `node/gpu-0` as kubectl prints it."""
    kind, _, name = text.partition("/")
    return name if name and kind in NODE_KINDS else text


def parse_input_file(text: str) -> Path:
    """The path of a file that is read once; `-` is stdin."""
    return STDIN if text == "-" else Path(text)
