"""Write a page with its responses to one HTML file, which needs neither a server nor a network.

The file holds what the page requests for one text. Values that would make it larger than
`MAX_MEGABYTES` are left out, the largest first, and named in the page.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from math import prod
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.i18n import language
from glassformer.serve.app import LANGUAGES, PAGE
from glassformer.serve.envelope import pack, unpack
from glassformer.serve.handlers import HANDLERS
from glassformer.serve.session import Response, Session

ICON = "data:image/svg+xml;base64,"
MAX_MEGABYTES = 10.0
NEXT_STEPS = 8  # tokens of the most likely continuation
EXPLAINED = 40  # numbers
BRANCHES = 2  # terms of a number that are explained too
IMPORT = re.compile(r"^import \{([^}]*)\} from \"\./([\w.]+)\";\n", re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class) (\w+))", re.M)


def export_page(session: Session, text: str | None = None) -> tuple[str, list[str]]:
    """The page for one text, and the names of what was left out."""
    session.text = text or session.text
    responses, omitted = collect_responses(session)
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    icon = base64.b64encode((PAGE / "icon.svg").read_bytes()).decode()
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    page = page.replace('<link rel="icon" href="icon.svg">\n', "")
    page = page.replace('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>")
    embedded = [
        f'<script id="icon" type="text/plain" data-src="{ICON}{icon}"></script>',
        f'<script id="catalog" type="application/json">{embed(read_catalog())}</script>',
        '<script id="responses" type="application/json">'
        f"{embed({'responses': responses, 'omitted': omitted})}</script>",
        f'<script type="module">\n{bundle("app.js")}</script>',
    ]
    script = '<script type="module" src="app.js"></script>'
    return page.replace(script, "\n".join(embedded)), omitted


def read_catalog() -> Any:
    return json.loads((PAGE / "zh.json").read_text(encoding="utf-8"))


def embed(value: Any) -> str:
    """JSON that cannot end the script element around it."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def bundle(name: str) -> str:
    """A module and all that it imports, as one script: each in a block of its own."""
    order: list[str] = []

    def visit(module: str) -> None:
        if module in order:
            return
        text = (PAGE / module).read_text(encoding="utf-8")
        for _, imported in IMPORT.findall(text):
            visit(imported)
        order.append(module)

    visit(name)
    return "const modules = {};\n" + "".join(map(wrap_module, order))


def wrap_module(name: str) -> str:
    text = (PAGE / name).read_text(encoding="utf-8")
    names = EXPORT.findall(text)
    text = IMPORT.sub(lambda m: f'const {{{m[1].strip()}}} = modules["{m[2]}"];\n', text)
    text = EXPORT.sub("", text)
    return f'{{\n{text}\nmodules["{name}"] = {{ {", ".join(names)} }};\n}}\n'


# --- responses ------------------------------------------------------------------------------------


def collect_responses(session: Session) -> tuple[dict[str, str], list[str]]:
    """The packed responses by request, in base64, and the names of the values left out."""
    budget = MAX_MEGABYTES * 1e6 - 600_000  # for the page itself
    responses: dict[str, str] = {}
    omitted: list[str] = []
    for handler, request, label in list_requests(session):
        try:
            packed = pack(HANDLERS[handler](session, request))
        except GlassError:  # a request that this model does not support
            continue
        key = f"{handler} {canonical(request)}"
        encoded = base64.b64encode(packed).decode()
        size = len(key.encode()) + len(encoded) + 8  # with quotes and separators
        if size > budget:
            if label not in omitted:
                omitted.append(label)
            continue
        budget -= size
        responses[key] = encoded
    return responses, omitted


def canonical(request: dict[str, Any]) -> str:
    """Equal requests as equal text; the page makes the same."""
    return json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def list_requests(session: Session) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Everything that the page requests for its first text: a handler, a request, and its name.

    What is small and needed by every view comes first; the values of stages come last, the smallest
    first.
    """
    for lang in LANGUAGES:
        language.set(lang)
        yield "model", {"lang": lang}, "model"
    model = HANDLERS["model"](session, {})
    given = first_input(model)
    request = {"input": given}
    for lang in LANGUAGES:
        language.set(lang)
        yield "pass", {**request, "lang": lang}, "flow"
        yield "lessons", {"lang": lang}, "walk"
    language.set("en")
    for handler in ("heads", "lens", "reach", "prior"):
        yield handler, request, handler
    yield "outcomes", {}, "names of the outcomes"
    texts = {"clean": model["text"], "corrupt": model["other_text"]}
    yield "patch", texts, "patch"
    yield "beam", {"input": {"text": given.get("text", "")}, "beam": 3}, "beam search"
    yield "training", {"run": model["name"]}, "training"
    yield from next_requests(session, given)
    yield from lesson_requests(session)
    found = HANDLERS["pass"](session, request)
    for layer in found["layers"]:
        whole = {**request, "name": layer["value"]}
        yield "values", {**whole, "index": [0], "pool": 64}, layer["name"]
        for head in range(layer["heads"]):
            yield "ablation", {**request, "layer": layer["name"], "head": head}, "ablated heads"
    yield from value_requests(found, request)
    yield from why_requests(session, found, request)


def lesson_requests(session: Session) -> Iterator[tuple[str, dict[str, Any], str]]:
    for lang in LANGUAGES:
        language.set(lang)
        for lesson in HANDLERS["lessons"](session, {})["lessons"]:
            yield "lesson", {"lesson": lesson["name"], "lang": lang}, f"walk {lesson['name']}"
    language.set("en")


def first_input(model: Response) -> dict[str, Any]:
    """What the page reads when it opens."""
    if model["reads"] == "class":
        return {"label": model["labels"][0], "seed": 0}
    return {"text": model["text"]} if model["reads"] in ("text", "pair") else {}


def value_requests(found: Response, request: Response) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The matrices of every stage: each index of the axes before the last two."""
    sizes = {stage["name"]: prod(stage["shape"]) for stage in found["stages"]}
    for stage in sorted(found["stages"], key=lambda stage: sizes[stage["name"]]):
        batch = [0] if stage["has_batch"] else []
        leading = stage["shape"][len(batch) : max(len(stage["shape"]) - 2, len(batch))]
        zeros = [0] * (len(leading) - 1)
        indices = [[*zeros, i] for i in range(leading[-1])] if leading else [[]]
        for index in indices:
            part = {**request, "name": stage["name"], "index": batch + index}
            yield "values", part, stage["name"]


def next_requests(
    session: Session, given: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The first steps of the most likely continuation."""
    try:
        ids = HANDLERS["tokenize"](session, {"input": given})["ids"]
        yield "tokenize", {"input": given}, "next token"
        for _ in range(NEXT_STEPS):
            step = {"input": {"ids": ids}}
            yield "next", step, "next token"
            ids = [*ids, int(HANDLERS["next"](session, step)["logits"].argmax())]
    except (GlassError, KeyError):  # no text, or a model that does not continue one
        return


def why_requests(
    session: Session, found: Response, request: Response
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The largest logit of the prediction, and how it was computed, term by term."""
    if found["prediction"]["kind"] != "outcomes":
        return
    (shape,) = (stage["shape"] for stage in found["stages"] if stage["name"] == "output")
    logits = unpack(pack(HANDLERS["values"](session, {**request, "name": "output", "index": [0]})))
    values = logits["values"].reshape(-1, shape[-1])
    position = found["prediction"].get("position")
    row = len(values) - 1 if position is None else position
    best = int(values[row].argmax())
    index = [0, row, best] if len(shape) == 3 else [0, best]
    queue = [f"output[{','.join(map(str, index))}]"]
    seen: set[str] = set()
    while queue and len(seen) < EXPLAINED:
        entry = queue.pop(0)
        if entry in seen:
            continue
        seen.add(entry)
        part = {**request, "entry": entry, "path": []}
        yield "why", part, "where numbers came from"
        response = HANDLERS["why"](session, part)
        pairs = zip(response["terms"][:BRANCHES], response["can_follow"], strict=False)
        for names, follows in pairs:
            queue += [name for name, can in zip(names, follows, strict=True) if name and can]
