"""Ways to corrupt a file: bytes, structure, numbers, links.

An edit returns the new content and a description of the change.
"""

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

from fuzzing.specimens import COMPRESS
from glassformer.core.folder import MANIFEST, write_manifest
from glassformer.training.run import CHECKSUMS, Run

DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


DEEP = "<nested>"  # placeholder for lists nested 2,000 deep, which Python cannot serialize
NAN, INFINITE = float("nan"), float("inf")
HOSTILE_BYTES = [
    b"\0", b'"', b"'", b"\r", b"\n\n", b"\\", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\t",
    b"," * 1000, b"[" * 5000, b"a" * 100_000, b'""","', b"1e999", b"9" * 5000, b"{}", b"\x1b[2J",
    "\u2028\u202e\ufeff\U0001f600".encode(), b"../../",
    *(struct.pack("<i", n) for n in (-1, 0, 1, 2**31 - 1, -(2**31), 2**24)),
    *(struct.pack("<q", n) for n in (-1, 0, 2**62, 2**63 - 1, 2**33)),
    *(struct.pack("<f", x) for x in (NAN, INFINITE, -1e38)),
]  # fmt: skip
HOSTILE_VALUES = [
    None, True, -1, 0, 3, 10**30, 1e308, NAN, INFINITE, "", "x" * 5000, "a\0b", [], {}, DEEP, [[]],
    {"a": None}, "\ud800", "../../x", [1, "a", None],
]  # fmt: skip
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
HOSTILE_COMPONENTS: dict[str, list[Any]] = {  # for tokenizers, by their path in the file
    "normalizer": [
        *({"type": "Sequence", "normalizers": [DOUBLE] * n} for n in (3, 10, 40)),
        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
        {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        {"type": "Prepend", "prepend": "a" * 100_000}, {"type": "Unknown"}, None,
    ],
    "pre_tokenizer": [
        *({**SPLIT, "pattern": {"Regex": regex}} for regex in ("(a+)+$", "(a|aa)+b", "(")),
        {"type": "Unknown"}, None,
    ],
    "decoder": [
        {"type": "Sequence", "decoders": [DOUBLE] * 40}, {"type": "Unknown"}, None,
        {"type": "Strip", "content": "a", "start": 2**40, "stop": 3},
    ],
    "truncation": [{"direction": "Left", "max_length": 1, "strategy": "OnlySecond", "stride": 9}],
    "padding": [{"direction": "Right", "pad_id": 2**31, "pad_type_id": 0, "pad_token": "?",
                 "pad_to_multiple_of": None, "strategy": {"Fixed": 10**9}}],
    "model.vocab.a": [2**31, 2**32 + 1, -1, 5000, 0],
    "model.vocab.new_token": [2**31, 2**32 + 1, -1, 5000, 0],
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

Edit = Callable[[bytes, Random], tuple[bytes, str]]


def edit_bytes(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Change some bytes of a file, often near the start, regardless of its format."""
    start, length = random_position(len(content), rng), rng.choice([1, 1, 4, 16, 200])
    action = rng.choice("flip insert delete repeat cut zeros ones random put put".split())
    span, hostile = content[start : start + length], rng.choice(HOSTILE_BYTES)
    replacements = {
        "flip": bytes([span[0] ^ 1 << rng.randrange(8)]) + span[1:] if span else b"",
        "insert": rng.choice([hostile, rng.randbytes(length)]) + span,
        "repeat": span * rng.choice([2, 100]),
        "zeros": b"\0" * len(span),
        "ones": b"\xff" * len(span),
        "random": rng.randbytes(len(span)),
    }
    if action == "put":
        start -= start % 4
        new = content[:start] + hostile + content[start + len(hostile) :]
        return new, f"put {hostile[:20]!r} at {start}"
    rest = b"" if action == "cut" else content[start + length :]
    new = content[:start] + replacements.get(action, b"") + rest
    return new, f"{action} {length} at {start}"


def random_position(size: int, rng: Random) -> int:
    """A random position below `size`, scaled so that similar sizes give similar positions."""
    return int(rng.random() * (min(size, 64) if rng.random() < 0.3 else size))


def edit_tree(tree: Any, rng: Random) -> str:
    """Change one value or key in a tree of dictionaries and lists; return a description."""
    parent, key = pick(tree, rng)
    action = rng.choice(["value"] * 6 + ["other", "delete", "add", "rename"])
    value = rng.choice(HOSTILE_VALUES)
    if action == "other":
        other_parent, other_key = pick(tree, rng)
        value = copy.deepcopy(other_parent[other_key])
    if action in ("value", "other"):
        parent[key] = value
    elif action == "delete":
        del parent[key]
    elif isinstance(parent, list):
        parent.append(value)
    else:
        parent[f"{key}x"] = value if action == "add" else parent.pop(key)
    detail = "" if action in ("delete", "rename") else f": {value!r:.40}"
    return f"{action} at {key!r:.40}{detail}"


def pick(tree: Any, rng: Random) -> tuple[Any, Any]:
    """A random dictionary or list in a tree, and one of its keys; a LookupError if it is empty."""
    key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    child = tree[key]
    descend = isinstance(child, dict | list) and child and rng.random() < 0.75
    return pick(child, rng) if descend else (tree, key)


def expand_nesting(text: str) -> bytes:
    return text.replace(f'"{DEEP}"', "[" * 2000 + "]" * 2000).encode("utf-8", "surrogatepass")


def edit_json(content: bytes, rng: Random) -> tuple[bytes, str]:
    tree = {"all": json.loads(content)}
    change = edit_tree(tree if rng.random() < 0.04 else tree["all"], rng)
    return expand_nesting(json.dumps(tree.get("all"), ensure_ascii=rng.random() < 0.5)), change


def edit_json_lines(content: bytes, rng: Random) -> tuple[bytes, str]:
    lines = content.splitlines()
    i = rng.randrange(len(lines))
    lines[i], change = edit_json(lines[i], rng)
    return b"\n".join(lines) + b"\n", f"line {i + 1}: {change}"


def edit_toml(content: bytes, rng: Random) -> tuple[bytes, str]:
    tree = tomllib.loads(content.decode())
    change = edit_tree(tree, rng)
    return expand_nesting(tomli_w.dumps(tree)), change


def edit_tokenizer(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Replace a component of a tokenizer by a hostile one."""
    tree = json.loads(content)
    if rng.random() < 0.4:
        return edit_json(content, rng)
    applicable = [
        (path, value)
        for path, values in HOSTILE_COMPONENTS.items()
        for value in values
        if path.split(".")[0] in tree
    ]
    path, value = rng.choice(applicable)
    parent = tree
    *outer, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in outer:
        parent = parent[name]
    parent[last] = value
    return json.dumps(tree).encode(), f"{path} is {value!r:.90}"


def edit_safetensors(content: bytes, rng: Random) -> tuple[bytes, str]:
    """Change a tensor's entry in the header, or the numbers after the header."""
    size = struct.unpack_from("<Q", content)[0]
    header, numbers = json.loads(content[8 : 8 + size]), content[8 + size :]
    name = rng.choice([key for key in header if key != "__metadata__"])
    entry, original = header[name], json.dumps({name: header[name]})
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    action = rng.choice(
        "dtype shape data_offsets drop rename twice length any numbers numbers numbers".split()
    )
    if action == "numbers":
        new, first = rng.choice(HOSTILE_BYTES[-14:]), random_position(len(numbers), rng) // 8 * 8
        new *= rng.choice([1, 1, (len(numbers) - first) // len(new)])
        numbers = numbers[:first] + new + numbers[first + len(new) :]
    elif action == "drop":
        del header[name]
    elif action == "rename":
        header[rng.choice(["x", "", f"{name}.weight", "a\0b"])] = header.pop(name)
    elif action == "any":
        edit_tree(header, rng)
    elif action in entry:
        dtypes = "F64 F16 BF16 I64 I32 U8 BOOL F8_E4M3 C64 X".split()
        shapes = [[], [0], [-1], [2**62, 4], [*shape, 1], shape[::-1], [1] * 70]
        offsets = [[end, start], [0, 2**63], [start, end + 8], [0], [-8, 0]]
        entry[action] = rng.choice({"dtype": dtypes, "shape": shapes}.get(action, offsets))
    raw = expand_nesting(json.dumps(header))
    raw = raw[:-1] + b"," + original[1:].encode() if action == "twice" else raw
    raw += b" " * (-len(raw) % 8)
    length = rng.choice([2**63, 10**9, 0, len(raw) - 8]) if action == "length" else len(raw)
    return struct.pack("<Q", length) + raw + numbers, f"{action} of {name!r}: {entry.get(action)}"


def edit_compressed(suffix: str, edit: Edit, content: bytes, rng: Random) -> tuple[bytes, str]:
    new, change = edit(DECOMPRESS[suffix](content), rng)
    return COMPRESS[suffix](new), f"inside: {change}"


def find_edit(name: str) -> Edit | None:
    """The edit for a file's format, or None if there is no special one."""
    if name[-3:] in COMPRESS:
        return partial(edit_compressed, name[-3:], find_edit(name[:-3]) or edit_bytes)
    suffixes: dict[str, Edit] = {
        "tokenizer.json": edit_tokenizer, ".json": edit_json, ".jsonl": edit_json_lines,
        ".toml": edit_toml, ".safetensors": edit_safetensors,
    }  # fmt: skip
    return next((edit for suffix, edit in suffixes.items() if name.endswith(suffix)), None)


def replace_file(file: Path, outside: Path, rng: Random) -> str:
    """Replace a file by nothing, an empty file, a folder or a link; return a description."""
    action = rng.choice(["removed", "emptied", "a folder", "a link to itself", "a link out"])
    file.rename(outside)
    if action == "emptied":
        file.touch()
    elif action == "a folder":
        file.mkdir()
    elif action != "removed":
        file.symlink_to(outside if action == "a link out" else file)
    return action


def corrupt_file(folder: Path, rng: Random) -> str:
    """Corrupt one file of a folder; return a description of the damage."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    others = [file for file in files if file.name not in (MANIFEST, CHECKSUMS)]
    files = others if rng.random() < 0.9 else files
    if not files:
        return "no file is left"
    editable = [file for file in files if find_edit(file.name)] or files
    editable += [file for file in files if file.name == "tokenizer.json"]  # twice as often
    file = rng.choice(editable if rng.random() < 0.7 else files)
    if rng.random() < 0.08:
        return f"{file.relative_to(folder)}: {replace_file(file, folder.with_name('out'), rng)}"
    edit, content = find_edit(file.name) or edit_bytes, file.read_bytes()
    try:
        new, change = (edit if rng.random() < 0.75 else edit_bytes)(content, rng)
    except Exception:  # it was corrupted before, or its format has no such value
        new, change = edit_bytes(content, rng)
    file.write_bytes(new)
    return f"{file.relative_to(folder)}: {change}"


def update_checksums(folder: Path) -> None:
    """Make a folder's manifests and checksums valid again, so that more of its content is read."""
    for manifest in sorted(folder.rglob(MANIFEST)):
        with contextlib.suppress(OSError):
            manifest.unlink()
            write_manifest(manifest.parent)
    if (folder / CHECKSUMS).exists():
        with contextlib.suppress(OSError):
            Run(folder).write_checksums()
