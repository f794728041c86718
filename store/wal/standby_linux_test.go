package wal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// shipped is the entries of a file's transactions, from the first, as a replicated log has them.
type shipped [][]byte

// ship notes an entry once it is acknowledged.
func (s *shipped) ship(seq uint64, entry []byte) (wait func() error) {
	return func() error {
		if seq != uint64(len(*s))+1 {
			return fmt.Errorf("transaction %d is shipped after %d", seq, len(*s))
		}
		*s = append(*s, bytes.Clone(entry))
		return nil
	}
}

// replicas is a machine and its standby.
type replicas struct {
	owner   *machine
	standby *machine
	log     shipped
}

// apply applies some of the transactions that the standby lacks.
func (p *replicas) apply(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "transactions") {
		last := p.standby.db.Point().Transaction
		if last == uint64(len(p.log)) {
			return
		}
		p.owner.same("apply", p.standby.db.Apply(last+1, p.log[last]), nil)
		p.follow()
	}
}

// follow notes what the standby must hold.
func (p *replicas) follow() {
	p.standby.want = p.owner.past[p.standby.db.Point().Transaction]
}

// again applies a transaction that the standby has, or one that is too early.
func (p *replicas) again(t *rapid.T) {
	if len(p.log) == 0 {
		return
	}
	last, at := p.standby.db.Point(), rapid.Uint64Range(1, uint64(len(p.log))).Draw(t, "transaction")
	err := p.standby.db.Apply(at, p.log[at-1])
	switch {
	case at <= last.Transaction:
		p.owner.same("apply again", err, nil)
		p.owner.same("the point", p.standby.db.Point(), last)
	case at > last.Transaction+1:
		p.owner.same("a gap is refused", errors.Is(err, ErrGap), true)
		p.owner.same("the point", p.standby.db.Point(), last)
	default:
		p.owner.same("apply", err, nil)
	}
	p.follow()
}

// altered applies the next transaction with a byte that is another, or cut off.
func (p *replicas) altered(t *rapid.T) {
	last := p.standby.db.Point().Transaction
	if last == uint64(len(p.log)) {
		return
	}
	entry := bytes.Clone(p.log[last])
	at := rapid.IntRange(0, len(entry)-1).Draw(t, "at")
	if rapid.Bool().Draw(t, "cut off") {
		entry = entry[:at]
	} else {
		entry[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
	}
	err := p.standby.db.Apply(last+1, entry)
	p.owner.same("an altered entry is refused: "+fmt.Sprint(err), errors.Is(err, ErrDamaged) || at == 0 && errors.Is(err, ErrUnknown), true)
}

// powerCut loses any record that was applied and not synced.
func (p *replicas) powerCut(t *rapid.T) {
	s := p.standby
	durable, applied := s.db.durable.Load(), s.db.Point().Transaction
	to := filepath.Join(filepath.Dir(s.path), fmt.Sprint(s.lives), "x.db")
	s.lives++
	s.same("copy", copyAll(s.path, to), nil)
	s.same("lose", loseUnsynced(to, durable, func() bool { return rapid.Bool().Draw(t, "lost") }), nil)
	s.close()
	s.path = to
	s.open()
	now := s.db.Point().Transaction
	s.same(fmt.Sprintf("transaction %d is there, of %d to %d", now, durable, applied), now >= durable && now <= applied, true)
	p.follow()
}

// loseUnsynced overwrites records after a transaction with zeros, as a disk leaves them that did not
// write their blocks.
func loseUnsynced(path string, durable uint64, lost func() bool) error {
	return EachWAL(path, path, func(path, _ string) error {
		t, err := readWAL(path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := headerSize
		for _, r := range t.records {
			end := at + recordHeader + len(r.entry)
			if r.seq > durable && lost() {
				clear(data[at:end])
			}
			at = end
		}
		return os.WriteFile(path, data, 0o600)
	})
}

// look compares the standby with the owner, as it was after the standby's last transaction.
func (p *replicas) look(t *rapid.T) {
	p.standby.look(t)
	if p.owner.db.Point().Transaction == p.standby.db.Point().Transaction {
		p.owner.same("point", p.standby.db.Point(), p.owner.db.Point())
	}
}

// bootstrap replaces the standby by a copy of the owner, or of the standby itself, as a backup is.
func (p *replicas) bootstrap(t *rapid.T) {
	of := rapid.SampledFrom([]*machine{p.owner, p.standby}).Draw(t, "of")
	tx, err := of.db.Snapshot()
	of.same("snapshot", err, nil)
	to := filepath.Join(filepath.Dir(p.standby.path), fmt.Sprint(p.standby.lives), "x.db")
	p.standby.lives++
	of.same("folder", os.MkdirAll(filepath.Dir(to), 0o700), nil)
	f, err := os.Create(to)
	of.same("create", err, nil)
	_, err = tx.WriteTo(f)
	of.same("copy", errors.Join(err, f.Close(), tx.Rollback()), nil)
	p.standby.close()
	p.standby.path = to
	p.standby.open()
	of.same("point", p.standby.db.Point(), of.db.Point())
	p.follow()
}

// promote lets the standby go on as the owner, once it has all, and the owner as its standby. Either closes its file, or
// keeps it open, or leaves it.
func (p *replicas) promote(t *rapid.T) {
	for last := p.standby.db.Point().Transaction; last < uint64(len(p.log)); last++ {
		p.standby.same("apply", p.standby.db.Apply(last+1, p.log[last]), nil)
	}
	if rapid.Bool().Draw(t, "leave") {
		p.owner.leave()
	} else {
		p.owner.close()
	}
	inPlace := rapid.Bool().Draw(t, "in place")
	if inPlace {
		o := p.owner.options
		o.OpenFile = p.owner.disk.open
		next, err := p.standby.db.Promote(o)
		p.standby.same("promote", err, nil)
		p.owner.db, p.owner.disk, p.standby.disk = next, p.standby.disk, disk{}
	} else {
		p.standby.close()
	}
	p.owner.path, p.standby.path = p.standby.path, p.owner.path
	p.owner.lives, p.standby.lives = p.owner.lives+100, p.standby.lives+100
	if !inPlace {
		p.owner.open()
	}
	p.standby.open()
	p.owner.same("durable", p.owner.db.durable.Load(), p.owner.db.Point().Transaction)
	p.follow()
}

// writtenBefore is a file of many transactions, and their entries.
func writtenBefore(t *testing.T, n int) (*ledger, shipped) {
	t.Helper()
	var log shipped
	o := byHand
	o.Ship = log.ship
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := newLedger(t, db)
	for range n {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
	}
	return l, log
}

// TestAStandbyFlushesWhatAPowerCutWouldMiss: an older value, where the newer one is not synced.
func TestAStandbyFlushesWhatAPowerCutWouldMiss(t *testing.T) {
	var log shipped
	o := byHand
	o.Ship = log.ship
	o.Bound = 1 << 20
	owner, set := testDB(t, o)
	set(1, "old")
	set(2, "other")
	set(1, "new")
	o.Ship, o.Standby = nil, true
	standby, _ := testDB(t, o)
	for i, entry := range log {
		if err := standby.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			standby.rotateNow()
		}
	}
	for more := true; more; {
		var err error
		if more, err = standby.flushChunk(); err != nil {
			t.Fatal(err)
		}
	}
	durable := standby.durable.Load()
	lossy := take(t, standby.path).put(t)
	if err := loseUnsynced(lossy, durable, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	after, err := openFile(lossy, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	if got := read(t, after); after.Point().Transaction != 2 || got["flat/000001"] != "old" || got["flat/000002"] != "other" {
		t.Errorf("after transaction %d it is %v", after.Point().Transaction, got)
	}
	if owner.Point() != standby.Point() {
		t.Errorf("%v and %v", owner.Point(), standby.Point())
	}
}

// TestAClosedStandbyIsAFile: without the records that follow a lost one, for which only a standby is opened.
func TestAClosedStandbyIsAFile(t *testing.T) {
	l, log := writtenBefore(t, 3)
	o := byHand
	o.Bound, o.Standby = 1<<20, true
	standby, _ := testDB(t, o)
	for i, entry := range log {
		if err := standby.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	path, lost := take(t, standby.path).put(t), 0
	if err := loseUnsynced(path, 1, func() bool { lost++; return lost == 1 }); err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(path, byHand, nil); err == nil {
		t.Fatal("a record is missing, and the file is opened")
	}
	for _, o := range []Options{o, byHand} { // nothing is applied
		db, err := openFile(path, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, db); db.Point().Transaction != 1 || !maps.Equal(got, l.past[1]) {
			t.Errorf("after transaction %d it is %v", db.Point().Transaction, got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestApplyRefusesWhatItCannotKnow: with a cause that its caller can tell.
func TestApplyRefusesWhatItCannotKnow(t *testing.T) {
	l, log := writtenBefore(t, 8)
	standby, _ := testDB(t, modelOptions)
	for i, entry := range log[:4] {
		if err := standby.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	var e encoder
	elsewhere, err := e.encode(5, []written{{&Bucket{space: []byte("elsewhere")}, newRow(put, []byte("k"), []byte("v"), 5)}})
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(log[4])
	newer[0]++
	before := standby.Point()
	for what, test := range map[string]struct {
		seq   uint64
		entry []byte
		want  error
	}{
		"a gap":                      {6, log[5], ErrGap},
		"another transaction's":      {5, log[5], ErrDamaged},
		"nothing":                    {5, nil, ErrDamaged},
		"a header alone":             {5, log[4][:entryHeader], ErrDamaged},
		"a newer version":            {5, newer, ErrUnknown},
		"rows of an unknown bucket":  {5, elsewhere[recordHeader:], ErrUnknown},
		"rows of the WAL's bucket":   {5, ofBucket(t, 5, "log"), ErrUnknown},
		"one that was applied":       {3, log[2], nil},
		"one that was, and is other": {3, nil, nil},
	} {
		err := standby.Apply(test.seq, test.entry)
		for _, cause := range []error{ErrGap, ErrDamaged, ErrUnknown} {
			if errors.Is(err, cause) != (cause == test.want) {
				t.Errorf("%s: %v, want %v", what, err, test.want)
			}
		}
		if test.want == nil && err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := read(t, standby); standby.Point() != before || !maps.Equal(got, l.past[4]) {
		t.Errorf("it has changed: %v", standby.Point())
	}
	for i, entry := range log {
		if err := standby.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, standby); !maps.Equal(got, l.past[8]) {
		t.Errorf("at the end it is %v", got)
	}
}

func ofBucket(t *testing.T, seq uint64, name string) []byte {
	t.Helper()
	var e encoder
	framed, err := e.encode(seq, []written{{&Bucket{space: []byte(name)}, newRow(put, []byte("k"), []byte("v"), seq)}})
	if err != nil {
		t.Fatal(err)
	}
	return framed[recordHeader:]
}

// TestSumsTellHistoriesApart: also where a later transaction is the same.
func TestSumsTellHistoriesApart(t *testing.T) {
	sums := map[uint32]string{}
	for _, first := range []string{"a", "b"} {
		db, set := testDB(t, Options{})
		set(1, first)
		set(1, "same")
		if db.Point().Transaction != 2 || sums[db.Point().Sum] != "" {
			t.Errorf("%v", db.Point())
		}
		sums[db.Point().Sum] = first
		before := db.Point()
		if err := db.Settle(); err != nil {
			t.Fatal(err)
		}
		again, err := openFile(take(t, db.path).put(t), byHand, nil)
		if err != nil {
			t.Fatal(err)
		}
		if again.Point() != before {
			t.Errorf("%v, and %v when it is opened again", before, again.Point())
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFileWithoutASumBeginsOne: an older Edda flushed it, or flushed it last.
func TestAFileWithoutASumBeginsOne(t *testing.T) {
	for what, stale := range map[string]bool{"none": false, "an older one": true} {
		db, set := testDB(t, Options{})
		set(1, "a")
		set(2, "b")
		if err := db.Settle(); err != nil {
			t.Fatal(err)
		}
		path := take(t, db.path).put(t)
		raw, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Update(func(tx *bolt.Tx) error {
			head := tx.Bucket(walBucket)
			if !stale {
				return head.Delete(rowSum)
			}
			v := slices.Clone(head.Get(rowSum))
			v[7]-- // of transaction 1
			return head.Put(rowSum, v)
		}); err != nil {
			t.Fatal(err)
		}
		if err := raw.Close(); err != nil {
			t.Fatal(err)
		}
		old, err := openFile(path, byHand, nil)
		if err != nil {
			t.Fatal(err)
		}
		if old.Point() != (Point{Transaction: 2}) || db.Point().Sum == 0 {
			t.Errorf("%s: %v", what, old.Point())
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestACopyGoesOnWithTheNumbers of the file that it was copied from.
func TestACopyGoesOnWithTheNumbers(t *testing.T) {
	from := Point{Transaction: 41, Sum: 7}
	db, set := testDB(t, Options{From: from})
	if db.Point() != from {
		t.Errorf("it begins at %v", db.Point())
	}
	set(1, "a")
	at := db.Point()
	if at.Transaction != 42 {
		t.Errorf("it goes on with %v", at)
	}
	if err := db.Settle(); err != nil {
		t.Fatal(err)
	}
	again, err := openFile(take(t, db.path).put(t), Options{byHand: true, From: from}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Point() != at {
		t.Errorf("opened again it is at %v, want %v", again.Point(), at)
	}
}

// TestARecordIsShippedBesideItsSync: before it is written, and awaited once it is synced.
func TestARecordIsShippedBesideItsSync(t *testing.T) {
	var did []string
	o := Options{passed: func(point string) { did = append(did, point) }}
	o.Ship = func(seq uint64, entry []byte) func() error {
		did = append(did, fmt.Sprint("ship ", seq))
		if _, err := content(seq, entry, new([]byte)); err != nil {
			t.Error(err)
		}
		return func() error {
			did = append(did, "wait")
			if _, err := content(seq, entry, new([]byte)); err != nil {
				t.Errorf("the entry has changed: %v", err)
			}
			return nil
		}
	}
	_, set := testDB(t, o)
	set(1, "a")
	did = nil
	set(2, "b")
	if want := []string{"ship 2", "logShipped", "logWritten", "logSynced", "wait", "logAcknowledged"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
}

// TestAFailedShipmentEndsWriting: nobody knows whether the record is in the log that it was shipped to.
// Opening the file finds it.
func TestAFailedShipmentEndsWriting(t *testing.T) {
	away := errors.New("nobody answers")
	fail := false
	o := Options{}
	o.Ship = func(uint64, []byte) func() error {
		return func() error {
			if fail {
				return away
			}
			return nil
		}
	}
	db, set := testDB(t, o)
	set(1, "a")
	fail = true
	put := func(value string) error {
		return db.Update(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte("k"), []byte(value)) })
	}
	if err := put("unsure"); !errors.Is(err, away) || !db.Ahead() {
		t.Errorf("%v, ahead %t", err, db.Ahead())
	}
	if got := read(t, db); len(got) != 1 || db.Point().Transaction != 1 {
		t.Errorf("readers see what is not sure: %v", got)
	}
	fail = false
	if err := put("later"); !errors.Is(err, away) {
		t.Errorf("it is written to: %v", err)
	}
	again, err := openFile(take(t, db.path).put(t), Options{byHand: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := read(t, again); got["flat/k"] != "unsure" || again.Point().Transaction != 2 {
		t.Errorf("opened again: %v", got)
	}
}

// TestAFullDiskShipsNothing: else the next transaction would be shipped under the same number.
func TestAFullDiskShipsNothing(t *testing.T) {
	var log shipped
	d := &disk{}
	defer d.close()
	o := Options{byHand: true, Ship: log.ship}
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), o, d.open)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	put := func(n int) error {
		return db.Update(func(tx *Tx) error {
			return tx.Bucket([]byte(flat)).Put([]byte("k"), []byte(fmt.Sprint(rand.New(rand.NewPCG(uint64(n), 1)).Perm(n))))
		})
	}
	if err := put(1); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := d.become(full); err != nil {
		t.Fatal(err)
	}
	if err := put(100_000); err == nil || db.Ahead() {
		t.Errorf("%v, ahead %t", err, db.Ahead())
	}
	if err := d.become(nil); err != nil {
		t.Fatal(err)
	}
	if err := put(2); err != nil || len(log) != 2 {
		t.Errorf("%v, and %d transactions were shipped", err, len(log))
	}
}

// TestAFailedWriteAfterAShipmentEndsWriting: the record may be in the log that it was shipped to.
func TestAFailedWriteAfterAShipmentEndsWriting(t *testing.T) {
	var log shipped
	d := &disk{}
	defer d.close()
	db, err := openFile(filepath.Join(t.TempDir(), "x.db"), Options{byHand: true, Ship: log.ship}, d.open)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	put := func() error {
		return db.Update(func(tx *Tx) error { return tx.Bucket([]byte(flat)).Put([]byte("k"), []byte("v")) })
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := d.become(full); err != nil {
		t.Fatal(err)
	}
	if err := put(); err == nil || !db.Ahead() || len(log) != 2 { // there is room, and the write fails
		t.Errorf("%v, ahead %t, %d shipped", err, db.Ahead(), len(log))
	}
	if err := errors.Join(d.become(nil), put()); err == nil {
		t.Error("it is written to")
	}
}
