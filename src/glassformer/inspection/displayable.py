"""An answer that shows itself: as text in a terminal, as a page to unfold in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from glassformer.inspection import export, terminal
from glassformer.inspection.sheet import Step


class Displayable(ABC):
    """Whatever can be told in steps."""

    @abstractmethod
    def steps(self) -> Sequence[Step]: ...

    def __repr__(self) -> str:
        return terminal.text(self.steps())

    def _repr_html_(self) -> str:
        return export.folded(self.steps())


class Sheet(Displayable, list[Step]):
    """A worked example."""

    def steps(self) -> Sequence[Step]:
        return self
