"""Outcomes of experiments with numbers that were not computed, in the shape in which they come."""

import numpy as np

METRICS = ("predictive_log_prob", "transition_error", "seconds", "observations_touched")
MACHINE = {"cores": 2, "processor": "P", "device": "cpu", "jax": "1"}


def curve(looks, *more):
    rising = np.arange(1.0, looks + 1).tolist()
    rows = [[1.0 / (look + 1), 1.1 / (look + 1)] for look in range(looks)]
    names = ("predictive_log_prob", "transition_error", *more)
    along = {"steps": rising, "seconds": rising, "touched": rising, "buffer": [3] * looks, "exponent": [-1.0] * looks}
    return {**{name: rows for name in names}, **along}


def row(**more):
    return {**{key: 0.15 for metric in METRICS for key in (metric, f"{metric}_se")}, **more}


def outcome(name, settings, **more):
    common = {"scale": "tiny", "seed": 0, "machine": MACHINE, "total_seconds": 1.0}
    return {"experiment": name, "settings": {**common, **settings}, **more}


def ion(*ratios, substitute=True, at_least=0, undecided=0):
    moments = [
        {"method": method, "seconds": share, "steps": 3, "differing": 0.1, "path": [0, 1, 1, 0]}
        for method in ("buffered", "batch")
        for share in (0.1, 1.0, 10.0)
    ]
    about = {
        "suffix": "",
        "substitute": substitute,
        "states": 2,
        "observations": 4,
        "target_error": 0.08,
        "steps_of_sgrld_per_batch_step": 400.0,
        "speed_ratio": {"values": list(ratios), "at_least": at_least, "undecided": undecided},
        "segmentations": {"first": 0, "values": [0.0, 1.0, 1.0, 0.0], "reference": [0, 1, 0, 0], "moments": moments},
    }
    name = "nanopore" if substitute else "alamethicin"
    methods = ("gibbs", "default", "buffered", "batch")
    return outcome(
        "ion",
        {"recording": name, "substitute_for_alamethicin": substitute, "not_found": None},
        results={method: row() for method in methods},
        curves={method: curve(2 if method == "default" else 4) for method in methods[1:]},
        recordings={name: about},
    )


def lognormal(blocks, iterations):
    """`blocks` by family, then by number of states; `iterations` of chains by family, the same to truth and mode."""
    states = sorted(blocks["lognormal"])
    results = {f"{which}-k{each}": row() for which in blocks for each in states}
    both = ("buffered", "gaussian-buffered")
    return outcome(
        "lognormal",
        {"states": states, "tolerance": 0.1},
        results={**results, **{name: row() for name in both}},
        repetitions={name: {"transition_error": [0.1, 0.2]} for name in both},
        curves={name: curve(4, "distance_from_mode") for name in both},
        blocks={which: {str(each): list(values) for each, values in table.items()} for which, table in blocks.items()},
        iterations={
            which: {"to_truth": chains, "to_mode": chains, "taken": 1000} for which, chains in iterations.items()
        },
    )


def variational(missing, ratios, rms=0.1):
    return outcome(
        "variational",
        {},
        results={
            "gibbs-rc": row(rms_correlation=rms),
            "svi-rc": row(rms_correlation=0.01, least_sd_ratio=0.3, median_sd_ratio=float(np.mean(ratios))),
        },
        repetitions={"svi-rc": {"missing_squared_correlation": missing, "median_sd_ratio": ratios}},
        pairs={"rc": {"sd_ratio": [0.3, 1.0], "gibbs": [0.2, -0.1], "svi": [0.0, 0.01]}},
    )
