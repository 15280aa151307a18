"""The errors a user may meet: one sentence each, naming the argument, what it must be and what it was."""

from numbers import Integral


class LongHMMError(ValueError):
    """Any problem that the user can mend; its text is the advice."""


class DataError(LongHMMError):
    """Something is wrong with the observations: the text names the source, the place and the remedy."""


class ModelError(LongHMMError):
    """Something is wrong with the model or its parameters."""


class ImpossibleObservationError(LongHMMError):
    """No state can have produced an observation: its likelihood is zero under every reachable state."""


def check_whole(name: str, value: object, least: int, error: type[LongHMMError] = ModelError) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise error(f"{name} must be a whole number of at least {least}, got {value!r}.")
