"""An answer that shows itself: as text in a terminal, as a page to unfold in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from glassformer.inspection import screen, write
from glassformer.inspection.sheet import Step


class Shown(ABC):
    """Whatever can be told in steps."""

    @abstractmethod
    def steps(self) -> Sequence[Step]: ...

    def __repr__(self) -> str:
        return screen.text(self.steps())

    def _repr_html_(self) -> str:
        return write.folded(self.steps())


class Sheet(Shown, list[Step]):
    """A worked example."""

    def steps(self) -> Sequence[Step]:
        return self
