"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    MultilabelBundle="problems.data.bundles:MultilabelBundle",
    bibtex="problems.data.sets:bibtex",
    delicious="problems.data.sets:delicious",
    digits_labels="problems.data.sets:digits_labels",
    emotions="problems.data.sets:emotions",
    enron="problems.data.sets:enron",
    scene="problems.data.sets:scene",
)
