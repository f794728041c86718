# Edda: the front door. `make help` lists what there is.

GO      ?= go
BIN     := bin
FUZZTIME ?= 10s
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Compilers, vet and staticcheck collect their garbage less often, which takes a
# quarter of their time away; the limit is for machines with little memory. It is not
# for what the tests run, hence the detour in `test`.
THRIFT := GOGC=400 GOMEMLIMIT=1500MiB

# One set of flags for everything but the race detector, which needs cgo: so
# that the compiler's cache serves building, checking and the tests' binary.
export CGO_ENABLED = 0

.DEFAULT_GOAL := help
.PHONY: help vet lint costs demo demo-cluster demo-hero servers test quick test-octokit test-user crash crash-cluster check build packages chart bench bench-stages bench-baseline bench-hero memory fuzz clean

help: ## what this file can do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: build ## a thousand orders through a saga, then the books (needs only Go)
	$(BIN)/edda demo

demo-cluster: build ## three nodes keep one store over three NATS servers; the owner is killed, then the books (needs only Go)
	cd tools && $(GO) build -o ../$(BIN)/demo-cluster ./demo-cluster
	$(BIN)/demo-cluster --edda $(BIN)/edda

demo-hero: build ## a dozen Python jobs through the Hero systems, killed in between (needs Go and python3)
	cd tools && $(GO) run ./demo-hero --edda ../$(BIN)/edda

servers: ## what tests talk to: PostgreSQL, MariaDB and Redis; installs what is missing on Debian
	@missing=; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || missing="$$missing postgresql"; \
	test -x /usr/sbin/mariadbd || command -v mariadbd >/dev/null || missing="$$missing mariadb-server"; \
	command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	test -n "$$missing" || exit 0; \
	command -v apt-get >/dev/null || { echo "the tests need$$missing: install them with this system's packages"; exit 1; }; \
	as=; test "$$(id -u)" = 0 || { command -v sudo >/dev/null && as=sudo; } || { echo "the tests need$$missing: run as root: apt-get install$$missing"; exit 1; }; \
	echo "installing$$missing, without starting them"; \
	off=$$(mktemp -d) && trap 'rm -rf "$$off"' EXIT; \
	printf '#!/bin/sh\nexit 101\n' > "$$off/policy" && chmod 755 "$$off" "$$off/policy"; \
	policy=/usr/sbin/policy-rc.d; \
	test -e $$policy || { $$as cp "$$off/policy" $$policy && trap "$$as rm -f $$policy; rm -rf $$off" EXIT; }; \
	$$as apt-get update -q && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing

GO_TEST := $(GO) test -json -vet=off -toolexec "env $(THRIFT)" -timeout 40m

# Rooms whose code starts no goroutine and shares nothing that changes, as internal/archtest
# holds, and the tests of the tree itself. The race detector would find nothing in them and
# costs three times their time; the engine's tests run them in many goroutines under it.
PURE := ./internal/archtest ./internal/calendar ./internal/jsonvalue ./saga ./expression ./hero/flow ./manifests

# What the raced run leaves to the other one, as a regular expression.
ELSEWHERE = edda/($(shell echo '$(PURE:./%=%) systemtest stream.*' | tr ' ' '|'))

# Tests that the race detector leaves out, by the constraint !race: tests of one goroutine or of
# another process, whose volume would take seven times as long. They run without it, by name.
VOLUME_FILES = $(shell grep -rlE '^//go:build .*!race' --include='*_test.go' cli cluster engine hero replay standby store stream systemtest)
VOLUME       = $(filter-out ./systemtest,$(sort $(patsubst %/,./%,$(dir $(VOLUME_FILES)))))
VOLUME_TESTS = $(shell grep -hoE '^func Test[A-Za-z0-9]+' $(VOLUME_FILES) | cut -c6- | paste -sd '|')

# `make check` vets all of it, tests included, and more strictly than a test run does.
# Two runs go on at a time, since each waits for much: one with the race detector, and one that
# begins without it, with the tests of the whole system. That one is shorter, so it ends with
# some packages and the module of the tools under the race detector; one line at the end counts
# all. Tests of the whole system mostly wait for their processes, so three of them run at a time.
# The tests of deploy/ read files outside their module, which the test cache does not see: hence
# -count 1.
test: servers $(BIN)/gotestsum ## every test, with the race detector where there are goroutines; installs or finds what it needs
	$(BIN)/gotestsum --format pkgname --format-hide-empty-pkg --raw-command -- sh -c '\
		raced=$$($(GO) list ./... | grep -vxE "$(ELSEWHERE)") || exit 1; \
		other=$$(mktemp) || exit 1; trap "rm -f $$other" EXIT; \
		{ $(GO_TEST) -parallel 3 -run "^($(VOLUME_TESTS))$$" ./systemtest; code=$$?; $(GO_TEST) $(PURE) || code=1; \
			$(GO_TEST) -run "^($(VOLUME_TESTS))$$" $(VOLUME) || code=1; \
			(cd tools && $(GO_TEST) -count 1 ./deploy) || code=1; \
			CGO_ENABLED=1 $(GO_TEST) -race ./stream/... || code=1; \
			(cd tools && CGO_ENABLED=1 $(GO_TEST) -race ./...) || code=1; exit $$code; } > $$other & pid=$$!; \
		trap "trap - TERM; kill 0" INT TERM; \
		CGO_ENABLED=1 $(GO_TEST) -race ./systemtest $$raced; code=$$?; \
		wait $$pid || code=1; cat $$other; exit $$code'

# What needs a server, Python or the binary is left to `make test`, and so is what costs minutes.
# Not by -short: the property tests would try a fifth, too few for some to say anything. The
# constraint !quick leaves out single tests that take more than a second or two.
SLOW := cli effects/sqleffect hero/% internal/archtest internal/demo internal/realservers \
	internal/costbudget internal/harness internal/natsservers internal/shop store/wal stream/clusterlog systemtest systemtest/%
QUICK = $(filter-out $(addprefix edda/,$(SLOW)),$(shell $(GO) list ./...)) edda/hero/flow edda/hero/flowsaga

quick: ## in about a minute: the tests that need no server and no Python; `make test` runs all
	$(THRIFT) $(GO) test -vet=off -tags quick -timeout 5m $(QUICK)

OCTOKIT := $(BIN)/octokit-7.6.1/package/api.github.com/index.json

test-octokit: $(OCTOKIT) ## the CloudEvents SDK with 41 payloads of GitHub's webhooks, which npm fetches; needs npm
	cd tools && EDDA_WEBHOOKS=$(abspath $(OCTOKIT)) $(GO) test -vet=off -count 1 -v ./cloudevents

# The package is MIT-licensed and not part of this repository.
$(OCTOKIT):
	@mkdir -p $(BIN)/octokit-7.6.1
	cd $(BIN)/octokit-7.6.1 && npm pack --silent @octokit/webhooks-examples@7.6.1 && tar xzf octokit-webhooks-examples-7.6.1.tgz

KILLS ?= 240
SEED  ?= $(shell date +%s)

# What runs scripts meets other rights as a user than as root: namespaces, cgroups, limits.
USER_TESTS := jsonrpc script runner

test-user: ## the tests of what runs scripts, as the user nobody; needs root and setpriv
	@test "$$(id -u)" = 0 || { echo "this is a user: go test $(addprefix ./hero/,$(USER_TESTS))"; exit 1; }
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && chmod 755 "$$dir" && mkdir -m 1777 "$$dir/tmp" && \
	mkdir "$$dir/hero" "$$dir/docs" && cp go.mod "$$dir" && cp docs/HERO.md "$$dir/docs" && \
	for p in $(USER_TESTS); do \
		$(THRIFT) $(GO) test -vet=off -c -o "$$dir/hero/$$p.test" ./hero/$$p && \
		cp -r hero/$$p/. "$$dir/hero/$$p" && chown -R nobody "$$dir/hero/$$p" && ( cd "$$dir/hero/$$p" && echo "hero/$$p" && \
		setpriv --reuid nobody --regid 65534 --clear-groups env -i HOME="$$dir/tmp" TMPDIR="$$dir/tmp" PATH="$$PATH" "../$$p.test" -test.timeout 10m ) || exit 1; \
	done

crash: ## the torture: KILLS=240 kills at named points, faults, restarts under load, replays and restores that are killed, restores under load; SEED=… repeats a run
	EDDA_CRASH_SEED=$(SEED) EDDA_CRASH_KILLS=$(KILLS) $(GO) test ./systemtest -run '^(TestTortured|TestReplaysThat|TestRefusedWork|TestACleanUp|TestRestarts|TestRestores|TestADrain)' -count 1 -v -timeout 45m

crash-cluster: KILLS = 100
crash-cluster: SHARDS = 1
crash-cluster: ## the torture of a cluster: KILLS=100 kills, freezes and stops of its nodes and NATS servers under load; SHARDS=2 has shards, SEED=… repeats a run, FAULT="owner is killed" has these alone
	EDDA_CRASH_SEED=$(SEED) EDDA_CRASH_KILLS=$(KILLS) EDDA_CRASH_SHARDS=$(SHARDS) EDDA_CRASH_FAULT="$(FAULT)" $(GO) test ./systemtest -run '^TestClusterLoses' -count 1 -v -timeout 60m

vet:
	@test -z "$$(gofmt -l . )" || { echo "not formatted, run gofmt -w:"; gofmt -l .; exit 1; }
	$(THRIFT) $(GO) vet ./... && cd tools && $(THRIFT) $(GO) vet ./...

check: vet lint costs ## formatting, vet, lint, architecture, and that no stage became dearer
	$(GO) test -vet=off -toolexec 'env $(THRIFT)' ./internal/archtest

lint: $(BIN)/staticcheck
	$(THRIFT) $(BIN)/staticcheck ./... && cd tools && $(THRIFT) ../$(BIN)/staticcheck ./...

costs:
	$(GO) test -vet=off -count 1 -toolexec 'env $(THRIFT)' ./internal/costbudget

build: ## the binary, in bin/
	$(THRIFT) $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/edda ./cmd/edda

ARCHS ?= amd64 arm64
OUT   ?= $(BIN)/packages

packages: $(BIN)/nfpm ## the .deb and .rpm of Linux, in bin/packages; ARCHS="amd64 arm64"
	@case '$(VERSION)' in v[0-9]*.*|[0-9]*.*) ;; *) echo "a package needs a version: make packages VERSION=1.2.3"; exit 1;; esac
	@mkdir -p $(OUT) $(BIN)/completions
	@$(THRIFT) $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/edda-host ./cmd/edda
	@for s in bash zsh fish; do $(BIN)/edda-host completion $$s > $(BIN)/completions/edda.$$s || exit 1; done
	@$(THRIFT) $(GO) run ./cmd/edda-man --version '$(patsubst v%,%,$(VERSION))' --date "$$(git log -1 --format=%ct 2>/dev/null || date +%s)" $(BIN)/man
	@for arch in $(ARCHS); do \
		GOOS=linux GOARCH=$$arch $(THRIFT) $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/edda-linux-$$arch ./cmd/edda || exit 1; \
		for kind in deb rpm; do \
			ARCH=$$arch VERSION='$(patsubst v%,%,$(VERSION))' BINARY=$(BIN)/edda-linux-$$arch COMPLETIONS=$(BIN)/completions MAN=$(BIN)/man \
				$(BIN)/nfpm package --config deploy/package/nfpm.yaml --packager $$kind --target $(OUT) || exit 1; \
		done; \
	done

chart: ## the Helm chart, judged by Helm itself; UPDATE=-update keeps what Helm renders; compiles Helm, some minutes
	cd tools/helm && $(THRIFT) $(GO) test -count 1 . $(if $(UPDATE),-args $(UPDATE))

bench: build ## how fast it is here and how far from the floor: BENCH="W1 --json /tmp/bench.json"; nine minutes
	cd tools && $(GO) run ./bench --edda ../$(BIN)/edda $(BENCH)

bench-stages: ## the Go benchmarks of every stage, briefly
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...

bench-baseline: ## what each stage costs now becomes what `make check` compares with: for a commit that says why
	$(GO) test ./internal/costbudget -count 1 -run '^TestNoStageBecameDearer$$' -update

bench-hero: ## jobs a second beside asynq, on one redis-server; fails where ours run fewer
	cd tools && $(GO) run ./asynq

memory: ## a million instances and 50,000 rows queued for each destination in less than 300 MiB of anonymous memory; takes minutes and 8 GB of disk
	$(GO) test ./systemtest -tags memory -run '^TestMemory' -v -count 1 -timeout 30m

fuzz: ## each fuzzer for ten seconds, or FUZZTIME=5m; what was found is in testdata/fuzz of its package
	@for p in $$(grep -rl '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$p/*_test.go | cut -c6-); do \
	    $(GO) test $$p -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x || exit 1; done; done

clean: ## what was built
	rm -rf $(BIN)

# The tools have a module of their own, so that the product carries neither them nor what they need.
$(BIN)/gotestsum: tools/go.mod
	cd tools && $(THRIFT) $(GO) build -o ../$(BIN)/gotestsum gotest.tools/gotestsum

$(BIN)/nfpm: tools/go.mod
	cd tools && $(THRIFT) $(GO) build -o ../$(BIN)/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

$(BIN)/staticcheck: tools/go.mod
	cd tools && $(THRIFT) $(GO) build -o ../$(BIN)/staticcheck honnef.co/go/tools/cmd/staticcheck
