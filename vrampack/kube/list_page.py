"""One page of a list: how it is requested, decoded and checked."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from vrampack.cards.list_answer import is_list
from vrampack.kube.decoding import UNDECODABLE
from vrampack.kube.errors import ForeignAnswerError
from vrampack.kube.objects import ListMeta

MAX_OBJECT_BYTES = 16 * 1024 * 1024
"""etcd accepts objects of 1.5 MiB, and JSON may escape every byte of one as six."""

Item = TypeVar("Item")


class ListPage(msgspec.Struct, Generic[Item]):
    """A page whose objects are decoded as `Item`: what that does not name is skipped."""

    metadata: ListMeta = ListMeta()
    kind: str = ""
    items: list[Item] | None = None


def build_page_query(limit: int, token: str) -> dict[str, str]:
    """The parameters of a list's first page or, with the `continue` of a page, of the next one."""
    return {"limit": str(limit)} | ({"continue": token} if token else {})


def decode_page(body: bytes, decoder: msgspec.json.Decoder[ListPage[Item]], resource: str) -> ListPage[Item]:
    """Decode and check a page. Raises `ForeignAnswerError` when it is not a list of the API server."""
    try:
        page = decoder.decode(body)
    except UNDECODABLE as error:
        raise ForeignAnswerError(f"list {resource}: not a list: {error}") from error
    check_page(page, resource)
    return page


def check_page(page: ListPage[Item], resource: str) -> None:
    """Raises `ForeignAnswerError` when it is not a list of the API server."""
    if not is_list(page.kind, page.metadata.resource_version):
        text = f"no list of the API server: kind {page.kind!r}, version {page.metadata.resource_version!r}"
        raise ForeignAnswerError(f"list {resource}: {text}")
