"""The allowed range of every numeric setting."""

import math
from collections.abc import Mapping
from numbers import Integral, Real

from glassformer.core.errors import GlassError

TINY = 1e-30  # lower bound for settings that must be above 0
MAX_SIZE = 2**24  # limit for tables and layers; only a corrupted or hostile file exceeds it

# (min, max), both inclusive. If both are integers, the value must be an integer.
BOUNDS: dict[str, tuple[float, float]] = {
    # model sizes
    "vocab": (1, MAX_SIZE),
    "source_vocab": (1, MAX_SIZE),
    "context": (1, MAX_SIZE),
    "memory": (0, MAX_SIZE),
    "stride": (1, MAX_SIZE),
    "summary": (1, MAX_SIZE),
    "block": (1, MAX_SIZE),
    "compression": (1, 4096),
    "dim": (1, MAX_SIZE),
    "depth": (1, 1_000),
    "heads": (1, 10_000),
    "kv_heads": (1, 10_000),
    "head_dim": (1, 8192),
    "kernel_size": (1, 8192),
    "hidden": (1, MAX_SIZE),
    "segments": (1, MAX_SIZE),
    "classes": (0, MAX_SIZE),
    "channels": (1, 4096),
    "height": (1, 8192),
    "width": (1, 8192),
    "patch": (1, 8192),
    "max_shift": (0, 64),
    "noise": (1, 8192),
    "image_size": (4, 512),
    "users": (1, MAX_SIZE),
    "items": (1, MAX_SIZE),
    "order": (1, 64),
    "max_entries": (1, 4096),
    "skips": (0, 4096),
    "min_count": (0, MAX_SIZE),
    "max_source_words": (1, 64),
    "max_target_words": (1, 64),
    "eos": (0, MAX_SIZE),
    "sep": (0, MAX_SIZE),
    "svm_c": (0.0, 1e9),
    "l2": (0.0, 1e9),
    "bias_l2": (0.0, 1e9),
    "user_damping": (0.0, 1e9),
    "item_damping": (0.0, 1e9),
    "rope_theta": (TINY, 1e30),
    "eps": (TINY, 1.0),
    "halt_threshold": (TINY, 1.0),
    "ponder_cost": (0.0, 1e9),
    "dropout": (0.0, 0.99),
    "word_dropout": (0.0, 0.99),
    "factor": (TINY, 1e9),
    "low_freq_factor": (TINY, 1e9),
    "high_freq_factor": (TINY, 1e9),
    "original_context": (1, MAX_SIZE),
    # training
    "steps": (1, 10**12),
    "epochs": (TINY, 1e9),
    "minutes": (TINY, 1e7),
    "max_epochs": (TINY, 1e9),
    "batch_size": (1, 10**6),
    "batch_tokens": (1, 10**9),
    "accumulate": (1, 10**6),
    "parameters": (1, 10**12),
    "lr": (0.0, 1e9),
    "warmup": (0.0, 1.0),
    "min_lr_ratio": (0.0, 1.0),
    "weight_decay": (0.0, 1e9),
    "layer_lr_decay": (0.0, 1.0),
    "lora": (0, 4096),
    "beta1": (0.0, 0.999_999_9),
    "beta2": (0.0, 0.999_999_9),
    "clip": (0.0, 1e30),
    "label_smoothing": (0.0, 1.0),
    "ema_decay": (0.0, 1.0),
    "patience": (0, 10**9),
    "eval_limit": (1, 10**12),
    "evaluate_every": (1, 10**12),
    "save_every": (1, 10**12),
    "threads": (1, 4096),
    "seed": (0, 2**63 - 1),
    "valid_fraction": (TINY, 1.0),
    # generation
    "max_new_tokens": (0, 10**9),
    "temperature": (0.0, 100.0),
    "top_k": (0, 10**9),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.1, 10.0),
    "beam": (1, 64),
    "length_penalty": (-10.0, 10.0),
    "top": (1, MAX_SIZE),
}


def check_bounds(values: Mapping[str, object]) -> None:
    """Raise a `GlassError` for the first value outside its range or of the wrong type.

    Names that are not in `BOUNDS` and values of None are ignored.
    """
    for name, value in values.items():
        if name not in BOUNDS or value is None:
            continue
        low, high = BOUNDS[name]
        is_integral = isinstance(low, int) and isinstance(high, int)
        if isinstance(value, bool) or not isinstance(value, Integral if is_integral else Real):
            kind = "an integer" if is_integral else "a number"
            raise GlassError(f"{name} must be {kind}, got {value!r}")
        if not math.isfinite(value):
            raise GlassError(f"{name} must be finite, got {value}")
        if not low <= value <= high:  # type: ignore[operator]
            minimum = "above 0" if low == TINY else f"at least {low:,}"
            raise GlassError(f"{name} must be {minimum} and at most {high:,}, got {value}")
