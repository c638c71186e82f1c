"""The program that ``python -m fastopt`` runs: a wide-and-deep model, trained from a file.

It is also an example of how a model is written with fastopt: see `model` and `train`.
"""
