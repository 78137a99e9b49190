"""From counting to attention, with the three corpora of Brandon Rohrer's tutorial."""

import torch

from glassformer.inspection.pair_features import compute_pair_features
from glassformer.inspection.word_counts import (
    BATTERY,
    CANDIDATES,
    PROGRAM,
    SHOW_ME,
    count_votes,
    count_words,
    fit_log,
)
from glassformer.lessons.lesson import Values

ORDERS = (1, 2, 8)
LARGE_VOCAB = 50_000
PROMPT = "show me my"


def compute_values() -> Values:
    return {
        "candidates": CANDIDATES,
        "last_word": ["ran"],
        **compute_products(),
        **compute_first_order(),
        **compute_second_order(),
        **compute_sizes(),
        **compute_skips(),
        **compute_skip_matrix(),
        **compute_pair_features(),
        **complete(),
    }


def compute_products() -> Values:
    """A product of a 3 x 4 and a 4 x 2 matrix; the first two rows are one-hot."""
    a = torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 1], [0.5, 0, 0.5, 0]])
    b = torch.tensor([[0.2, 0.9], [0.7, 0.0], [0.8, 0.3], [0.1, 0.4]])
    return {"a": a, "b": b, "a_times_b": a @ b}


def compute_first_order() -> Values:
    words, counts = count_words(SHOW_ME, 1)
    one_hot = torch.eye(len(words))
    transitions = counts.fractions([torch.arange(len(words))])
    my = one_hot[words.index("my")][None]
    return {
        "words": words,
        "one_hot": one_hot,
        "word_products": one_hot @ one_hot.T,
        "transitions": transitions,
        "my": my,
        "after_my": my @ transitions,
    }


def compute_second_order() -> Values:
    words, first_order = count_words(BATTERY, 1)
    _, second_order = count_words(BATTERY, 2)
    columns = [words.index(word) for word in CANDIDATES]
    ran = torch.tensor([words.index("ran")])
    noun = torch.tensor([words.index("battery"), words.index("program")])
    return {
        "noun_pairs": ["battery ran", "program ran"],
        "after_one_word": first_order.fractions([ran])[:, columns],
        "after_two_words": second_order.fractions([ran.expand(2), noun])[:, columns],
    }


def compute_sizes() -> Values:
    """The contexts of one, two and eight words: all of them, and those that occur."""
    words, _ = count_words(BATTERY, 1)
    n, occurring = len(words), []
    for order in ORDERS:
        contexts = {tuple(w[i : i + order]) for w in map(str.split, BATTERY) for i in range(len(w))}
        occurring.append(sum(len(context) == order for context in contexts))
    return {
        "orders": [f"{order}" for order in ORDERS],
        "context_counts": torch.tensor([[n**order for order in ORDERS], occurring]).double(),
        "large_vocab": LARGE_VOCAB,
        "large_rows": float(LARGE_VOCAB ** ORDERS[-1]),
    }


def compute_skips() -> Values:
    (votes, total), (masked, total_masked) = (count_votes(masked) for masked in (False, True))
    return {
        "program": PROGRAM,
        "skip_pairs": [f"{word}, ran" for word in PROGRAM.split()[:-1]],
        "votes": votes,
        "total_votes": total,
        "masked_votes": masked * (masked > 0.5).any(dim=1, keepdim=True),
        "total_masked_votes": total_masked,
    }


def compute_skip_matrix() -> Values:
    """All pairs with “ran”, the features of a text, the mask, and the votes as a product."""
    words, model = fit_log(masked=False)
    all_ids = torch.arange(len(words))
    matrix = model.counts.fractions([torch.full_like(all_ids, words.index("ran")), all_ids])
    active = torch.tensor([[float(word in PROGRAM.split()[:-1]) for word in words]])
    mask = (matrix > 0.5).any(dim=1).float()[None]
    return {
        "log_words": words,
        "all_skip_pairs": [f"{word}, ran" for word in words],
        "skip_matrix": matrix,
        "skip_rows": len(words) ** 2,
        "active": active,
        "mask": mask,
        "masked_active": active * mask,
        "votes_by_product": (active @ matrix)[:, [words.index(word) for word in CANDIDATES]],
        "masked_votes_by_product": (active * mask @ matrix)[
            :, [words.index(word) for word in CANDIDATES]
        ],
    }


def complete() -> Values:
    """Continue a prompt with the most likely word until no word follows."""
    words, counts = count_words(SHOW_ME, 1)
    generated, rows = PROMPT.split(), []
    while (probs := counts.fractions([torch.tensor([words.index(generated[-1])])])).any():
        rows.append(probs)
        generated.append(words[int(probs.argmax())])
    return {
        "prompt": PROMPT,
        "completed": " ".join(generated),
        "completion_steps": [f"… {word}" for word in generated[-len(rows) - 1 : -1]],
        "completion_probs": torch.cat(rows),
    }
