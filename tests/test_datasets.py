"""The installed recording is, bit for bit, the one that was published."""

import hashlib

import numpy as np
import pytest

from longhmm.datasets import Recording, nanopore
from recordings import RECORDINGS

# A checkout may have the original record beside it; the digest below stands in for it elsewhere.
ORIGINAL = RECORDINGS / "nanopore" / "current_pA.npy"
SHA256 = "781c2fbe738b16ebf71cd0c74ad8def88aa645523438433ea6c406ef9f8a948d"


@pytest.fixture(scope="module")
def record() -> Recording:
    return nanopore()


def test_every_bit_of_the_nanopore_record_survives_storage(record):
    assert record.values.dtype == np.float32
    assert record.values.shape == (499_999,)
    assert hashlib.sha256(record.values.astype("<f4").tobytes()).hexdigest() == SHA256


def test_the_levels_are_those_of_the_published_analysis(record):
    current = record.values.astype(np.float64)
    open_pore = current > 100
    assert np.median(current) == pytest.approx(136.8, abs=0.1)
    assert np.median(current[~open_pore]) == pytest.approx(48, abs=1)
    # Most time is spent with the pore open; the rest is some four hundred blockades of about 28 samples.
    assert 0.95 < open_pore.mean() < 0.99
    assert current.min() == pytest.approx(9.239184, abs=1e-6)
    assert current.max() == pytest.approx(171.30557, abs=1e-5)
    # The noise is coloured: neighbouring samples of the open pore are correlated.
    quiet = open_pore[:-1] & open_pore[1:]
    assert np.corrcoef(current[:-1][quiet], current[1:][quiet])[0, 1] == pytest.approx(0.39, abs=0.02)


def test_the_notice_and_the_units_travel_with_the_record(record):
    assert (record.rate_hz, record.unit) == (500_000.0, "pA")
    assert "National Institute of Standards and Technology" in record.licence
    assert "disclaimer of warranty" in record.licence
    assert "nanopore" in record.description


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original record is not beside this checkout")
def test_it_equals_the_original_file(record):
    np.testing.assert_array_equal(record.values, np.load(ORIGINAL, allow_pickle=False))


def test_it_is_shown_by_what_it_is_and_not_by_its_licence(record):
    assert repr(record).endswith("499,999 samples in pA at 500000 Hz)") and len(repr(record)) < 200
