"""What a field expects of a decoded recording, against plain computations."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm
from scipy.stats import norm

from longhmm import Poisson
from longhmm.data.preprocess import Preprocessing
from longhmm.data.sequences import open_data
from longhmm.errors import DataError, ModelError
from longhmm.model.hmm import HMM
from longhmm.model.simulate import simulate
from longhmm.posterior.amplitudes import amplitudes, bin_probabilities
from longhmm.posterior.diagnostics.residuals import quantiles, residuals
from longhmm.posterior.dwell import complete_visits, dwell_histogram, generator_of
from longhmm.posterior.events import idealised, write_bed, write_dwt, write_events
from longhmm.posterior.posterior import Posterior
from longhmm.posterior.summary import level_draws, levels
from posterior.fakes import chains_of, gaussian_model, known_states


@pytest.fixture(scope="module")
def known():
    return known_states()


@pytest.fixture(scope="module")
def posterior(known):
    return known.posterior()


@pytest.fixture(scope="module")
def table(known, posterior):
    path = np.asarray(known.sequences.rows(0, known.sequences.length).states)
    return posterior.events(known.sequences, path=path, rate=1000.0)


def test_levels_have_the_interval_of_the_closed_form(known, posterior):
    found = levels(posterior, interval=0.9)
    np.testing.assert_allclose(found["level"], known.mean, atol=5 * known.sd.max() / np.sqrt(2000))
    for end, sign in (("level_lower", -1), ("level_upper", 1)):
        wanted = known.mean + sign * norm.isf(0.05) * known.sd
        np.testing.assert_allclose(found[end], wanted, atol=0.25 * known.sd.max())
    assert level_draws(posterior, 10).shape == (10, 2)


def test_levels_and_samples_of_a_preprocessed_recording_are_those_of_the_file(known, posterior):
    steps = Preprocessing(decimate=5, normalise=True, centre=(100.0,), scale=(10.0,))
    path = np.asarray(known.sequences.rows(0, known.sequences.length).states)
    plain = posterior.events(known.sequences, path=path)
    found = posterior.events(known.sequences, path=path, rate=50.0, preprocessing=steps)
    np.testing.assert_array_equal(found["start"], 5 * plain["start"])
    np.testing.assert_array_equal(found["end"], 5 * plain["end"])
    np.testing.assert_allclose(found["end_s"], 5 * plain["end"] / 50.0)
    for name in ("level", "level_lower", "level_upper"):
        np.testing.assert_allclose(found[name], 100.0 + 10.0 * plain[name])


def test_the_idealised_trace_is_the_level_of_every_sample(known, table, tmp_path):
    path = np.asarray(known.sequences.rows(0, known.sequences.length).states)
    by_state = table.groupby("state")["level"].first().to_numpy()
    np.testing.assert_allclose(idealised(table), by_state[path].astype(np.float32))
    upper = idealised(table, column="level_upper", out=tmp_path / "upper.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "upper.npy"), upper)
    assert (upper > idealised(table)).all()
    with pytest.raises(DataError, match=r"the name of an \.npy file"):
        idealised(table, out=tmp_path / "upper.txt")


def test_dwt_lists_every_dwell_in_milliseconds(table, tmp_path):
    two = pd.concat([table, table.iloc[:3].assign(sequence=1)])
    write_dwt(tmp_path / "a.dwt", two, 1000.0, spread=np.array([1.5, 2.5]))
    text = (tmp_path / "a.dwt").read_bytes().decode("ascii")
    assert text.count("\r\n") == text.count("\n")
    segments = [part for part in text.replace("\r", "").split("Segment: ") if part]
    assert len(segments) == 2
    head, *lines = segments[0].strip().split("\n")
    assert head.startswith(f"1 Dwells: {len(table)} Sampling(ms): 1 Start(ms): 0 ClassCount: 2 ")
    levels_and_spreads = [float(word) for word in head.split("ClassCount: 2 ")[1].split()]
    np.testing.assert_allclose(levels_and_spreads[1::2], [1.5, 2.5])
    np.testing.assert_allclose(levels_and_spreads[::2], table.groupby("state")["level"].first(), atol=1e-6)
    found = np.array([line.split("\t") for line in lines], float)
    np.testing.assert_array_equal(found[:, 0], table["state"])
    np.testing.assert_allclose(found[:, 1], (table["end"] - table["start"]) * 1.0)
    assert f"Start(ms): {table['end'].iloc[-1]}" in segments[1]
    with pytest.raises(ModelError, match="rate must be a positive number"):
        write_dwt(tmp_path / "a.dwt", table, None)


def test_bed_counts_in_base_pairs(table, tmp_path):
    write_bed(tmp_path / "a.bed", table, names=["chr11"], bin_size=200)
    rows = [line.split("\t") for line in (tmp_path / "a.bed").read_text().splitlines()]
    assert [row[0] for row in rows] == ["chr11"] * len(table)
    np.testing.assert_array_equal([int(row[1]) for row in rows], 200 * table["start"])
    np.testing.assert_array_equal([int(row[2]) for row in rows], 200 * table["end"])
    assert [row[3] for row in rows] == [f"state{state}" for state in table["state"]]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_tables_of_events_survive_a_file(table, tmp_path, ending):
    file = tmp_path / f"events.{ending}"
    write_events(file, table)
    found = pd.read_parquet(file) if ending == "parquet" else pd.read_csv(file, sep="," if ending == "csv" else "\t")
    assert {"start", "end", "state", "level", "start_s", "end_s"} <= set(found.columns)
    np.testing.assert_allclose(found.to_numpy(float), table.to_numpy(float), rtol=1e-9)


def test_tables_of_events_need_a_known_ending(table, tmp_path):
    with pytest.raises(DataError, match=r"unknown ending '\.xls'"):
        write_events(tmp_path / "events.xls", table)
    with pytest.raises(DataError, match="cannot be written"):
        write_events(tmp_path / "nowhere" / "events.csv", table)


def test_dwell_histograms_count_complete_visits(known, posterior, table):
    found = dwell_histogram(posterior, table)
    whole = complete_visits(table)
    assert len(whole) == len(table) - 2
    for state, part in found.groupby("state"):
        mine = whole[whole["state"] == state]
        lengths = (mine["end"] - mine["start"]).to_numpy()
        assert part["count"].sum() == len(mine)
        for row in part.itertuples():
            assert row.count == ((lengths > row.lower) & (lengths <= row.upper)).sum()
        stay = 1 - np.asarray(posterior.draws["transition"])[..., state, 1 - state].reshape(-1)
        first = len(mine) * (1 - stay)  # visits of one sample
        assert part["expected"].iloc[0] == pytest.approx(first.mean())
        # The data come from the model: counts scatter around what it expects.
        pooled = np.sum((part["count"] - part["expected"]) ** 2 / np.maximum(part["expected"], 1.0))
        assert pooled < len(part) + 4 * np.sqrt(2 * len(part))
    ratio = np.diff(np.log10(found[found["state"] == 0]["upper"].to_numpy()))
    assert ratio[-3:].max() < 0.2  # ten per decade, once whole numbers are dense enough


def test_generators_are_recovered_and_what_has_none_is_said():
    generator = np.array([[-0.2, 0.15, 0.05], [0.3, -0.4, 0.1], [0.0, 0.5, -0.5]])
    found, sound = generator_of(expm(generator))
    assert sound
    np.testing.assert_allclose(found, generator, atol=1e-10)
    for matrix in ([[0.1, 0.9], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0, 0.9]]):
        found, sound = generator_of(np.array(matrix))
        assert not sound
        np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-12)
        assert (found - np.diag(np.diag(found)) >= 0).all()


def test_generators_and_switching_rates(posterior):
    found = posterior.rates(rate=500.0, draws=300)
    assert found.embeddable == 1.0
    assert found.warning is None
    everything = np.asarray(posterior.draws["transition"])
    transition = np.stack([everything[chain, draw] for chain, draw in posterior.thinned(300)])
    out, back = transition[:, 0, 1], transition[:, 1, 0]
    # Of two states: log A = -log(1 - a - b) / (a + b) [[-a, a], [b, -b]].
    factor = -np.log(1 - out - back) / (out + back) * 500.0
    row = found.table.set_index(["state", "to_state"]).loc[(0, 1)]
    assert row["mean"] == pytest.approx((factor * out).mean())
    assert row["lower"] == pytest.approx(np.quantile(factor * out, 0.05))
    np.testing.assert_allclose(found.generator.sum(axis=1), 0.0, atol=1e-9)
    flow = found.switching.set_index(["state", "to_state"])["mean"]
    assert flow[(0, 1)] == pytest.approx((500.0 * out * back / (out + back)).mean())
    assert flow[(0, 1)] == pytest.approx(flow[(1, 0)])


def test_a_matrix_without_generator_warns():
    model = gaussian_model()
    rng = np.random.default_rng(0)
    off = rng.uniform(0.85, 0.95, (2, 50))
    transition = np.stack([np.stack([1 - off, off], -1), np.stack([off, 1 - off], -1)], -2)
    natural = {"transition": transition, "mean": np.tile([[[0.0, 4.0]]], (2, 50, 1))}
    flipping = Posterior.from_chains(model, chains_of(model, natural), {"has_states": True})
    with pytest.warns(UserWarning, match="for 100% of the draws no process in continuous time"):
        found = flipping.rates()
    assert found.embeddable == 0.0


def test_predicted_amplitudes_match_the_data_they_describe(known, posterior):
    found = amplitudes(posterior, known.sequences, bins=20)
    values = np.asarray(known.sequences.rows(0, known.sequences.length).values)[:, 0]
    np.testing.assert_array_equal(found.counts, np.histogram(values, found.edges)[0])
    assert found.outside == len(values) - found.counts.sum()
    np.testing.assert_allclose(found.by_state.sum(axis=0), found.expected)
    assert (found.lower <= found.expected).all() and (found.expected <= found.upper).all()
    # Visits last ten samples, so counts scatter more than Poisson's; a shifted prediction is far outside.
    misfit = np.sum((found.counts - found.expected) ** 2 / (found.expected + 1))
    shifted = np.sum((found.counts - np.roll(found.expected, 2)) ** 2 / (np.roll(found.expected, 2) + 1))
    assert misfit < 0.2 * shifted


def test_bins_of_counts_hold_whole_numbers():
    model = HMM(2, Poisson())
    params = {"transition": np.array([[0.9, 0.1], [0.1, 0.9]]), "rate": np.array([1.0, 6.0])}
    _, values = simulate(model, params, 500, seed=0)
    resolved = model.resolve(values)
    from scipy.stats import poisson

    edges = np.arange(-0.5, 10.0)
    found = bin_probabilities(resolved, params, edges)
    np.testing.assert_allclose(found, [poisson.pmf(np.arange(10), rate) for rate in (1.0, 6.0)], atol=1e-6)


def test_residual_quantiles_lie_on_the_diagonal_for_the_right_model_only(known, posterior):
    values = np.asarray(known.sequences.rows(0, known.sequences.length).values)
    right = quantiles(residuals(posterior.model, posterior.centre, open_data(values)))
    inside = (right.found >= right.lower) & (right.found <= right.upper)
    assert inside.mean() > 0.8
    wrong = quantiles(residuals(posterior.model, posterior.centre, open_data(2.0 * values)))
    assert ((wrong.found >= wrong.lower) & (wrong.found <= wrong.upper)).mean() < 0.5
    assert (np.diff(right.expected) > 0).all()
