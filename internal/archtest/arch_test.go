package archtest

import (
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// root is the module's folder, seen from this package.
const root = "../.."

func TestImportsFollowTheTable(t *testing.T) {
	packages := readPackages(t)
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d files", len(files))
	}
	for _, complaint := range append(complaints(packages, files), instanceComplaints(typeCheck(files))...) {
		t.Error(complaint)
	}
}

func TestEveryRoomOfTheTableExists(t *testing.T) {
	for name := range readPackages(t) {
		if name == "edda" {
			continue
		}
		if info, err := os.Stat(root + "/" + name); err != nil || !info.IsDir() {
			t.Errorf("ARCHITECTURE.md lists %s, which does not exist", name)
		}
	}
}

func readPackages(t *testing.T) map[string]rule {
	t.Helper()
	page, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := readTable(string(page))
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

func complaints(table map[string]rule, files []file) []string {
	var out []string
	packages := map[string][]file{}
	for _, f := range files {
		out = slices.Concat(out, importComplaints(table, f), rootComplaints(f), pureComplaints(f), shapeComplaints(f))
		if !f.test {
			packages[f.pkg] = append(packages[f.pkg], f)
		}
	}
	for _, p := range packages {
		out = append(out, variableComplaints(p)...)
	}
	return out
}

const page = "# A\n\n| package | what | imports |\n|---|---|---|\n" +
	"| `edda` (root) | words | none |\n| `saga/` | pure | edda |\n| `store/` | file | edda |\n" +
	"| `stream/` | wire | edda, store |\n| `internal/` | tools | |\n| `cmd/edda/` | wiring | everything |\n\n| other | x |\n"

func TestTable(t *testing.T) {
	packages, err := readTable(page)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 6 || !packages["cmd/edda"].all || strings.Join(packages["stream"].imports, " ") != "edda store" {
		t.Errorf("packages %+v", packages)
	}
	if r, ok := packageOf(packages, "stream/wire"); !ok || r.name != "stream" {
		t.Errorf("package of stream/wire is %+v", r)
	}
	if _, ok := packageOf(packages, "attic"); ok {
		t.Error("a package outside the table has a package")
	}
	if _, err := readTable("nothing"); err == nil {
		t.Error("a page without a table is accepted")
	}
}

func TestEachRuleComplains(t *testing.T) {
	packages, err := readTable(page)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, file, source, want string }{
		{"ungranted import", "store/db.go", `package store; import _ "edda/stream"`, "store may not import edda/stream"},
		{"granted import", "stream/a.go", `package stream; import _ "edda/store"`, ""},
		{"the testkit", "cmd/edda/a.go", `package main; import _ "edda/internal/testkit"`, "only tests import edda/internal/testkit"},
		{"a part of the testkit", "cmd/edda/a.go", `package main; import _ "edda/internal/testkit/natstest"`, "only tests import edda/internal/testkit/natstest"},
		{"the testkit in a test", "store/a_test.go", `package store; import _ "edda/internal/testkit"`, ""},
		{"the Redis of tests", "cmd/edda/a.go", `package main; import _ "edda/hero/redisdb/redisdbtest"`, "only tests import edda/hero/redisdb/redisdbtest"},
		{"own package", "stream/a.go", `package stream; import _ "edda/stream/wire"`, ""},
		{"wiring", "cmd/edda/a.go", `package main; import _ "edda/stream"`, ""},
		{"unknown package", "attic/a.go", `package attic`, "attic is not in the table"},
		{"unknown import", "stream/a.go", `package stream; import _ "edda/attic"`, "may not import edda/attic"},
		{"a test's import", "store/a_test.go", `package store; import _ "edda/stream"`, ""},
		{"root", "a.go", `package edda; import _ "go.uber.org/zap"`, "standard library only"},
		{"clock", "saga/a.go", `package saga; import "time"; func f() { time.Now() }`, "may not use time.Now"},
		{"renamed clock", "saga/a.go", `package saga; import t "time"; func f() { t.Sleep(1) }`, "may not use time.Sleep"},
		{"time as data", "saga/a.go", `package saga; import "time"; func f(t time.Time) { t.Add(time.Second) }`, ""},
		{"randomness", "saga/a.go", `package saga; import _ "math/rand/v2"`, "may not import math/rand/v2"},
		{"context", "saga/a.go", `package saga; import _ "context"`, "may not import context"},
		{"goroutine", "saga/a.go", `package saga; func f() { go f() }`, "no goroutine"},
		{"init", "store/a.go", `package store; func init() {}`, "no init"},
		{"a method init", "store/a.go", `package store; type t int; func (t) init() {}`, ""},
		{"long", "store/a.go", "package store\n" + strings.Repeat("\n", maxLines), "noun hiding"},
		{"global", "store/a.go", `package store; var n int; func f() { n = 1 }`, "n is a package-level variable"},
		{"global map", "store/a.go", `package store; var m = map[int]int{}; func f() { m[1]++ }`, "m is a package-level variable"},
		{"deleted from", "store/a.go", `package store; var m = map[int]int{}; func f() { delete(m, 1) }`, "m is a package-level variable"},
		{"local of the same name", "store/a.go", `package store; var n int; func f() { var n int; n = 1; _ = n }`, ""},
		{"parameter", "store/a.go", `package store; var n int; func f(n int) { n = 1 }`, ""},
		{"a named value", "store/a.go", `package store; import "errors"; var e = errors.New("x")`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parse(token.NewFileSet(), tt.file, []byte(tt.source))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(complaints(packages, []file{f}), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
