"""Make the Chinese font of the package: the characters that it needs, of Noto Sans CJK SC.

    pip install fonttools
    python docs/subset_font.py /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc

The characters are those of GB2312 (6,763 Chinese characters, punctuation and letters), ASCII, and
every other character in the package's texts that the font has. Hints and layout tables are left
out. The subset has a name of its own.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

PACKAGE = Path(__file__).parents[1] / "src" / "glassformer"
FONT = PACKAGE / "core" / "fonts" / "GlassformerSansSC-Regular.otf"
FAMILY, SOURCE_FAMILY = "Glassformer Sans SC", "Noto Sans CJK SC"
TEXTS = (".py", ".json", ".toml")
NAMES = {
    1: FAMILY,
    2: "Regular",
    3: "GlassformerSansSC-Regular",
    4: FAMILY,
    6: "GlassformerSansSC-Regular",
    10: "A subset of Noto Sans CJK SC, without hints and layout tables.",
}
KEPT_NAMES = (0, 13, 14)  # copyright, license


def gb2312(rows: range) -> Iterator[str]:
    """The characters in these rows of GB2312."""
    for row in rows:
        for cell in range(1, 95):
            yield bytes((0xA0 + row, 0xA0 + cell)).decode("gb2312", errors="ignore")


def package_characters() -> Iterator[str]:
    for path in PACKAGE.rglob("*"):
        if path.suffix in TEXTS:
            yield from path.read_text(encoding="utf-8")


def find_font(file: str) -> TTFont:
    """The font of the source family in a file, which may be a collection of fonts."""
    for number in range(10):
        font = TTFont(file, fontNumber=number)
        if font["name"].getDebugName(1) == SOURCE_FAMILY:
            return font
    raise SystemExit(f"{file} does not contain {SOURCE_FAMILY}")


def main(file: str) -> None:
    font = find_font(file)
    characters = {*gb2312(range(1, 88)), *package_characters()}
    characters |= {chr(code) for code in range(0x20, 0x7F)}
    options = Options(
        hinting=False, layout_features=[], name_IDs=[*KEPT_NAMES], notdef_outline=True,
        drop_tables=["GSUB", "GPOS", "GDEF", "BASE", "VORG", "vhea", "vmtx", "DSIG"],
    )  # fmt: skip
    subsetter = Subsetter(options)
    subsetter.populate(text="".join(characters))
    subsetter.subset(font)
    for number, text in NAMES.items():
        font["name"].setName(text, number, 3, 1, 0x409)
    top = font["CFF "].cff
    top.fontNames = [NAMES[6]]
    for field, text in (("FamilyName", FAMILY), ("FullName", FAMILY)):
        setattr(top.topDictIndex[0], field, text)
    for part in top.topDictIndex[0].FDArray:
        part.FontName = NAMES[6]
    font.save(FONT)
    sys.stdout.write(f"{len(font.getBestCmap())} characters, {FONT.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
