"""Random traces: calls of several processes in two containers on three cards, and what the model expects of each."""

from __future__ import annotations

import math
import struct
from collections import Counter
from random import Random

from tests.shim.core.script import AT, LIST, NESTED, ONLY_CARD, CoreScript
from tests.shim.core.wire import (
    CHANNELS,
    CLIENT,
    CLIENT_LISTS,
    MEMORY,
    MIB,
    NAMES_CLIENT,
    NO_MEMORY,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    SUBDEVICE,
    CoreWire,
    WireStruct,
)
from tests.shim.core.world import CoreModel, ModelAllocation, ModelObject

FILES, CONTAINERS = 4, 2
GPU_ID_OF_MINOR = {0: 0x2100, 1: 0x4500, 2: 0x9900}
MINOR_OF_INSTANCE = {0: 2, 1: 0, 2: 1}
PAGES = {(0, 0): 0, (2 << 23, 0): 65536, (3 << 23, 0): 2 * MIB, (3 << 23, 2 << 20): 512 * MIB}
"""What the attributes say, and the page that it means; 0: by the size."""
SIZES = (1, 4096, 65536, 65537, MIB, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7 * MIB, 64 * MIB, 500 * MIB)
REFUSALS = (0x1F, 0x31, 0x40, 0x51, 0x57)
EINVAL = 22


def _packed(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack("<II", *entry) for entry in entries)


def rounded(size: int, page: int = 0) -> int:
    chosen = page or (2 * MIB if size >= 2 * MIB else 65536)
    return math.ceil(size / chosen) * chosen


class CoreTrace:
    """One random script. `knows_cards` is whether the replies from which minors are learned came by."""

    def __init__(
        self, seed: int, wire: CoreWire, *, knows_cards: bool, falsified: tuple[int, int] | None = None
    ) -> None:
        self._random = Random(seed)
        self._wire = wire
        self._world = CoreModel()
        self._owners: dict[int, int] = {}
        self._cards = (0, 1, 2) if knows_cards else (ONLY_CARD,)
        self._peaks: Counter[tuple[int, int]] = Counter()
        self._refused: Counter[tuple[int, int]] = Counter()
        self.script = CoreScript(wire, falsified)
        self._limits = {(container, card): 2000 * MIB for container in range(CONTAINERS) for card in self._cards}
        for (container, card), size in self._limits.items():
            self.script.limit(container, card, size)
        if knows_cards:
            self._learn_cards()

    def run(self, count: int) -> CoreScript:
        """So many random calls, all closed at the end."""
        doings = [
            *[self._memory] * 10, *[self._free] * 5, *[self._dup] * 4, *[self._device] * 2, self._client, self._subdevice,
            self._close, self._resize, self._report, self._heap_report, self._plain, self._closed_door, self._failed_free,
            self._export, self._import, self._channel,
        ]  # fmt: skip
        self._transfers()
        for _ in range(count):
            self._random.choice(doings)()
            self._check()
        for file in list(self._owners):
            self._close(file)
        for place in self._limits:
            self.script.counted(*place, 0, self._peaks[place], self._refused[place])
        self._name_clients()
        self.script.nothing_kept()
        return self.script

    def _name_clients(self) -> None:
        """Whether those that a control names are found, also where only its length tells how many there are."""
        wire, script, file, client, foreign = self._wire, self.script, 6, 0xC1D0F001, 0xC1D0F002
        script.knows_all_clients()
        script.open(file, 6)
        script.forwarded(file, wire.alloc(0, 0, 0, CLIENT), handle=client)
        for command in wire.commands(CLIENT_LISTS):
            script.refused(file, wire.channel_list(client, client, command, [foreign]), NOT_PERMITTED)
            script.forwarded(file, wire.channel_list(client, client, command, [client, foreign], count=1))
        for command in wire.commands(NAMES_CLIENT):
            script.refused(file, wire.named_client(client, client, command, foreign), NOT_PERMITTED)
        script.close(file)

    def _learn_cards(self) -> None:
        self.script.open(7, 7)
        self.script.forwarded(7, self._wire.cards(GPU_ID_OF_MINOR))
        for instance, minor in MINOR_OF_INSTANCE.items():
            call = self._wire.card_id(0, GPU_ID_OF_MINOR[minor], instance, long=self._random.random() < 0.5)
            self.script.forwarded(7, call)

    def _transfers(self) -> None:
        """In a container without a limit, whether each holder of a charge is told apart, which random calls test too seldom."""
        wire, script, container, file, taker = self._wire, self.script, 3, 6, 5
        client, device, other = 0xC1D0F001, 0x5C00F001, 0x5C00F002
        card = MINOR_OF_INSTANCE[0] if len(self._cards) > 1 else ONLY_CARD
        script.open(file, 6)
        script.forwarded(file, wire.alloc(0, 0, 0, CLIENT), handle=client)
        script.forwarded(file, wire.device(client, device, 0), handle=device)
        for place in (0, 7):
            script.forwarded(file, wire.memory(client, device, 1, 2 * MIB), handle=1, size=2 * MIB)
            script.forwarded(file, wire.channel(client, device, 2, [0] * place + [1]), handle=2)
            script.forwarded(file, wire.free(client, 1))
            script.used(container, card, 2 * MIB, "used by a channel")
            script.forwarded(file, wire.free(client, 2))
        for is_one in (True, False):
            for freed in (0x61, other):
                index = 0 if is_one else 3
                script.open(taker, 6)
                script.forwarded(file, wire.device(client, other, 0), handle=other)
                script.forwarded(file, wire.memory(client, device, 1, 2 * MIB), handle=1, size=2 * MIB)
                given = wire.export(client, 1, taker) if is_one else wire.exports(client, [1], taker, index=index)
                script.transferred(file, given, taker)
                script.forwarded(file, wire.free(client, 1))
                script.used(container, card, 2 * MIB, "used by a file")
                taken = wire.imports(client, other, [0x61, 0x62], taker, index=index)
                if is_one:
                    taken = wire.import_(client, other, 0x61, taker)
                script.transferred(file, taken, taker)
                script.close(taker)
                script.used(container, card, 2 * MIB, "used by what was imported")
                script.forwarded(file, wire.free(client, freed))
                script.used(container, card, 0, "used when that has gone")
                script.forwarded(file, wire.free(client, other))
        script.close(file)

    def _used(self) -> Counter[tuple[int, int]]:
        """By container and card."""
        sums: Counter[tuple[int, int]] = Counter()
        for (owner, card), size in self._world.used().items():
            sums[owner // 2, card] += size
        return sums

    def _check(self) -> None:
        used = self._used()
        for place in self._limits:
            self.script.used(*place, used[place], "used is the sum of what exists")
        owner = self._random.randrange(FILES)
        card = self._random.choice(self._cards)
        self.script.share(owner, card, self._world.used()[owner, card])

    def _pick(self, *, memory: bool | None = None, device: bool = False, channel: bool = False) -> ModelObject | None:
        things = [
            thing
            for thing in self._world.things.values()
            if (memory is None or bool(thing.piece) == memory)
            and (not device or (thing.above and not thing.piece))
            and thing.is_channel == channel
        ]
        return self._random.choice(things) if things else None

    def _clients(self) -> list[ModelObject]:
        return [thing for thing in self._world.things.values() if thing.client == thing.handle]

    def _is_wrapped(self) -> bool:
        return self._random.random() < 0.25

    def _handle(self, client: int) -> tuple[int, int]:
        """What the caller asks for, and what it gets: its own choice, or with 0 the driver's."""
        chosen = self._world.chosen_handle(client)
        if self._random.random() < 0.5:
            return 0, chosen
        mine = self._random.randrange(1, 60)
        return (0, chosen) if (client, mine) in self._world.things else (mine, mine)

    def _client(self) -> None:
        file = self._random.randrange(FILES)
        if file not in self._owners:
            self._owners[file] = file
            self.script.open(file, file)
        handle = self._world.chosen_client()
        kind = self._random.choice((CLIENT, 0, 1))
        call = self._wire.alloc(0, 0, 0, kind, short=self._random.random() < 0.5)
        if self._fails(file, call):
            return
        self.script.forwarded(file, call, handle=handle, wrapped=self._is_wrapped())
        self._world.add(ModelObject(handle, handle, file, ONLY_CARD))

    def _fails(self, file: int, call: WireStruct) -> bool:
        """The driver refuses one call in ten, by status or by error."""
        if self._random.random() < 0.9:
            return False
        if self._random.random() < 0.5:
            self.script.forwarded(file, call, status=self._random.choice(REFUSALS))
        else:
            self.script.forwarded(file, call, result=-EINVAL)
        return True

    def _device(self) -> None:
        if not (clients := self._clients()):
            return
        above = self._random.choice(clients)
        asked, handle = self._handle(above.client)
        instance = self._random.choice(list(MINOR_OF_INSTANCE))
        card = MINOR_OF_INSTANCE[instance] if len(self._cards) > 1 else ONLY_CARD
        call = self._wire.device(above.client, asked, instance, short=self._random.random() < 0.5)
        if not self._fails(above.file, call):
            self.script.forwarded(above.file, call, handle=handle, wrapped=self._is_wrapped())
            self._world.add(ModelObject(above.client, handle, above.file, card, above))

    def _subdevice(self) -> None:
        if (above := self._pick(memory=False, device=True)) is None:
            return
        asked, handle = self._handle(above.client)
        call = self._wire.alloc(above.client, above.handle, asked, SUBDEVICE, WireStruct(0, 4, {0: ("I", 0)}))
        self.script.forwarded(above.file, call, handle=handle)
        self._world.add(ModelObject(above.client, handle, above.file, above.card, above))

    def _memory_call(
        self, above: ModelObject, handle: int, size: int, attributes: tuple[int, int], flags: int = 0
    ) -> WireStruct:
        shape, (first, second) = self._random.randrange(4), attributes
        if shape < 2:
            return self._wire.memory(
                above.client, above.handle, handle, size, short=shape == 0, flags=flags, attributes=first,
                attributes2=second,
            )  # fmt: skip
        return self._wire.heap(
            above.client, above.handle, handle, size, ranged=shape == 2, flags=flags, attributes=first,
            attributes2=second,
        )  # fmt: skip

    def _memory(self) -> None:
        if (above := self._pick(memory=False, device=True)) is None:
            return
        asked, handle = self._handle(above.client)
        size, attributes = self._random.choice(SIZES), self._random.choice(list(PAGES))
        charged = rounded(size, PAGES[attributes])
        if self._random.random() < 0.05:
            fixed = self._memory_call(above, asked, size, attributes, flags=0x10)
            self.script.refused(above.file, fixed, NOT_SUPPORTED, wrapped=self._is_wrapped(), say="a fixed address")
        call = self._memory_call(above, asked, size, attributes)
        place = (above.file // 2, above.card)
        used = self._used()[place]
        if charged > self._limits[place] - used:
            self.script.refused(above.file, call, NO_MEMORY, wrapped=self._is_wrapped(), say="there is no room")
            self._refused[place] += 1
            return
        if self._fails(above.file, call):
            return
        # Mostly as expected; small pages of 4 KiB, or a page of 16 MiB.
        written = self._random.choice([charged] * 6 + [-(-size // 4096) * 4096, -(-size // (16 * MIB)) * 16 * MIB])
        taken = max(charged, written)
        self._peaks[place] = max(self._peaks[place], used + taken)
        self.script.forwarded(above.file, call, handle=handle, size=written, wrapped=self._is_wrapped())
        piece = ModelAllocation(taken, above.file, above.card)
        self._world.add(ModelObject(above.client, handle, above.file, above.card, above, piece))

    def _dup(self) -> None:
        source, above = self._pick(memory=self._random.random() < 0.8), self._pick(memory=False, device=True)
        if source is None or above is None or source.client == source.handle:
            return
        asked, handle = self._handle(above.client)
        parent = above if source.piece else self._world.things[above.client, above.client]
        call = self._wire.dup(parent.client, parent.handle, asked, source.client, source.handle)
        if self._fails(above.file, call):
            return
        self.script.forwarded(above.file, call, handle=handle, wrapped=self._is_wrapped())
        self._world.add(ModelObject(above.client, handle, above.file, source.card, parent, source.piece))
        if source.piece:
            source.piece.names += 1

    def _export(self) -> None:
        """Into a file of any process; objects that are not memory are exported too, and carry no charge."""
        things = [thing for thing in (self._pick(memory=memory) for memory in (True, True, False)) if thing]
        file = self._random.choice([*self._owners, None])
        if file is None or not things:
            return
        client = things[0].client
        handles = [thing.handle if thing.client == client else 0 for thing in things]
        taken = [place for taken_file, place in self._world.exported if taken_file == file]
        if not taken and self._random.random() < 0.6:
            handles, index = handles[:1], 0
            call = self._wire.export(client, handles[0], file)
        else:
            index = max(taken, default=-1) + self._random.randrange(1, 3)
            call = self._wire.exports(client, handles, file, index=index)
        if self._random.random() < 0.1:
            self.script.transferred(things[0].file, call, file, status=self._random.choice(REFUSALS))
            return
        self.script.transferred(things[0].file, call, file, wrapped=self._is_wrapped())
        for place, handle in enumerate(handles):
            piece = self._world.things[client, handle].piece if handle else None
            if piece:
                self._world.export(piece, file, index + place)

    def _channel(self) -> None:
        """It keeps the memory that it is given, and is freed by its handle or with its device."""
        thing = self._pick(memory=True)
        if thing is None or thing.above is None:
            return
        handle, kind = self._world.chosen_handle(thing.client), self._random.choice(CHANNELS)
        place = self._random.choice((0, 7))
        call = self._wire.channel(thing.client, thing.above.handle, 0, [0] * place + [thing.handle], kind=kind)
        if self._fails(thing.file, call):
            return
        self.script.forwarded(thing.file, call, handle=handle, wrapped=self._is_wrapped())
        assert thing.piece
        channel = ModelObject(
            thing.client, handle, thing.file, thing.above.card, thing.above, thing.piece, is_channel=True
        )
        self._world.add(channel)
        thing.piece.names += 1
        if self._random.random() < 0.7:
            self.script.forwarded(thing.file, self._wire.free(thing.client, thing.handle))
            self._world.free(thing)

    def _import(self) -> None:
        above = self._pick(memory=False, device=True)
        files = list({file for file, _ in self._world.exported})
        if above is None or not files:
            return
        file = self._random.choice(files)
        places = [place for taken_file, place in self._world.exported if taken_file == file]
        index = self._random.choice([min(places), self._random.choice(places)])
        free = [handle for handle in range(60, 400) if (above.client, handle) not in self._world.things]
        handles = self._random.sample(free, 2)
        call = self._wire.imports(above.client, above.handle, handles, file, index=index)
        if index == 0:
            handles = handles[:1]
            call = self._wire.import_(above.client, above.handle, handles[0], file)
        if self._random.random() < 0.1:
            self.script.transferred(above.file, call, file, result=-EINVAL)
            return
        self.script.transferred(above.file, call, file, wrapped=self._is_wrapped())
        for place, handle in enumerate(handles):
            if piece := self._world.exported.get((file, index + place)):
                self._world.add(ModelObject(above.client, handle, above.file, piece.card, above, piece))
                piece.names += 1

    def _free(self) -> None:
        if (thing := self._pick(memory=self._random.random() < 0.9, channel=self._random.random() < 0.1)) is None:
            return
        call = self._wire.free(thing.client, thing.handle)
        if thing.piece and not thing.is_channel and self._random.random() < 0.3:
            call = self._wire.heap_function(thing.client, 0, 3, thing.handle)
        self.script.forwarded(thing.file, call, wrapped=self._is_wrapped())
        self._world.free(thing)

    def _failed_free(self) -> None:
        thing = self._pick()
        known = thing is not None and self._random.random() < 0.5
        call = self._wire.free(thing.client, thing.handle) if thing and known else self._wire.free(0xC1D00099, 5)
        if self._random.random() < 0.5:
            self.script.forwarded(0, call, status=0x57)
        else:
            self.script.forwarded(0, call, result=-EINVAL)

    def _close(self, file: int | None = None) -> None:
        chosen = self._random.choice([*self._owners, None]) if file is None else file
        if chosen is None or (file is None and self._random.random() < 0.7):
            return
        del self._owners[chosen]
        self.script.close(chosen)
        self._world.close(chosen)

    def _resize(self) -> None:
        place = self._random.choice(list(self._limits))
        self._limits[place] = self._random.choice((100, 1000, 2000, 4000)) * MIB
        self.script.limit(*place, self._limits[place])

    def _view(self, thing: ModelObject) -> tuple[int, int, int]:
        """Limit, used and what is left, in bytes."""
        limit = self._limits[thing.file // 2, thing.card]
        used = self._used()[thing.file // 2, thing.card]
        return limit, min(used, limit), max(limit - used, 0)

    def _report(self) -> None:
        if (thing := self._pick(memory=False, device=True)) is None:
            return
        limit, used, left = (value // 1024 for value in self._view(thing))
        card, spare = self._random.choice((300, 16160)) * 1024, self._random.choice((100, 250)) * 1024
        total, free = min(card, limit), min(spare, left)
        wanted = {0x02: 77, 0x08: total, 0x16: free, 0x15: max(total - free - used, 0), 0x12: min(99, left)}
        entries = [(2, 77), (8, card), (0x16, spare), (0x15, 5), (0x12, 99)]
        at, call = NESTED + 4, self._wire.report(thing.client, thing.handle, entries)
        if self._random.random() < 0.5:
            at, call = LIST, self._wire.listed_report(thing.client, thing.handle, len(entries), LIST)
            self.script.writes(LIST, _packed(entries))
        self.script.forwarded(thing.file, call, wrapped=self._is_wrapped())
        self.script.reads(at, _packed(list(wanted.items())), "the report")

    def _heap_report(self) -> None:
        if (thing := self._pick(memory=False, device=True)) is None:
            return
        limit, _, left = self._view(thing)
        call = self._wire.heap_function(thing.client, thing.handle, 5)
        call.fields.update({24: ("Q", 16160 * MIB), 32: ("Q", 15000 * MIB), 56: ("Q", 14000 * MIB)})
        self.script.forwarded(thing.file, call)
        for offset, value in ((24, min(16160 * MIB, limit)), (32, left), (56, left)):
            self.script.reads(AT + offset, struct.pack("<Q", value), "the heap's report")

    def _plain(self) -> None:
        kind, nested = self._random.choice((0x3E, 0x71, 0x90F1)), WireStruct(0, 128, {64: ("Q", 1 << 40)})
        call = self._random.choice((
            self._wire.control(0xC1D00000, 1, 0x20800A01, WireStruct(0, 64, {})),
            self._wire.alloc(0xC1D00000, 1, 0, kind, nested, short=self._random.random() < 0.5),
            self._wire.window(0x3E),
            self._wire.context(0x02),
            self._wire.heap(0xC1D00000, 1, 0, 1 << 40, attributes=1 << 25, ranged=self._random.random() < 0.5),
            self._wire.heap(0xC1D00000, 1, 0, 1 << 40, flags=1 << 19, ranged=self._random.random() < 0.5),
        ))  # fmt: skip
        self.script.forwarded(0, call, handle=0x55, wrapped=self._is_wrapped())

    def _closed_door(self) -> None:
        kind = self._random.choice((0xC2, 0x82, 0x83, 0x42, 0xB1, 0xDA, 0xE0, 0xF3, 0x90CD))
        serialized = self._wire.memory(0xC1D00000, 1, 0, MIB)
        serialized.fields[self._wire.long_flags or 12] = ("I", 1 if self._wire.long_flags else 0xC2)
        encoded = self._wire.export(0xC1D00000, 1, 1)
        encoded.fields[12] = ("I", 4)
        call = self._random.choice((
            encoded,
            self._wire.alloc(0xC1D00000, 1, 0, kind, short=self._random.random() < 0.5),
            self._wire.window(self._random.choice((kind, MEMORY))),
            self._wire.context(self._random.choice((kind, MEMORY))),
            self._wire.heap(0xC1D00000, 1, 0, MIB, attributes2=1 << 24, ranged=self._random.random() < 0.5),
            serialized,
        ))  # fmt: skip
        self.script.refused(0, call, NOT_SUPPORTED, wrapped=self._is_wrapped())
