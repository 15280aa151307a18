"""Why the default sampler averages its noise: the distribution of a rarely seen transition, by step size.

The target is log x with x exponential, as the logarithm of the probability of a transition that was never seen. Prints
the Kolmogorov distance of x from its distribution for matched Euler steps and for averaged noise.
"""

import numpy as np

CHAINS, STEPS = 4000, 4000


def distance(step: float, averaged: bool, seed: int = 0) -> float:
    """Largest difference between the empirical and the exact distribution function of x."""
    rng = np.random.default_rng(seed)
    z = np.log(rng.exponential(size=CHAINS))
    noise = rng.normal(size=CHAINS)
    kept = []
    for number in range(STEPS):
        drift = step * (1 - np.exp(np.minimum(z, 30)))
        fresh = rng.normal(size=CHAINS)
        if averaged:
            z = z + drift + np.sqrt(2 * step) * (noise + fresh) / 2
        else:
            z = z + drift + np.sqrt(2 * step - step**2) * fresh
        noise = fresh
        if number > STEPS // 2 and number % 20 == 0:
            kept.append(z)
    x = np.sort(np.exp(np.concatenate(kept)))
    steps = np.arange(1, len(x) + 1) / len(x)
    exact = 1 - np.exp(-x)
    return float(np.max(np.maximum(np.abs(steps - exact), np.abs(steps - 1 / len(x) - exact))))


if __name__ == "__main__":
    print(f"{'h':>5} {'matched Euler':>14} {'averaged noise':>15}")
    for h in (0.05, 0.1, 0.2, 0.3):
        print(f"{h:>5} {distance(h, False):>14.4f} {distance(h, True):>15.4f}")
