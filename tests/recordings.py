"""Where real recordings lie, if they are at hand: beside the checkout, or where the variable says."""

import os
from pathlib import Path

RECORDINGS = Path(os.environ.get("LONGHMM_RECORDINGS", Path(__file__).parents[2] / "shared" / "data"))
