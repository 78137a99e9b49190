"""How closely commands keep to `--minutes`: their wall-clock time compared with their budgets.

    python bench/budget.py            # on an idle machine
    python bench/budget.py --busy     # with a busy process on each core

Runs twelve commands on all tasks and several models, each in its own process. The time is
for the entire command: imports, loading, the baseline, choosing a precision, training, the
final evaluation and the plots. Early stopping is off, because it may end a run before its budget
is spent.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GLASS = [sys.executable, "-c", "from glassformer.cli import main; main()"]
BUSY_LOOP = "while True: sum(range(10**6))"
COMMANDS = [
    ("generate", 0.5, []),
    ("generate", 1.0, []),
    ("generate", 0.5, ["--model", "llama"]),
    ("generate", 0.5, ["--model", "recurrent"]),
    ("generate", 0.5, ["--set", "model.context=512", "--set", "train.batch_size=8"]),
    ("classify", 0.5, []),
    ("classify", 1.0, ["--model", "bert"]),
    ("classify", 0.5, ["--model", "convolutional_classifier"]),
    ("translate", 0.5, []),
    ("translate", 1.0, []),
    ("fill-mask", 0.5, []),
    ("fill-mask", 1.0, ["--set", "model.context=256"]),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--busy", action="store_true", help="keep each core busy during the runs")
    parser.add_argument("--out", type=Path, help="append a line of JSON for each command")
    args = parser.parse_args()
    count = (os.cpu_count() or 1) if args.busy else 0
    busy_processes = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        for row in map(time_command, COMMANDS):
            row["busy"] = args.busy
            excess = row["seconds"] - row["asked"]
            is_on_time = abs(excess) <= max(5.0, 0.05 * row["asked"])
            times = f"budget {row['asked']:4.0f} s, took {row['seconds']:6.1f} s ({excess:+5.1f} s)"
            note = "" if is_on_time else "  NOT ON TIME"
            print(f"{row['command']:<64} {times}, {row['steps']:5} steps{note}", flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    finally:
        for process in busy_processes:
            process.kill()


def time_command(command: tuple[str, float, list[str]]) -> dict[str, object]:
    """Run one command in an empty folder; return its budget, its time and its steps."""
    task, minutes, options = command
    arguments = ["train", task, "--minutes", str(minutes), *options, "--run", "run"]
    arguments += ["--set", "train.patience=0"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        done = subprocess.run([*GLASS, *arguments], cwd=folder, capture_output=True, text=True)
        seconds = time.monotonic() - start
        if done.returncode:
            sys.exit(done.stderr)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    final = json.loads(lines[-1])
    return {
        "command": " ".join(["glass", *arguments[:-4]]),
        "asked": 60 * minutes,
        "seconds": round(seconds, 1),
        "steps": final["step"],
    }


if __name__ == "__main__":
    main()
