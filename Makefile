# The README's two commands are `make demo` and `make test`; both set up what they need, once.
# Paths may hold spaces: everything is relative to this folder, and quoted.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup venv engine image demo test check format bench clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

setup: venv engine image ## the virtual environment, a Docker engine and the image; nothing the second time

venv: .venv/made
.venv/made: pyproject.toml
	@.ci/venv "$(PYTHON)"
	@touch .venv/made

engine: venv
	@.ci/engine

image: venv engine ## build the shared CLI tools image where it is missing or out of date
	@$(BIN)/skillexec image build --if-needed

demo: setup ## the main job, end to end
	@$(BIN)/python examples/demo.py

test: setup ## every test, on the real engine
	@$(BIN)/python -m pytest

check: venv ## format, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: venv ## put the code into the one format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## side-by-side ratios; see README, "Speed"
	@$(BIN)/python -m benchmarks

clean: ## remove the virtual environment and caches; the engine and its images stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
