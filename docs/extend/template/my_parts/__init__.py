"""A cost, a retraction and an estimator for rmopt."""

from my_parts.estimator import SubspaceEmbedding
from my_parts.parts import CholeskyQR, Spread

__all__ = ["CholeskyQR", "Spread", "SubspaceEmbedding"]
