"""Problems of the literature, plugged into rmopt: data, evaluation, and one package per family."""
