package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"edda"
)

// TestCheckFinds damages a good store in one place at a time.
func TestCheckFinds(t *testing.T) {
	key := instanceKey(formatKey)
	put := func(name keyspace, k []byte, v string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(name)).Put(k, []byte(v)) }
	}
	remove := func(name keyspace, k []byte) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(name)).Delete(k) }
	}
	tests := map[string]struct {
		damage func(*bolt.Tx) error
		want   string
	}{
		"a counter":         {put(bucketCount, countKey{"acme", "order", 2, edda.StatusRunning}.row(), "\x00\x00\x00\x00\x00\x00\x00\x02"), "counters are"},
		"a lost counter":    {remove(bucketCount, countKey{"acme", "order", 2, edda.StatusRunning}.row()), "counters are"},
		"no due row":        {remove(bucketDue, dueKey(noon.Add(time.Minute), key)), "no due row at"},
		"a bad due row":     {put(bucketDue, []byte("x"), ""), "due 78: malformed key"},
		"held, yet nothing": {remove(bucketHeld, entryKey(instanceKey(formatHeld), 1)), `held by "d1", and held events: false`},
		"parked beside":     {put(bucketParked, entryKey(key, 1), `{"n":1}`), "events are parked beside it"},
		"an entry's number": {put(bucketParked, entryKey(instanceKey(formatParked), 2), `{"n":7}`), "number 7 under another"},
		"a head":            {put(bucketSaga, key, string(head{Version: 1, Status: "done"}.append(nil))+`{}`), "its head says version 1, done"},
		"an instance":       {put(bucketSaga, key, string(head{Status: "done"}.append(nil))+`{`), "decode instance acme/order/O1"},
		"half a head":       {put(bucketSaga, key, "x"), "malformed row"},
		"a broken chain":    {damageHistory(func(b *bolt.Bucket) error { return b.Delete(pointer{Commit: 1}.key()) }), "no row at commit 1, 0"},
		"another's history": {damageHistory(func(b *bolt.Bucket) error {
			return b.Put(pointer{Commit: 1}.key(), b.Get(pointer{Commit: 1, N: 1}.key()))
		}), "commit 1, 0 is of acme/order/early"},
		"a circle":           {damageHistory(circle), "points forward"},
		"a row of no commit": {damageHistory(func(b *bolt.Bucket) error { return b.Put(pointer{Commit: 9}.key(), b.Get(pointer{Commit: 1}.key())) }), "commit 9, but the last is 3"},
		"work twice":         {put(bucketOutbox, make([]byte, 16), `{"id":"c1","kind":"effect"}`), "effect command c1 waits twice"},
		"a lost letter":      {remove(bucketDead, deadKey(noon, "d1")), "names no dead letter"},
		"a lost letter's id": {remove(bucketDeadID, texts("d1")), "cannot be found by its id"},
		"a claim's hour":     {misplacedClaim, "claim c9 is in the wrong hour"},
		"a checkpoint":       {put(bucketCheckpoint, texts("S"), "x"), "checkpoint 530001: decode row"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), Options{noSync: true})
			for i, c := range formatChanges() {
				db.commit(t, c)
				if i == len(formatChanges())-1 {
					db.check(t)
				}
			}
			if err := db.bolt.Update(test.damage); err != nil {
				t.Fatal(err)
			}
			found := errors.Join(db.Check(context.Background())...)
			if found == nil || !strings.Contains(found.Error(), test.want) {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

func damageHistory(damage func(day *bolt.Bucket) error) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		return damage(tx.Bucket([]byte(bucketHistory)).Bucket(dayKey(dayOf(noon))))
	}
}

// circle makes the first row point to itself.
func circle(b *bolt.Bucket) error {
	at := pointer{Day: dayOf(noon), Commit: 1}
	row := append([]byte(nil), b.Get(at.key())...)
	at.append(row[:0])
	return b.Put(at.key(), row)
}

func misplacedClaim(tx *bolt.Tx) error {
	hour, err := tx.Bucket([]byte(bucketClaim)).CreateBucket(hourKey(1))
	if err != nil {
		return err
	}
	return hour.Put(texts("c9"), []byte(`{"command_id":"c9","claimed":"2026-03-01T12:00:00Z"}`))
}

func TestCheckStopsWhenAsked(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if found := errors.Join(db.Check(ctx)...); !errors.Is(found, context.Canceled) {
		t.Errorf("found %v", found)
	}
}
