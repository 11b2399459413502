"""What is now in `problems.data`: the names of version 0.1."""

from rmopt.renamed import former_names

__getattr__ = former_names(
    __name__,
    informative_unit_rows="problems.data.text:informative_unit_rows",
    information_gain="problems.data.text:information_gain",
    prepare_text="problems.data.text:prepare_text",
    select_terms="problems.data.text:select_terms",
    tfidf="problems.data.text:tfidf",
)
