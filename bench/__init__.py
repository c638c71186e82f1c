"""The benchmark suite: fastopt beside its peers and the limits of the machine, in one run."""
