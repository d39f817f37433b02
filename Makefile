# Skein's few commands. Each does everything it needs: packages, configuration, build.
#
#   make demo    every strategy on three emulated bad clusters: tables, advice and a report, in three to four minutes
#   make install PREFIX=DIR  the program and the library, without tests and benchmarks; /usr/local unless given
#   make test    every test; make test-torch: those that touch LibTorch
#   make test-gpu  those that need a GPU, with what the machine has: nothing is installed (tests/gpu/run.sh)
#   make bench   the benchmarks, as ratios measured side by side, and docs/benchmarks.md from them; ONLY=NAME,NAME
#   make papers  what the papers claim, on the virtual cluster with a small model, and docs/papers.md from it: within an hour
#                SCALE=cifar DATA=cifar10:DIR: the same on CIFAR-10; SCALE=resnet DATA=cifar10:DIR: a narrow ResNet-18 there;
#                SCALE=full DATA=cifar10:DIR [SKEIN=FILE]: ResNet-18 itself, on a GPU
#   make fuzz    what reads what arrives from outside, given any bytes, for FUZZ_SECONDS each
#   make soak    many more random clusters with random faults than the tests have time for
#   make lint    formatting, static checks and the reference's
#   make deb     Debian packages of the program and of the library, in build-deb/, installed and tried in a root of their own
#   make reference  the reference of include/skein as HTML, in build/reference; no comment, no reference
#   make site    the documentation as HTML, in build/site; links are checked
#   make sanitize  the torch-free tests under ASan and UBSan (make asan) and under TSan (make tsan);
#                PART=unit, conformance or sim: that part of them
#
# Each takes TORCH=, which says whose LibTorch to use, and has a build folder for each:
#   TORCH=debian  Debian's package libtorch-dev, in build/ (this is the default)
#   TORCH=pip     PyTorch's own, from pip, in a virtual environment of ours; in build-pip/
#   TORCH=DIR     the LibTorch in DIR, which may be a virtual environment; in build-NAME-NUMBER/

SHELL := /bin/bash
TORCH ?= debian
PACKAGES := g++ cmake ninja-build pkg-config python3 \
  libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev \
  libeigen3-dev libpng-dev libjpeg-dev libssl-dev libgtest-dev \
  libopenmpi-dev openmpi-bin libcpp-httplib-dev libjs-chart.js
TEST_PACKAGES := mpich libmpich-dev chromium
BENCH_PACKAGES := libgloo-dev iproute2
SLURM_PACKAGES := slurm-wlm munge iproute2
FUZZ_PACKAGES := clang-14 libclang-rt-14-dev
LINT_PACKAGES := clang-format clang-tidy
REFERENCE_PACKAGES := doxygen
SITE_PACKAGES := mkdocs mkdocs-material
DEB_PACKAGES := dpkg-dev fakeroot lintian

.PHONY: setup setup-tests setup-ccache setup-slurm setup-torch configure build install demo test test-torch test-gpu bench papers fuzz soak lint format reference site deb sanitize asan tsan clean
.NOTPARALLEL:

# Installs what is missing, quietly; nothing when all is there.
define install
	@missing=$$(for p in $(1); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'install ok' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "installing: $$missing"; sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; log=$$(mktemp); \
	  { $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing; } >"$$log" 2>&1 \
	    || { tail -n 5 "$$log"; echo "could not install: $$missing"; exit 1; }; \
	fi
endef

setup:
	$(call install,$(PACKAGES))

# What only tests need; before a build folder is made, which looks for it.
setup-tests:
	$(call install,$(TEST_PACKAGES))

# Spares the second build of what several build folders have in common; CMake looks for it.
setup-ccache:
	$(call install,ccache)

# For the tests that start a Slurm cluster of their own; without it they are skipped.
setup-slurm:
	$(call install,$(SLURM_PACKAGES))

ifeq ($(TORCH),debian)

BUILD := build
CONFIGURE := cmake --preset release
setup-torch: setup
	$(call install,libtorch-dev libopenblas0-pthread)

else ifeq ($(TORCH),pip)

BUILD := build-pip
CONFIGURE := cmake --preset release-pip
PIP_TORCH := torch==2.13.0
# PyTorch's index has builds without CUDA; where it cannot be reached, pip's own settings must do.
CPU_INDEX := https://download.pytorch.org/whl/cpu
setup-torch: setup
	$(call install,python3-venv)
	@[ -f $(BUILD)/torch/share/cmake/Torch/TorchConfig.cmake ] || { \
	  echo "installing $(PIP_TORCH) in $(BUILD)/venv: takes a minute or two"; mkdir -p $(BUILD); \
	  python3 -c 'import urllib.request; urllib.request.urlopen("$(CPU_INDEX)/torch/", timeout=10)' 2>/dev/null \
	    && index="--extra-index-url $(CPU_INDEX)"; \
	  { rm -rf $(BUILD)/venv && python3 -m venv $(BUILD)/venv && $(BUILD)/venv/bin/pip install --quiet $$index $(PIP_TORCH) safetensors; } >$(BUILD)/pip.log 2>&1 \
	    || { tail -n 5 $(BUILD)/pip.log; echo "could not install $(PIP_TORCH) in $(BUILD)/venv"; exit 1; }; \
	  ln -sfn $$(cd $(BUILD) && echo venv/lib/python3*/site-packages/torch) $(BUILD)/torch; \
	}

else

# A virtual environment holds LibTorch in a package of its Python.
TORCH_DIR := $(firstword $(foreach d,$(TORCH) $(wildcard $(TORCH)/lib/python3*/site-packages/torch),\
  $(if $(wildcard $(d)/share/cmake/Torch/TorchConfig.cmake),$(abspath $(d)))))
BUILD := build-$(notdir $(abspath $(TORCH)))-$(shell echo '$(abspath $(TORCH))' | cksum | cut -d ' ' -f 1)
CONFIGURE := cmake --preset release -B $(BUILD) -DCMAKE_PREFIX_PATH=$(TORCH_DIR)
setup-torch: setup
	@[ -n "$(TORCH_DIR)" ] || { \
	  echo "TORCH=$(TORCH): expected debian, pip, or a folder with share/cmake/Torch/TorchConfig.cmake in it (or a virtual environment with torch)"; exit 1; }

endif

configure: setup-torch
	@[ -f $(BUILD)/build.ninja ] || { echo "configuring $(BUILD)/"; mkdir -p $(BUILD); \
	  $(CONFIGURE) >$(BUILD)/configure.log 2>&1 || { tail -n 30 $(BUILD)/configure.log; rm -f $(BUILD)/CMakeCache.txt; exit 1; }; }

build: configure
	@cmake --build $(BUILD)

PREFIX ?= /usr/local
install: configure
	@cmake --build $(BUILD) --target skein
	@cmake --install $(BUILD) --prefix $(PREFIX) >$(BUILD)/install.log 2>&1 || { tail -n 5 $(BUILD)/install.log; exit 1; }
	@echo "installed in $(PREFIX)"

demo: configure
	@echo "building $(BUILD)/skein"
	@cmake --build $(BUILD) --target skein
	@examples/demo/run.sh $(BUILD)/skein out/demo

# Says why what was skipped was.
skipped = grep -h -A 1 ': Skipped$$' $(BUILD)/Testing/Temporary/LastTest*.log || true

test: setup-tests build
	@ctest --test-dir $(BUILD) --output-on-failure -j 4; status=$$?; $(skipped); exit $$status
	@tests/fuzz/run.sh 5

# How workers are started, talk, end and come back is the same with every LibTorch, and so are options. One example shows that
# the package works; make test builds them all.
WITHOUT_TORCH := 'Gossip(Training|OverTcp)|RestartsTrain|RunFolder|HostsCommand|RealSsh|Namespaces|CommandLine|Certificates|TcpTrain|MpiTrain|Topology|TrainOptions|Bench|Marks|^Stop[.]|^Slurm[.]|OpenMpi|Hydra|^Run[.]|^Simulate[.]|^Page'

test-torch: configure
	@cmake --build $(BUILD) --target skein torch_tests torch_worker_tests multiproc_tests example_tests launcher_tests
	@GTEST_FILTER=-Examples.PrintWhatTheirReadmeShows \
	  ctest --test-dir $(BUILD) --output-on-failure -j 4 -L 'torch|multiproc|example|launchers' -E $(WITHOUT_TORCH)

test-gpu:
	@tests/gpu/run.sh

# ONLY=NAME,NAME runs some; bench/all.py has the names. PyTorch's own is beside Skein in some of them.
bench: setup-torch
	$(call install,$(BENCH_PACKAGES))
	@mkdir -p $(BUILD) && $(CONFIGURE) >$(BUILD)/configure.log 2>&1 || { tail -n 30 $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD)
	@$(MAKE) --no-print-directory TORCH=pip configure && cmake --build build-pip --target skein
	@build-pip/venv/bin/python -c 'import numpy' 2>/dev/null || build-pip/venv/bin/pip install --quiet numpy  # PyTorch's PowerSGD
	@python3 bench/all.py $(if $(ONLY),--only $(ONLY))

# Runs are kept in out/papers: what was ended goes on. SKEIN=FILE takes a program that is there and builds nothing.
SCALE ?= small
STUDY = --scale $(SCALE) $(if $(DATA),--data $(DATA)) $(if $(MINUTES),--minutes $(MINUTES))
papers: $(if $(SKEIN),,configure)
	$(if $(SKEIN),,@cmake --build $(BUILD) --target skein)
	@for study in acid abs $(if $(filter resnet,$(SCALE)),,lasgd); do python3 bench/papers/$$study.py $(or $(SKEIN),$(BUILD)/skein) $(STUDY) || exit 1; done
	@$(if $(filter small,$(SCALE)),python3 bench/papers/dear.py $(or $(SKEIN),$(BUILD)/skein) --parts simulated)

SEEDS := 1001..50000
FUZZ_SECONDS := 60
fuzz: setup
	@tests/fuzz/run.sh $(FUZZ_SECONDS)

soak: build
	$(call install,$(FUZZ_PACKAGES))
	@tests/fuzz/run.sh 900
	@$(BUILD)/skein simulate --swarm $(SEEDS)

FORMATTED := git ls-files 'include/*.h' 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.h' 'bench/*.cpp' 'examples/*.cpp'

lint: setup reference
	$(call install,$(LINT_PACKAGES))
	@$(FORMATTED) | xargs clang-format --dry-run -Werror
	@cmake --preset lint >/dev/null
	@sed -n 's/^ *"file": "\(.*\)",*$$/\1/p' build-lint/compile_commands.json | xargs -P "$$(nproc)" -n 4 clang-tidy -p build-lint --quiet

format:
	$(call install,clang-format)
	@$(FORMATTED) | xargs clang-format -i

REFERENCE := build/reference
reference:
	$(call install,$(REFERENCE_PACKAGES))
	@mkdir -p $(REFERENCE)
	@SKEIN_REFERENCE=$(REFERENCE) SKEIN_VERSION=$$(awk '/define SKEIN_VERSION_(MAJOR|MINOR|PATCH)/ {v = v s $$3; s = "."} END {print v}' include/skein/version.h) \
	  doxygen site/reference/Doxyfile
	@echo "$(REFERENCE)/html/index.html"

# Links are checked, and what `nav` of site/mkdocs.yml does not have is an error.
site: reference
	$(call install,$(SITE_PACKAGES))
	@/usr/bin/mkdocs build --clean --config-file site/mkdocs.yml >build/site.log 2>&1 || { grep -v INFO build/site.log; exit 1; }
	@echo "build/site/index.html"

# With Debian's LibTorch, whatever TORCH says.
deb: setup
	$(call install,libtorch-dev $(DEB_PACKAGES))
	@cmake --preset deb $(DEB_FLAGS) >/dev/null && cmake --build build-deb
	@cd build-deb && rm -f *.deb && cpack -G DEB >cpack.log || { cat cpack.log; exit 1; }
	@lintian --allow-root --fail-on error,warning build-deb/*.deb
	@tests/package/test.sh build-deb
	@ls -s -h build-deb/*.deb

sanitize: asan tsan

asan tsan: setup
	@cmake --preset $@ >/dev/null && cmake --build --preset $@ $(if $(PART),--target $(PART)_tests) \
	  && ctest --test-dir build-$@ --output-on-failure -j 4 $(if $(PART),-L $(PART))

clean:
	rm -rf build build-* out
