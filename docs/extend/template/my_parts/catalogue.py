"""Small problems, on which rmopt measures the properties of the parts."""

import numpy as np

from my_parts.parts import CholeskyQR, Spread
from rmopt import Problem
from rmopt.checks.catalogue import Instance
from rmopt.manifolds import Grassmann


def instances():
    """Return a manifold with the retractions and problems that belong to it."""
    manifold = Grassmann(7, 2)
    problem = Problem(manifold, Spread(np.random.default_rng(0).standard_normal((20, 7))))
    return [Instance("my-parts", manifold, [CholeskyQR()], {"spread": problem})]
