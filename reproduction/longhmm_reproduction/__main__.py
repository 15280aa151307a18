"""`python -m longhmm_reproduction`: run an experiment with few libraries installed, or draw what was found.

NumPy, JAX and NumPyro are enough to run one, with BlackJAX where the default pipeline turns to exact gradients.

python -m longhmm_reproduction rc --scale paper --json > rc-paper.json
python -m longhmm_reproduction --figures rc-paper.json --out docs/reproduction --readme README.md
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from longhmm_reproduction.catalogue import IN_REPETITIONS, NAMES, SCALES, run


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m longhmm_reproduction", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=NAMES, help="which experiment")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help=f"processes that share the cores out ({', '.join(IN_REPETITIONS)})",
    )
    parser.add_argument("--keep", type=Path, help="folder of finished parts, with which a run that was stopped goes on")
    parser.add_argument("--json", action="store_true", help="print the whole outcome, curves included")
    parser.add_argument("--figures", type=Path, nargs="+", help="outcomes to draw and to turn into tables")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for figures and tables")
    parser.add_argument("--readme", type=Path, help="a page whose marked part takes the short table and first figure")
    options = parser.parse_args()
    if (options.name is None) == (options.figures is None):
        parser.error("give the name of an experiment, or --figures with the files of outcomes")
    if options.workers < 1 or (options.workers > 1 and options.name not in IN_REPETITIONS):
        parser.error(f"--workers must be at least 1, and more only for {', '.join(IN_REPETITIONS)}")
    if options.figures is not None:
        from longhmm_reproduction.report import write_report
        from longhmm_reproduction.summary import write_readme, write_summary

        outcomes = [json.loads(file.read_text(encoding="utf-8")) for file in options.figures]
        for found in outcomes:
            for written in write_report(found, options.out):
                print(written)
        print(write_summary(outcomes, options.out))
        if options.readme is not None:
            print(write_readme(outcomes, options.readme, options.out.as_posix()))
        return
    found = run(options.name, options.scale, options.seed, options.workers, options.keep)
    json.dump(found if options.json else found["results"], sys.stdout, indent=None if options.json else 2)
    print()


if __name__ == "__main__":
    main()
