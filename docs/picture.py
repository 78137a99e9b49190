"""Draw docs/demo.svg, the picture of what `glass demo` prints.

python docs/picture.py
"""

import io
import re
from pathlib import Path

from rich.console import Console

from glassformer.cli.walk import DEFAULT_TEXT, print_demo


def main() -> None:
    console = Console(
        record=True, width=86, highlight=False, file=io.StringIO(), color_system="truecolor"
    )
    print_demo(console, DEFAULT_TEXT)
    drawn = console.export_svg(title=f'glass demo "{DEFAULT_TEXT}"')
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # no font from elsewhere
    Path(__file__).with_name("demo.svg").write_text(drawn)


if __name__ == "__main__":
    main()
