package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// A store is split into two, each with half of its keys, to double the shards of a cluster. What belongs to no key, such as
// positions and manifests, is in both. So are claims: they know no key, and a claim that is not asked for does no harm.
// Neither has marks, or what [DB.Sent] reads: streams of a cluster have replicas, and need nothing published again.

// Split writes the two halves of the store into two new folders. The store itself stays as it is, and must not change
// any more: nothing tells the halves from then on. cluster names what a store of all keys becomes a part of. tell is called
// now and then with the rows that were read.
func (d *DB) Split(ctx context.Context, cluster string, to [2]string, tell func(rows int)) error {
	if d.tenant != "" {
		return edda.Classify(edda.Permanent, "the store has the rows of the tenant %s alone, and is not split", d.tenant)
	}
	share := d.share
	if share.Whole() {
		share = edda.Share{Cluster: cluster, Shard: edda.Shard{Of: 1}}
	}
	if share.Of*2 > edda.MaxShards {
		return edda.Classify(edda.Permanent, "there are %d shards already, and %d are the most", share.Of, edda.MaxShards)
	}
	for half := range to {
		share := edda.Share{Cluster: share.Cluster, Shard: edda.Shard{Index: share.Index + half*share.Of, Of: share.Of * 2}}
		if err := d.sound(func() error { return d.splitOff(ctx, share, to[half], tell) }); err != nil {
			return fmt.Errorf("write %s: %w", share, err)
		}
		// gofail: var splitHalved struct{}
	}
	return nil
}

// splitOff writes the store of one share.
func (d *DB) splitOff(ctx context.Context, share edda.Share, dir string, tell func(rows int)) error {
	text, err := json.Marshal(share)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return explain(dir, err)
	}
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return edda.Classify(edda.Permanent, "there is a store in %s already", dir)
	}
	x := &shardCopy{source: d.share.Shard, shard: share.Shard, counts: map[format.CountKey]uint64{}}
	x.rowCopy = d.rowCopy(ctx, tell, x)
	x.before = func() error { return room(path, 2*copyBytes) }
	o := d.options
	o.openFile = nil
	if x.file, err = openBolt(path, o); err != nil {
		return err
	}
	err = d.view(func(tx *wal.Tx) error { return x.copy(tx, d.options, text) })
	if err != nil {
		x.rollback()
	}
	return errors.Join(err, x.file.Close())
}

// shardCopy picks the rows of one shard.
type shardCopy struct {
	rowCopy
	source edda.Shard // of the store that is split
	shard  edda.Shard
	counts map[format.CountKey]uint64 // of the instances that were copied
}

func (x *shardCopy) copy(from *wal.Tx, o Options, share []byte) error {
	if err := x.meta(from, o, map[string][]byte{string(format.MetaShare): share}); err != nil {
		return err
	}
	for _, space := range format.Keyspaces {
		if space == format.Meta || space == format.Count {
			continue
		}
		if err := x.space(space); err != nil {
			return err
		}
		// gofail: var splitCopied struct{}
	}
	for key, n := range x.counts {
		if err := x.put([]byte(format.Count), nil, key.Bytes(), binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
	return x.commit()
}

// wants implements picker.
func (x *shardCopy) wants(space format.Keyspace, k []byte) bool {
	var of edda.Key
	var err error
	switch space {
	case format.Saga:
		of, _, err = format.CutKey(k)
	case format.Parked, format.Held, format.Part:
		of, _, err = format.CutEntryKey(k)
	case format.Due:
		_, of, err = format.CutDue(k)
	case format.Ended:
		var e format.EndKey
		e, err = format.CutEnded(k)
		of = e.Key
	default:
		return true
	}
	return err != nil || x.shard.Has(of) // a key that cannot be decoded is kept, for a check to report
}

// has reports whether a row about a key is one of the half. A store also has rows of keys that are no instance's, such as
// those of acts on the process: the first half gets them.
func (x *shardCopy) has(k edda.Key) bool {
	if !x.source.Has(k) {
		return x.shard.Index == x.source.Index
	}
	return x.shard.Has(k)
}

// mine implements picker.
func (x *shardCopy) mine(space format.Keyspace, k, v []byte) (bool, error) {
	switch space {
	case format.Outbox:
		_, work, err := format.CutWork(k, v)
		return x.has(work.From), err
	case format.History:
		r, _, err := format.CutRecord(format.Pointer{}, v)
		return x.shard.Has(r.Key), err
	case format.DeadLetter:
		d, err := format.Decode[edda.DeadLetter]("dead letter", v)
		return x.has(d.Key), err
	case format.DeadLetterID: // as its letter, which was copied before
		if err := x.begin(); err != nil {
			return false, err
		}
		return x.tx.Bucket([]byte(format.DeadLetter)).Get(append(append([]byte{}, v[:min(len(v), format.TimeSize)]...), k...)) != nil, nil
	case format.Audit:
		a, err := format.Decode[Audit]("audit", v)
		return x.has(a.Key), err
	case format.Replay:
		r, err := format.Decode[Replay]("replay", v)
		// That of a saga runs on in both halves, and a front lists both as one.
		return r.Correlation == "" || x.has(edda.Key{Tenant: r.Tenant, Saga: r.Saga, Correlation: r.Correlation}), err
	}
	return true, nil
}

// picked implements picker.
func (x *shardCopy) picked(space format.Keyspace, k []byte, h format.Head) {
	if space != format.Saga || h.Status == "" {
		return
	}
	if of, _, err := format.CutKey(k); err == nil {
		x.counts[format.CountOf(of, h.Version, h.Status)]++
	}
}
