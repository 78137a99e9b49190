"""How well `--minutes` is kept: the wall clock of whole commands beside what was asked for.

    python bench/budget.py            # on an idle machine
    python bench/budget.py --busy     # beside a process for each core

Twelve commands on all tasks and several models, each in a process of its own, started as a user
starts it. The clock runs from the start of the command to its end: imports, loading, counting,
choosing a precision, training, the final evaluation and the plots. Stopping early is turned off: a
run that gets no better may end sooner.
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
SPIN = "while True: sum(range(10**6))"
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
    parser.add_argument("--busy", action="store_true", help="beside a busy process for each core")
    parser.add_argument("--out", type=Path, help="append a line of JSON for each command")
    args = parser.parse_args()
    count = (os.cpu_count() or 1) if args.busy else 0
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        for row in map(measure, COMMANDS):
            row["busy"] = args.busy
            off = row["seconds"] - row["asked"]
            kept = abs(off) <= max(5.0, 0.05 * row["asked"])
            times = f"{row['asked']:4.0f} s asked, {row['seconds']:6.1f} s taken, {off:+5.1f} s"
            verdict = "" if kept else "  NOT KEPT"
            print(f"{row['command']:<64} {times}, {row['steps']:5} steps{verdict}", flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    finally:
        for process in spinning:
            process.kill()


def measure(command: tuple[str, float, list[str]]) -> dict[str, object]:
    """One command, run to its end in an empty folder."""
    task, minutes, more = command
    line = ["train", task, "--minutes", str(minutes), *more, "--run", "run"]
    line += ["--set", "train.patience=0"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        done = subprocess.run([*GLASS, *line], cwd=folder, capture_output=True, text=True)
        seconds = time.monotonic() - start
        if done.returncode:
            sys.exit(done.stderr)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    final = json.loads(lines[-1])
    return {
        "command": " ".join(["glass", *line[:-4]]),
        "asked": 60 * minutes,
        "seconds": round(seconds, 1),
        "steps": final["step"],
    }


if __name__ == "__main__":
    main()
