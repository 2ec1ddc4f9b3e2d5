# SPDX-License-Identifier: Apache-2.0
# The commands of everyday work. CMake and the presets do the rest (CMakePresets.json).
# On Debian each target first installs the packages that it misses (scripts/packages.txt).

.DEFAULT_GOAL := help
.PHONY: help build package demo test test-one torch wheels torchtest slowtest cudatest cudacheck cudabench bench asan tsan fuzz format lint \
        clean

JOBS ?= $(shell nproc)
# EPILOGUE_CUDA for `make test`. The CUDA targets turn it on in the same folder: what differs is the
# backend and the profiler's tracer, all other objects serve both.
CUDA ?= AUTO
# What ninja's line says: steps done, steps in all, seconds.
export NINJA_STATUS ?= [%f/%t, %e s]$() $()
INSTALL := @sh scripts/install_packages.sh
CONFIGURE := @sh scripts/configure.sh
RUN_TESTS := @sh scripts/run_tests.sh
ifneq ($(shell command -v ccache),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
endif

# The Python tests run in an environment of their own, where one can be made (docs/python.md).
PYTHON_PACKAGES := duckdb mcp mypy nanoarrow nanobind numpy pandas pyarrow pytest
PYTHON_OPTIONS := $$(sh scripts/python_options.sh build $(PYTHON_PACKAGES))

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

build: ## build/epilogue, a release build
	$(INSTALL) build
	@test -f build/CMakeCache.txt || sh scripts/configure.sh release -DEPILOGUE_TESTS=OFF
	cmake --build build -j $(JOBS) --target epilogue epilogue_bench

package: ## build/packages/epilogue_VERSION_ARCH.deb, a Debian package of the command
	$(INSTALL) build package
	@test -f build/CMakeCache.txt || sh scripts/configure.sh release -DEPILOGUE_TESTS=OFF
	cmake --build build -j $(JOBS) --target epilogue_help_files
	cd build && cpack -G DEB -B packages

demo: build ## the tour, from nn.Linear to the fused MLP on Fashion-MNIST, and a short training; leaves traces/
	$(INSTALL) demo
	build/epilogue tour --out traces
	@rm -rf traces/train_eager traces/train_compile
	build/epilogue train fashion-mnist --epochs 2 --checkpoint-dir traces/train_eager
	build/epilogue train fashion-mnist --epochs 2 --mode compile --checkpoint-dir traces/train_compile

test: ## the tests, Python's too; the last line counts them
	$(INSTALL) build test demo
	@sh scripts/install_packages.sh python || true
	$(CONFIGURE) release -DEPILOGUE_TESTS=ON -DEPILOGUE_CUDA=$(CUDA) $(PYTHON_OPTIONS)
	cmake --build build -j $(JOBS)
	$(RUN_TESTS) release -LE slow

test-one: ## the tests that match T, a regular expression: make test-one T=Gelu
	@test -f build/CMakeCache.txt && grep -q 'EPILOGUE_TESTS:BOOL=ON' build/CMakeCache.txt || \
	  sh scripts/configure.sh release -DEPILOGUE_TESTS=ON -DEPILOGUE_CUDA=$(CUDA)
	@JOBS=$(JOBS) python3 scripts/test_one.py '$(T)'

wheels: ## build/wheels: wheels of command, package and ops for other machines; tries them on other releases, where it is root
	$(INSTALL) build wheels
	@sh scripts/wheels.sh
	@python3 tests/install/wheels_test.py build/wheels build/roots || test $$? -eq 77

torch: ## epilogue with the ops of epilogue.torch, in an environment of its own (build/torch/environment, 6 GB)
	$(INSTALL) build
	@sh scripts/torch_environment.sh
	build/torch/environment/bin/pip install --disable-pip-version-check ".[torch]"

torchtest: ## the tests of epilogue.torch, in an environment with torch and transformers (6 GB) under build/torch
	$(INSTALL) build test
	@test -f build/CMakeCache.txt || sh scripts/configure.sh release -DEPILOGUE_TESTS=OFF
	cmake --build build -j $(JOBS) --target epilogue_shared
	sh scripts/torch_tests.sh

slowtest: ## what `make test` leaves out: the trace half built and installed by itself
	$(INSTALL) build test
	$(CONFIGURE) release -DEPILOGUE_TESTS=ON
	cmake --build build -j $(JOBS)
	$(RUN_TESTS) release -L slow

cudatest: ## the CUDA backend's tests; needs a toolkit, without a device most of them skip
	$(INSTALL) build test
	$(CONFIGURE) release -DEPILOGUE_TESTS=ON -DEPILOGUE_CUDA=ON
	cmake --build build -j $(JOBS) --target epilogue epilogue_bench cuda_tests
	$(RUN_TESTS) release -L cuda -LE slow

cudacheck: ## the CUDA tests under compute-sanitizer (memcheck, racecheck); needs a device
	@bash scripts/compute_sanitizer.sh build

cudabench: ## the CUDA benchmark, beside PyTorch where python3 has it; needs a device; under 8 minutes
	$(INSTALL) build
	$(CONFIGURE) release -DEPILOGUE_BENCH=ON -DEPILOGUE_CUDA=ON
	cmake --build build -j $(JOBS) --target epilogue cuda_bench
	python3 bench/cuda_bench.py build/bench/cuda_bench

bench: ## the benchmarks, beside named peers
	$(INSTALL) build test bench
	$(CONFIGURE) release -DEPILOGUE_BENCH=ON
	cmake --build build -j $(JOBS)
	@bash bench/run.sh build

asan: ## the tests under AddressSanitizer and UBSan
	$(INSTALL) build test demo
	$(CONFIGURE) asan-ubsan
	cmake --build build-asan-ubsan -j $(JOBS)
	$(RUN_TESTS) asan-ubsan

tsan: ## the tests under ThreadSanitizer
	$(INSTALL) build test demo
	$(CONFIGURE) tsan
	cmake --build build-tsan -j $(JOBS)
	$(RUN_TESTS) tsan

FUZZ_SECONDS ?= 60

fuzz: ## the fuzzers, FUZZ_SECONDS each; new inputs stay in build-fuzz
	$(INSTALL) build test fuzz
	$(CONFIGURE) fuzz
	cmake --build build-fuzz -j $(JOBS) --target trace_reader_fuzz explain_fuzz kernel_name_fuzz safetensors_fuzz \
	  memory_snapshot_fuzz perfetto_fuzz
	@sh scripts/fuzz.sh build-fuzz $(FUZZ_SECONDS)

format: ## format the C++ sources in place
	$(INSTALL) format
	git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r clang-format -i

lint: ## formatting, include layers, file sizes, clang-tidy
	$(INSTALL) build test lint
	$(CONFIGURE) lint
	@sh scripts/lint.sh

clean: ## remove the build folders and traces/
	rm -rf build build-* traces
