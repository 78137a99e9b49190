"""Convert a formula such as `Q = X W_q + b` or `√(mean of x² + ε)` to MathML."""

import re
from html import escape

FUNCTIONS = set("softmax sigmoid concat norm log max min mean sin cos tanh ReLU GELU SiLU".split())
SUPERSCRIPTS = {"ᵀ": "T", "²": "2", "ᴵ": "I", "ᴾ": "P"}
SUBSCRIPTS = {"₁": "1", "₂": "2", "₀": "0", "₋": "−"}
OPEN = {"(": ")", "[": "]", "{": "}"}
CLOSE = {")", "]", "}"}
SPACE = "<mspace width='0.25em'/>"
TOKEN = re.compile(
    r"\d+(?:\.\d+)?"  # number
    r"|[A-Za-zα-ωΑ-ΩσΣ\u4e00-\u9fff]+(?:_[A-Za-z0-9]+)?"  # word or letter, W_q
    r"|[₀₁₂₋]+|[ᵀ²ᴵᴾ]"
    r"|\s+|."
)


def to_mathml(formula: str) -> str:
    """A `<math>` element; an empty formula gives an empty string."""
    if not formula:
        return ""
    parser = Parser([token for token in TOKEN.findall(formula) if not token.isspace()])
    return f"<math>{parser.row(set())}</math>"


class Parser:
    """Reads tokens from left to right and returns MathML."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.position = tokens, 0

    @property
    def next(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        self.position += 1
        return self.tokens[self.position - 1]

    def row(self, ends: set[str]) -> str:
        """All atoms up to one of `ends`, as one row."""
        atoms = []
        while self.next and self.next not in ends:
            atoms.append(self.scripted_atom())
        return f"<mrow>{''.join(atoms)}</mrow>"

    def scripted_atom(self) -> str:
        """An atom with the superscripts and subscripts after it."""
        atom = self.atom()
        while self.next:
            if self.next in SUPERSCRIPTS:
                atom = f"<msup>{atom}<mi>{SUPERSCRIPTS[self.take()]}</mi></msup>"
            elif self.next[0] in SUBSCRIPTS:
                digits = "".join(SUBSCRIPTS[char] for char in self.take())
                atom = f"<msub>{atom}<mn>{digits}</mn></msub>"
            elif self.next == "^" and self.position + 1 < len(self.tokens):
                self.take()
                atom = f"<msup>{atom}{self.argument()}</msup>"
            else:
                break
        return atom

    def argument(self) -> str:
        """What a root or a power applies to: a group without its parentheses, or an atom."""
        if self.next != "(":
            return self.scripted_atom()
        self.take()
        group = self.row({")"})
        if self.next == ")":
            self.take()
        return group

    def atom(self) -> str:
        token = self.take()
        if token == "√" and self.next:
            return f"<msqrt>{self.argument()}</msqrt>"
        if token in OPEN:
            inside = self.row({OPEN[token]})
            end = self.take() if self.next else ""
            return f"<mrow>{operator(token)}{inside}{operator(end) if end else ''}</mrow>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token[0].isalpha():
            return word(token, is_called=self.next in OPEN)
        return operator(token)


def word(token: str, *, is_called: bool = False) -> str:
    """A variable with a subscript, a function, or text."""
    name, _, subscript = token.partition("_")
    if subscript:
        return f"<msub>{word(name)}<mi>{escape(subscript)}</mi></msub>"
    if len(name) == 1 or name in FUNCTIONS:
        return f"<mi>{name}</mi>"
    after = "" if is_called else SPACE
    return f"{SPACE}<mtext>{escape(name)}</mtext>{after}"


def operator(token: str) -> str:
    return f"<mo>{escape(token)}</mo>"
