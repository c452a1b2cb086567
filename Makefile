# Everything that is done to this tree by hand or by CI. Needs Go and make;
# the race detector also needs a C compiler, and is left out without one.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDEXPANSION:
.SUFFIXES:

GO      ?= go
GOFMT   ?= $(shell $(GO) env GOROOT)/bin/gofmt
PROGRAM := github.com/wasmjob/wasmjob/host/node/program
# The version that is released next; the modules abi and sdk have the same. go.mod, sdk/go.mod
# and go.work name it, too: a test holds them together.
RELEASE ?= v0.2.0
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)

# -race needs cgo, and cgo a C compiler; Go itself knows whether there is one.
RACE ?= $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# What to bench, and for how long each fuzz target runs.
BENCH    ?= .
FUZZTIME ?= 10s

# The ElasticJob that make interop puts beside ours: what Maven Central has.
EJ ?= 3.0.4

# What the running host reads: the Go toolchain's own sources.
MOUNT ?= codestats=$(shell $(GO) env GOROOT)/src:/src

EXAMPLES := $(patsubst plugins/examples/%/main.go,%,$(wildcard plugins/examples/*/main.go))
MODULES  := $(EXAMPLES:%=plugins/examples/%.wasm)
# What every guest is built from besides its own folder.
GUEST_SOURCES := $(filter-out %_test.go,$(wildcard sdk/*.go sdk/*/*.go sdk/*/*/*.go sdk/*/*/*.s abi/*.go)) go.mod go.sum go.work abi/go.mod sdk/go.mod sdk/go.sum
WASI := GOOS=wasip1 GOARCH=wasm
GUESTS := ./sdk/... ./plugins/...
# The packages of the three modules of go.work.
ALL_PACKAGES := ./... ./abi/... ./sdk/...
# The example that is a module of its own: the product does not require pgx.
SYNC := plugins/examples/sync

.PHONY: help
help: ## show this list
	@echo "make TARGET; the targets are"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## build the host, bin/wasmjob, and what attacks it, bin/wasmjob-chaos
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X $(PROGRAM).version=$(VERSION)' -o bin/wasmjob ./cmd/host
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/wasmjob-chaos ./cmd/chaos

# Where install puts files; DESTDIR comes before it, for packages.
PREFIX ?= /usr/local

.PHONY: install
install: build ## install the program, bin/wasmjob, below PREFIX (/usr/local)
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 0755 bin/wasmjob '$(DESTDIR)$(PREFIX)/bin/wasmjob'

# The module with what makes a release: the product requires none of it.
RELEASER := tools/release

.PHONY: docs
docs: ## write the documents as a static site into out/docs, with what hosts serve at /docs
	$(GO) run ./cmd/host docs out/docs

.PHONY: release
release: ## make the files of a release in bin/release: archives, packages, checksums; RELEASE=v0.2.0, TARGETS=linux/amd64,…
	CGO_ENABLED=0 $(GO) run -C $(RELEASER) -trimpath . -version $(RELEASE) -out $(CURDIR)/bin/release $(if $(TARGETS),-targets $(TARGETS))

.PHONY: release-check
release-check: ## make a release twice and compare; install, upgrade, remove and purge its package under a real systemd (root)
	CGO_ENABLED=0 $(GO) test -C $(RELEASER) -trimpath -count 1 -timeout 30m .

.PHONY: examples
examples: $(MODULES) ## compile plugins/examples/NAME to plugins/examples/NAME.wasm

# A library that the host calls (c-shared), but for script, which is a program. Built
# in its folder, since sync is a module of its own.
# The rename shows a running host either the old file or the new one, whole.
$(MODULES): plugins/examples/%.wasm: $$(wildcard plugins/examples/$$*/*) plugins/examples/% $(GUEST_SOURCES)
	$(WASI) $(GO) build -C plugins/examples/$* -trimpath -ldflags '-s -w' $(if $(filter script,$*),,-buildmode=c-shared) \
		-o ../.$*.wasm.tmp .
	@mv plugins/examples/.$*.wasm.tmp $@

# Under a name of its own, or make -n would start the host.
SELF := $(MAKE)

.PHONY: run
run: build plugins/examples/cities.wasm ## start the host on the embedded registry with the examples, and a server that they talk to
	@$(GO) build -o bin/demo ./test/demo
	@$(SELF) -q examples || echo "The other examples are compiled while the host runs, and drop in one by one; until then it misses their modules."
	@{ nice $(SELF) -s examples || echo "an example could not be compiled: make examples" >&2; } & \
	exec bin/demo bin/wasmjob run --plugins plugins/examples --grants plugins/grants.yaml --mount '$(MOUNT)'

.PHONY: demo
demo: build examples ## as make run, with a real PostgreSQL (Debian's postgresql) into which the example sync copies
	@$(GO) build -o bin/demo ./test/demo
	@exec bin/demo -postgres bin/wasmjob run --plugins plugins/examples --grants plugins/grants.yaml --mount '$(MOUNT)'

.PHONY: cluster
cluster: build examples ## show a cluster: a real ZooKeeper (Debian's zookeeper) and three hosts
	@$(GO) build -o bin/cluster ./test/cluster
	@$(GO) build -o bin/demo ./test/demo
	@exec bin/demo bin/cluster --grants plugins/grants.yaml --mount '$(MOUNT)'

# What plays the protocol in virtual time, by seeds and at each operation: make sim has it, and make test leaves it out. STEPS are
# in ./coordination, HOSTS in ./host/engine. Of the operations every third is one that a host dies at, of pairs every seventh.
STEPS := TestModel TestCrashAtEveryStep TestRandomLives TestLivesWithJava TestGuards TestTriggerWhileHostsChange TestTriggerWhileManyItemsMove
HOSTS := TestSimulation TestRandomFaults TestCrowd TestCrowd_items TestCrowd_fleet TestCrowd_overload TestJoinStorm \
	TestCrashAtEveryOperation TestTwoCrashes TestGarbage TestGarbageAtRandom

# any is the pattern of these tests: $(call any,TestA TestB).
empty :=
any = '^($(subst $(empty) ,|,$(strip $(1))))$$'

.PHONY: sim
sim: ## explore the model, and run the random simulations of hosts (400, 250 and 20 seeds, or SEEDS=n of the first two) and the crashes; MORE=1 draws backfills, chains and arguments, too; AGAIN=file as in make test
	$(GO) test -count 1 -timeout 20m -run $(call any,$(STEPS)) ./coordination -model.time 0
	@# The hosts leave much garbage and hold little: GOGC spares a sixth of the time.
	GOGC=400 $(GO) tool gotestsum --format pkgname --format-hide-empty-pkg $(if $(AGAIN),--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report='$(AGAIN)') --packages ./host/engine -- -count 1 -timeout $(if $(SEEDS),10h,30m) -run $(call any,$(HOSTS)) $(if $(SEEDS),-sim.seeds=$(SEEDS) -faults.seeds=$(SEEDS)) $(if $(MORE),-sim.more=true)

.PHONY: model
model: ## explore what two and three hosts can do to each other, in all orders: half an hour, and 6 GB
	$(GO) test -count 1 -timeout 10h -v -run '^TestModel$$' -parallel 1 ./coordination -model.whole -model.time $(or $(TIME),0)

.PHONY: crash
crash: ## let hosts die at every registry operation of every scenario, and in pairs (PAIRS=1: each pair of operations)
	$(GO) test -count 1 -timeout 10h -v -run '^(TestCrashAtEveryOperation|TestTwoCrashes)$$' ./host/engine -crash.stride 1 -crash.pairs $(or $(PAIRS),3)

.PHONY: mutants
mutants: ## change guards in a copy of the tree, one by one: a test must notice each; AREA=coordination, catalog, history, alerts or registries, EVERY=n (another part with SEED=n) and ONLY=pattern pick some: bin/mutants.md
	@mkdir -p bin
	nice $(GO) run ./test/mutants -report $(CURDIR)/bin/mutants.md $(if $(AREA),-area $(AREA)) $(if $(EVERY),-every $(EVERY)) $(if $(SEED),-seed $(SEED)) $(if $(ONLY),-only '$(ONLY)')

.PHONY: nightly
nightly: ## hours: a release made twice, the race detector where make race has it not, all mutants, SEEDS (10000) of the simulations, all crashes, all garbage, the great model, all seeds of histories of many hosts, the sandbox attacked for hours, each fuzz target for FUZZTIME (5m)
	$(MAKE) release-check
	$(if $(RACE),CGO_ENABLED=1 $(GO) test $(RACE) -count 1 -timeout 2h $(ALL_PACKAGES))
	$(MAKE) mutants
	$(MAKE) crash
	$(GO) test -count 1 -timeout 10h -run '^TestGarbage$$' ./host/engine -garbage.stride 1
	$(GO) test -count 1 -timeout 10h -run '^TestGarbageAtRandom$$' ./host/engine -garbage.seeds 3000
	$(GO) test -count 1 -timeout 10h -run '^TestRegistryAtRandom$$' ./coordination -registry.scripts 20000
	$(GO) test -count 1 -timeout 1h -run '^(TestPagesOverHosts|TestFiresOverHosts)$$' ./host/control/cluster -histories.whole
	$(MAKE) sim SEEDS=$(or $(SEEDS),10000)
	$(GO) test -count 1 -timeout 10h -run '^TestCrowd' ./host/engine -crowd.seeds $(or $(SEEDS),10000) -crowd.large 5
	$(MAKE) model
	$(MAKE) fuzz-sandbox FUZZTIME=1h
	$(MAKE) hostile
	$(MAKE) programs
	$(MAKE) fuzz FUZZTIME=$(if $(filter command% environment%,$(origin FUZZTIME)),$(FUZZTIME),5m)

.PHONY: setup
setup: ## install what the tests need and is missing, from Debian's packages
	@bash .ci/setup

# Tests of these packages take longest: they come first, beside the others, one package more at a time than there are processors.
FIRST := ./test/e2e ./test/chaos ./test/modules ./coordination/registry/zookeeper ./host/control/cluster ./host/control/console ./host/engine \
	./test/hostile ./test/clients ./bench/cluster ./host/node/program ./host/history/database ./coordination

# These have a target of their own (fuzz-sandbox, hostile, programs) and its flags, or run as the child of another test.
ELSEWHERE := TestBoundaries TestRandomIsStopped TestHostileStart TestBeside TestLagBeside TestRecursionBeside TestPrograms TestProgramsCost TestKilledHost

# testsum tests packages: $(call testsum,packages).
testsum = $$($(GO) tool -n gotestsum) --format pkgname --format-hide-empty-pkg \
	$(if $(AGAIN),--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report='$(AGAIN)') --packages "$(1)" -- -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -timeout 20m

.PHONY: test
test: examples ## run all tests but what make sim plays, in minutes; AGAIN=file: up to three that fail once more, listed there
	$(call testsum,$(FIRST) $(ALL_PACKAGES)) -tags brief -skip $(call any,$(STEPS) $(HOSTS) $(ELSEWHERE))
	$(GO) test -C $(SYNC) -timeout 5m ./...

# The race detector watches the packages that start goroutines or share memory between them; the others have nothing that it could
# find. Not these: tests of the program drive one that is built without it, SQLite is C made Go, and those of offer and sdktest run
# one guest after the other, which costs most in wazero's compiler.
UNRACED := ./host/node/program/ ./host/history/database/ ./host/sandbox/capability/offer/ ./sdk/sdktest/
SHARES  := ^[[:space:]]*go (func|[a-zA-Z_.]+[(])|sync[.]|atomic[.]|errgroup|[.]Go[(]
TESTED   = $(sort $(dir $(shell find coordination host internal sdk -name '*_test.go')))
RACED    = $(filter-out $(UNRACED),$(addprefix ./,$(filter $(TESTED),$(dir $(shell grep -rlE --include '*.go' --exclude '*_test.go' '$(SHARES)' coordination host internal sdk)))))

# Tests that repeat one story at hundreds of instants, calls or seeds, or for hundreds of jobs, in ./host/engine and, the last three,
# in ./host/control/cluster: make test has them.
REPEATED := TestCronChangedAtAnInstant TestTotalRaisedAtAnInstant TestTotalLoweredAtAnInstant TestInstantBeforeTheFirstDivision \
	TestNoJobFallsSilentAtWhateverStepTheRegistryGoes TestEveryCallGoesWrongOnce TestAfterCrashes TestLimit_crashes TestRate_crashes \
	TestLimit_simulation TestRate_simulation TestQueueAllWhileSharded TestTriggerQueue_full TestEngineAsPlanned TestOverload \
	TestReadyJobsFireWhileOthersJoin TestDeathOfALeaderOfManyJobs TestFailover_ofVeryMany TestAfterHundred TestAfterManyJoin TestDisabled_costsNothing \
	TestFiresOverHosts TestPagesOverHosts TestManyOfOneTime

# TestContract runs one guest after the other, as above. TestChildMemory: the race detector itself runs out of the memory that it leaves.
.PHONY: race
race: ## run the tests of what shares memory once more, under the race detector, with few seeds; AGAIN=file as in make test
	CGO_ENABLED=1 $(call testsum,./host/engine/ ./coordination/registry/zookeeper/ $(sort $(RACED))) -race -skip $(call any,$(filter-out TestSimulation,$(HOSTS)) $(REPEATED) TestContract TestChildMemory)

.PHONY: e2e
e2e: examples ## try all of it from outside: the program with real ZooKeepers, histories on a real PostgreSQL and MariaDB, and make browser
	$(GO) test -count 1 -timeout 30m ./test/e2e ./host/history/database
	$(MAKE) browser

.PHONY: browser
browser: ## let a real browser (Chromium) do operators' tasks in the console, with axe: what make test leaves out of make e2e; pictures in SHOTS (bin/pictures)
	$(GO) test -C test/browser -count 1 -timeout 20m . -shots $(abspath $(or $(SHOTS),bin/pictures))

.PHONY: pictures
pictures: ## renew docs/pictures: a browser takes them from the console of a ZooKeeper and three hosts
	$(GO) test -C test/browser -count 1 -timeout 20m -run '^TestPictures$$' . -pictures $(CURDIR)/docs/pictures -shots $(CURDIR)/bin/pictures

.PHONY: lint
lint: ## check formatting, vet, staticcheck, go.mod, shell syntax; make test has the layers
	@out=$$($(GOFMT) -l -s .) && test -z "$$out" || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }
	$(GO) vet $(ALL_PACKAGES)
	$(GO) vet -tags soak,interop,peers,unmetered,alerts,clients $(ALL_PACKAGES)
	$(WASI) $(GO) vet $(GUESTS)
	$(GO) tool staticcheck $(ALL_PACKAGES)
	$(WASI) $$($(GO) tool -n staticcheck) $(GUESTS)
	$(call tidied,.,-diff)
	$(call tidied,sdk,-diff)
	staticcheck=$$($(GO) tool -n staticcheck) && cd $(SYNC) && $(GO) mod tidy -diff && $(GO) vet ./... && $$staticcheck ./... && \
		$(WASI) $(GO) vet . && $(WASI) $$staticcheck .
	cd bench/extism && $(GO) mod tidy -diff && $(GO) vet ./...
	staticcheck=$$($(GO) tool -n staticcheck) && cd test/oidcserver/op && $(GO) mod tidy -diff && $(GO) vet ./... && $$staticcheck ./...
	cd bench/outside && $(GO) mod tidy -diff && $(GO) vet ./... && $(WASI) $(GO) vet ./testdata/database ./testdata/item
	staticcheck=$$($(GO) tool -n staticcheck) && cd test/browser && $(GO) mod tidy -diff && $(GO) vet ./... && $$staticcheck ./...
	staticcheck=$$($(GO) tool -n staticcheck) && cd test/openapi && $(GO) mod tidy -diff && $(GO) vet ./... && $$staticcheck ./...
	staticcheck=$$($(GO) tool -n staticcheck) && cd $(RELEASER) && $(GO) mod tidy -diff && $(GO) vet ./... && $$staticcheck ./...
	sh -n deploy/packages/postinstall && sh -n deploy/packages/preremove && sh -n deploy/packages/postremove
	bash -n .ci/run .ci/setup host/sandbox/wasm/testdata/programs/build
	@echo "lint: ok"

.PHONY: shape
shape: ## print figures of how easy the product's code is to enter: sizes, complexity, words; nothing fails by them
	@$(GO) test -count 1 -v -run '^TestShape$$' . -shape

# go mod tidy knows no workspace: it reads a copy of a module's go.mod in which abi and
# sdk are those of the tree. $(2) is a flag, or what else is to be done.
tidied = @mkdir -p bin && cp $(1)/go.mod bin/tidy.mod && cp $(1)/go.sum bin/tidy.sum && \
	$(GO) mod edit -replace github.com/wasmjob/wasmjob/abi=$(CURDIR)/abi -replace github.com/wasmjob/wasmjob/sdk=$(CURDIR)/sdk bin/tidy.mod && \
	GOWORK=off $(GO) mod tidy -C $(1) -modfile $(CURDIR)/bin/tidy.mod $(2)

.PHONY: tidy
tidy: ## let go.mod and go.sum of the product and of sdk have what their sources import
	$(call tidied,.) && $(GO) mod edit -dropreplace github.com/wasmjob/wasmjob/abi -dropreplace github.com/wasmjob/wasmjob/sdk bin/tidy.mod && cp bin/tidy.mod go.mod && cp bin/tidy.sum go.sum
	$(call tidied,sdk) && $(GO) mod edit -dropreplace github.com/wasmjob/wasmjob/abi -dropreplace github.com/wasmjob/wasmjob/sdk bin/tidy.mod && cp bin/tidy.mod sdk/go.mod && cp bin/tidy.sum sdk/go.sum

.PHONY: fmt
fmt: ## format all Go files
	$(GOFMT) -s -w .

.PHONY: bench
bench: ## run the benchmarks; BENCH=pattern picks some
	$(GO) test -timeout 60m -run '^$$' -bench '$(BENCH)' -benchmem $$(grep -rl --include '*_test.go' --exclude-dir extism --exclude-dir outside '^func Benchmark' . | xargs -n 1 dirname | sort -u)

.PHONY: interop
interop: ## share jobs with ElasticJob, and be operated by it; EJ=3.0.5 is built from source
	$(GO) test -tags interop -count 1 -timeout 15m ./test/interop -elasticjob $(EJ)

.PHONY: bench-extism
bench-extism: ## compare a warm call and a guest's request with Extism's Go SDK
	cd bench/extism && $(GO) test -run '^$$' -bench . -benchtime 2s .

.PHONY: bench-outside
bench-outside: ## measure queries of a real PostgreSQL by guests beside native ones, and items that do something outside
	cd bench/outside && $(GO) test -run '^$$' -bench . -benchtime 4s .

.PHONY: bench-peers
bench-peers: ## measure ElasticJob and ours on one ZooKeeper: bin/peers.md; PEERS has flags
	@mkdir -p bin
	$(GO) test -tags peers -count 1 -timeout 60m -v ./bench/peers -output $(CURDIR)/bin/peers.md $(PEERS)

.PHONY: attack-peers
attack-peers: ## do the same harm to ElasticJob and to ours at once: bin/attacks.md; PEERS has flags
	@mkdir -p bin
	$(GO) test -tags peers -count 1 -timeout 30m -v ./bench/peers/attack -output $(CURDIR)/bin/attacks.md -evidence $(CURDIR)/bin/attacks.jsonl $(PEERS)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (10s)
	@grep -r --include '*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do \
		echo "$${func#func } in $$(dirname $$file) for $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname $$file)" || exit 1; \
	done

# Where guests run that attack: in the host and in worker processes, or as ISOLATION says.
HOSTILE_ISOLATION = -hostile.isolation '$(if $(ISOLATION),$(ISOLATION),host,fire,process)'

.PHONY: fuzz-sandbox
fuzz-sandbox: ## compare the meter with wazero, instruction by instruction, have random calls of imports cost little, stop random modules, in the host and in worker processes (or ISOLATION), each for FUZZTIME (10s), and stop and start with an nth part of the hostile ones (EVERY=n, 5); SEED=n repeats
	$(GO) test -count 1 -timeout 1h -run '^TestSpecification$$' ./host/sandbox/wasm -differential.whole
	$(GO) test -count 1 -timeout 10h -v -run '^TestBoundaries$$' ./host/sandbox/wasm -mutants.time $(FUZZTIME) $(if $(SEED),-mutants.seed $(SEED))
	$(GO) test -count 1 -timeout 10h -v -run '^(TestCorpusIsStopped|TestRandomIsStopped|TestHostileStart)$$' ./test/hostile -hostile.time $(FUZZTIME) $(if $(SEED),-hostile.seed $(SEED)) \
		-hostile.beside -hostile.every $(or $(EVERY),5) $(HOSTILE_ISOLATION)
	$(GO) test -count 1 -timeout 10h -v -run '^TestRandomCalls$$' ./test/hostile -hostile.time $(FUZZTIME) $(if $(SEED),-hostile.seed $(SEED))

.PHONY: hostile
hostile: ## attack what jobs may do outside, have a host run each hostile module beside an honest job, start with each, and run eleven at once, in the host and in worker processes (ISOLATION): bin/hostile.md; EVERY=n takes an nth part, another one each day
	@mkdir -p bin
	@rm -f bin/hostile.md
	$(GO) test -count 1 -timeout 20m ./host/sandbox/capability/... ./host/config/grants ./host/config/signature ./host/engine/catalog
	$(GO) test -count 1 -timeout 20m -run '^TestNothingLeavesAHostThatWasHalted$$' ./test/e2e
	$(GO) test -count 1 -timeout 1h -v -run '^(TestCalls|TestRandomCalls)$$' ./test/hostile
	$(GO) test -count 1 -timeout 4h -v -run '^(TestCorpusIsStopped|TestBeside|TestHostileStart|TestLagBeside|TestRecursionBeside)$$' ./test/hostile -hostile.beside -hostile.every $(or $(EVERY),1) -hostile.output $(CURDIR)/bin/hostile.md $(HOSTILE_ISOLATION)

.PHONY: programs
programs: ## compare real programs in C, Rust and Go, metered and plain, and what metering costs them: bin/programs.md; downloads into bin/programs
	@mkdir -p bin
	host/sandbox/wasm/testdata/programs/build bin/programs
	$(GO) test -count 1 -timeout 2h -v -run '^(TestPrograms|TestProgramsCost)$$' ./host/sandbox/wasm -programs.dir $(CURDIR)/bin/programs -programs.rounds $(or $(ROUNDS),5) -programs.output $(CURDIR)/bin/programs.md

.PHONY: soak
soak: examples ## run the long tests (build tag soak); takes minutes to hours
	$(GO) test -tags soak -run '^TestSoak' -count 1 -v -timeout 6h $$(grep -rl --include '*_test.go' '^func TestSoak' . | xargs -n 1 dirname | sort -u)

.PHONY: soak-cluster
soak-cluster: build examples ## watch 200 jobs (SOAK='-jobs 2000') on three hosts for DURATION (2h): nothing may grow; SOAK has flags: bin/soak -help
	$(GO) build -o bin/soak ./test/soak
	bin/soak -program bin/wasmjob -modules plugins/examples/cities.wasm,plugins/examples/slow.wasm -duration $(or $(DURATION),2h) $(SOAK)

.PHONY: chaos
chaos: build ## attack hosts and ZooKeeper servers for DURATION (10m); SEED=n repeats a plan
	bin/wasmjob-chaos --duration $(or $(DURATION),10m) $(if $(SEED),--seed $(SEED)) $(CHAOS)

.PHONY: deploy-check
deploy-check: build ## hold what is in deploy/ against what will read it
	bash -n deploy/check/boot
	staticcheck=$$($(GO) tool -n staticcheck) && cd deploy/check && $(GO) mod tidy -diff && $(GO) vet ./... && $$staticcheck ./...
	cd deploy/check && WASMJOB=$(CURDIR)/bin/wasmjob $(GO) test -count 1 ./...

.PHONY: alerts
alerts: ## test metrics and alert rules: by promtool, and with a real Prometheus beside real hosts
	promtool check rules deploy/prometheus/wasmjob.rules.yaml
	promtool test rules deploy/prometheus/wasmjob.rules.test.yaml
	promtool check rules deploy/prometheus/alerts.rules.yaml
	promtool test rules deploy/prometheus/alerts.rules.test.yaml
	$(GO) test -tags alerts -count 1 -timeout 10m -run '^(TestAlerts|TestPromtool|TestPrometheusFindsRuns|TestDashboardAnswers)$$' ./test/e2e

.PHONY: check
check: lint test ## lint, test, and see that neither changed the tree
	@git diff --exit-code --stat

.PHONY: clean
clean: ## delete what the other targets made
	rm -rf bin out plugins/examples/*.wasm plugins/examples/.*.wasm.tmp
