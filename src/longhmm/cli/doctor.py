"""`longhmm doctor`: what longhmm finds on this machine."""

import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from longhmm.cli import options
from longhmm.cli.output import Output, guarded

VERSIONED = ("longhmm", "jax", "jaxlib", "numpyro", "blackjax", "numpy", "scipy", "xarray", "zarr", "arviz", "pandas")
EXTRAS = {"remote": "fsspec", "cluster": "distributed", "sklearn": "sklearn"}  # beside those of formats


@guarded
def doctor(as_json: options.Json = False) -> None:
    """Show devices, kernels, versions, optional libraries, formats and the cache of compiled programs."""
    from longhmm.data.formats import LIBRARIES, supported

    said = Output(as_json)
    extras = LIBRARIES | EXTRAS
    document: dict[str, Any] = dict(python=platform.python_version(), system=platform.platform(), cache=cache())
    document |= dict(devices=devices(), kernels=kernels(), formats=supported().split(", "))
    document["versions"] = {name: installed(name) for name in VERSIONED}
    document["extras"] = {extra: find_spec(module) is not None for extra, module in extras.items()}
    said.say(f"Python {document['python']} on {document['system']}")
    for device in document["devices"]:
        said.say(f"Device: {device}")
    for name, state in document["kernels"].items():
        said.say(f"Kernel {name}: {state}")
    said.table("Versions", ("library", "version"), [(k, v or "not installed") for k, v in document["versions"].items()])
    named = extras | {"sklearn": "scikit-learn"}  # as they are installed
    missing = {extra: f"no: pip install {named[extra]}" for extra, there in document["extras"].items() if not there}
    rows = [(extra, module, missing.get(extra, "yes")) for extra, module in extras.items()]
    said.table("Optional", ("extra", "library", "installed"), rows)
    said.say(f"Files it reads: {', '.join(document['formats'])}")
    said.say(f"Cache of compiled programs: {document['cache']}")
    said.result(document)


def devices() -> list[str]:
    try:
        import jax

        return [f"{device.platform} {device.device_kind}" for device in jax.devices()]
    except Exception as error:  # a broken driver must be shown, not stop the doctor
        return [f"none: {' '.join(str(error).split())}"]


def kernels() -> dict[str, str]:
    found = {"reference": "JAX, everywhere"}
    for name, module in (("native", "longhmm.backends.native"), ("pallas", "longhmm.backends.pallas.windows")):
        try:
            found[name] = str(import_module(module).status())
        except Exception as error:  # as above: JAX may find a GPU that it cannot use
            found[name] = f"not used: {' '.join(str(error).split())}"
    return found


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cache() -> str:
    from longhmm.run.compilation import cache_directory

    place = cache_directory()
    if place is None:
        return "switched off"
    size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) if place.is_dir() else 0
    return f"{place} ({size / 1e6:.0f} MB)"
