"""Results that display themselves: as text in a terminal, as HTML in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from glassformer.inspection import export, terminal
from glassformer.inspection.sheet import Step


class Displayable(ABC):
    """A result that can be shown as the steps of a worksheet."""

    @abstractmethod
    def steps(self) -> Sequence[Step]: ...

    def __repr__(self) -> str:
        return terminal.render_text(self.steps())

    def _repr_html_(self) -> str:
        return export.html_fragment(self.steps())


class Sheet(Displayable, list[Step]):
    """A worksheet: a list of its steps."""

    def steps(self) -> Sequence[Step]:
        return self
