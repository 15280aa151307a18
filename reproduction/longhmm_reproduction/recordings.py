"""The part of the summary on real recordings, made of what the scripts in `examples/recordings` left behind."""

from __future__ import annotations

import json
from pathlib import Path

OPENING = """
## Real recordings

Each by a short script in `examples/recordings` on all of its data, in the script's own words. Intervals hold 90 % of
the posterior; where the verdict is not *trust*, they are narrower than what is truly known. The scripts write their
picture and a file with these sentences, the command and the machine into the folder named by `--out`; `--data`, or else
`$LONGHMM_RECORDINGS`, names the folder of recordings, without which they say so and do nothing. The page takes all of
it from there:

    for script in chromatin deep_channel genome goes smartwatch; do
      python examples/recordings/$script.py --out docs/reproduction/recordings
    done
    python -m longhmm_reproduction --figures docs/reproduction/*.json --out docs/reproduction"""


def section(folder: Path) -> list[str]:
    """Lines of Markdown: sentences, picture, command and machine of every file NAME.json in the folder, by name."""
    files = sorted(folder.glob("*.json"))
    lines = [OPENING] if files else []
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        machine = found["machine"]
        lines += ["", found["sentence"], ""]
        table = found.get("table", ())
        rows = ["| " + " | ".join(row) + " |" for row in table]
        lines += [rows[0], "|---" * len(table[0]) + "|", *rows[1:], ""] if rows else []
        lines += [f"![{file.stem}]({folder.name}/{file.stem}.png)", ""]
        lines.append(
            f"`{found['command']}`, in {found['seconds']} seconds on {machine['cores']} cores "
            f"({machine['processor']}), JAX {machine['jax']} on {machine['device']}."
        )
    return lines
