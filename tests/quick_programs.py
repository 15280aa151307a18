"""Compiling takes most of the time of most tests, so that programs are compiled quickly rather than well.

`tests/test_as_users_run_it.py` compiles with everything that is switched off here.
"""

import mmap
import os
from pathlib import Path

import jaxlib

VARIABLE = "XLA_FLAGS"  # read when the first program is compiled; processes started by tests have it too
# Without XLA's newer code generator for fused loops, which takes half of the time of compiling.
NAME = "xla_cpu_use_fusion_emitters"


def known(name: str, folder: Path) -> bool:
    """Whether a library in `folder` has this flag: XLA ends the process for one that it does not know."""
    for path in folder.iterdir():
        if path.suffix in {".so", ".dylib", ".dll", ".pyd"} and path.stat().st_size > 0:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library:
                if library.find(name.encode() + b"\0") >= 0:
                    return True
    return False


def compile_quickly() -> None:
    """From the first program on, unless the user has chosen flags."""
    if VARIABLE not in os.environ and known(NAME, Path(jaxlib.__file__).parent):
        os.environ[VARIABLE] = f"--{NAME}=false"
