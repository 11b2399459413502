"""Problems of the literature, plugged into rmopt: data, evaluation, and one package per family."""

import rmopt.renamed  # noqa: F401 (finds modules by the names that they had)
