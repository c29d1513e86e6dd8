"""`vrampack config check FILE` finds a file's faults before it is used; `vrampack config schema KIND` prints its schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vrampack.cli.arguments import CommandParser, parse_input_file
from vrampack.cli.config.file_kinds import FILE_KINDS, find_file_kind
from vrampack.cli.output import write_output
from vrampack.config.errors import SettingsError
from vrampack.config.faults import describe_value
from vrampack.config.json_schema import build_file_schema
from vrampack.config.kinds import find_wrong_kind
from vrampack.config.strict import read_document, validate_configuration
from vrampack.config.yaml_document import YamlDocument


def main(arguments: Sequence[str]) -> int:
    """Run the action; returns the exit code: 0 every file is good, 1 one has a fault, 2 misuse."""
    options = build_parser().parse_args(arguments)
    if options.action == "check":
        return max([_check_file(path) for path in options.files])
    kind = next(each for each in FILE_KINDS.values() if each.reader == options.reader)
    write_output(build_file_schema(kind.model, kind.schema_file))
    return 0


def build_parser() -> CommandParser:
    """The flags of this command."""
    parser = CommandParser(
        prog="vrampack config",
        description="Check a configuration file before a program reads it, or print its JSON Schema.",
        epilog="Exit 0: every file is good; 1: one has a fault; 2: misuse.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="check|schema")
    check = actions.add_parser("check", help="name every fault of these files, with line, path and what is allowed")
    check.add_argument("files", nargs="+", type=parse_input_file, metavar="FILE")
    schema = actions.add_parser("schema", help="print the JSON Schema of a file, for editors")
    schema.add_argument(
        "reader", choices=[each.reader for each in FILE_KINDS.values()], help="the program that reads it"
    )
    return parser


def _check_file(path: Path) -> int:
    try:
        document = read_document(path)
        kind = find_file_kind(document.values)
        if kind is None:
            write_output(f"{_describe_unknown_kind(path, document)}\n")
            return 1
        validate_configuration(kind.model, kind.name, document, str(path), {})
    except SettingsError as error:
        write_output(f"{error}\n")
        return 1
    write_output(f"{path}: good, {kind.name}\n")
    return 0


def _describe_unknown_kind(path: Path, document: YamlDocument) -> str:
    found = document.values.get("kind")
    allowed = f"one of {', '.join(FILE_KINDS)}"
    text = "missing" if "kind" not in document.values else f"found {describe_value(found)}"
    return f"{path}:{document.find_line(('kind',))}: kind: " + (
        find_wrong_kind(found, allowed) or f"{text}; allowed: {allowed}"
    )
