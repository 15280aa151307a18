"""`longhmm doctor` sees what is there."""

import json

from cli.calls import call
from longhmm.backends import native
from longhmm.backends.pallas import windows as pallas


def test_doctor_sees_devices_versions_and_extras():
    printed = json.loads(call("doctor", "--json"))
    assert printed["versions"]["jax"]
    assert any(device.startswith("cpu") or "gpu" in device for device in printed["devices"])
    assert printed["extras"]["hdf5"] is True
    assert {".npy", ".abf"} <= set(printed["formats"])
    # What the kernels say of themselves, not that they could not be found.
    assert printed["kernels"] == {"reference": "JAX, everywhere", "native": native.status(), "pallas": pallas.status()}
