"""Ways to spoil a clean scene, one promise at a time."""

import json
from collections.abc import Callable

from tests.auditor.builders import AuditScene, Object, a_bind, a_pod, bound

Spoil = Callable[[AuditScene], object]


def write_annotation(pod: str, key: str, value: str) -> Spoil:
    """Write one annotation."""
    return lambda scene: scene.notes(pod).update({key: value})


def remove_annotation(pod: str, key: str) -> Spoil:
    """Remove one annotation."""
    return lambda scene: scene.notes(pod).pop(key)


def rewrite_record(pod: str, part: str, **values: object) -> Spoil:
    """Change fields of every entry in one part of the pod's own record: `cards`, or a container's name."""

    def spoil(scene: AuditScene) -> None:
        record = json.loads(scene.notes(pod)["vrampack.dev/allocation"])
        for entry in record["cards"] if part == "cards" else record["containers"][part]:
            entry.update(values)
        scene.notes(pod)["vrampack.dev/allocation"] = json.dumps(record)

    return spoil


def rename_in_record(pod: str, container: str, name: str) -> Spoil:
    """Give a container's part of the record to another name."""

    def spoil(scene: AuditScene) -> None:
        record = json.loads(scene.notes(pod)["vrampack.dev/allocation"])
        record["containers"][name] = record["containers"].pop(container)
        scene.notes(pod)["vrampack.dev/allocation"] = json.dumps(record)

    return spoil


def write_label(pod: str, key: str, value: str) -> Spoil:
    """Change what the pod requests after it was bound."""
    return lambda scene: scene.pods[pod]["metadata"]["labels"].update({key: value})


def move_pod(pod: str, node: str) -> Spoil:
    """The pod is on another node than its record says."""
    return lambda scene: scene.pods[pod]["spec"].update(nodeName=node)


def rebind_pod(node: str, pod: Callable[[], Object], *cards: int, held: int | None = None) -> Spoil:
    """Replace a pod by the same one bound another way, consistent in itself."""
    return lambda scene: scene.add(bound(pod(), scene.nodes[node], cards, held=held))


def add_pod(units: int, *, card: int, node: str) -> Spoil:
    """One more pod of ours with its bind, right in all but the room there is."""

    def spoil(scene: AuditScene) -> None:
        scene.add(bound(a_pod("new", {"main": units}), scene.nodes[node], [card]))
        scene.transcript.append(a_bind("new", node))

    return spoil


def apply_both(*spoils: Spoil) -> Spoil:
    return lambda scene: [spoil(scene) for spoil in spoils]


def unit_of(node: str, unit_mib: int) -> Spoil:
    """The node counts in another unit than the cluster."""

    def spoil(scene: AuditScene) -> None:
        notes = scene.nodes[node]["metadata"]["annotations"]
        notes["vrampack.dev/cards"] = json.dumps(json.loads(notes["vrampack.dev/cards"]) | {"unit_mib": unit_mib})

    return spoil


def count_cards_in(node: str, *, units: int) -> Spoil:
    """The node's cards have other units than when its pods were bound."""

    def spoil(scene: AuditScene) -> None:
        notes = scene.nodes[node]["metadata"]["annotations"]
        published = json.loads(notes["vrampack.dev/cards"])
        for card in published["cards"]:
            card["units"] = units
        notes["vrampack.dev/cards"] = json.dumps(published)

    return spoil


def unbind_pod(pod: str) -> Spoil:
    """The pod is pending again, without a trace."""

    def spoil(scene: AuditScene) -> None:
        del scene.pods[pod]["spec"]["nodeName"]
        scene.pods[pod]["metadata"]["annotations"] = {}

    return spoil


def recreate_pod(pod: str) -> Spoil:
    """The pod that bind placed is gone; another of its name has the place and the record."""
    return lambda scene: scene.pods[pod]["metadata"].update(uid=f"uid-{pod}-again")
