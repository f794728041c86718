package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// probeEvery is how often the committer tries the disk again after a failed commit, so that
// /health is right and the probes cost nothing.
const probeEvery = time.Second

// Run is the committer. It commits what waits in the queue as one transaction, until ctx ends;
// then it commits all that was submitted and returns. Nothing commits without it.
func (d *DB) Run(ctx context.Context) error {
	if d.running.Swap(true) {
		return errors.New("the committer runs already")
	}
	for {
		select {
		case <-d.queue.ready:
			d.commitWaiting()
		case act := <-d.safe:
			act()
		case <-d.probe():
			d.commitGroup(nil)
		case <-ctx.Done():
			return d.finish()
		}
	}
}

func (d *DB) finish() error {
	d.queue.endLinger()
	for {
		d.commitWaiting()
		if d.queue.close() {
			return nil
		}
	}
}

// probe ticks while the last commit is a failed one.
func (d *DB) probe() <-chan time.Time {
	if d.Healthy() == nil || d.broken != nil {
		return nil
	}
	return time.After(probeEvery)
}

func (d *DB) commitWaiting() {
	most := maxGroup
	// gofail: var groupBound int
	// most = groupBound
	for {
		group := d.queue.take(most, maxGroupBytes)
		if len(group) == 0 {
			return
		}
		d.commitGroup(group)
		d.between()
	}
}

// between runs a call that waits for the moment between two commits.
func (d *DB) between() {
	select {
	case act := <-d.safe:
		act()
	default:
	}
}

// commitGroup commits jobs together and answers all of them, in order.
func (d *DB) commitGroup(group []*job) {
	group = refuse(group)
	if len(group) == 0 && d.Healthy() == nil {
		return
	}
	if err := d.fenced(); err != nil {
		d.failed(group, err)
		return
	}
	started := time.Now()
	staged, err := d.write(group)
	if err != nil {
		d.failed(group, err)
		return
	}
	d.index.apply(staged)
	added := addedRows(staged)
	if staged.armed {
		d.dues.armed(staged.first)
	}
	d.recovered()
	if d.options.Observe != nil && len(group) > 0 {
		d.options.Observe(len(group), sizeOf(group), time.Since(started))
	}
	answer(group, nil)
	d.send(added)
	if staged.armed {
		signal(d.armed)
	}
	if staged.cleared {
		_ = d.view(d.hours.load) // if it fails, readers look through some hours more
	}
}

// Fence sets what every commit must pass from now on. An error of it says that this process may
// not write now, and ErrBroken that it never may again. It must not block for long. Fence may be called while Run runs.
func (d *DB) Fence(pass func(context.Context) error) { d.fence.Store(&pass) }

func (d *DB) fenced() error {
	pass := d.fence.Load()
	if pass == nil {
		return nil
	}
	return (*pass)(context.Background())
}

// refuse answers the jobs of pipelines that have failed, and returns the others.
func refuse(group []*job) (rest []*job) {
	for _, j := range group {
		if j.line != nil && j.line.err != nil {
			j.done(edda.Classify(edda.Temporary, "a change before it failed: %w", j.line.err))
			continue
		}
		rest = append(rest, j)
	}
	return rest
}

func answer(group []*job, err error) {
	for _, j := range group {
		if err != nil && j.line != nil && j.line.err == nil {
			j.line.err = err
		}
		j.done(err)
	}
}

func sizeOf(group []*job) (n int) {
	for _, j := range group {
		n += j.change.size
	}
	return n
}

// write commits a group in one transaction. If it fails, neither the file nor memory has changed.
func (d *DB) write(group []*job) (*staged, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	next, staged := d.stamp.Next(d.options.Now()), newStaged(d.index)
	tx, err := d.begin(true)
	if err != nil {
		return nil, d.doubt(next, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if err := d.sound(func() error { return d.fill(tx, next, staged, group) }); err != nil {
		return nil, err
	}
	d.hours.add(staged)
	// gofail: var storeFilled struct{}
	if err := tx.Commit(); err != nil {
		return nil, d.doubt(next, err)
	}
	// gofail: var storeCommitted struct{}
	d.stamp = next
	return staged, nil
}

func (d *DB) fill(tx *wal.Tx, s format.Stamp, st *staged, group []*job) error {
	w, err := newWriter(tx, d.seal, s, st)
	if err != nil {
		return err
	}
	w.tells = d.options.KeepSent != nil
	for _, j := range group {
		if err := w.change(j.change); err != nil {
			return err
		}
	}
	return w.finish()
}

// ErrBroken says that nothing can be committed until the store is opened again.
var ErrBroken = errors.New("nothing can be committed before a restart")

// doubt checks whether a failed commit may be on disk, since a sync can fail after the write. Then
// nothing is committed any more, and only a restart can read what the disk has.
func (d *DB) doubt(s format.Stamp, cause error) error {
	if !d.file.Ahead() && d.stamp.Commit < s.Commit {
		return cause
	}
	d.broken = fmt.Errorf("nobody knows whether the last commit is on disk, and %w: %w", ErrBroken, cause)
	return d.broken
}

// failed answers a group that could not be committed, and all that is queued after it, which may
// build on the group. Nothing builds on a probe, which is an empty group.
func (d *DB) failed(group []*job, cause error) {
	err := edda.Classify(edda.Temporary, "commit to %s: %w", d.path, cause)
	if d.health.set(err) == nil {
		d.options.Log.Error("the store cannot commit", zap.Error(err))
	}
	if len(group) == 0 {
		return
	}
	// Taken before any answer: what is submitted after an answer builds on nothing that failed.
	queued := d.queue.all()
	answer(group, err)
	answer(refuse(queued), edda.Classify(edda.Temporary, "a commit before it failed: %w", err))
}

func (d *DB) recovered() {
	if d.health.set(nil) != nil {
		d.options.Log.Info("the store commits again")
	}
}
