"""What `--policy NAME|FILE` means in commands where it may replace a whole configuration, with rules and profiles."""

from __future__ import annotations

from dataclasses import dataclass

from extender.policy_file import PLACEMENT_FIELDS, list_presets, load_placement_policy, names_policy_file
from extender.policy_file import find_policy_file as find_preset_or_file
from extender.policy_settings import PolicyTuning
from extender.settings import ExtenderConfiguration, load_settings
from policies.registry import POLICIES
from vrampack.cli.config.file_kinds import find_file_kind
from vrampack.config.errors import SettingsError
from vrampack.config.strict import read_document


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """Settings, with their name on the command line."""

    name: str
    settings: ExtenderConfiguration


def load_named_policy(text: str, base: ExtenderConfiguration) -> NamedPolicy:
    """Load a policy, under the rules of `base`; a preset or PlacementPolicy, replacing these; or an ExtenderConfiguration.

    Raises `SettingsError`.
    """
    if text in POLICIES:
        changes = {"policy": PolicyTuning(default=text), "profiles": ()}
        return NamedPolicy(text, base.model_copy(update=changes))
    if not names_policy_file(text):
        raise SettingsError(
            f"{text!r} is neither a file nor a policy nor a preset; policies are {', '.join(POLICIES)}, "
            f"presets {', '.join(list_presets())}"
        )
    path = find_preset_or_file(text)
    kind = find_file_kind(read_document(path).values)
    if kind is not None and kind.model is ExtenderConfiguration:
        return NamedPolicy(text, load_settings(path))
    placement = load_placement_policy(path)
    return NamedPolicy(text, base.model_copy(update={name: getattr(placement, name) for name in PLACEMENT_FIELDS}))
