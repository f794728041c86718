package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edda/internal/harness"
	"edda/store"
)

// answering is a node that answers GET /cluster with a text, and any other call as a ready node does.
func answering(t *testing.T, name string) (*demoNode, *atomic.Value) {
	var text atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cluster" {
			_, _ = io.WriteString(w, text.Load().(string))
		}
	}))
	t.Cleanup(s.Close)
	return &demoNode{Process: harness.New(name, os.DevNull, nil), name: name, api: s.URL}, &text
}

func TestAnOwnerIsANodeThatSaysSoInALaterEpoch(t *testing.T) {
	n, says := answering(t, "n2")
	r := &clustered{epoch: 3}
	for _, text := range []string{`{}`, `{"owner":"n1","epoch":4}`, `{"owner":"n2","epoch":3}`, `no JSON`} {
		says.Store(text)
		if err := r.look(t.Context(), n); err == nil || r.owner != nil {
			t.Errorf("%s: it owns the store", text)
		}
	}
	says.Store(`{"owner":"n2","epoch":4}`)
	if err := r.look(t.Context(), n); err != nil || r.owner != n || r.epoch != 4 {
		t.Errorf("%v; epoch %d", err, r.epoch)
	}
}

func TestTheOwnerIsSoughtAmongTheOthers(t *testing.T) {
	n1, says1 := answering(t, "n1")
	n2, says2 := answering(t, "n2")
	says1.Store(`{"owner":"n1","epoch":9}`)
	says2.Store(`{"owner":"n2","epoch":2}`)
	r := &clustered{nodes: []*demoNode{n1, n2}, owner: n1, epoch: 1}
	if err := r.awaitOwner(t.Context()); err != nil || r.owner != n2 {
		t.Errorf("%s owns it: %v", r.owner.name, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.awaitOwner(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "take over from n2") {
		t.Errorf("nobody took over: %v", err)
	}
}

func TestCopiesAreQuietWhenAllHaveTheSame(t *testing.T) {
	n, says := answering(t, "n1")
	r := &clustered{owner: n}
	for text, quiet := range map[string]bool{
		`{"nodes":[{"node":"n1","lsn":7},{"node":"n2","lsn":7}]}`:         true,
		`{"nodes":[{"node":"n1","lsn":7},{"node":"n2","lsn":6}]}`:         false,
		`{"nodes":[{"node":"n1","lsn":7},{"node":"n2","lsn":7,"lag":1}]}`: false,
	} {
		says.Store(text)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := r.awaitQuiet(ctx); (err == nil) != quiet {
			t.Errorf("%s: %v", text, err)
		}
		cancel()
	}
}

// TestStoresWithOtherRowsDiffer shows that the comparison notices another store, and takes a copy.
func TestStoresWithOtherRowsDiffer(t *testing.T) {
	dir := t.TempDir()
	r := &clustered{run: run{Options: Options{Out: io.Discard}}}
	for _, name := range []string{"n1", "n2", "n3"} {
		r.nodes = append(r.nodes, &demoNode{name: name, data: filepath.Join(dir, name)})
	}
	for _, name := range []string{"n1", "n3"} {
		s, err := store.Open(filepath.Join(dir, name, "store"), store.Options{})
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "n2"), os.DirFS(filepath.Join(dir, "n1"))); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, n := range r.nodes {
		has, err := n.rows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, has)
	}
	if err := r.judge(rows[:2]); err != nil {
		t.Error(err)
	}
	if err := r.judge(rows); err == nil || !strings.Contains(err.Error(), "n3 has "+rows[2]) {
		t.Errorf("not noticed: %v", err)
	}
}

func TestASenderCountsWhatItHasSent(t *testing.T) {
	for name, failing := range map[string]error{"it is ended": nil, "it fails": errors.New("not stored")} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &orderFlow{cancel: cancel, ended: make(chan struct{})}
			sent := 0
			go func() {
				defer close(s.ended)
				s.err = s.run(ctx, func(i int) error {
					if i != sent {
						return fmt.Errorf("order %d comes after %d", i, sent-1)
					}
					if sent == 3 {
						cancel()
						return failing
					}
					sent++
					return nil
				})
			}()
			<-s.ended
			want := 4
			if failing != nil {
				want = 3
			}
			if err := s.end(); s.count() != want || err != failing {
				t.Errorf("%d were sent, want %d: %v", s.count(), want, err)
			}
		})
	}
}
