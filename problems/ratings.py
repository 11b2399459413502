"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    Ratings="problems.data.bundles:Ratings",
    ml1m="problems.data.sets:ml1m",
    ml100k="problems.data.sets:ml100k",
    picture="problems.data.sets:picture",
)
