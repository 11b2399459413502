"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    caltech101="problems.data.sets:caltech101",
    mnist="problems.data.sets:mnist",
)
