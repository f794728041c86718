package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"edda"
	"edda/internal/testkit"
	"edda/saga"
	"edda/store"
)

// others fills a store with the other instances of W5 and W6, once a run, and returns
// its folder.
func (r *run) others() (dir string, err error) {
	if r.filled != "" {
		return r.filled, nil
	}
	set, err := r.one()
	if err != nil {
		return "", err
	}
	if dir, err = r.folder("others"); err != nil {
		return "", err
	}
	took, err := timed(func() error {
		return testkit.Fill(r.ctx, dir, r.Others, func(i int) []edda.Transition { return begun(set, "OrderPlaced", otherKey(i), false) })
	})
	if err != nil {
		return "", err
	}
	r.say("    filled a store with %d instances in %v", r.Others, took.Round(time.Second))
	r.filled = dir
	return dir, nil
}

func (r *run) one() (*saga.Set, error) {
	text, err := manifestFiles.ReadFile("manifests/one.yaml")
	if err != nil {
		return nil, err
	}
	return testkit.Compile(string(text))
}

func otherKey(i int) string { return fmt.Sprintf("O%08d", i) }

// begun returns the first transition of an instance, without its work unless that is
// still to go out.
func begun(set *saga.Set, event, key string, work bool) []edda.Transition {
	ev := edda.Event{Kind: edda.KindEvent, ID: event + "-" + key, Tenant: "default", Type: event, AggregateType: "Order", AggregateID: key,
		Time: time.Now().UTC(), Payload: order(key, false)}
	target := set.Route(ev)[0]
	_, trs := set.Apply(edda.Cell{Key: target.Key}, target, ev)
	for i := range trs {
		if !work {
			trs[i].Work = nil
		}
	}
	return trs
}

// crowd gives a server the store with the other instances: a copy, or the store
// itself where no later workload needs it.
func (r *run) crowd(to string, last bool) error {
	filled, err := r.others()
	if err != nil {
		return err
	}
	if !last {
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		return copyFile(filepath.Join(to, store.FileName), filepath.Join(filled, store.FileName))
	}
	r.filled = ""
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.Rename(filled, to)
}

// page is how much is copied at once. A kernel that keeps one large write as one folio
// counts all of it as written where bbolt changes a page in it.
const page = 4096

// copyFile copies a file and syncs it, because the server's first commit would pay for
// the sync.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, page))
	return errors.Join(err, out.Sync(), out.Close())
}
