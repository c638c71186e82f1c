"""The examples in docstrings run, and no public name is without one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest

import fastopt as fo

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fo.__path__, "fastopt.")
    if not module.name.endswith("__main__") and not module.name.startswith("fastopt._kernels._")
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
PUBLIC = sorted(
    name
    for name in fo.__all__
    if inspect.isclass(getattr(fo, name)) or inspect.isfunction(getattr(fo, name))
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    told: list[str] = []
    for test in doctest.DocTestFinder().find(module, globs={"fo": fo, "np": np}):
        fo.reset_default_graph()  # names of variables are counted from the start
        runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_has_an_example(name):
    documented = getattr(fo, name)
    if inspect.isclass(documented) and issubclass(documented, BaseException):
        pytest.skip("an exception is seen where it is raised")
    text = inspect.getdoc(documented) or ""
    assert ">>> " in text
