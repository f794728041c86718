package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

var doneKey = edda.Key{Tenant: "acme", Saga: "order", Correlation: "done"}

// TestCheckFinds damages a good store in one place at a time: one or more for
// each sentence of FORMAT.md's "What must hold".
func TestCheckFinds(t *testing.T) {
	key, done := format.InstanceKey(formatKey), format.InstanceKey(doneKey)
	clock := uint64(noon.UnixMilli())
	put := func(name format.Keyspace, k []byte, v string) func(*wal.Tx) error {
		return func(tx *wal.Tx) error { return tx.Bucket([]byte(name)).Put(k, []byte(v)) }
	}
	remove := func(name format.Keyspace, k []byte) func(*wal.Tx) error {
		return func(tx *wal.Tx) error { return tx.Bucket([]byte(name)).Delete(k) }
	}
	tests := map[string]struct {
		damage func(*wal.Tx) error
		want   string
	}{
		"a counter":         {put(format.Count, format.CountOf(formatKey, 2, edda.StatusRunning).Bytes(), "\x00\x00\x00\x00\x00\x00\x00\x02"), "counters are"},
		"a lost counter":    {remove(format.Count, format.CountOf(formatKey, 2, edda.StatusRunning).Bytes()), "counters are"},
		"no due row":        {remove(format.Due, format.DueKey(noon.Add(time.Minute), key)), "no due row at"},
		"a bad due row":     {put(format.Due, []byte("x"), ""), "due 78: malformed key"},
		"held, yet nothing": {remove(format.Held, format.EntryKey(format.InstanceKey(formatHeld), 1)), `held by "d1", and held events: false`},
		"parked beside":     {put(format.Parked, format.EntryKey(key, 1), `{"n":1}`), "events are parked beside it"},
		"an entry's number": {put(format.Parked, format.EntryKey(format.InstanceKey(formatParked), 2), `{"n":7}`), "number 7 under another"},
		"a head":            {put(format.Saga, key, string(format.Head{Version: 1, Status: "done"}.Append(nil))+`{}`), "its head says version 1, done"},
		"an instance":       {put(format.Saga, key, string(format.Head{Status: "done"}.Append(nil))+`{`), "decode instance acme/order/O1"},
		"half a head":       {put(format.Saga, key, "x"), "malformed row"},
		"a broken chain":    {damageHistory(func(b *wal.Bucket) error { return b.Delete(format.Pointer{Commit: 1}.Key()) }), "no row at commit 1, 0"},
		"another's history": {damageHistory(func(b *wal.Bucket) error {
			return b.Put(format.Pointer{Commit: 1}.Key(), b.Get(format.Pointer{Commit: 1, N: 1}.Key()))
		}), "commit 1, 0 is of acme/order/early"},
		"a circle": {damageHistory(circle), "points forward"},
		"a row of no commit": {damageHistory(func(b *wal.Bucket) error {
			return b.Put(format.Pointer{Commit: 9}.Key(), b.Get(format.Pointer{Commit: 1}.Key()))
		}), "commit 9, but the last is 4"},
		"work twice":         {put(format.Outbox, make([]byte, 16), `{"id":"c1","kind":"effect"}`), "effect command c1 waits twice"},
		"a lost letter":      {remove(format.DeadLetter, format.DeadKey(noon, "d1")), "names no dead letter"},
		"a lost letter's id": {remove(format.DeadLetterID, format.Texts("d1")), "cannot be found by its id"},
		"a claim's hour":     {misplacedClaim, "claim c9 is in the wrong hour"},
		"an unknown keyspace": {func(tx *wal.Tx) error {
			return tx.DB().Raw().Update(func(raw *bolt.Tx) error {
				_, err := raw.CreateBucket([]byte("more"))
				return err
			})
		}, `no keyspace "more"`},
		"the format":         {put(format.Meta, format.MetaFormat, "x"), `format "x"`},
		"the id":             {put(format.Meta, format.MetaID, "x"), `meta: id "x"`},
		"the creation":       {put(format.Meta, format.MetaCreated, "x"), "meta: created"},
		"no commit":          {remove(format.Meta, format.MetaCommit), "meta: commit has 0 bytes"},
		"what was dropped":   {put(format.Meta, format.MetaDropped, "x"), "meta: dropped has 1 bytes"},
		"dropped ahead":      {put(format.Meta, format.MetaDropped, string(format.Pointer{Day: 1 << 20, Commit: 99}.Append(nil))), "dropped up to commit 99, but the last is 4"},
		"the clock":          {put(format.Meta, format.MetaRetention, "x"), "meta: retention has 1 bytes"},
		"no row of its end":  {remove(format.Ended, format.EndedKey(edda.StatusDone, clock, doneKey)), "no row in the index of ends"},
		"an end of nobody":   {put(format.Ended, format.EndedKey(edda.StatusDone, clock, formatKey), ""), "acme/order/O1 did not end as done"},
		"another end":        {put(format.Ended, format.EndedKey(edda.StatusFailed, clock, doneKey), ""), "acme/order/done did not end as failed"},
		"a bad end":          {put(format.Ended, []byte("x"), ""), "ended 78: malformed key"},
		"a head's end":       {head1(key, func(h *format.Head) { h.Ended = 5 }), "it is running, and its head says it ended at 5"},
		"no end":             {head1(done, func(h *format.Head) { h.Ended = 0 }), "it is done, and its head says it ended at 0"},
		"an end to come":     {head1(done, func(h *format.Head) { h.Ended = clock << 1 }), "it ended after the last commit"},
		"another's row":      {body(key, `"correlation":"O1"`, `"correlation":"O2"`), "it says it is acme/order/O2"},
		"too many ids":       {body(key, `"recent":["e1"`, `"recent":["e1"`+strings.Repeat(`,"x"`, 64)), "remembers 65 event ids"},
		"a head with a body": {put(format.Saga, format.InstanceKey(edda.Key{Saga: "x"}), string(format.Head{}.Append(nil))+"{}"), "no status, but a version, an end or a body"},
		"a head for nothing": {put(format.Saga, format.InstanceKey(edda.Key{Saga: "x"}), string(format.Head{}.Append(nil))), "its head stays although"},
		"a counter of none":  {put(format.Count, format.CountOf(formatKey, 9, edda.StatusDone).Bytes(), "\x00\x00\x00\x00\x00\x00\x00\x00"), "counters are"},
		"a row on no chain": {damageHistory(func(b *wal.Bucket) error {
			return b.Put(format.Pointer{Commit: 1, N: 9}.Key(), b.Get(format.Pointer{Commit: 1, N: 1}.Key()))
		}), "history has 6 rows, but the chains of the instances lead to 5"},
		"a fate that is not kept": {damageHistory(func(b *wal.Bucket) error {
			k := format.Pointer{Commit: 1}.Key()
			return b.Put(k, bytes.Replace(bytes.Clone(b.Get(k)), []byte(`"fate":"handled"`), []byte(`"fate":"ignored"`), 1))
		}), `the fate "ignored"`},
		"half a row": {damageHistory(func(b *wal.Bucket) error { return b.Put(format.Pointer{Commit: 1}.Key(), []byte("x")) }), "commit 1, 0: malformed row"},
		"days against commits": {func(tx *wal.Tx) error {
			history := tx.Bucket([]byte(format.History))
			b, err := history.CreateBucket(format.DayKey(1))
			if err != nil {
				return err
			}
			return b.Put(format.Pointer{Commit: 3, N: 7}.Key(), history.Bucket(format.DayKey(format.DayOf(noon))).Get(format.Pointer{Commit: 1}.Key()))
		}, "comes after commit 3"},
		"not dropped":            {put(format.Meta, format.MetaDropped, string(format.Pointer{Day: format.DayOf(noon), Commit: 1, N: 1}.Append(nil))), "commit 1, 0 is before what was dropped"},
		"a row of no commit yet": {outboxRow(clock, 9), "it is of commit 9"},
		"a row of the future":    {outboxRow(clock*2, 1), "it is of commit 1"},
		"a row out of order":     {outboxRow(clock-1, 2), "the one before of 2"},
		"a row without an id":    {put(format.Outbox, []byte("x"), `{}`), "malformed key"},
		"a due row's value":      {put(format.Due, format.DueKey(noon, key), "x"), "malformed key"},
		"a time with two names":  {put(format.Due, append(append(format.AppendTime(nil, noon)[:8], 0xFF, 0xFF, 0xFF, 0xFF), key...), ""), "malformed key"},
		"a claim's key":          {claimElsewhere, "its key is not that of its value"},
		"a letter's key":         {put(format.DeadLetter, format.DeadKey(noon, "d9"), `{"id":"d8","time":"2026-03-01T12:00:00Z","event":{}}`), "its key is not that of its value"},
		"a letter's time":        {put(format.DeadLetterID, format.Texts("d1"), string(format.AppendTime(nil, noon))), "malformed row"},
		"a letter to come":       {put(format.DeadLetterID, format.Texts("d1"), string(binary.BigEndian.AppendUint64(format.AppendTime(nil, noon), clock*2))), "was written after the last commit"},
		"a checkpoint's key":     {put(format.Checkpoint, format.Texts("T"), `{"stream":"S"}`), "its key is not that of its value"},
		"a position's key":       {put(format.Position, format.Texts("a", "b", "T"), `{"stream":"S"}`), "its key is not that of its value"},
		"a manifest's key":       {put(format.Manifest, format.ManifestKey(edda.Manifest{Saga: "a"}), `{"saga":"b"}`), "its key is not that of its value"},
		"a schedule's key":       {put(format.Schedule, format.Texts("", "a", "b"), `{"saga":"a","name":"c"}`), "its key is not that of its value"},
		"an audit's key":         {put(format.Audit, []byte("x"), `{}`), "audit 78: malformed key"},
		"an audit of no commit":  {put(format.Audit, format.Pointer{Commit: 99}.Key(), `{}`), "commit 99, but the last is 4"},
		"an audit":               {put(format.Audit, format.Pointer{Commit: 1}.Key(), `x`), "decode row"},
		"a checkpoint":           {put(format.Checkpoint, format.Texts("S"), "x"), "checkpoint 530001: decode row"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), Options{noSync: true})
			for _, c := range append(formatChanges(), Change{Transitions: []edda.Transition{finished(doneKey, 1, edda.StatusDone)}}) {
				db.commit(t, c)
			}
			db.check(t)
			if err := db.file.Update(test.damage); err != nil {
				t.Fatal(err)
			}
			found := errors.Join(db.examine(context.Background(), nil, true).Findings...)
			if found == nil || !strings.Contains(found.Error(), test.want) {
				t.Errorf("found %v, want %q", found, test.want)
			}
		})
	}
}

// head1 changes the head of one instance.
func head1(key []byte, change func(*format.Head)) func(*wal.Tx) error {
	return func(tx *wal.Tx) error {
		b := tx.Bucket([]byte(format.Saga))
		h, body, err := format.CutHead(bytes.Clone(b.Get(key)))
		if err != nil {
			return err
		}
		change(&h)
		return b.Put(key, append(h.Append(nil), body...))
	}
}

// body changes the text of one instance.
func body(key []byte, old, now string) func(*wal.Tx) error {
	return func(tx *wal.Tx) error {
		b := tx.Bucket([]byte(format.Saga))
		row := bytes.Clone(b.Get(key))
		if !bytes.Contains(row, []byte(old)) {
			return fmt.Errorf("there is no %s", old)
		}
		return b.Put(key, bytes.Replace(row, []byte(old), []byte(now), 1))
	}
}

// outboxRow adds one with an id of its own.
func outboxRow(clock, commit uint64) func(*wal.Tx) error {
	return func(tx *wal.Tx) error {
		id := format.Stamp{Commit: commit, Clock: clock}.RowID(9)
		return tx.Bucket([]byte(format.Outbox)).Put(id[:], []byte(`{"id":"f9","kind":"fact"}`))
	}
}

func claimElsewhere(tx *wal.Tx) error {
	b := tx.Bucket([]byte(format.Claim)).Bucket(format.HourKey(format.HourOf(noon)))
	return b.Put(format.Texts("acme", "c9"), b.Get(format.Texts("acme", "c1")))
}

func damageHistory(damage func(day *wal.Bucket) error) func(*wal.Tx) error {
	return func(tx *wal.Tx) error {
		return damage(tx.Bucket([]byte(format.History)).Bucket(format.DayKey(format.DayOf(noon))))
	}
}

// circle makes the first row point to itself.
func circle(b *wal.Bucket) error {
	at := format.Pointer{Day: format.DayOf(noon), Commit: 1}
	row := append([]byte(nil), b.Get(at.Key())...)
	at.Append(row[:0])
	return b.Put(at.Key(), row)
}

func misplacedClaim(tx *wal.Tx) error {
	hour, err := tx.Bucket([]byte(format.Claim)).CreateBucket(format.HourKey(1))
	if err != nil {
		return err
	}
	return hour.Put(format.Texts("c9"), []byte(`{"command_id":"c9","claimed":"2026-03-01T12:00:00Z"}`))
}

func TestCheckEndsWithItsContext(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if found := errors.Join(db.examine(ctx, nil, true).Findings...); !errors.Is(found, context.Canceled) {
		t.Errorf("found %v", found)
	}
}

// TestCheckChecksThePages: the file claims one page more.
func TestCheckChecksThePages(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, formatChanges()[0])
	db.stop()
	path := filepath.Join(dir, FileName)
	data := must(os.ReadFile(path))
	size := int(binary.NativeEndian.Uint32(data[24:]))
	for _, meta := range [][]byte{data[16:72], data[size+16 : size+72]} {
		binary.NativeEndian.PutUint64(meta[40:], binary.NativeEndian.Uint64(meta[40:])+1)
		sum := fnv.New64a()
		_, _ = sum.Write(meta) // it never fails
		binary.NativeEndian.PutUint64(meta[56:64:64], sum.Sum64())
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, Options{})
	if found := errors.Join(db.examine(context.Background(), nil, true).Findings...); found == nil || !strings.Contains(found.Error(), "unreachable unfreed") {
		t.Errorf("found %v", found)
	}
}

func TestDoctorListsStalledInstances(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	asks := step(key("asks"), 1)
	asks.Instance.Steps = []edda.Step{{ID: "ok", Kind: edda.StepAsk, Status: edda.StepPending}}
	older := step(key("older"), 1)
	older.Instance.Older = asks.Instance.Steps
	undoes := step(key("undoes"), 1)
	undoes.Instance.Status, undoes.Instance.Undos = edda.StatusUndoing, []edda.Undo{{Step: "a.undo"}}
	timer := step(key("timer"), 1)
	timer.Instance.Armed, timer.Arm = noon.Add(time.Hour), []time.Time{noon.Add(time.Hour)}
	incident := step(key("incident"), 1)
	incident.Instance.Incidents = []edda.Incident{{Step: "a"}}
	idle := step(key("idle"), 1)
	idle.Instance.Steps, idle.Instance.Updated = []edda.Step{{ID: "ok", Status: edda.StepOK}}, noon
	db.commit(t, Change{Transitions: []edda.Transition{
		asks, older, undoes, timer, incident, idle, working("works", 1, "c7"), finished(key("done"), 1, edda.StatusDone),
	}})
	told := 0
	h, err := db.Doctor(context.Background(), func(int) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range h.Findings {
		t.Error(err)
	}
	same(t, "idle", h.Idle, []edda.Instance{{Key: key("idle"), Version: 1, Status: edda.StatusRunning, Updated: noon}})
	same(t, "all", []any{h.IdleTotal, h.Commit, h.ID}, []any{1, uint64(4), db.ID()})
}

// TestCheckReportsADamagedPage: each page of a good store is zeroed in turn. That is an error, a
// finding, or of an unused page, and never a panic.
func TestCheckReportsADamagedPage(t *testing.T) {
	good := must(os.ReadFile(formatFile))
	const page = 4096
	said := 0
	for at := 2 * page; at < len(good); at += page {
		dir := t.TempDir()
		data := bytes.Clone(good)
		clear(data[at : at+page])
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := Open(dir, Options{initialMap: 1 << 15})
		if err != nil {
			said++
			if !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("page %d: %v", at/page, err)
			}
			continue
		}
		h, err := db.Doctor(context.Background(), nil)
		if err != nil || len(h.Findings) > 0 {
			said++
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	if said < 4 {
		t.Errorf("only %d of the damaged pages were noticed", said)
	}
}

// TestDoctorDuringCommits: the free list changes under a snapshot, which is no finding.
func TestDoctorDuringCommits(t *testing.T) {
	db := open(t, t.TempDir(), Options{noSync: true})
	bulky(t, db, 256)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		for n := uint64(1); ctx.Err() == nil; n++ {
			if err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{step(key(fmt.Sprint(n)), 1)}}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 5 {
		h, err := db.Doctor(context.Background(), nil)
		if err := errors.Join(append(h.Findings, err)...); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
