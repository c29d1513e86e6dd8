"""A policy file: the three sections of the extender's configuration that decide where pods go, in a file of their own.

It is given to `vrampack serve --policy`, by path or as the name of a preset.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from extender.policy_settings import PolicyTuning
from extender.profile_settings import ProfileSettings
from extender.rule_settings import MAX_ENTRIES, RuleSettings
from policies.registry import POLICIES
from vrampack.config.errors import SettingsError
from vrampack.config.faults import InvalidFieldError
from vrampack.config.strict import StrictModel, load_configuration

PLACEMENT_FIELDS = ("policy", "profiles", "rules")
"""The sections of the extender's configuration that a policy file has, and that take effect while the service runs."""


class PlacementPolicy(StrictModel):
    """The whole file."""

    apiVersion: Literal["vrampack.dev/v1"]  # noqa: N815 - Kubernetes' own spelling
    kind: Literal["PlacementPolicy"]

    policy: PolicyTuning = Field(default=PolicyTuning(), strict=False)

    profiles: tuple[ProfileSettings, ...] = Field(default=(), max_length=MAX_ENTRIES, strict=False)
    """Which policy ranks nodes for which pods: that of the first profile that matches, else `policy.default`."""

    rules: RuleSettings = RuleSettings()
    """What applies in the whole cluster, whatever a policy prefers."""

    @model_validator(mode="after")
    def _check_profile_names(self) -> PlacementPolicy:
        check_profile_names(self.profiles)
        return self


def check_profile_names(profiles: Sequence[ProfileSettings]) -> None:
    """Raises `InvalidFieldError` for a name that is another profile's, or a policy's."""
    names = [profile.name for profile in profiles]
    for place, name in enumerate(names):
        if name in names[:place] or name in POLICIES:
            what = "another profile" if name in names[:place] else "a policy"
            raise InvalidFieldError(
                ("profiles", place, "name"), f"found {name!r}, the name of {what}; give the profile a name of its own"
            )


def load_placement_policy(path: Path) -> PlacementPolicy:
    """Read a policy file. Raises `SettingsError` naming file, line and field of every fault."""
    return load_configuration(PlacementPolicy, "PlacementPolicy", path)


def list_presets() -> list[str]:
    """The names of the shipped policy files, without their extension."""
    return sorted(each.name.removesuffix(".yaml") for each in _PRESETS.iterdir() if each.name.endswith(".yaml"))


def find_policy_file(text: str) -> Path:
    """The path of the preset of this name, else the text as a path. Raises `SettingsError` when it is neither."""
    if text in list_presets():
        with as_file(_PRESETS / f"{text}.yaml") as path:
            return path
    if not names_policy_file(text):
        raise SettingsError(f"{text} is neither a file nor a preset; presets are {', '.join(list_presets())}")
    return Path(text)


def names_policy_file(text: str) -> bool:
    """Whether this is a preset's name, or a path: a text with a slash, or of a file that is there."""
    try:
        return text in list_presets() or "/" in text or Path(text).exists()
    except OSError:  # longer than a name may be
        return False


_PRESETS = files("policies") / "presets"
