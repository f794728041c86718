package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// sharedNames returns the names of types that several packages may declare, by the reason.
func sharedNames() map[string]string {
	return map[string]string{
		"the usual word for a package's own settings, metrics or server":  "Options Settings metrics Client Server conn session Transport pool Info",
		"one element of what the package holds; no other package sees it": "item record row object field column job request result answer outcome delivery exchange waiter value part run plan change owned owner assign upcast visit info copier names compiler",
		"reads, writes or encodes the package's own form":                 "reader writer encoder queue arena mask stamp step watch Process file health definition",
		"the interface that a package asks for, and what implements it":   "Source Store Publisher Ledger Engine Sagas Decider Maintenance Inbox Past Reports Scripts Worker Provider Progress Caller Destination",
		"the form in a manifest, and the compiled one":                    "Effect Program",
		"the same thing, for the API and inside":                          "Problem WaitingKey FieldError Detail StreamPosition AEAD",
		"each suite's thing under test":                                   "Open Fixture",
		"an error of the package's own protocol":                          "Error versionError refusal verdict",
		"what an operator asks for, and what came of it":                  "Request Report",
		"documented words of Hero, and the same in its protocols":         "Job Runner Message Node Object State Call Handler outgoing contextLoop runnerParams",
		"a graph for people: of a saga, of a flow":                        "Graph GraphNode",
		"one event applied: to a saga's cell, to a flow":                  "application",
		"the key of a value in a context":                                 "callerKey",
		"who may call which route or method":                              "right",
		"part of a demo, which no other package sees":                     "Count",
		"one database: of Redis, of SQL, a store, its WAL":                "DB database",
		"an entry of a list: of tokens, of claims, of waiting events":     "Entry Field",
		"the replicated log, its records, their kinds and places":         "Log Record Kind Mark",
		"one call over a connection":                                      "local",
		"nodes that act as one: processes, or the NATS servers of a test": "Cluster",
	}
}

// doubles returns the names of types that several packages declare, with the packages. It skips
// tests.
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

// TestOneTypeNameMeansOneThing fails for a new type that has the name of a type of another package.
// Choose another name, or give the reason for both in sharedNames.
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
		if !allowed[name] {
			t.Errorf("the type %s is declared in %s", name, strings.Join(there[name], ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		if there[name] == nil {
			t.Errorf("%s is declared once: remove it from the list", name)
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
