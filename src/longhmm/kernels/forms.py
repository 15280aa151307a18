"""The shape of a model's emission in the fused kernels, and what its lowering answers for a model."""

from __future__ import annotations

from typing import NamedTuple

import jax

from longhmm.kernels.native import GIVEN
from longhmm.model.hmm import HMM
from longhmm.model.lowering import Lowering, Params


class Form(NamedTuple):
    """The shape of an emission in the kernel.

    Attributes:
        kind: GAUSSIAN, LINEAR, TABLE or GIVEN (log likelihoods are computed beforehand).
        width: numbers per row.
        pack: numbers per state.
        sums: sums per state.
    """

    kind: int
    width: int
    pack: int
    sums: int


def form_of(model: HMM) -> Form:
    """The form of a model's emission; GIVEN where it has no lowering."""
    lowering = model.emission.lowering
    if lowering is None:
        return Form(GIVEN, model.n_states, 0, 0)
    return Form(lowering.kind, lowering.width, lowering.pack, lowering.sums)


def packs(model: HMM, params: Params) -> jax.Array:
    """`(K, pack)`, the parameters of every state as the kernel reads them."""
    return lowering_of(model).natural(params)


def slopes(model: HMM, params: Params, sums: jax.Array) -> dict[str, jax.Array]:
    """Derivative of the expected log density with respect to the free natural parameters, from `sums (K, sums)`."""
    return lowering_of(model).gradient(params, sums)


def lowering_of(model: HMM) -> Lowering:
    """The lowering of a model's emission, which must have one."""
    lowering = model.emission.lowering
    assert lowering is not None
    return lowering
