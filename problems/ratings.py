"""What is now in `problems.data`: the names of version 0.1."""

from problems.data.moved import moved

__getattr__ = moved(
    __name__,
    {
        "Ratings": "problems.data.bundles:Ratings",
        "ml1m": "problems.data.sets:ml1m",
        "ml100k": "problems.data.sets:ml100k",
        "picture": "problems.data.sets:picture",
    },
)
