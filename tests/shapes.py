"""Shapes as the source annotates them (jaxtyping), checked at the joints while tests run.

Annotations such as `gamma: Float[Any, "n K"]` are text for the interpreter. Here they are evaluated, and every array
that passes a joint is held to them: equal letters must be equal numbers, in all arguments and the result of one call.
None passes everywhere. Outside the tests nothing is checked, and jaxtyping is not needed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping

# Functions through which arrays go from one step to the next.
JOINTS = (
    "longhmm.data.sequences:Sequences.rows",
    "longhmm.data.sequences:Sequences.take",
    "longhmm.data.layout:Partition.locate",
    "longhmm.data.layout:gather",
    "longhmm.model.hmm:HMM.log_likelihoods",
    "longhmm.model.hmm:HMM.potentials",
    "longhmm.inference.recursions:filtered",
    "longhmm.inference.recursions:smoothed",
    "longhmm.backends.native:statistics",
    "longhmm.backends.native:paths",
    "longhmm.backends.reference:statistics",
    "longhmm.backends.reference:paths",
    "longhmm.backends.answers:decode",
    "longhmm.backends.answers:sample_states",
    "longhmm.backends.answers:state_probabilities",
)
KINDS = {name: getattr(jaxtyping, name) for name in ("Bool", "Float", "Integer", "Shaped")}
ANNOTATED = re.compile(rf"\b({'|'.join(KINDS)})\[")


@functools.cache
def annotations(of: Any) -> dict[str, Any]:
    """Annotated shapes of a function's arguments and result, or of a class's fields."""
    written = getattr(of, "__annotations__", {})
    known = {**vars(sys.modules[of.__module__]), **KINDS}
    texts = {name: getattr(each, "__forward_arg__", each) for name, each in written.items()}
    return {name: eval(text, known) for name, text in texts.items() if ANNOTATED.search(str(text))}


def check(value: Any, shape: Any, where: str) -> None:
    """Refuse an array that is not as annotated, or a field of a container that is not."""
    if value is not None and shape is not None and not isinstance(value, shape):
        found = f"{getattr(value, 'dtype', type(value).__name__)}{getattr(value, 'shape', '')}"
        raise TypeError(f"{where} must be {shape.__name__ if isinstance(shape, type) else shape}, but is {found}")
    if type(value).__module__.startswith("longhmm"):
        for name, each in annotations(type(value)).items():
            check(getattr(value, name), each, f"{where}.{name}")
    elif isinstance(value, tuple) and shape is None:
        for number, each in enumerate(value):
            check(each, None, f"{where}[{number}]")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, every call of which is held to its annotations."""
    signature, shapes = inspect.signature(function), annotations(function)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        with jaxtyping.jaxtyped("context"):
            for name, value in signature.bind(*args, **options).arguments.items():
                check(value, shapes.get(name), f"{name} of {function.__qualname__}")
            result = function(*args, **options)
            check(result, shapes.get("return"), f"what {function.__qualname__} returns")
        return result

    return call


def joints() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Where each joint is held, its name there, and the function."""
    for joint in JOINTS:
        module, _, name = joint.partition(":")
        *owner, name = name.split(".")
        holder = functools.reduce(getattr, owner, importlib.import_module(module))
        yield holder, name, getattr(holder, name)


def check_joints() -> None:
    """Hold every joint to its annotations, also under the names by which modules have imported it already."""
    for holder, name, function in joints():
        held = checked(function)
        setattr(holder, name, held)
        for module in [each for key, each in sys.modules.items() if key.startswith("longhmm")]:
            if getattr(module, "__dict__", {}).get(name) is function:
                setattr(module, name, held)
