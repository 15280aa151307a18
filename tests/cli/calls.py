"""Commands called as a user calls them."""

from typer.testing import CliRunner

from longhmm.cli import app

FIT = ("--states", 2, "--sampler", "gibbs", "--chains", 2, "--held-out", 0.2, "--seed", 3, "--json")
runner = CliRunner()


def call(*words, code=0):
    """Run a command; standard output is returned, or the sentence on standard error if it was to fail."""
    result = runner.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def sentence(*words, code=1):
    """The one sentence with which a command fails."""
    text = call(*words, code=code)
    assert "Traceback" not in text
    assert text.count("\n") == 1
    return text
