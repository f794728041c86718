package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// sharedNames are the names of types that may be declared in several packages, by the reason.
func sharedNames() map[string]string {
	return map[string]string{
		"the usual word for a package's own settings, metrics or server":  "Options Settings metrics Client Server client conn connection session Transport pool meter Info Host",
		"one element of what the package holds; no other package sees it": "item entry record row object field column job task request result answer outcome delivery envelope exchange waiter value part run plan target change owned owner side assign upcast ended visit info copier names compiler handed",
		"reads, writes or encodes the package's own form":                 "reader writer encoder decoder queue arena mask stamp step watch process Process file health",
		"the interface that a package asks for, and what implements it":   "Source Store Publisher Ledger Engine Sagas Decider Maintenance Inbox Past Reports Scripts Worker Provider Progress Caller",
		"the form in a manifest, and the compiled one":                    "Effect Program",
		"the same thing, for the API and inside":                          "Problem WaitingKey FieldError Detail",
		"each suite's thing under test":                                   "Open",
		"an error of the package's own protocol":                          "Error versionError refusal verdict",
		"what an operator asks for, and what came of it":                  "Request Report Result",
		"documented words of Hero, and the same in its protocols":         "Job Runner Message Node Object State Call Handler outgoing contextLoop",
		"a graph for people: of a saga, of a flow":                        "Graph GraphNode",
		"one event applied: to a saga's cell, to a flow":                  "application",
		"the key of a value in a context":                                 "callerKey",
		"a table of a command: of its list, of its query":                 "listing",
		"who may call which route or method":                              "right",
		"the book of the callers; of the benchmark's calls":               "Book",
		"part of a demo, which no other package sees":                     "ledger Count",
		"the stage of a stop; of the benchmark's table":                   "Stage",
		"one database: of Redis, of SQL, a store, its WAL":                "DB database",
		"an entry of a list: of tokens, of claims, of waiting events":     "Entry Field",
		"one call over a connection":                                      "trip local",
	}
}

// toBeRenamed are names that mean two things. Each has a better one for at least one package.
func toBeRenamed() map[string]string {
	return map[string]string{
		"Beginning":   "stream.Beginning is StreamStart",
		"CatchUp":     "engine.CatchUp is CatchUpOptions",
		"Destination": "engine.Destination is DestinationKinds; mycelium.Destination is Address",
		"Flows":       "router.Flows is FlowResults",
		"Group":       "lifecycle.Group is Parts",
		"Keeper":      "dispatcher.Keeper is Releaser; versions.Keeper is Texts; retention.Keeper is Sweeper",
		"Key":         "supervisor.Key is Credential",
		"Kind":        "effects.Kind is ProviderKind; store.Kind is RowKind",
		"Names":       "effecttest.Names is FakeDNS",
		"Outcome":     "engine.Outcome is Answer; script.Outcome and dispatcher.Outcome are RunResult",
		"Pair":        "engine.Pair is SagaTenant",
		"Part":        "flow.Part is StatePart; lifecycle.Part is Component; manifests.Part is TemplatePart",
		"Position":    "edda.Position is SeqPosition; engine.Position is Checkpoint",
		"Retry":       "list.Retry is Retrier",
		"Running":     "coordinator.Running is RunningFlows",
		"Schedule":    "edda.Schedule is ScheduleState",
		"Scope":       "supervisor.Scope is Permission",
		"Secrets":     "access.Secrets is SecretHashes",
		"Subject":     "the suites' Subject is Fixture",
		"Watch":       "coordinator.Watch is JobWatch",
		"Work":        "wal.Work is DiskWork; redisdb.Work is RunnerJob",
		"address":     "supervisor.address is jobAddress",
		"lane":        "outbox.lane is destination",
		"loop":        "expression.loop is roundCost",
		"pipeline":    "engine.pipeline is submitter",
		"room":        "script.room is namespaces",
		"scope":       "server.scope is reach",
		"sender":      "router.sender is senderKey",
		"source":      "saga.source is edgeStart; grpceffect.source is descriptors",
		"waiting":     "store.waiting is waitingResult; stream.waiting is storedTimes",
	}
}

// doubles are the names of types that several packages declare, with the packages. Files of
// tests, testdata and modules of their own are left out.
func doubles(files []file) map[string][]string {
	packages := map[string][]string{}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				name := s.(*ast.TypeSpec).Name.Name
				if !slices.Contains(packages[name], f.pkg) {
					packages[name] = append(packages[name], f.pkg)
				}
			}
		}
	}
	maps.DeleteFunc(packages, func(_ string, in []string) bool { return len(in) < 2 })
	return packages
}

// TestOneTypeNameMeansOneThing fails where a new type has the name of a type of another package.
// Choose another name, or say in sharedNames why both are right.
func TestOneTypeNameMeansOneThing(t *testing.T) {
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for reason, names := range sharedNames() {
		for _, name := range strings.Fields(names) {
			if allowed[name] {
				t.Errorf("%s is allowed twice, also because it is %s", name, reason)
			}
			allowed[name] = true
		}
	}
	there := doubles(files)
	if len(there) < 20 {
		t.Fatalf("only %d names were found", len(there))
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		_, later := toBeRenamed()[name]
		if later && allowed[name] {
			t.Errorf("%s is allowed, and to be renamed", name)
		}
		if !later && !allowed[name] {
			t.Errorf("the type %s is declared in %s", name, strings.Join(there[name], ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(toBeRenamed())) {
		if there[name] == nil {
			t.Logf("%s has one meaning now: take it out of the list", name)
		}
	}
}

func TestADoubleIsFound(t *testing.T) {
	var files []file
	for name, source := range map[string]string{
		"a/a.go": "package a\ntype one struct{}\ntype two struct{}\n", "b/b.go": "package b\ntype (\n\tone int\n\tthree int\n)\n", "c/c_test.go": "package c\ntype two int\n",
	} {
		f, err := parse(token.NewFileSet(), name, []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if got := doubles(files); len(got) != 1 || len(got["one"]) != 2 {
		t.Errorf("%v", got)
	}
}
