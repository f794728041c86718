package node

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/server"
	"edda/store"
)

func TestWrittenRevisionsDoNotPileUp(t *testing.T) {
	c := Config{Data: t.TempDir(), Role: "saga"}
	files := []store.DeployedFile{{Name: "shop/order.yaml", Content: []byte("saga: order\n")}}
	for n := range uint64(4) {
		if err := c.writeRevision(store.Deployment{Revision: n + 1, Files: files}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.revisionDir(9)+".new", 0o700); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	if err := c.keepRevisions(3); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(c.revisionsDir())
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if err != nil || !slices.Equal(left, []string{"2", "3"}) {
		t.Errorf("%q, %v are left; want the one that runs and the one before", left, err)
	}
	if err := c.writeRevision(store.Deployment{Revision: 3, Files: []store.DeployedFile{{Name: "other.yaml"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.revisionDir(3), "shop")); !os.IsNotExist(err) {
		t.Errorf("a revision that is written again has old files: %v", err)
	}
}

func TestNamedFilesDifferByTheirTextsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "order.yaml"), []byte("saga: order\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Manifests: []string{dir}}
	of := func(texts ...string) (d store.Deployment) {
		for _, text := range texts {
			d.Files = append(d.Files, store.DeployedFile{Name: "elsewhere/" + text, Content: []byte(text)})
		}
		return d
	}
	for name, tt := range map[string]struct {
		c    Config
		d    store.Deployment
		want bool
	}{
		"the same":        {c, of("saga: order\n"), false},
		"another text":    {c, of("saga: trip\n"), true},
		"one more":        {c, of("saga: order\n", "saga: trip\n"), true},
		"no files named":  {Config{}, of("saga: order\n"), false},
		"files that went": {Config{Manifests: []string{filepath.Join(dir, "none")}}, of("saga: order\n"), true},
	} {
		if got := tt.c.differ(tt.d); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestADeploymentIsTakenInOnlyBesideTheRevisionItWasJudgedWith: two at once, in several shards, would both succeed.
func TestADeploymentIsTakenInOnlyBesideTheRevisionItWasJudgedWith(t *testing.T) {
	runs := store.Deployment{Revision: 3, Time: time.Unix(7, 0).UTC(), Files: []store.DeployedFile{{Name: "b.yaml", Content: []byte("saga: b\n")}, {Name: "a.yaml"}}}
	p := &process{stay: &stay{revision: revision{Deployment: runs, kept: true}}}
	var q server.DeployOrder
	q.On = "2-0123456789abcdef"
	q.Body.Files = []server.ManifestFile{{Name: "a.yaml"}, {Name: "b.yaml", Content: []byte("saga: b\n")}}
	d, err := p.Deploy(t.Context(), q)
	if err != nil || d.Changed || d.Hash != runs.Hash() || !d.Since.Equal(runs.Time) || d.On() != "3-"+runs.Hash() {
		t.Errorf("the files that run: %+v, %v", d, err)
	}
	q.Body.Files[0].Content = []byte("saga: a\n")
	if _, err := p.Deploy(t.Context(), q); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "deploy them again") {
		t.Errorf("other files: %v", err)
	}
}
