"""The users and items that a recommender knows, with titles and what each user has rated.

They are part of the metadata of a trained model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError

MAX_SHOWN = 5  # titles in an error message
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Catalog:
    """Users and items by index, and the indices of the items of each user, in order of time."""

    users: list[str]
    items: list[str]
    histories: list[list[int]]  # as long as users
    titles: list[str] = field(default_factory=list)  # as long as items, or empty

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "Catalog":
        """Read and check the catalog in the metadata of a model."""
        lists = [metadata.get(name, []) for name in ("users", "items", "histories", "titles")]
        users, items, histories, titles = lists
        are_texts = all(is_list_of(x, str) for x in (users, items, titles))
        if not are_texts or not is_list_of(histories, list):
            raise GlassError("the users and items of the model are corrupted: expected lists")
        if len(histories) != len(users) or len(titles) not in (0, len(items)):
            raise GlassError(
                f"the users and items of the model are corrupted: {len(users)} users have "
                f"{len(histories)} histories, {len(items)} items have {len(titles)} titles"
            )
        for history in histories:
            if not all(type(i) is int and 0 <= i < len(items) for i in history):
                raise GlassError("the histories of the model's users are corrupted")
        return cls(users, items, histories, titles)

    @property
    def metadata(self) -> dict[str, Any]:
        titles = {"titles": self.titles} if self.titles else {}
        return {"users": self.users, "items": self.items, "histories": self.histories, **titles}

    @cached_property
    def user_index(self) -> dict[str, int]:
        return {user: i for i, user in enumerate(self.users)}

    @cached_property
    def item_index(self) -> dict[str, int]:
        return {item: i for i, item in enumerate(self.items)}

    def name(self, item: int) -> str:
        """The title of an item, or the item itself if it has none."""
        return (self.titles[item] if self.titles else "") or self.items[item]

    def record(self, item: int) -> dict[str, Any]:
        """An item in a result: its id and, if known, its title."""
        titles = {"title": self.titles[item]} if self.titles else {}
        return {"item": self.items[item], **titles}

    def counts(self) -> Ids:
        """The number of users who have rated each item."""
        indices = [item for history in self.histories for item in history]
        return np.bincount(np.array(indices, dtype=np.int64), minlength=len(self.items))

    def find_user(self, user: object) -> int:
        if (index := self.user_index.get(str(user))) is None:
            raise GlassError(
                f"unknown user {str(user)!r}: the model was trained on ratings of "
                f"{len(self.users):,} users, such as {self.users[0] if self.users else 'none'!r}"
            )
        return index

    def find_item(self, item: object) -> int:
        """The index of an item, given its id, its title, or a part that only its title has."""
        text = str(item)
        if (index := self.item_index.get(text)) is not None:
            return index
        titles = [title.casefold() for title in self.titles] if text else []
        for is_match in (text.casefold().__eq__, lambda title: text.casefold() in title):
            found = [i for i, title in enumerate(titles) if is_match(title)]
            if len(found) == 1:
                return found[0]
            if found:
                shown = "; ".join(f"{self.items[i]}: {self.titles[i]}" for i in found[:MAX_SHOWN])
                more = ", ..." if len(found) > MAX_SHOWN else ""
                raise GlassError(f"{len(found)} items match {text!r}: {shown}{more}; give the id")
        hint = did_you_mean(text, self.titles) if self.titles else ""
        raise GlassError(
            f"unknown item {text!r}: it is not among the {len(self.items):,} items that the model "
            f"was trained on{hint}"
        )


def is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
