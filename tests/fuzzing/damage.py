"""Ways to damage a file: bytes, structure, numbers, links."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import lzma
import struct
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from fuzzing.specimens import PACK
from glassformer.core.folder import MANIFEST, write_manifest
from glassformer.training.run import CHECKSUMS, Run

UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


DEEP = "<nested>"  # stands for lists nested 2,000 deep, which Python's writers refuse
NAN, INFINITE = float("nan"), float("inf")
SOME_BYTES = [
    b"\0", b'"', b"'", b"\r", b"\n\n", b"\\", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\t",
    b"," * 1000, b"[" * 5000, b"a" * 100_000, b'""","', b"1e999", b"9" * 5000, b"{}", b"\x1b[2J",
    "\u2028\u202e\ufeff\U0001f600".encode(), b"../../",
    *(struct.pack("<i", n) for n in (-1, 0, 1, 2**31 - 1, -(2**31), 2**24)),
    *(struct.pack("<q", n) for n in (-1, 0, 2**62, 2**63 - 1, 2**33)),
    *(struct.pack("<f", x) for x in (NAN, INFINITE, -1e38)),
]  # fmt: skip
VALUES = [
    None, True, -1, 0, 3, 10**30, 1e308, NAN, INFINITE, "", "x" * 5000, "a\0b", [], {}, DEEP, [[]],
    {"a": None}, "\ud800", "../../x", [1, "a", None],
]  # fmt: skip
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
PARTS: dict[str, list[Any]] = {  # of a tokenizer, by their path in its file
    "normalizer": [
        *({"type": "Sequence", "normalizers": [DOUBLE] * n} for n in (3, 10, 40)),
        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        {"type": "Prepend", "prepend": "a" * 100_000}, {"type": "Unheard"}, None,
    ],
    "pre_tokenizer": [
        *({**SPLIT, "pattern": {"Regex": regex}} for regex in ("(a+)+$", "(a|aa)+b", "(")),
        {"type": "Unheard"}, None,
    ],
    "decoder": [
        {"type": "Sequence", "decoders": [DOUBLE] * 40}, {"type": "Unheard"}, None,
        {"type": "Strip", "content": "a", "start": 2**40, "stop": 3},
    ],
    "truncation": [{"direction": "Left", "max_length": 1, "strategy": "OnlySecond", "stride": 9}],
    "padding": [{"direction": "Right", "pad_id": 2**31, "pad_type_id": 0, "pad_token": "?",
                 "pad_to_multiple_of": None, "strategy": {"Fixed": 10**9}}],
    "model.vocab.a": [2**31, 2**32 + 1, -1, 5000, 0],
    "model.vocab.unheard": [2**31, 2**32 + 1, -1, 5000, 0],
    "model.merges.0": [["", "a"], ["a", ""], "a", ["absent", "a"], "a b c"],
    "model.dropout": [1.0, 5.0, NAN],
    "model.unk_token": ["absent", None],
    "model.continuing_subword_prefix": ["absent", None],
    "model.max_input_chars_per_word": [10**9, 0],
    "model.byte_fallback": [True],
    "model.ignore_merges": [True],
    "added_tokens.0.id": [2**32 - 1, 5000, 0],
    "added_tokens.0.content": ["", "a", "\0"],
    "added_tokens.0.special": [False],
    "tokens": [[], ["a", "a"], [str(i) for i in range(999)]],
    "special_tokens": [[], ["<unk>"], ["<unk>", "<unk>"], ["<end>", "<unk>"], ["<unk>", "", "a"]],
}  # fmt: skip

Edit = Callable[[bytes, Random], tuple[bytes, str]]  # what a file holds, and what was done to it


def edit_bytes(content: bytes, choose: Random) -> tuple[bytes, str]:
    """Change some bytes, often near the start, whatever they mean."""
    at, length = place_in(len(content), choose), choose.choice([1, 1, 4, 16, 200])
    what = choose.choice("flip insert delete repeat cut zeros ones random put put".split())
    run, some = content[at : at + length], choose.choice(SOME_BYTES)
    new = {
        "flip": bytes([run[0] ^ 1 << choose.randrange(8)]) + run[1:] if run else b"",
        "insert": choose.choice([some, choose.randbytes(length)]) + run,
        "repeat": run * choose.choice([2, 100]),
        "zeros": b"\0" * len(run),
        "ones": b"\xff" * len(run),
        "random": choose.randbytes(len(run)),
    }
    if what == "put":
        at -= at % 4
        return content[:at] + some + content[at + len(some) :], f"put {some[:20]!r} at {at}"
    after = b"" if what == "cut" else content[at + length :]
    return content[:at] + new.get(what, b"") + after, f"{what} {length} at {at}"


def place_in(size: int, choose: Random) -> int:
    """A place below a size; sizes that are near give places that are near."""
    return int(choose.random() * (min(size, 64) if choose.random() < 0.3 else size))


def edit_tree(tree: Any, choose: Random) -> str:
    """Change one value or key in a tree of dictionaries and lists; what was done."""
    holder, key = pick(tree, choose)
    what = choose.choice(["value"] * 6 + ["other", "delete", "add", "rename"])
    value = choose.choice(VALUES)
    if what == "other":
        other, name = pick(tree, choose)
        value = copy.deepcopy(other[name])
    if what in ("value", "other"):
        holder[key] = value
    elif what == "delete":
        del holder[key]
    elif isinstance(holder, list):
        holder.append(value)
    else:
        holder[f"{key}x"] = value if what == "add" else holder.pop(key)
    return f"{what} at {key!r:.40}" + ("" if what in ("delete", "rename") else f": {value!r:.40}")


def pick(tree: Any, choose: Random) -> tuple[Any, Any]:
    """A dictionary or list in a tree, and a key of it; a LookupError where there is none."""
    key = choose.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    inner = tree[key]
    further = isinstance(inner, dict | list) and inner and choose.random() < 0.75
    return pick(inner, choose) if further else (tree, key)


def nested(text: str) -> bytes:
    return text.replace(f'"{DEEP}"', "[" * 2000 + "]" * 2000).encode("utf-8", "surrogatepass")


def edit_json(content: bytes, choose: Random) -> tuple[bytes, str]:
    tree = {"all": json.loads(content)}
    did = edit_tree(tree if choose.random() < 0.04 else tree["all"], choose)
    return nested(json.dumps(tree.get("all"), ensure_ascii=choose.random() < 0.5)), did


def edit_json_lines(content: bytes, choose: Random) -> tuple[bytes, str]:
    lines = content.splitlines()
    at = choose.randrange(len(lines))
    lines[at], did = edit_json(lines[at], choose)
    return b"\n".join(lines) + b"\n", f"line {at + 1}: {did}"


def edit_toml(content: bytes, choose: Random) -> tuple[bytes, str]:
    tree = tomllib.loads(content.decode())
    did = edit_tree(tree, choose)
    return nested(tomli_w.dumps(tree)), did


def edit_tokenizer(content: bytes, choose: Random) -> tuple[bytes, str]:
    """Put a hostile part in place of one that is there."""
    tree = json.loads(content)
    if choose.random() < 0.4:
        return edit_json(content, choose)
    fitting = {path: values for path, values in PARTS.items() if path.split(".")[0] in tree}
    path, value = choose.choice([(path, v) for path, values in fitting.items() for v in values])
    holder = tree
    *outer, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in outer:
        holder = holder[name]
    holder[last] = value
    return json.dumps(tree).encode(), f"{path} is {value!r:.90}"


def edit_safetensors(content: bytes, choose: Random) -> tuple[bytes, str]:
    """Change what the header says of a tensor, or the numbers behind it."""
    size = struct.unpack_from("<Q", content)[0]
    header, numbers = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = choose.choice([key for key in header if key != "__metadata__"])
    entry, again = header[name], json.dumps({name: header[name]})
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    what = choose.choice(
        "dtype shape data_offsets drop rename twice length any numbers numbers numbers".split()
    )
    if what == "numbers":
        new, first = choose.choice(SOME_BYTES[-14:]), place_in(len(numbers), choose) // 8 * 8
        new *= choose.choice([1, 1, (len(numbers) - first) // len(new)])
        numbers = numbers[:first] + new + numbers[first + len(new) :]
    elif what == "drop":
        del header[name]
    elif what == "rename":
        header[choose.choice(["x", "", f"{name}.weight", "a\0b"])] = header.pop(name)
    elif what == "any":
        edit_tree(header, choose)
    elif what in entry:
        distinct = "F64 F16 BF16 I64 I32 U8 BOOL F8_E4M3 C64 X".split()
        shapes = [[], [0], [-1], [2**62, 4], [*shape, 1], shape[::-1], [1] * 70]
        offsets = [[end, start], [0, 2**63], [start, end + 8], [0], [-8, 0]]
        entry[what] = choose.choice({"dtype": distinct, "shape": shapes}.get(what, offsets))
    raw = nested(json.dumps(header))
    raw = raw[:-1] + b"," + again[1:].encode() if what == "twice" else raw
    raw += b" " * (-len(raw) % 8)
    length = choose.choice([2**63, 10**9, 0, len(raw) - 8]) if what == "length" else len(raw)
    return struct.pack("<Q", length) + raw + numbers, f"{what} of {name!r}: {entry.get(what)}"


def edit_packed(ending: str, edit: Edit, content: bytes, choose: Random) -> tuple[bytes, str]:
    new, did = edit(UNPACK[ending](content), choose)
    return PACK[ending](new), f"inside: {did}"


def editor_of(name: str) -> Edit | None:
    """What knows a file's format."""
    if name[-3:] in PACK:
        return partial(edit_packed, name[-3:], editor_of(name[:-3]) or edit_bytes)
    endings: dict[str, Edit] = {
        "tokenizer.json": edit_tokenizer, ".json": edit_json, ".jsonl": edit_json_lines,
        ".toml": edit_toml, ".safetensors": edit_safetensors,
    }  # fmt: skip
    return next((edit for ending, edit in endings.items() if name.endswith(ending)), None)


def replace_file(file: Path, outside: Path, choose: Random) -> str:
    """Put something else in the place of a file: nothing, a folder, a link."""
    what = choose.choice(["removed", "emptied", "a folder", "a link to itself", "a link out"])
    file.rename(outside)
    if what == "emptied":
        file.touch()
    elif what == "a folder":
        file.mkdir()
    elif what != "removed":
        file.symlink_to(outside if what == "a link out" else file)
    return what


def damage_file(folder: Path, choose: Random) -> str:
    """Damage one file of a folder; which one, and how."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    deep = [file for file in files if file.name not in (MANIFEST, CHECKSUMS)]
    files = deep if choose.random() < 0.9 else files  # what else is in a folder is of more interest
    if not files:
        return "nothing is left"
    known = [file for file in files if editor_of(file.name)] or files
    known += [file for file in files if file.name == "tokenizer.json"]  # twice as often as others
    file = choose.choice(known if choose.random() < 0.7 else files)
    if choose.random() < 0.08:
        return f"{file.relative_to(folder)}: {replace_file(file, folder.with_name('out'), choose)}"
    edit, content = editor_of(file.name) or edit_bytes, file.read_bytes()
    try:
        new, did = (edit if choose.random() < 0.75 else edit_bytes)(content, choose)
    except Exception:  # it was damaged before, or its format has no such value
        new, did = edit_bytes(content, choose)
    file.write_bytes(new)
    return f"{file.relative_to(folder)}: {did}"


def sign(folder: Path) -> None:
    """Make manifests and checksums agree with what is in a folder, so that more of it is read."""
    for manifest in sorted(folder.rglob(MANIFEST)):
        with contextlib.suppress(OSError):
            manifest.unlink()
            write_manifest(manifest.parent)
    if (folder / CHECKSUMS).exists():
        with contextlib.suppress(OSError):
            Run(folder).seal()
