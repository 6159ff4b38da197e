# Every target sets up what it needs in $(VENV) first; a fresh machine needs Python (3.11 or newer) and make.
# Variables: PYTHON=python3.12 picks the interpreter, VENV=path the environment, PYTEST=... more pytest arguments.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
PYTEST ?= -n 2 --dist worksteal -q
CASES ?= 200
CONSTRAINTS := constraints.txt
UNSTABLE := .venv-unstable
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint $(CONSTRAINTS)

# The first interpreter on the PATH that runs and is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.14 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

.PHONY: help tour test lint format bench docs fuzz fuzz-hl fuzz-gradients stress site test-without-torch test-aarch64 test-python python release-check test-pyright test-interop test-helion test-inductor test-libraries test-report nightly test-gpu sanitize-gpu bench-gpu clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

tour: $(VENV)/.tour ## set up, then compile, check and time six kernels on this machine
	@$(BIN)/tilewright tour

test: $(VENV)/.test ## set up, then run the tests (PYTEST="-n 4 tests/runtime" narrows or widens)
	@$(BIN)/python -m pytest $(PYTEST)

test-without-torch: $(VENV)-without-torch/.test ## launches, front end and language in an environment that has no torch, and what hl says there
	@$(VENV)-without-torch/bin/python -m pytest $(PYTEST) tests/base tests/launch tests/frontend tests/language tests/meta/test_import.py tests/comparing tests/hl

test-aarch64: $(VENV)-aarch64/.installed ## a twentieth of launch, front end, CPU back end, hl and fuzz as Linux on Arm, emulated (EVERY=1 all, PARTS=tests/launch a part; on Debian)
	@tests/aarch64/run $(VENV)-aarch64

test-python: ## make test with another Python, in an environment of its own (PY=3.13)
	@python=$$(command -v "python$(PY)" || ls "$(CURDIR)/$(UNSTABLE)/usr/bin/python$(PY)" 2>/dev/null) \
		|| { echo "python$(PY) is not on the PATH: make test-python PY=3.13, with that Python installed, or make python PY=$(PY) first" >&2; exit 1; }; \
	$(MAKE) test VENV=.venv-python$(PY) PYTHON=$$python

python: $(VENV)/.python ## a Python that this system does not have, from Debian's unstable, for test-python and release-check (PY=3.14; nothing is installed in the system)
	@PYTHON=$(BIN)/python packaging/unstable_python $(PY) $(UNSTABLE)

release-check: $(VENV)-release/.release ## build twice and compare, install into a fresh environment of each Python that is there, run a kernel and the tour, look at licences and size (RELEASE=folder keeps all of it)
	@$(VENV)-release/bin/python packaging/release_check.py $(RELEASE)

test-pyright: $(VENV)-pyright/.pyright $(VENV)/.test ## what make test asks of mypy, asked of pyright: programs that are right, and mistakes that are found
	@$(BIN)/python -m tests.typed.checkers $(VENV)-pyright/bin/pyright

lint: $(VENV)/.lint ## ruff (rules and format) and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.lint ## let ruff rewrite imports and layout
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.tour ## measure every row of the speed table against torch, and all forms; JSON goes to benchmarks/results/
	@$(BIN)/python -m benchmarks $(BENCH)
	@$(BIN)/python -m benchmarks.forms
	@$(BIN)/python -m benchmarks.hl_defaults

docs: $(VENV)/.tour ## write docs/language.md and docs/errors.md anew from the code
	@$(BIN)/python -m tilewright.tools.docgen
	@$(BIN)/python -m tilewright.tools.gallery

site: $(VENV)-site/.site ## build the site of docs/ below build/site, beside the versions that are there; a warning is an error
	@$(VENV)-site/bin/python packaging/site/build.py build/site

fuzz: $(VENV)/.test ## run CASES random kernels on reference, CPU and interpreter (CASES=2000 FUZZ="--seed 7000")
	@$(BIN)/python -m tests.fuzz --cases $(CASES) $(FUZZ)

fuzz-hl: $(VENV)/.test ## run CASES random hl kernels under three configurations each against the tiled reference
	@$(BIN)/python -m tests.hl.fuzz --cases $(CASES) $(FUZZ)

fuzz-gradients: $(VENV)/.test ## gradients of CASES random hl kernels against autograd through the tiled reference, and of the examples at length
	@TILEWRIGHT_INTERPRET=1 $(BIN)/python -m tests.hl.gradients.fuzz --count $(CASES) --first $(or $(SEED),0)
	@$(BIN)/python -m tests.hl.gradients.at_length

stress: $(VENV)/.test ## hammer the caches at length: threads, processes that are killed, damaged files and object files
	@TILEWRIGHT_STRESS=1 $(BIN)/python -m pytest -q tests/stress tests/backends/llvm/test_objectfile.py

test-interop: $(VENV)-interop/.interop ## compile kernels with Triton's front end and run them here, and the other way round
	@$(VENV)-interop/bin/python -m pytest -q -p no:cacheprovider tests/interop

test-helion: $(VENV)-helion/.helion ## install Helion in an environment of its own and run kernels on the CPU: with Tilewright as Triton below Helion, and with Tilewright as Helion
	@$(VENV)-helion/bin/python -m tilewright.as_triton -m tests.triton_names.helion_kernels
	@$(VENV)-helion/bin/python -m tests.helion_names.against_wheel
	@$(VENV)-helion/bin/python -m tilewright.as_helion -m tests.triton_names.helion_kernels
	@$(VENV)-helion/bin/python -m tilewright.as_helion -m tests.helion_names.programs

test-inductor: $(VENV)-inductor/.inductor ## every graph of the list, then torch's database of operators through Inductor's Triton code in six types, forward and backward (an hour on two cores; goes on where it ended; OPERATORS="--every 20")
	@$(VENV)-inductor/bin/python -m tilewright.as_triton -m tests.triton_names.user_kernels
	@TILEWRIGHT_STRESS=1 $(VENV)-inductor/bin/python -m pytest -q -p no:cacheprovider tests/triton_names/test_inductor.py -k workers
	@folder=$$(mktemp -d) && $(VENV)-inductor/bin/python -m tilewright.as_triton -m tests.triton_names.exported_models $$folder && rm -rf $$folder
	@$(VENV)-inductor/bin/python -m tilewright.as_triton -m tests.triton_names.inductor
	@OMP_NUM_THREADS=1 $(VENV)-inductor/bin/python -m tests.triton_names.operator_jobs --report $(VENV)-inductor/operators.jsonl $(OPERATORS)

test-libraries: $(VENV)-libraries/.libraries ## install eight libraries of Triton kernels in an environment of their own and run functions of theirs on the CPU (LIBRARIES="--device cuda liger fla flag_gems conch": on a GPU)
	@FLAGGEMS_CACHE_DIR=$(VENV)-libraries/flaggems $(VENV)-libraries/bin/python -m tilewright.as_triton -m tests.triton_names.library_functions $(LIBRARIES)

test-report: $(VENV)/.browser ## look at the pages of `tilewright report` in Chromium (on Debian: apt install chromium chromium-driver)
	@$(BIN)/python -m pytest -q -p no:cacheprovider -m browser tests/tools/report

nightly: ## what continuous integration runs once a night: Inductor with torch's whole database of operators, libraries, Helion, TTIR exchanged with Triton, reports in Chromium, stress, random kernels
	@.ci/nightly

test-gpu: $(VENV)/.gpu ## run the tests that need an NVIDIA GPU (PYTEST="-n 8 -q" for more processes)
	@$(BIN)/python -m pytest -m gpu $(PYTEST)

sanitize-gpu: $(VENV)/.gpu ## the corpus, every name of the language and more under compute-sanitizer (memory, then races in shared memory)
	@for tool in memcheck racecheck; do \
		compute-sanitizer --tool $$tool --error-exitcode 9 $(BIN)/python -m pytest -q -m sanitize tests/gpu || exit; done

bench-gpu: $(VENV)/.gpu ## race against Triton and torch on an NVIDIA GPU (HELION=folder: and Helion; libraries of kernels where they are installed); JSON goes to benchmarks/results/
	@$(BIN)/python -m benchmarks.gpu $(BENCH)
	@$(BIN)/python -m benchmarks.sustained
	@$(BIN)/python -m benchmarks.pointers_gpu
	@$(BIN)/python -m benchmarks.operands_gpu
	@$(BIN)/python -m benchmarks.forms --cuda --triton
	@$(BIN)/python -m benchmarks.hl_gpu $(if $(HELION),--helion $(HELION))
	@$(BIN)/python -m benchmarks.hl_defaults --device cuda
	@$(BIN)/python -m benchmarks.hl_gradients --device cuda
	@$(BIN)/python -m benchmarks.inductor_gpu
	@$(BIN)/python -m benchmarks.libraries_gpu

clean: ## remove the environment and every cache in this folder
	rm -rf $(VENV) $(VENV)-without-torch $(VENV)-aarch64 $(VENV)-release .venv-python* $(UNSTABLE) $(VENV)-pyright $(VENV)-site $(VENV)-interop $(VENV)-helion $(VENV)-inductor $(VENV)-libraries .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- environments: a stamp file per set of packages, made anew when the requirements change ---

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "Tilewright needs Python 3.11 or newer on the PATH, or make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "The venv module is missing (on Debian: apt install python3-venv)" >&2; exit 1; }
	@touch $@

$(VENV)/.tour: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright and PyTorch into $(VENV)"
	@$(INSTALL) --editable '.[torch]'
	@touch $@

$(VENV)/.test: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright, PyTorch and the test tools into $(VENV)"
	@$(INSTALL) --editable '.[torch,test]'
	@touch $@

$(VENV)-without-torch/.test: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright and the test tools, without PyTorch, into $(VENV)-without-torch"
	@$(BIN)/python -m venv $(VENV)-without-torch
	@$(VENV)-without-torch/bin/python -m pip install --disable-pip-version-check --quiet --constraint $(CONSTRAINTS) --editable '.[test]'
	@touch $@

# Debian's Python and wheels for the other machine; nothing is installed in the system.
$(VENV)-aarch64/.installed: tests/aarch64/install $(VENV)/.python pyproject.toml
	@echo "Unpacking QEMU, and Python and packages for Arm, into $(VENV)-aarch64"
	@PYTHON=$(BIN)/python tests/aarch64/install $(VENV)-aarch64
	@touch $@

$(VENV)-release/.release: packaging/requirements-release.txt $(VENV)/.python
	@echo "Installing the tools that build and check a release into $(VENV)-release"
	@$(BIN)/python -m venv $(VENV)-release
	@$(VENV)-release/bin/python -m pip install --disable-pip-version-check --quiet --requirement packaging/requirements-release.txt
	@touch $@

# The extra brings the program that runs it.
$(VENV)-pyright/.pyright: $(VENV)/.python
	@echo "Installing pyright 1.1.414 into $(VENV)-pyright"
	@$(BIN)/python -m venv $(VENV)-pyright
	@$(VENV)-pyright/bin/python -m pip install --disable-pip-version-check --quiet 'pyright[nodejs]==1.1.414'
	@touch $@

$(VENV)-site/.site: $(VENV)/.python
	@echo "Installing Sphinx into $(VENV)-site"
	@$(BIN)/python -m venv $(VENV)-site
	@$(VENV)-site/bin/python -m pip install --disable-pip-version-check --quiet sphinx==9.0.4 myst-parser==5.2.0 pydata-sphinx-theme==0.24.0
	@touch $@

$(VENV)/.lint: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright and the lint tools into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

# The torch that PyPI serves for this system has CUDA and brings Triton.
$(VENV)/.gpu: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright with CUDA, PyTorch and the test tools into $(VENV)"
	@$(INSTALL) --editable '.[torch,test,cuda]'
	@touch $@

$(VENV)/.browser: $(VENV)/.test
	@echo "Installing selenium into $(VENV)"
	@$(INSTALL) --editable '.[torch,test,browser]'
	@touch $@

# Triton is in an environment of its own: nothing else may come to need it.
$(VENV)-interop/.interop: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright and Triton 3.9.0 into $(VENV)-interop"
	@$(BIN)/python -m venv $(VENV)-interop
	@$(VENV)-interop/bin/python -m pip install --disable-pip-version-check --quiet --editable '.[test]' triton==3.9.0
	@touch $@

# Helion too: what is tested is that it runs as it is. It imports `packaging` without asking for it.
$(VENV)-helion/.helion: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright, PyTorch and Helion 1.5.1 into $(VENV)-helion"
	@$(BIN)/python -m venv $(VENV)-helion
	@$(VENV)-helion/bin/python -m pip install --disable-pip-version-check --quiet --constraint $(CONSTRAINTS) --editable '.[torch]' helion==1.5.1 packaging
	@touch $@

# What torch's own tests need beside torch.
$(VENV)-inductor/.inductor: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright and PyTorch into $(VENV)-inductor"
	@$(BIN)/python -m venv $(VENV)-inductor
	@$(VENV)-inductor/bin/python -m pip install --disable-pip-version-check --quiet --constraint $(CONSTRAINTS) --editable '.[torch,test]' expecttest
	@touch $@

# Libraries as they are installed, without what they would bring: Triton, and models that need a GPU.
$(VENV)-libraries/.libraries: $(VENV)/.python pyproject.toml $(CONSTRAINTS)
	@echo "Installing Tilewright, PyTorch and eight libraries of Triton kernels into $(VENV)-libraries"
	@$(BIN)/python -m venv $(VENV)-libraries
	@$(VENV)-libraries/bin/python -m pip install --disable-pip-version-check --quiet --constraint $(CONSTRAINTS) --editable '.[torch]' packaging einops pyyaml sqlalchemy
	@$(VENV)-libraries/bin/python -m pip install --disable-pip-version-check --quiet --no-deps liger-kernel==0.8.5 flash-linear-attention==0.6.0 fla-core==0.6.0 flag-gems==5.0.2 \
		conch-triton-kernels==1.3 bitsandbytes==0.50.2 torchao==0.18.0 xformers==0.0.35 unsloth==2026.10.9
	@touch $@
