"""`python -m loadtests.hostile`."""

from loadtests.hostile.runner import main

main()
