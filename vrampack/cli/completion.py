"""`vrampack completion bash|zsh`: prints the script by which a shell completes commands, flags and values.

The words come from the parsers of the commands, so a new flag is in the script without a line here. zsh reads bash's script.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from vrampack.cli.arguments import CommandParser
from vrampack.cli.main import COMMANDS
from vrampack.cli.output import write_output

FILE_VALUE = ""
"""What completes the value of a flag without choices: the shell's own completion, of file names."""

_SCRIPT = """\
# Completion of vrampack, as `vrampack completion bash` prints it.
_vrampack_words() {{
    case "$1" in
{words}
    *) return 1 ;;
    esac
}}
_vrampack_values() {{
    case "$1" in
{values}
    *) return 1 ;;
    esac
}}
_vrampack() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" command="" words=""
    # bash takes --flag=value for three words.
    if [ "$word" = "=" ]; then
        word=""
    elif [ "$before" = "=" ]; then
        before="${{COMP_WORDS[COMP_CWORD - 2]}}"
    fi
    if [ "$COMP_CWORD" -gt 1 ]; then
        command="${{COMP_WORDS[1]}}"
    fi
    if [ "$COMP_CWORD" -gt 2 ] && _vrampack_words "$command ${{COMP_WORDS[2]}}" > /dev/null; then
        command="$command ${{COMP_WORDS[2]}}"
    fi
    words="$(_vrampack_values "$command $before")" || words="$(_vrampack_words "$command")"
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _vrampack vrampack
"""
_ZSH_HEAD = """\
#compdef vrampack
autoload -U +X bashcompinit && bashcompinit
"""


def main(arguments: Sequence[str]) -> int:
    """Print the script of a shell; returns the exit code."""
    options = build_parser().parse_args(arguments)
    script = build_script()
    write_output(_ZSH_HEAD + script if options.shell == "zsh" else script)
    return 0


def build_parser() -> CommandParser:
    """The flags of this command."""
    made = CommandParser(
        prog="vrampack completion",
        description="Print a script that makes a shell complete commands, flags and values.",
        epilog="bash: source <(vrampack completion bash); zsh: source <(vrampack completion zsh), after compinit.",
    )
    made.add_argument("shell", choices=("bash", "zsh"))
    return made


def build_script() -> str:
    """Bash's script."""
    from vrampack.cli.command_parsers import list_parsers  # noqa: PLC0415 - imports every command

    parsers = list_parsers()
    words = {"": [*COMMANDS, "help", "version"]} | {name: _list_words(each) for name, each in parsers.items()}
    values = {
        f"{name} {flag}": found
        for name, parser in parsers.items()
        for flag, found in _list_values(parser.list_arguments())
    }
    return _SCRIPT.format(words=_format_cases(words), values=_format_cases(values))


def _list_words(parser: CommandParser) -> list[str]:
    """Actions and other positional choices, then flags, long ones only: `-n` saves nobody a key."""
    choices = [
        str(each) for action in parser.list_arguments() if not action.option_strings for each in action.choices or ()
    ]
    flags = [flag for action in parser.list_arguments() for flag in action.option_strings if flag.startswith("--")]
    return [*choices, *flags]


def _list_values(actions: Sequence[argparse.Action]) -> Iterator[tuple[str, list[str]]]:
    """Of each flag that takes a value."""
    for action in actions:
        if action.nargs != 0:
            for flag in action.option_strings:
                yield flag, [str(each) for each in action.choices or (FILE_VALUE,)]


def _format_cases(table: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(f'    "{key}") echo "{" ".join(words)}" ;;' for key, words in table.items())
