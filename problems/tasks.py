"""What is now in `problems.data`: the names of version 0.1."""

from problems.data.moved import moved

__getattr__ = moved(
    __name__,
    {
        "TaskBundle": "problems.data.bundles:TaskBundle",
        "parkinsons": "problems.data.sets:parkinsons",
    },
)
