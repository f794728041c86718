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

// probeEvery is how often the committer tries the disk again by itself after a
// failed commit: soon enough for /health to be true, seldom enough to cost nothing.
const probeEvery = time.Second

// Run is the committer: it groups what waits into one transaction, until ctx
// ends; then it commits what was submitted and returns. Nothing commits without it.
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
	d.queue.stopping()
	for {
		d.commitWaiting()
		if d.queue.close() {
			return nil
		}
	}
}

// probe ticks while the last commit has failed.
func (d *DB) probe() <-chan time.Time {
	if d.Healthy() == nil || d.broken != nil {
		return nil
	}
	return time.After(probeEvery)
}

func (d *DB) commitWaiting() {
	for {
		group := d.queue.take(maxGroup, maxGroupBytes)
		if len(group) == 0 {
			return
		}
		d.commitGroup(group)
		d.between()
	}
}

// between does what somebody waits to have done between two commits.
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
	if d.delta.add(d.stamp, group) {
		keep(group)
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
		_ = d.view(d.hours.load) // or there are some more to look through
	}
}

// Fence has every commit pass it from now on: an error says that this process may not
// write now, or not any more. It must not wait for long. It may be called while Run runs.
func (d *DB) Fence(pass func(context.Context) error) { d.fence.Store(&pass) }

func (d *DB) fenced() error {
	pass := d.fence.Load()
	if pass == nil {
		return nil
	}
	return (*pass)(context.Background())
}

// refuse answers the jobs of pipelines that are broken and returns the others.
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

// write commits a group in one transaction. When it fails nothing has changed,
// neither in the file nor in memory.
func (d *DB) write(group []*job) (*staged, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	next, staged := d.stamp.Next(d.options.Now()), d.staged.anew(d.index)
	d.staged = staged
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
	w.oldest()
	return w.counts()
}

// doubt looks whether a commit that failed can be seen all the same: the last
// sync can fail after the last write. Then nobody knows what the disk holds, and
// only reading it anew, after a restart, will tell.
func (d *DB) doubt(s format.Stamp, cause error) error {
	if !d.file.Ahead() && d.stamp.Commit < s.Commit {
		return cause
	}
	d.broken = fmt.Errorf("nobody knows whether the last commit is on disk; restart to read what is: %w", cause)
	return d.broken
}

// failed answers a group that could not be committed, and with it everything
// queued behind it: that was decided in the belief that this would be committed.
// Nobody believed in a probe, which is an empty group.
func (d *DB) failed(group []*job, cause error) {
	err := edda.Classify(edda.Temporary, "commit to %s: %w", d.path, cause)
	if d.health.set(err) == nil {
		d.options.Log.Error("the store cannot commit", zap.Error(err))
	}
	if len(group) == 0 {
		return
	}
	// Taken before anybody is answered: who has heard of the failure and submits
	// again believes in nothing that failed.
	queued := d.queue.all()
	answer(group, err)
	answer(refuse(queued), edda.Classify(edda.Temporary, "a commit before it failed: %w", err))
}

func (d *DB) recovered() {
	if d.health.set(nil) != nil {
		d.options.Log.Info("the store commits again")
	}
}
