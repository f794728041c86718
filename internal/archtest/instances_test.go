package archtest

import (
	"go/token"
	"strings"
	"testing"
)

// ground returns a small module that keeps the rules about instances.
func ground() map[string]string {
	var writers strings.Builder
	for _, name := range keyspaceWriters() {
		head := "func " + name + "("
		if receiver, method, ok := strings.Cut(name, "."); ok {
			head = "type " + receiver + method + " struct{}\nfunc (w *" + receiver + ") " + method + "("
		}
		writers.WriteString(head + "b *wal.Bucket) { b.Put(nil, nil) }\n")
	}
	return map[string]string{
		"a.go":                    "package edda; type Instance struct{}; type Transition struct { Key string; Instance *Instance; Resolved []string }",
		"store/wal/a.go":          "package wal; type Bucket struct{}; func (*Bucket) Put(k, v []byte) {}; func (*Bucket) Get(k []byte) []byte { return nil }",
		"store/change.go":         "package store; import \"edda\"; type Change struct { Transitions []edda.Transition; Encoded []int }",
		"store/format/a.go":       "package format; type Keyspace string; const Saga Keyspace = \"saga\"; const Due Keyspace = \"due\"",
		"store/writer.go":         "package store; import (\"edda/store/format\"; \"edda/store/wal\"); type row struct { bucket format.Keyspace }\ntype writer struct{}; type encoder struct{}; type copier struct{}; type extract struct{}\nfunc (w *writer) bucket(name format.Keyspace) *wal.Bucket { return nil }\n" + writers.String(),
		"node/operator/a.go":      "package operator; import (\"edda\"; \"edda/store\"); type Quarantine struct{}\nfunc (q *Quarantine) resolve(t edda.Transition) store.Change { return store.Change{Transitions: []edda.Transition{t}} }",
		"engine/a.go":             "package engine; import (\"edda\"; \"edda/store\"); func f(c *store.Change, t edda.Transition) { t.Instance = nil; c.Transitions = append(c.Transitions, t) }",
		"hero/flowsaga/decide.go": "package flowsaga; import \"edda\"; func f() edda.Transition { return edda.Transition{Instance: &edda.Instance{}} }",
	}
}

func instanceComplaintsOf(t *testing.T, sources map[string]string) string {
	t.Helper()
	var files []file
	set := token.NewFileSet()
	for name, source := range sources {
		f, err := parse(set, name, []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return strings.Join(instanceComplaints(typeCheck(files)), "\n")
}

func TestOnlyTheEngineWritesInstances(t *testing.T) {
	if got := instanceComplaintsOf(t, ground()); got != "" {
		t.Fatalf("the ground: %s", got)
	}
	const stream = `package stream; import ("edda"; "edda/store"); var in *edda.Instance; var t edda.Transition; var c store.Change; var _ = c; `
	for _, tt := range []struct{ name, file, source, want string }{
		{"a key", "stream/a.go", stream + `var u = edda.Transition{Instance: in}`, saysInstance},
		{"in a list", "stream/a.go", stream + `var u = []edda.Transition{{Key: "k", Instance: in}}`, saysInstance},
		{"without names", "stream/a.go", stream + `var u = edda.Transition{"k", in, nil}`, saysInstance},
		{"an assignment", "stream/a.go", stream + `func f() { t.Instance = in }`, saysInstance},
		{"of several", "stream/a.go", stream + `func f(x int) { x, t.Instance = 1, in }`, saysInstance},
		{"through a pointer", "stream/a.go", stream + `func f(p *edda.Transition) { (*p).Instance = in }`, saysInstance},
		{"in a list's element", "stream/a.go", stream + `func f() { c.Transitions[0].Instance = in }`, saysInstance},
		{"by another name", "stream/a.go", stream + `type mine = edda.Transition; func f(m mine) { m.Instance = in }`, saysInstance},
		{"an address", "stream/a.go", stream + `func f() { p := &t.Instance; *p = in }`, saysInstance},
		{"transitions in a change", "stream/a.go", stream + `func f() { c.Transitions = append(c.Transitions, t) }`, saysTransition},
		{"encoded transitions", "stream/a.go", stream + `func f() { c.Encoded = append(c.Encoded, 0) }`, saysTransition},
		{"in a change", "node/a.go", `package node; import ("edda"; "edda/store"); func f(t edda.Transition) store.Change { return store.Change{Transitions: []edda.Transition{t}} }`, saysTransition},
		{"none of either", "stream/a.go", stream + `var u = edda.Transition{Resolved: nil}`, ""},
		{"an instance of something else", "stream/a.go", stream + `type view struct{ Instance *edda.Instance }; var v = view{Instance: in}; func f() { v.Instance = in }`, ""},
		{"a read", "stream/a.go", stream + `func f() *edda.Instance { return t.Instance }`, ""},
		{"a sweep in the store", "store/a.go", `package store; import "edda/store/format"; func (w *writer) sweep() { w.bucket(format.Saga).Put(nil, nil) }`, saysKeyspace},
		{"in two steps", "store/a.go", `package store; import "edda/store/format"; func (w *writer) sweep() { b := w.bucket(format.Saga); b.Put(nil, nil) }`, saysKeyspace},
		{"of a name", "store/a.go", `package store; import "edda/store/format"; func (w *writer) sweep(name format.Keyspace) { w.bucket(name).Put(nil, nil) }`, saysKeyspace},
		{"of a list", "store/a.go", `package store; import "edda/store/format"; func (w *writer) sweep() { for _, name := range []format.Keyspace{} { w.bucket(name).Put(nil, nil) } }`, saysKeyspace},
		{"a row of it", "store/a.go", `package store; import "edda/store/format"; var out []row; func sweep() { out = append(out, row{bucket: format.Saga}) }`, saysKeyspace},
		{"a bucket as a parameter", "store/a.go", `package store; import "edda/store/wal"; func sweep(b *wal.Bucket) { b.Put(nil, nil) }`, saysKeyspace},
		{"another keyspace", "store/a.go", `package store; import "edda/store/format"; func (w *writer) sweep() { w.bucket(format.Due).Put(nil, nil) }`, ""},
		{"a read of it", "store/a.go", `package store; import "edda/store/format"; func (w *writer) sweep() { w.bucket(format.Saga).Get(nil) }`, ""},
		{"a function that does not exist", "node/operator/a.go", `package operator`, "Quarantine.resolve is listed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sources := ground()
			sources[tt.file] = tt.source
			if got := instanceComplaintsOf(t, sources); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
