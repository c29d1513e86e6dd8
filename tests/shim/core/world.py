"""A model of the driver, independent of the core: what each process made, below what, and how big it became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class ModelAllocation:
    """Video memory with this many `names`; the owner that allocated it is charged until the last is gone."""

    size: int
    owner: int
    card: int
    names: int = 1


@dataclass(eq=False, slots=True)
class ModelObject:
    """A client, a device, a subdevice or memory."""

    client: int
    handle: int
    file: int
    card: int
    above: ModelObject | None = None
    piece: ModelAllocation | None = None
    below: list[ModelObject] = field(default_factory=list)
    is_channel: bool = False
    """Then `piece` is what its USERD is in."""

    def whole(self) -> Iterator[ModelObject]:
        waiting = [self]
        while waiting:
            thing = waiting.pop()
            waiting += thing.below
            yield thing


class CoreModel:
    """The driver's state. Handles that it chooses are the lowest free ones, so they are reused at once."""

    def __init__(self) -> None:
        self.things: dict[tuple[int, int], ModelObject] = {}
        self.exported: dict[tuple[int, int], ModelAllocation] = {}
        """By file and place."""

    def chosen_handle(self, client: int) -> int:
        return next(handle for handle in range(0xCAF00000, 0xCB000000) if (client, handle) not in self.things)

    def chosen_client(self) -> int:
        return next(handle for handle in range(0xC1D00000, 0xC2000000) if (handle, handle) not in self.things)

    def add(self, thing: ModelObject) -> ModelObject:
        self.things[thing.client, thing.handle] = thing
        if thing.above:
            thing.above.below.append(thing)
        return thing

    def free(self, thing: ModelObject) -> None:
        for one in list(thing.whole()):
            del self.things[one.client, one.handle]
            if one.piece:
                one.piece.names -= 1
        if thing.above:
            thing.above.below.remove(thing)

    def export(self, piece: ModelAllocation, file: int, place: int) -> None:
        self.exported[file, place] = piece
        piece.names += 1

    def close(self, file: int) -> None:
        for key in [key for key in self.exported if key[0] == file]:
            self.exported.pop(key).names -= 1
        for thing in [thing for thing in self.things.values() if thing.file == file and not thing.above]:
            self.free(thing)

    def used(self) -> Counter[tuple[int, int]]:
        """Bytes that exist, by charged owner and card."""
        pieces = {thing.piece for thing in self.things.values() if thing.piece} | set(self.exported.values())
        sums: Counter[tuple[int, int]] = Counter()
        for piece in pieces:
            sums[piece.owner, piece.card] += piece.size
        return sums
