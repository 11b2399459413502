"""``python -m rmopt.cli`` is the command ``rmopt``."""

from rmopt.cli import main

main()
