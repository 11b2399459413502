"""Logarithms of frames with the Euclidean metric, for most of which no closed form is known."""

from collections.abc import Callable

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import MissingCapabilityError
from rmopt.linalg import rotation_log
from rmopt.precision import coarseness

# Shots: ten for near points, up to eighty at 0.95 π. Beyond, some pairs have none that come nearer.
MAX_STEPS = 500
# Where along a geodesic what it misses is carried back to its start, as parts of its length.
STAGES = np.array([1.0, 2.0 / 3.0, 1.0 / 3.0])[:, None, None]

Move = Callable[[Array, Array], Array]


def log(X: Array, Y: Array, exp: Move, projection: Move) -> Array:
    """Return the initial velocity of a geodesic from X to Y, by shots (Bryner 2017; Zimmermann and Hüper 2022).

    Single columns and square matrices have closed forms, at all distances. Otherwise each geodesic ends beside Y;
    what is missing is carried back along it, by projections that keep its length, and added to the velocity. All of
    that is in the space of X and Y, so a shot costs O(p³). `exp` and `projection` are those of frames with p columns,
    and as many rows as X and Y span dimensions or more; `exp` of several at once.
    """
    p = X.shape[1]
    M = X.T @ Y
    Q = np.linalg.qr(np.hstack([X, Y - X @ M]))[0][:, p:]
    if not Q.size:
        if np.linalg.det(M) < 0.0:
            raise MissingCapabilityError(
                "there is no geodesic between square frames with determinants of different signs; turn one column."
            )
        # Rotations: their geodesics are those of the group.
        return X @ rotation_log(M)
    goal = np.vstack([M, Q.T @ Y])
    if p == 1 and Q.size:
        # A great circle.
        return Q * np.arctan2(goal[1], goal[0])
    start = np.eye(*goal.shape, dtype=goal.dtype)
    velocity = projection(start, goal - start)
    velocity *= np.linalg.norm(goal - start) / max(float(np.linalg.norm(velocity)), 1e-30)
    enough = 3e-14 * coarseness(goal) * p**0.5
    starts, stages = np.broadcast_to(start, (len(STAGES), *start.shape)), STAGES.astype(goal.dtype)
    for _ in range(MAX_STEPS):
        places = exp(starts, velocity * stages)
        missing = goal - places[0]
        gap = float(np.linalg.norm(missing))
        for place in (*places, start):
            missing = projection(place, missing)
            carried = float(np.linalg.norm(missing))
            missing *= gap / max(carried, 1e-30)
        velocity = velocity + missing
        if gap <= enough:
            return X @ velocity[:p] + Q @ velocity[p:]
    raise MissingCapabilityError(
        f"no geodesic was found between two frames in {MAX_STEPS} shots: they are about π or more apart. Use a "
        "solver that needs no logarithm, or points that are closer."
    )
