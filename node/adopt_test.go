package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"

	"edda/internal/testkit"
	"edda/node/operator"
	"edda/node/versions"
	"edda/retention"
	"edda/server"
	"edda/store"
)

// versionOf returns the loaded manifests of a folder with one version of a saga.
func versionOf(t *testing.T, n int) loaded {
	t.Helper()
	text := fmt.Sprintf("saga: order\nversion: %d\nkey: event.id\non: {Placed: {start: true}}\n", n)
	return loaded{programs: testkit.Set(t, text).Programs()}
}

// stored returns a process that has only a store.
func stored(t *testing.T) *process {
	t.Helper()
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	return &process{settings: Settings{Config: Config{Role: roleSaga}}, log: zap.NewNop(), db: db, texts: versions.New(db, false, zap.NewNop())}
}

// TestAReloadKeepsTheVersionOfAnInstanceThatStartsMeanwhile: the instance was not in the store yet when
// the reload looked for needed versions.
func TestAReloadKeepsTheVersionOfAnInstanceThatStartsMeanwhile(t *testing.T) {
	p := stored(t)
	if err := errors.Join(p.adopt(versionOf(t, 1)), p.keepAdopted(t.Context())); err != nil {
		t.Fatal(err)
	}
	set, problems, err := p.prepare(t.Context(), versionOf(t, 2), taking{})
	if err != nil || problems.Failed() {
		t.Fatal(err, problems)
	}
	var has []int
	for _, program := range set.Programs() {
		has = append(has, program.Version())
	}
	if fmt.Sprint(has) != "[2 1]" {
		t.Errorf("the new set has the versions %v, want 2 and, until the next reload, 1", has)
	}
	if got := set.Starts("order").Version(); got != 2 {
		t.Errorf("instances start on version %d", got)
	}
}

// TestTheTextThatRunsIsNeeded also where it is not the newest that there was: by
// the clean-up of the process, and, adopted again, by any other.
func TestTheTextThatRunsIsNeeded(t *testing.T) {
	p := stored(t)
	for _, n := range []int{2, 1} {
		if err := errors.Join(p.adopt(versionOf(t, n)), p.keepAdopted(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	s := p.retentionSettings
	clean := func(settings func() (retention.Settings, error)) string {
		t.Helper()
		u, err := operator.NewMaintenance(p.db, settings, nil, nil)
		if err == nil {
			_, err = u.Collect(t.Context(), server.Collect{}, func(any) {})
		}
		kept, errKept := p.db.Manifests()
		if err := errors.Join(err, errKept); err != nil {
			t.Fatal(err)
		}
		var idle []string
		for _, k := range kept {
			idle = append(idle, fmt.Sprint(k.Version, " ", !k.Idle.IsZero()))
		}
		return strings.Join(idle, ", ")
	}
	p.settings.Config = Defaults()
	if got := clean(s); got != "1 false, 2 false" {
		t.Errorf("idle after the clean-up of the process: %s", got)
	}
	alone := func() (retention.Settings, error) { return p.settings.retentionOf(p.db) }
	if got := clean(alone); got != "1 true, 2 false" {
		t.Errorf("idle after a clean-up that does not know what runs: %s", got)
	}
	if err := p.keepAdopted(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept, err := p.db.Manifests(); err != nil || !kept[0].Idle.IsZero() || kept[0].Text == "" || len(kept) != 2 {
		t.Errorf("adopted again: %+v %v", kept, err)
	}
}
