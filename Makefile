# `make run` measures this machine; `make unit`, `make test` and `make test-all` check the project.
# Each sets up what it needs in $(VENV). Any Python from 3.11 will do.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ARGS ?=
# A file stays in one process, so that its tests share hosts and trained weights. Files go out in the order of conftest.py.
PARALLEL = --dist loadfile --no-loadscope-reorder

# Tests start many processes of the package: where Python may not keep compiled modules, each compiles them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run unit test test-all mutations lint audit environments bench clean

run: $(VENV)/.runs
	$(BIN)/trainscale run examples/this_machine.toml $(ARGS)

# Runs what needs no framework, no other host, no browser, no installed environment and no process of its own.
# NumPy uses one thread: where each of the parallel processes uses all cores, its threads mostly wait for each other.
unit: export OPENBLAS_NUM_THREADS = 1
unit: $(VENV)/.unit
	$(BIN)/python -m pytest $(PARALLEL) -n 2 -m "not (processes or framework or hosts or browser or installs or slow)" $(ARGS)

# Four processes suit two cores, because many tests wait for ssh, Slurm or a time limit.
test: $(VENV)/.tests lint environments
	$(BIN)/python -m pytest $(PARALLEL) -n 4 -m "not slow and not alone" $(ARGS)
	$(BIN)/python -m pytest -m "alone and not slow" $(ARGS) || [ $$? = 5 ]  # 5: ARGS selected none of them

# Measures coverage, also of the processes that tests start. That slows each of them down. Every rank is a process of its
# own interpreter here; make test forks the ranks of some tests from a process that has imported the framework.
test-all: $(VENV)/.tests $(VENV)/.exporters lint environments
	TRAINSCALE_TESTS_FORK=0 TRAINSCALE_FUZZ_EXAMPLES=1000 $(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

# Plants each mistake of tests/mutations in a copy of the sources and demands that the command notices it. Takes half an hour on two cores.
mutations: $(VENV)/.tests environments
	$(BIN)/python tests/mutations/run_mutations.py --jobs 2 $(ARGS)

lint: $(VENV)/.tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Looks for known weaknesses of our code, of the installed packages and of workflow files; says what it cannot check.
audit: $(VENV)/.audit
	$(BIN)/python tests/audit.py

# Creates the environments in the user's data and cache directories once (about 3.8 GB); later runs only check them.
environments: $(VENV)/.tests
	$(BIN)/trainscale env create main mxnet
	$(BIN)/python tests/support/ray_environment.py

bench: $(VENV)/.runs
	$(BIN)/python bench/overhead.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .coverage*

$(VENV)/.runs: pyproject.toml requirements/torch.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -r requirements/torch.txt
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/.unit: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $@

# The programs that `trainscale export` feeds take two minutes to install, and only slow tests need them.
$(VENV)/.exporters: $(VENV)/.tests
	$(BIN)/pip install --quiet -e '.[dev-exporters]'
	touch $@

$(VENV)/.audit: $(VENV)/.tests
	$(BIN)/pip install --quiet -e '.[audit]'
	touch $@

$(VENV)/.tests: $(VENV)/.runs tests/needs.sh
	$(BIN)/pip install --quiet -e '.[dev]'
	tests/needs.sh
	touch $@
