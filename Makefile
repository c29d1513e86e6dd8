PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SOAK   := $(addprefix tests/e2e/,test_kills.py test_leader_change.py test_churn.py test_activator.py test_nominee.py test_soft_reservations.py test_rules.py test_burst.py test_late_answers.py test_holds.py test_groups.py test_preemption_by_card.py soak_silence.py)
SIMULATED_SOAK := $(addprefix tests/,$(addprefix simulation/test_,long_run.py simulation.py outages.py) agent/test_fence_allocation_order.py agent/test_tenant_oddities.py extender/test_ledger_state_machine.py extender/test_reload_under_load.py extender/test_card_preemption_trials.py extender/test_groups_at_random.py brute_force/test_whole_extender.py)
# Each core runs a part of the tests, and takes over from the others what they have not begun.
ALL_CORES := -n logical --dist worksteal
# One part more than cores, as many tests wait for programs that they have started.
ALL_CORES_AND_ONE = -n $(shell expr $$(nproc) + 1) --dist worksteal
# No test of `make test` trusts an authority of this machine, and to read all of those takes 50 ms at each start of a program.
NO_AUTHORITIES := SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/dev/null
# Of these folders every test has a mark, and a target, of its own.
OTHER_SUITES := $(addprefix --ignore=tests/,alerts driver e2e node shim machine)

# pytest rewrites 400 modules at each start unless it may keep what it made of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo first-builds-e2e first-builds-image first-builds-e2e-node first-builds-shim-test first-builds-driver-test test check format mutations alerts-test e2e smoke e2e-node shim-test driver-test recipes recipes-hpa recipes-node soak flakes bench packing packing-final plugin hook preload kmod dashboards panel-pictures ui-pictures render image release release-test release-node release-twice arm64-test clean

help: ## What can be made
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# .ci/run sets PACKAGES_OF in the copies that it runs suites in: an environment that has the pinned packages already.
$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@.ci/need setup
ifdef PACKAGES_OF
	cp --archive --link $(PACKAGES_OF) $(VENV)
	rm -f $@
else
	@echo "installing the pinned packages into $(VENV), about a minute the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/dev.txt
endif
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

needed-%: # names what these suites lack on this machine, and the command that gets it
	@.ci/need $(subst -, ,$*)

setup: $(VENV)/.ready ## A virtual environment with exactly the pinned packages

demo: setup ## The main job on a cluster in one process: no Kubernetes, no GPU, no root
	$(BIN)/vrampack demo

test: setup ## Everything that needs no cluster and no Go; ARGS=... is for pytest: files, -k, -x
	$(NO_AUTHORITIES) $(if $(ARGS),,.ci/timed test) $(BIN)/python -m pytest $(ALL_CORES_AND_ONE) -m "not e2e and not node and not image and not mutation and not shim and not driver and not recipes and not alerts and not release" $(OTHER_SUITES) $(or $(ARGS),tests)

check: setup ## Format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy .ci/*.py
	$(BIN)/lint-imports
	@sha256sum --quiet --check manifests/rendered/SHA256SUMS || { echo "what manifests/ holds is made of charts/vrampack: make render"; exit 1; }

format: setup ## Rewrite the code as `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

mutations: setup ## Lines of the product broken one at a time: each must make a named test fail; under two minutes of CPU
	$(NO_AUTHORITIES) .ci/timed mutations $(BIN)/python -m pytest $(ALL_CORES) -m mutation tests/mutations

shim-test: needed-shim setup ## The C programs under sanitizers and a real runc, the kernel module in virtual machines; needs /dev/fuse, a Debian mirror and root
	.ci/timed shim-test $(BIN)/python -m tests.shim

driver-test: needed-driver setup ## NVIDIA's own kernel driver, built of Debian's packages, in virtual machines without a GPU; ARGS=... is for pytest
	$(if $(ARGS),,.ci/timed driver-test) $(BIN)/python -m tests.driver $(ARGS)

alerts-test: needed-alerts setup ## Alerts and dashboards on the real product with a real Prometheus and Alertmanager, in fast time
	$(BIN)/python -m pytest $(ALL_CORES) -m alerts tests/alerts

# What each suite builds once, in minutes, and then finds in the cache. Each builds it by itself, too, where it is missing.
first-builds-e2e: needed-e2e setup
	$(BIN)/python -m tests.e2e.first_builds

first-builds-image: needed-base
	for base in runtime builder compiler; do images/base $$base || exit; done

first-builds-e2e-node: needed-node setup first-builds-image
	$(BIN)/python -m tests.node.first_builds

first-builds-shim-test: needed-shim setup
	$(BIN)/python -m tests.machine.kernels

first-builds-driver-test: needed-driver setup
	$(BIN)/python -m tests.driver.first_builds

e2e: needed-e2e setup ## Real etcd, API server, controller manager and scheduler on loopback; ARGS=... is for pytest
	$(if $(ARGS),,.ci/timed e2e) $(BIN)/python -m tests.e2e $(ARGS)

smoke-%: needed-e2e setup
	VRAMPACK_KUBERNETES=$* $(BIN)/python -m pytest -m smoke tests/e2e

smoke: smoke-1.34 smoke-1.35 smoke-1.36 ## The shortest of them on each supported release; smoke-1.34 is one; a first build of one takes minutes

e2e-node: needed-node setup ## One whole node: kubelet, containerd and runc too, with our image and manifests on it; as root
	$(if $(TESTS),,.ci/timed e2e-node) $(BIN)/python -m tests.node $(TESTS)

recipes: needed-recipes setup ## What docs/recipes names, run beside that control plane: Kueue, Coscheduling and Karpenter built of their modules, NVIDIA's objects
	$(BIN)/python -m tests.support.recipe_programs kueue karpenter argo-cd coscheduling
	$(BIN)/python -m pytest -m recipes tests/e2e/recipes --ignore=tests/e2e/recipes/hpa

recipes-hpa: needed-recipes setup ## docs/recipes/hpa.md on a real HPA controller, with Prometheus, prometheus-adapter and KEDA, in fast time
	$(BIN)/python -m tests.e2e.recipes.hpa $(ARGS)

recipes-node: needed-node-hub setup ## The same on the whole node: pods of Kueue's queues and of a JupyterHub, started; as root
	$(BIN)/python -m tests.support.recipe_programs kueue jupyterhub
	$(BIN)/python -m tests.node -m recipes tests/node/recipes

soak: needed-shim setup ## Nothing lost, the long way: 24 simulated hours, 300 deaths, 20 changes of the lead, 1,000 activations, 1,000 starts by CDI ..; two hours
	VRAMPACK_SIMULATION_HOURS=24 VRAMPACK_SIMULATION_SEEDS=7200 VRAMPACK_SIMULATION_OUTAGES=3 \
	VRAMPACK_SHUFFLED_STARTS=1000 VRAMPACK_ODDITIES=100000 VRAMPACK_LEDGER_RUNS=400 VRAMPACK_RELOADS=50 VRAMPACK_PREEMPTION_SEEDS=400 VRAMPACK_BRUTE_FORCE_CALLS=300000 VRAMPACK_GROUP_WORLDS=1500 $(BIN)/python -m pytest -s $(SIMULATED_SOAK)
	VRAMPACK_KILLS=300 VRAMPACK_LEADER_CHANGES=20 VRAMPACK_CHURN_SECONDS=60 VRAMPACK_OUTAGE_SECONDS=45 \
	VRAMPACK_KICK_ROUNDS=1000 VRAMPACK_NOMINEE_TRIALS=200 VRAMPACK_PREEMPTION_KILLS=200 VRAMPACK_BURST_PODS=1000 VRAMPACK_HOLDS_SCALE=7 VRAMPACK_HOLD_KILLS=100 VRAMPACK_GROUP_ROUNDS=100 \
	VRAMPACK_PROMISE_ROUNDS=20 VRAMPACK_GANG_ROUNDS=100 VRAMPACK_RULED_CLUSTERS=200 $(BIN)/python -m pytest -m e2e -s $(SOAK)
	VRAMPACK_PRELOAD_SESSIONS=30000 $(BIN)/python -m pytest -p tests.shim.plugin -m shim --timeout 1800 tests/shim/preload/test_stress.py
	VRAMPACK_KMOD_SESSIONS=30000 $(BIN)/python -m pytest -p tests.shim.plugin -m shim --timeout 1800 tests/shim/kmod/test_races.py
	VRAMPACK_CARD_STARTS=1000 $(BIN)/python -m tests.node -s tests/node/test_starts_by_cdi.py -k every_start

flakes: setup ## A suite several times over, every second time beside a busy loop; make flakes SUITE=e2e TIMES=5
	$(if $(SUITE),,$(error say which: make flakes SUITE=test TIMES=10))
	.ci/flakes $(SUITE) $(or $(TIMES),10)

bench: setup ## The numbers of docs/benchmarks.md, each beside its goal and its floor; into build/bench.json too
	$(BIN)/python -m benchmarks

packing: setup ## The first rows of docs/packing.md: four traces and the GiB benchmark, three seeds; about twenty minutes of CPU
	$(BIN)/vrampack simulate openb $(addprefix --trace=,default gpuspec33 gpushare100 cpu250) --policy fragmentation --policy tessellate --seeds 42-44
	$(BIN)/vrampack simulate openb $(addprefix --trace=,default gpuspec33 gpushare100 cpu250) --policy tessellate --mix learned --seeds 42-44
	$(BIN)/vrampack simulate cards --policy binpack --policy sum-of-squares --policy tessellate --seeds 1-3

packing-final: setup ## All 17 traces on seeds that nothing was tuned on, once for a release: an hour of CPU; JOBS=N
	git rev-parse HEAD
	mkdir -p build
	$(BIN)/vrampack simulate openb --trace all --policy fragmentation --policy tessellate --seeds 2001-2010 --jobs $(or $(JOBS),1) --json | tee build/packing-final.jsonl
	$(BIN)/vrampack simulate openb --trace all --policy tessellate --mix learned --seeds 2001-2010 --jobs $(or $(JOBS),1) --json | tee -a build/packing-final.jsonl

plugin: setup ## build/kubectl-inspect-cgpu: put it on PATH, then `kubectl inspect cgpu`
	$(BIN)/python -m vrampack.cli.kubectl_plugin build/kubectl-inspect-cgpu

hook: ## build/vrampack-hook, the OCI createRuntime hook, and vrampack-runtime, runc with it: static programs
	$(MAKE) --no-print-directory -C shim/hook hook OUT=$(CURDIR)/build

preload: ## build/libvrampack.so: the library in front of libc's ioctl, without a libc of its own
	$(MAKE) --no-print-directory -C shim/preload preload OUT=$(CURDIR)/build

kmod: ## build/vrampack.ko, the kernel module, for KDIR (initially the running kernel)
	$(MAKE) --no-print-directory -C shim/kmod kmod OUT=$(CURDIR)/build

dashboards: setup ## the dashboards in charts/vrampack/files, as dashboards/definitions.py says; then make render
	$(BIN)/python -m dashboards

panel-pictures: setup ## docs/pictures, of what panels showed in the last alerts-test; and a table of it
	$(BIN)/python -m tests.alerts.pictures

ui-pictures: needed-e2e setup ## docs/images: the pages of `vrampack ui` in a browser
	$(BIN)/python -m tests.e2e.ui_pictures

render: needed-e2e setup ## What manifests/ holds, of charts/vrampack, by helm; its schemas and the table of docs/chart.md
	$(BIN)/python -m tests.support.chart

image: needed-image$(if $(BASE),,-base) setup ## The container image from the Dockerfile, built and tried; as root (BASE=... takes another base)
	.ci/timed image sh -c 'VENV=$(VENV) images/build $(BASE) && $(BIN)/python -m pytest -m image tests/images'

release: needed-release setup ## Every file of a release of HEAD, in build/release/VERSION; VERSION=0.1.0, KEY=cosign.key, ARCH=amd64; as root
	$(if $(VERSION),,$(error say which: make release VERSION=0.1.0))
	$(BIN)/python -m release $(VERSION) $(addprefix --arch=,$(ARCH)) $(addprefix --key=,$(KEY))

release-test: needed-release setup ## What `make release` has made, looked into: checksums, signature, SBOM, sizes; VERSION=0.1.0
	$(BIN)/python -m pytest -m release tests/release

release-node: needed-node-alerts-release setup ## What a platform team does with these files, on the whole node: install, watch, upgrade, go back, remove; prints times; as root
	$(BIN)/python -m tests.node.release

release-twice: needed-release setup ## The same release from a clone with another path, umask and time zone: every file must be equal; VERSION=0.1.0
	$(BIN)/python -m tests.release.twice $(VERSION) $(addprefix --arch=,$(ARCH))

arm64-test: needed-release setup ## The hook, the core and the library compiled for arm64, the image's program: run by qemu
	$(BIN)/python -m tests.arm64

clean: ## Remove what was built here
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
