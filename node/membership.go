package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/store"
)

// membership names the cluster of a store that is a copy.
type membership struct {
	Cluster string    `json:"cluster"`
	Created time.Time `json:"created"` // when the cluster began its log: a log that is begun again has another time
	Begun   bool      `json:"begun"`   // the log has had a record
	// Follows says that this node has not owned the store since the copy was found to be part of the log. Until then the
	// copy may have one transaction that the log never took.
	Follows bool `json:"follows,omitempty"`
}

// membershipOf returns the membership of the store in a folder; nil for a store of its own.
func membershipOf(dir string) (*membership, error) {
	text, err := store.ReplicatedOf(dir)
	if err != nil || text == nil {
		return nil, err
	}
	var m membership
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, edda.Classify(edda.Permanent, "the mark beside the store in %s does not say of which cluster it is a copy: %w", dir, err)
	}
	return &m, nil
}

// sameKeys refuses a store that has other keys than the one which this node keeps in the folder.
func (s Settings) sameKeys(has edda.Share) error {
	if has.Shard == s.share.Shard || has.Whole() && s.share.Whole() {
		return nil
	}
	return edda.Classify(edda.Permanent, "the store in folder %s has %s, and this node keeps %s there: name another --data; "+
		"the data folder of a node with several shards has the folders %s0 and so on", s.storeDir(), has, s.share, shardFolder)
}

// write notes the membership of the store in a folder, where it is not noted yet. Only a marked copy is ever replaced by
// another one.
func (m membership) write(dir string) error {
	if was, err := membershipOf(dir); err == nil && was != nil && was.Cluster == m.Cluster && m.of(was.Created) && was.Begun == m.Begun && was.Follows == m.Follows {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return store.MarkReplicated(dir, text)
}

// surely is the last transaction that the log has taken of a copy that ends at one.
func (m *membership) surely(transaction uint64) uint64 {
	if m.Follows || transaction == 0 {
		return transaction
	}
	return transaction - 1
}

// of reports whether the copy is of the log that was founded at a time.
func (m *membership) of(created time.Time) bool { return m != nil && m.Created.Equal(created) }

// ownStore refuses a copy of a cluster's store to a process that is alone: what it writes would be lost when the
// folder comes back to its cluster.
func ownStore(dir string) error {
	m, err := membershipOf(dir)
	if err != nil || m == nil {
		return err
	}
	return edda.Classify(edda.Permanent, "folder %s has a copy of the store of cluster %s: run it with --cluster %s, or take it out of the cluster "+
		"for good with edda cluster leave, when all its nodes have stopped", dir, m.Cluster, m.Cluster)
}

// storeDir is the folder of the store.
func (c Config) storeDir() string { return filepath.Join(c.Data, c.storeFolder()) }

// apart is the error of a store that has what this log has not, because of why. It was no copy, or one of another log, and
// perhaps has what was answered: no copy may take its place.
func (t *stay) apart(m *membership, transaction uint64, why error) error {
	what := "was no copy of it before"
	if m != nil {
		what = "has more than the copy with which the log was begun again"
	}
	return edda.Classify(edda.Permanent, "the store in folder %s ends at transaction %d and %s, so no copy may take its place: move it away, "+
		"or begin the log with it (edda cluster relog --drop-log, when all nodes have stopped): %v", t.dir(), transaction, what, why) // the caller copies the store for ErrTrimmed
}

// errLooksLost says that something of the cluster looks lost, and that it is too early to believe it.
var errLooksLost = edda.Classify(edda.Temporary, "it looks lost; NATS is asked again")

// lost is the error of a copy whose cluster has lost its bucket, its log or records of that. It is permanent once that
// has shown for cluster.LostWithin. The last beat of this node, which says how much it has, stays after its end.
func (t *stay) lost(what string, transaction uint64) error {
	t.more.Store(true)
	if t.lostSince.IsZero() {
		t.lostSince = time.Now()
	}
	if time.Since(t.lostSince) < cluster.LostWithin {
		return fmt.Errorf("the %s of cluster %s, whose copy here ends at transaction %d: %w", what, t.settings.Cluster.Name, transaction, errLooksLost)
	}
	return t.hasLost(what, transaction)
}

// hasLost is the error of a loss that has shown for long enough.
func (t *stay) hasLost(what string, transaction uint64) error {
	t.more.Store(true)
	return edda.Classify(edda.Permanent, "cluster %s has lost its %s, and the copy in folder %s ends at transaction %d: stop all nodes, find the copy with the "+
		"highest transaction, and begin the log again with it: edda cluster relog --cluster %s --node %s --data %s",
		t.settings.Cluster.Name, what, t.dir(), transaction, t.settings.Cluster.Name, t.node, t.settings.Data)
}

// heldWithin is how long a node waits for the process that holds its folder: the one before a restart may still stop.
const heldWithin = 15 * time.Second

// unheld waits until no other process holds the store in the folder, because this node would never follow, and then has
// the first beat say what the copy has.
func (t *stay) unheld(ctx context.Context) error {
	for since := time.Now(); ; {
		err := t.tellCopy()
		switch {
		case err == nil:
			return nil
		case time.Since(since) >= heldWithin:
			return edda.Classify(edda.Permanent, "%w", err)
		}
		if err := backoff.Wait(ctx, joinAgain); err != nil {
			return err
		}
	}
}

// tellCopy has the first beat say what the copy in the folder surely has of its log. Otherwise a node with less might take
// over before this one has found its place. It returns an error if another process holds the store; any other one shows
// again where the copy is needed.
func (t *stay) tellCopy() error {
	if !store.Exists(t.dir()) {
		return nil
	}
	r, err := t.openCopy()
	switch {
	case store.Held(err):
		return err
	case err != nil:
		return nil
	}
	if m, err := membershipOf(t.dir()); err == nil && m != nil && m.Cluster == t.settings.Cluster.Name {
		t.say(func(b *cluster.Beat) { b.Epoch, b.LSN = epochBefore(m.Created), m.surely(r.LSN()) })
	}
	_ = r.Close() // nothing was written
	return nil
}

// lostRecords is [stay.lost] of a copy of this log that has what the log has not, because of why.
func (t *stay) lostRecords(transaction uint64, why error) error {
	err := t.lost("records", transaction)
	if errors.Is(why, cluster.ErrAbsent) {
		return err
	}
	return fmt.Errorf("%w; a node has gone on without them: %v", err, why)
}
