"""What is now in `problems.data`: the names of version 0.1."""

from problems.data.moved import moved

__getattr__ = moved(
    __name__,
    {
        "caltech101": "problems.data.sets:caltech101",
        "mnist": "problems.data.sets:mnist",
    },
)
