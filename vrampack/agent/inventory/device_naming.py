"""How cards are named to this node's container runtime: by uuid, or by CDI if NVIDIA's files name all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from vrampack.agent.inventory.cdi_files import CDI_FOLDERS, list_mappings, read_cdi_documents
from vrampack.cards.node import CardFacts, DeviceNaming
from vrampack.cards.well_known import CDI_KIND


def choose_device_naming(setting: Literal["auto", "uuid", "cdi"], cards: Iterable[CardFacts]) -> DeviceNaming:
    """Choose by the configuration's `devices`, the setting."""
    if setting == "auto":
        return "uuid" if _list_cards_without_cdi(cards) else "cdi"
    return setting


def find_cdi_problem(setting: Literal["auto", "uuid", "cdi"], cards: Iterable[CardFacts]) -> str:
    """Why the runtime would not give these cards to containers; empty when it would, as far as can be seen here."""
    missing = _list_cards_without_cdi(cards) if setting == "cdi" else []
    if not missing:
        return ""
    return (
        f"devices: cdi is set, and no file in /etc/cdi or /var/run/cdi names {CDI_KIND}={missing[0]}; "
        "let `nvidia-ctk cdi generate` or NVIDIA's device plugin write it, or set devices: uuid"
    )


def list_cdi_devices(folders: Sequence[Path] = CDI_FOLDERS) -> frozenset[str]:
    """The device names in CDI files of NVIDIA's kind: uuids of cards, and others."""
    ours = (document for document in read_cdi_documents(folders) if document.get("kind") == CDI_KIND)
    return frozenset(str(device.get("name")) for document in ours for device in list_mappings(document.get("devices")))


def _list_cards_without_cdi(cards: Iterable[CardFacts]) -> list[str]:
    named = list_cdi_devices()
    return [card.uuid or "" for card in cards if card.uuid not in named]
