"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    Bundle="problems.data.bundles:ClassBundle",
    data_folder="problems.data.registry:data_folder",
    load="problems.data.registry:load",
    digits="problems.data.sets:digits",
    news20="problems.data.sets:news20",
    news20_full="problems.data.sets:news20_full",
)
