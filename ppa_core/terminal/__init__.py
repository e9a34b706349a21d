"""What command lines share: how results are printed, how arguments are read."""
