"""Programs that are compiled quickly compute the same, whatever options the compiler knows."""

import jax
import numpy as np
import pytest

from longhmm.backends import programs


@pytest.mark.parametrize("spared", [programs.SPARED, {"xla_cpu_no_such_thing": False}])
def test_quick_programs_serve_with_options_that_xla_knows_and_without(monkeypatch, spared):
    monkeypatch.setattr(programs, "SPARED", spared)
    work = programs.quick(lambda x, power: x**power, static_argnames="power")
    for _ in range(2):
        np.testing.assert_allclose(work(np.arange(3.0), power=2), [0.0, 1.0, 4.0])


def test_other_errors_are_not_hidden():
    def refuse(value):
        raise ValueError("no")

    work = programs.quick(lambda x: jax.pure_callback(refuse, jax.ShapeDtypeStruct((), np.float32), x))
    with pytest.raises(Exception, match="no"):
        jax.block_until_ready(work(np.float32(1)))
