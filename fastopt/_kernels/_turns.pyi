# What the other kernels call; nothing for Python.
