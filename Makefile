# Skein's few commands. Each does everything it needs: packages, configuration, build.
#
#   make demo    train on an emulated bad cluster and print a table
#   make test    every test
#   make bench   every benchmark, as ratios measured side by side
#   make soak    many more random clusters with random faults than the tests have time for
#   make lint    formatting and static checks
#   make sanitize  the torch-free tests under ASan, UBSan and TSan

SHELL := /bin/bash
PACKAGES := g++ cmake ninja-build pkg-config python3 \
  libtorch-dev libopenblas0-pthread libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev \
  libeigen3-dev libpng-dev libjpeg-dev libgtest-dev
BENCH_PACKAGES := libgloo-dev libopenmpi-dev openmpi-bin
LINT_PACKAGES := clang-format clang-tidy

.PHONY: setup build demo test bench soak lint format sanitize clean

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

build: setup
	@[ -f build/build.ninja ] || cmake --preset release >/dev/null
	@cmake --build build

demo: build
	@python3 examples/demo/demo.py build/skein out/demo

test: build
	@ctest --test-dir build --output-on-failure -j 2

bench: setup
	$(call install,$(BENCH_PACKAGES))
	@cmake --preset release >/dev/null && cmake --build build
	@for program in build/bench/bench_*; do echo "== $$(basename $$program)"; $$program || exit 1; echo; done
	@for script in bench/dear.py bench/virtual_cluster.py bench/predict.py; do echo "== $$(basename $$script)"; python3 $$script build/skein || exit 1; echo; done

SEEDS := 1001..50000
soak: build
	@build/skein simulate --swarm $(SEEDS)

lint: setup
	$(call install,$(LINT_PACKAGES))
	@git ls-files 'include/*.h' 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'examples/*.cpp' | xargs clang-format --dry-run -Werror
	@cmake --preset release -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
	@git ls-files 'src/core/*.cpp' 'src/kernels/*.cpp' 'src/fabric/*.cpp' 'src/optimize/*.cpp' 'src/schedule/*.cpp' \
	  'src/strategy/*.cpp' 'src/sim/*.cpp' 'src/runtime/*.cpp' 'src/observe/*.cpp' 'src/launch/*.cpp' | xargs -P 2 -n 4 clang-tidy -p build --quiet

format:
	@git ls-files 'include/*.h' 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'examples/*.cpp' | xargs clang-format -i

sanitize: setup
	@for preset in asan tsan; do cmake --preset $$preset >/dev/null && cmake --build --preset $$preset && \
	  ctest --test-dir build-$$preset --output-on-failure -j 2 || exit 1; done

clean:
	rm -rf build build-* out
