"""Absurd words on the command line, on files that are sound and on files that are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from click.testing import Result
from typer.testing import CliRunner

from fuzz.outcome import Case, Lost
from longhmm.cli import app
from longhmm.errors import LongHMMError

COMMANDS = ("fit", "compare", "simulate", "decode", "report", "resume", "view", "doctor", "nonsense", "")
NUMBERS = (
    "-1",
    "0",
    "1",
    "2",
    "1e9",
    "nan",
    "inf",
    "-inf",
    "99999999999999999999",
    "x",
    "",
    "0x10",
    "1.5",
    "½",
    "1..0",
    "5..2",
)
OPTIONS = {
    "fit": (
        "--states",
        "--decimate",
        "--held-out",
        "--rate",
        "--stay",
        "--chains",
        "--draws",
        "--time-limit",
        "--seed",
        "--column",
        "--dataset",
        "--emission",
        "--prior",
        "--sampler",
        "--out",
        "--log",
        "--normalise",
        "--nonsense",
    ),
    "compare": ("--states", "--held-out", "--rate", "--column", "--emission", "--seed", "--json"),
    "simulate": ("--length", "--seed", "--out", "--states"),
    "decode": ("--out", "--bin-size", "--chromosome"),
    "view": ("--port",),
}
PRIORS = (
    "mean=Normal(0,1",
    "mean=os.system('x')",
    "=",
    "mean=",
    "mean=__import__('os')",
    "mean=Normal(0,-1)",
    "mean=Normal(nan, 1)",
    "x" * 500,
    "mean=[1,2,3,4]",
    "loc=Normal(1e400, 1)",
    "mean=Normal",
    "df=-4",
    "scale=0",
)


def judged(runner: CliRunner, words: list[str]) -> Result:
    """Run a command; a failure becomes the error it stands for, and anything but one sentence is `Lost`."""
    result = runner.invoke(app, words)
    told = result.stderr if result.exit_code else ""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if "Traceback" in result.output + told:
        raise Lost(f"a traceback: {told[-300:]}")
    if result.exit_code == 2:
        if "Error" not in told and "Usage" not in told + result.output:
            raise Lost(f"a usage error without words: {told!r}")
        raise LongHMMError("the command line explained its usage")
    if result.exit_code:
        raise LongHMMError(told.strip())
    return result


def option_case(seed: int) -> Case:
    """A command that must be refused before it computes: its data are too odd or its options too absurd."""
    rng = np.random.default_rng([seed, 6])
    command = str(rng.choice(COMMANDS, p=[0.4, 0.15, 0.1, 0.08, 0.05, 0.05, 0.05, 0.02, 0.05, 0.05]))
    # Data that no model takes, so that options which happen to be right do not start a long fit.
    data = ("missing.npy", "infinite.npy", "empty.csv", "text.csv", "folder", "unknown.xyz", "one.npy")[rng.integers(7)]
    words = [command] if command else []
    given = data if command in ("fit", "compare") or rng.random() < 0.3 else "nowhere"
    for _ in range(int(rng.integers(1, 4))):
        allowed = OPTIONS.get(command, ("--nonsense", "--seed"))
        option = str(rng.choice(allowed))
        value = str(rng.choice(PRIORS)) if option == "--prior" else str(rng.choice(NUMBERS))
        words += [option] if option in ("--log", "--normalise", "--nonsense", "--json") else [option, value]
    if command == "fit" and "--states" not in words:
        words += ["--states", str(rng.choice(["2", "1000", "3"]))]

    def run(folder: Path) -> None:
        np.save(folder / "infinite.npy", np.array([1.0, np.inf, 2.0, -np.inf]))
        np.save(folder / "one.npy", np.array(["a", "b"]))
        (folder / "empty.csv").write_text("")
        (folder / "text.csv").write_text("a,b\nthis,is\nno,data\n")
        (folder / "folder").mkdir()
        (folder / "unknown.xyz").write_text("?")
        full = [str(folder / word) if word in ("nowhere", data) else word for word in [*words[:1], given, *words[1:]]]
        full = [
            str(folder / "out") if before in ("--out", "--states") and command in ("simulate",) else word
            for before, word in zip(["", *full], full, strict=False)
        ]
        if command in ("view", "doctor"):
            full = [command, str(folder / "nowhere"), *words[1:]]
        if command in ("fit", "decode") and "--out" in full:
            full[full.index("--out") + 1] = str(folder / "a" / "b" / "out")
        if command == "fit" and "--out" not in full:
            full += ["--out", str(folder / "out")]
        judged(CliRunner(), full)

    return Case(f"options {seed}: {words[:1]} {given} {words[1:]}", run)
