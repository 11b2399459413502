"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    TagBundle="problems.data.bundles:TagBundle",
    numbered="problems.data.tags:numbered",
    post_core="problems.data.tags:post_core",
    ml10m_tags="problems.data.sets:ml10m_tags",
    toy_tags="problems.data.sets:toy_tags",
)
