"""Other names of settings and models, for "did you mean" in error messages.

At the first release, delete all but those at the end: the others are former names.
"""

RENAMED = {
    # train.*
    "batch": "batch_size",
    "rate": "lr",
    "decay": "weight_decay",
    "floor": "min_lr_ratio",
    "layer_rate": "layer_lr_decay",
    "smoothing": "label_smoothing",
    "average": "ema_decay",
    "fit": "shrink_on_oom",
    # model.*
    "key_heads": "kv_heads",
    "width": "head_dim",
    "base": "rope_theta",
    "stretch": "rope_scaling",
    "least": "min_count",
    "longest": "max_source_words",
    "widest": "max_target_words",
    "strength": "svm_c",
    "end": "eos",
    # data
    "share": "valid_fraction",
    # generation
    "new": "max_new_tokens",
    "repetition": "repetition_penalty",
    "penalty": "length_penalty",
    # models
    "bag": "nb_svm",
    "phrases": "phrase_table",
    "neighbours": "neighbors",
    # names in other libraries
    "learning_rate": "lr",
}
