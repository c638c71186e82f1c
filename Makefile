# Everything runs on the installed wheel, from a virtual environment made on first use.
# Needs: make, gcc, g++, Python 3.11 or newer with its headers and its venv module.
# Another place or another Python: make test VENV=/tmp/v PYTHON=python3.13

PYTHON ?= python3
VENV ?= .venv

# -P: the checkout must not hide the installed package (its kernels aren't compiled in place).
RUN := $(VENV)/bin/python -P
PIP := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check

GENERATED := -name '*.so' -o -name '*.c' -o -name '_*.cpp' -o -name '*.pxi' -o -name '_run_*.pyx'
SOURCES := pyproject.toml setup.py MANIFEST.in README.md LICENSE \
	$(shell find fastopt -type f ! -path '*/__pycache__/*' ! \( $(GENERATED) \))

HEADERS := $(filter %.h %.hpp,$(SOURCES))
# Included once for each type, by headers that define which.
TEMPLATES := fastopt/_kernels/lookup_bags.h fastopt/_kernels/row_products.h

.PHONY: help demo test bench lint lint-c build clean
help:
	@echo "make demo   train a wide-and-deep model on the Census Income data"
	@echo "make test   run all tests, with coverage"
	@echo "make bench  measure speed against peers; first see CONTRIBUTING.md about PyTorch"
	@echo "make lint   check style and types"
	@echo "make build  build the wheel into dist/"
	@echo "make clean  remove everything that was built, and $(VENV)"

demo: $(VENV)/installed
	$(RUN) -m fastopt $(ARGS)

# For a part: make test ARGS="tests/test_threads.py --no-cov"
test: $(VENV)/installed-test
	$(RUN) -m pytest --cov=fastopt $(ARGS)

# Two minutes: make bench ARGS=--quick. A part: make bench ARGS="sparse/adagrad --threads 1"
bench: $(VENV)/installed-bench
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(RUN) bench $(ARGS)

lint: lint-c $(VENV)/installed-lint
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	PATH="$(abspath $(VENV))/bin:$$PATH" cython-lint $(filter %.pyx %.pxd,$(SOURCES))
	$(RUN) -m mypy

# Each header compiles alone: none leans on what others happen to include before it.
lint-c: CHECK := -fsyntax-only -Wall -Wextra -Werror
lint-c:
	@awk 'length > 100 { print FILENAME ":" FNR ": longer than 100"; bad = 1 } END { exit bad }' \
		$(HEADERS) $(filter %.cpp,$(SOURCES)) tests/*.cpp bench/peers/*.c
	@set -e; for header in $(filter %.hpp,$(HEADERS)); do \
		$(CXX) $(CHECK) -std=c++17 -x c++ -include $$header /dev/null; done
	@set -e; for header in $(filter-out $(TEMPLATES) %.hpp,$(HEADERS)); do \
		$(CC) $(CHECK) -Wno-unused-function -x c -include $$header /dev/null; done

build: $(VENV)/wheel
	mkdir -p dist
	cp $(VENV)/wheels/fastopt-*.whl dist/

clean:
	rm -rf build dist fastopt.egg-info "$(VENV)"
	find fastopt -type f \( $(GENERATED) \) -delete

# setuptools would carry modules that no longer exist from an old build/lib into the wheel.
$(VENV)/wheel: $(SOURCES) $(VENV)/created
	rm -rf build/lib* build/bdist* $(VENV)/wheels
	$(PIP) wheel --no-deps --wheel-dir $(VENV)/wheels .
	@touch $@

$(VENV)/installed: $(VENV)/wheel
	$(PIP) install $(VENV)/wheels/fastopt-*.whl
	$(PIP) install --no-deps --force-reinstall $(VENV)/wheels/fastopt-*.whl
	@touch $@

$(VENV)/installed-%: $(VENV)/installed
	$(PIP) install "$$(echo $(VENV)/wheels/fastopt-*.whl)[$*]"
	@touch $@

$(VENV)/created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv "$(VENV)"
	@touch $@
