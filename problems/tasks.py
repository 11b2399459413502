"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    TaskBundle="problems.data.bundles:TaskBundle",
    parkinsons="problems.data.sets:parkinsons",
)
