package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"edda"
	"edda/store/wal"
)

// shipped has the entries that a store shipped, from a transaction on, as a replicated log has them.
type shipped struct {
	mu      sync.Mutex // guards the fields below
	first   uint64
	entries [][]byte
	err     error // what wait returns from now on
}

func (s *shipped) ship(seq uint64, entry []byte) (wait func() error) {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.entries) == 0 {
			s.first = seq
		}
		if want := s.first + uint64(len(s.entries)); seq != want {
			return fmt.Errorf("transaction %d is shipped in the place of %d", seq, want)
		}
		if s.err == nil {
			s.entries = append(s.entries, bytes.Clone(entry))
		}
		return s.err
	}
}

func (s *shipped) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *shipped) last() uint64 { return s.first + uint64(len(s.entries)) - 1 }

// feed applies transactions that the replica lacks, at most n.
func (s *shipped) feed(r *Replica, n int) error {
	for lsn := r.LSN() + 1; lsn <= s.last() && n > 0; lsn, n = lsn+1, n-1 {
		if err := r.Apply(lsn, s.entries[lsn-s.first]); err != nil {
			return err
		}
	}
	return nil
}

func openReplica(t testing.TB, dir string, o Options) *Replica {
	t.Helper()
	if o.initialMap == 0 {
		o.initialMap = 1 << 20
	}
	return must(OpenReplica(dir, o))
}

// bootstrap restores a backup as a replica.
func bootstrap(t testing.TB, s *Snapshot) (dir string) {
	t.Helper()
	defer s.Close()
	var out bytes.Buffer
	if err := s.WriteTo(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	must(RestoreReplica(context.Background(), save(t, out.Bytes()), dir, s.ID, ReplaceNone))
	return dir
}

// equal compares a store with a replica that has all of its transactions.
func equal(t testing.TB, db *DB, r *Replica) {
	t.Helper()
	at, sum, err := db.Hash(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	isAt, is, err := r.Hash(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "point", isAt, at)
	if is != sum {
		same(t, "rows", dump(t, r.db), dump(t, db))
		t.Errorf("the hashes differ")
	}
}

// copied copies the files of a store as a kill leaves them.
func copied(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	for _, f := range must(os.ReadDir(dir)) {
		copyFile(t, filepath.Join(dir, f.Name()), filepath.Join(to, f.Name()))
	}
	return to
}

// TestAReplicaIsItsStore: whatever is flushed, compacted, closed or killed, on either side, a replica has
// the rows of its store, and becomes one without a finding.
func TestAReplicaIsItsStore(t *testing.T) {
	_, secret := keysetFile(t)
	rapid.Check(t, func(r *rapid.T) {
		log, clock := &shipped{}, noon
		o := Options{noSync: true, flushAt: 4 << 10, Ship: log.ship, Now: func() time.Time { clock = clock.Add(time.Minute); return clock }}
		if rapid.Bool().Draw(r, "encrypted") {
			o.Seal = secret
		}
		standby := Options{noSync: true, flushAt: 3 << 10}
		dir := t.TempDir()
		db := open(t, dir, o)
		defer func() { db.stop() }()
		g := &generator{t: r, m: newModel()}
		flight(r, db, g, nil)
		replicaDir := bootstrap(t, must(db.Snapshot()))
		replica := openReplica(t, replicaDir, standby)
		defer func() { _ = replica.Close() }() // twice, where all went well
		ok := func(err error) {
			if err != nil {
				r.Fatal(err)
			}
		}
		reopen := func() { replica = openReplica(t, replicaDir, standby) }
		acts := map[string]func(){
			"commit":          func() { flight(r, db, g, must(db.Outbox(ulid.ULID{}, 1000))) },
			"flush the store": func() { db.flush(t) },
			"compact the store": func() {
				before := db.Point()
				must(db.Compact(context.Background(), nil))
				same(t, "point", db.Point(), before)
			},
			"reopen the store": func() { db.stop(); db = open(t, dir, o) },
			"kill the store": func() {
				dir = copied(t, dir)
				db.stop()
				db = open(t, dir, o)
			},
			"apply":             func() { ok(log.feed(replica, rapid.IntRange(1, 5).Draw(r, "transactions"))) },
			"apply all":         func() { ok(log.feed(replica, len(log.entries))); equal(t, db.DB, replica) },
			"flush the replica": func() { ok(replica.db.file.Flush()) },
			"sync the replica":  func() { ok(replica.Sync()) },
			"compact the replica": func() {
				before := replica.Point()
				must(replica.Compact(context.Background(), nil))
				same(t, "point", replica.Point(), before)
			},
			"reopen the replica": func() { ok(replica.Close()); reopen() },
			"leave the replica":  func() { ok(replica.db.Leave()); reopen() },
			"leave the store":    func() { db.leave(); db = open(t, dir, o) },
			"kill the replica": func() {
				replicaDir = copied(t, replicaDir)
				ok(replica.Close())
				reopen()
			},
			"bootstrap from the store": func() {
				to := bootstrap(t, must(db.Snapshot()))
				ok(replica.Close())
				replicaDir = to
				reopen()
				equal(t, db.DB, replica)
			},
			"bootstrap from the replica": func() {
				to := bootstrap(t, must(replica.Snapshot()))
				ok(replica.Close())
				replicaDir = to
				reopen()
			},
		}
		names := sorted(func() map[string]string {
			names := map[string]string{}
			for name := range acts {
				names[name] = name
			}
			return names
		}())
		for range rapid.IntRange(1, 12).Draw(r, "acts") {
			acts[rapid.SampledFrom(append(names, "commit", "commit", "apply", "apply")).Draw(r, "act")]()
		}
		acts["apply all"]()
		db.stop()
		var promoted *opened
		if rapid.Bool().Draw(r, "in place") {
			promoted = running(t, must(replica.Promote(o)))
		} else {
			ok(replica.Close())
			promoted = open(t, replicaDir, o)
		}
		defer func() { promoted.stop() }()
		compare(r, promoted, g.m)
		flight(r, promoted, g, must(promoted.Outbox(ulid.ULID{}, 1000)))
		compare(r, promoted, g.m)
		dir = copied(t, replicaDir)
		promoted.stop()
		promoted = open(t, dir, o) // as after a kill
		compare(r, promoted, g.m)
	})
}

// TestAReplicaOfABackupHalfWayThroughAFlush goes on with the transaction after the backup, under the
// store's id, and is not marked as restored.
func TestAReplicaOfABackupHalfWayThroughAFlush(t *testing.T) {
	log := &shipped{}
	db := open(t, t.TempDir(), Options{Ship: log.ship, flushAt: 8 << 10, initialMap: 1 << 30}) // a snapshot stays open
	for i := 0; !db.Written().Folding; i++ {
		db.commit(t, batch(i, 4))
	}
	s := must(db.Snapshot())
	at := db.Point()
	for i := range 40 {
		db.commit(t, batch(1000+i, 4))
	}
	dir := bootstrap(t, s)
	r := openReplica(t, dir, Options{flushAt: 16 << 10})
	same(t, "point", r.Point(), at)
	if err := log.feed(r, len(log.entries)); err != nil {
		t.Fatal(err)
	}
	equal(t, db.DB, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	promoted := open(t, dir, Options{})
	promoted.check(t)
	checkIndex(t, promoted.DB)
	same(t, "id", promoted.ID(), db.ID())
	same(t, "it has to catch up", must(promoted.Restored()), false)
	same(t, "rows", dump(t, promoted.DB), dump(t, db.DB))
}

// TestAReplicaReplacesAStore that lies in its folder, also one that was restored.
func TestAReplicaReplacesAStore(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	file, dir := save(t, backup(t, db)), t.TempDir()
	must(Restore(context.Background(), file, dir, false, nil, nil))
	if _, err := RestoreReplica(context.Background(), file, dir, db.ID(), ReplaceNone); !errors.Is(err, edda.Permanent) {
		t.Errorf("it is replaced unasked: %v", err)
	}
	r := must(RestoreReplica(context.Background(), file, dir, db.ID(), ReplaceAside))
	if r.Aside == "" || r.ID != db.ID() || r.Commit != 1 {
		t.Errorf("%+v", r)
	}
	replica := openReplica(t, dir, Options{})
	same(t, "point", replica.Point(), db.Point())
	if _, err := OpenReplica(dir, Options{}); !Held(err) {
		t.Errorf("it is opened twice: %v", err)
	}
	if err := replica.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, Options{})
	same(t, "it has to catch up", must(again.Restored()), false)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "the name of a store that was replaced for good", must(RestoreReplica(context.Background(), file, dir, db.ID(), ReplaceForGood)).Aside, "")
	same(t, "the files", listed(t, dir), []string{FileName, filepath.Base(r.Aside)})
}

// TestAReplicaNeedsASoundBackup: it decodes no row, so the checksum must say that all are right.
func TestAReplicaNeedsASoundBackup(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	good := backup(t, db)
	damaged := bytes.Clone(good)
	damaged[len(damaged)/2] ^= 1
	for what, test := range map[string]struct {
		data []byte
		want string
	}{
		"no checksum":     {good[:len(good)-footerSize], "has no checksum"},
		"another byte":    {damaged, "its checksum is not that of its content"},
		"cut off":         {good[:len(good)/2], "cut off"},
		"no store at all": {nil, "is not a store"},
	} {
		dir := filepath.Join(t.TempDir(), "replica")
		if _, err := RestoreReplica(context.Background(), save(t, test.data), dir, db.ID(), ReplaceNone); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", what, err, test.want)
		}
		if _, err := OpenReplica(dir, Options{}); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "restore a backup of the store there") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something is left: %v", what, err)
		}
	}
	empty := t.TempDir()
	raw := must(openBolt(filepath.Join(empty, FileName), Options{initialMap: 1 << 15}))
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReplica(empty, Options{}); err == nil || !strings.Contains(err.Error(), "was never a store") {
		t.Errorf("a file without a store: %v", err)
	}
}

// TestAReplicaOfAnotherStoreIsRefused: also of one tenant's, and a store that is there stays.
func TestAReplicaOfAnotherStoreIsRefused(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	whole := save(t, backup(t, db))
	s := must(db.SnapshotOf(context.Background(), "acme", nil))
	var out strings.Builder
	if err := s.WriteTo(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	s.Close()
	tenant := save(t, []byte(out.String()))
	other := ulid.Make().String()
	for what, test := range map[string]struct{ file, id, want string }{
		"another store":       {whole, other, other},
		"no store":            {whole, "", "is a backup of the store"},
		"one tenant":          {tenant, db.ID(), "tenant acme"},
		"one tenant, its own": {tenant, s.ID, "tenant acme"},
	} {
		dir := filepath.Join(t.TempDir(), "replica")
		if _, err := RestoreReplica(context.Background(), test.file, dir, test.id, ReplaceNone); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something is left: %v", what, err)
		}
		must(RestoreReplica(context.Background(), whole, dir, db.ID(), ReplaceNone))
		before := listed(t, dir)
		if _, err := RestoreReplica(context.Background(), test.file, dir, test.id, ReplaceAside); err == nil {
			t.Errorf("%s: it replaces a store", what)
		}
		same(t, what, listed(t, dir), before)
		r := openReplica(t, dir, Options{})
		equal(t, db.DB, r)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func listed(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, f := range must(os.ReadDir(dir)) {
		names = append(names, f.Name())
	}
	return names
}

// TestAReplicaRefusesOtherTransactions: it stays where it was.
func TestAReplicaRefusesOtherTransactions(t *testing.T) {
	log := &shipped{}
	db := open(t, t.TempDir(), Options{Ship: log.ship})
	db.commit(t, formatChanges()[0])
	r := openReplica(t, bootstrap(t, must(db.Snapshot())), Options{})
	defer r.Close()
	before := r.Point()
	for i := range 3 {
		db.commit(t, batch(i, 2))
	}
	next := log.entries[r.LSN()+1-log.first]
	for what, test := range map[string]struct {
		lsn   uint64
		entry []byte
		want  error
	}{
		"a gap":      {r.LSN() + 2, next, wal.ErrGap},
		"torn":       {r.LSN() + 1, next[:len(next)-1], wal.ErrDamaged},
		"a newer":    {r.LSN() + 1, append([]byte{next[0] + 1}, next[1:]...), wal.ErrUnknown},
		"an old one": {r.LSN(), next, nil},
	} {
		if err := r.Apply(test.lsn, test.entry); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
		same(t, what, r.Point(), before)
	}
	if err := log.feed(r, 3); err != nil {
		t.Fatal(err)
	}
	equal(t, db.DB, r)
}

// TestSentOnAReplica: what its store sent lately is found once the replica is promoted.
func TestSentOnAReplica(t *testing.T) {
	log := &shipped{}
	keep := func() time.Time { return time.Unix(1, 0) }
	db := open(t, t.TempDir(), Options{Ship: log.ship, KeepSent: keep})
	db.commit(t, Change{})
	dir := bootstrap(t, must(db.Snapshot()))
	r := openReplica(t, dir, Options{KeepSent: keep, flushAt: 4 << 10})
	for i := range 30 {
		tr := step(key(fmt.Sprint(i)), 1)
		tr.Work = []edda.Work{{ID: fmt.Sprint("f", i), Kind: edda.WorkFact, From: tr.Key, Name: "Paid", Time: noon}}
		db.commit(t, Change{Transitions: []edda.Transition{tr}})
		for _, row := range must(db.Outbox(ulid.ULID{}, 10)) {
			db.commit(t, Change{Delivered: []ulid.ULID{row.ID}})
		}
	}
	if err := errors.Join(log.feed(r, len(log.entries)), r.Close()); err != nil {
		t.Fatal(err)
	}
	sent := func(db *DB) (ids []string) {
		if err := db.Sent(time.Unix(1, 0), func(row Row) error { ids = append(ids, row.Work.ID); return nil }); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	same(t, "sent", sent(open(t, dir, Options{KeepSent: keep}).DB), sent(db.DB))
	same(t, "of them", len(sent(db.DB)), 30)
}

// TestACommitThatIsNotShippedIsUnsure: nothing is committed any more, and a restart reads it.
func TestACommitThatIsNotShippedIsUnsure(t *testing.T) {
	log, dir := &shipped{}, t.TempDir()
	db := open(t, dir, Options{Ship: log.ship})
	db.begun(t, key("1"), 1)
	away := errors.New("nobody answers")
	log.fail(away)
	err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{step(key("1"), 2)}})
	if !errors.Is(err, away) || !errors.Is(err, edda.Temporary) || db.Healthy() == nil {
		t.Errorf("%v", err)
	}
	same(t, "revision", db.cell(t, key("1")).Instance.Revision, uint64(1))
	log.fail(nil)
	if err := db.Commit(context.Background(), Change{}); !errors.Is(err, away) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("a later commit: %v", err)
	}
	db.stop()
	again := open(t, dir, Options{})
	same(t, "revision after a restart", again.cell(t, key("1")).Instance.Revision, uint64(2))
	again.check(t)
}

// TestTransactionNumbersGoOn over a compaction, a restart and a restore, so that a number names one
// transaction of a store.
func TestTransactionNumbersGoOn(t *testing.T) {
	log, dir := &shipped{}, t.TempDir()
	db := open(t, dir, Options{Ship: log.ship})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	for range 2 {
		before := db.Point()
		must(db.Compact(context.Background(), nil))
		same(t, "after a compaction", db.Point(), before)
		db.commit(t, Change{})
		same(t, "the next", db.Point().Transaction, before.Transaction+1)
		killed := open(t, filepath.Dir(crashed(t, db)), Options{})
		same(t, "after a kill", killed.Point(), db.Point())
	}
	restored := t.TempDir()
	must(Restore(context.Background(), save(t, backup(t, db)), restored, false, nil, nil))
	same(t, "restored", open(t, restored, Options{}).Point(), db.Point())
	last := db.Point()
	db.stop()
	same(t, "after a restart", open(t, dir, Options{}).Point(), last)
	same(t, "shipped", log.last(), last.Transaction)
}

// TestAReplicaCompactsWhileItApplies: without a gap, and the store's other copies stay equal.
func TestAReplicaCompactsWhileItApplies(t *testing.T) {
	log := &shipped{}
	db := open(t, t.TempDir(), Options{Ship: log.ship, noSync: true})
	bulky(t, db, 128)
	dir := bootstrap(t, must(db.Snapshot()))
	r := openReplica(t, dir, Options{})
	defer func() { _ = r.Close() }() // twice, where all went well
	for i := range uint64(5000) {    // small ones, so that the compaction keeps up
		db.commit(t, Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: i}}})
	}
	applied := make(chan error, 1)
	go func() { applied <- log.feed(r, len(log.entries)) }()
	for done := false; !done; {
		if _, err := r.Compact(context.Background(), nil); err != nil && !errors.Is(err, errBusy) {
			t.Fatal(err)
		}
		select {
		case err := <-applied:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	must(r.Compact(context.Background(), nil))
	equal(t, db.DB, r)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	promoted := open(t, dir, Options{})
	promoted.check(t)
	same(t, "rows", dump(t, promoted.DB), dump(t, db.DB))
}

// TestAReplicaIsNotSyncedInAnUnsureFile: a power cut may bring the file back that a compaction replaced.
func TestAReplicaIsNotSyncedInAnUnsureFile(t *testing.T) {
	log := &shipped{}
	db := open(t, t.TempDir(), Options{Ship: log.ship})
	db.commit(t, Change{})
	r := openReplica(t, bootstrap(t, must(db.Snapshot())), Options{})
	defer r.Close()
	db.commit(t, Change{})
	if err := errors.Join(log.feed(r, 2), r.Sync()); err != nil {
		t.Fatal(err)
	}
	unsure := errors.New("nobody knows which file is in its place")
	r.db.broken = unsure
	if err := r.Sync(); !errors.Is(err, unsure) {
		t.Errorf("it is synced: %v", err)
	}
	if err := r.Apply(r.LSN()+1, nil); !errors.Is(err, unsure) {
		t.Errorf("it is applied: %v", err)
	}
}

// TestAHashSeesEveryRow: a value, a key, a missing row and one in another part.
func TestAHashSeesEveryRow(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, what := range []string{"nothing", "a row", "another value", "another key", "another cut", "another part"} {
		db := open(t, t.TempDir(), Options{})
		if err := db.file.Update(func(tx *wal.Tx) error {
			meta := tx.Bucket([]byte("meta"))
			err := errors.Join(meta.Put([]byte("id"), []byte("x")), meta.Put([]byte("created"), []byte("x")))
			switch what {
			case "a row":
				err = errors.Join(err, meta.Put([]byte("ab"), []byte("c")))
			case "another value":
				err = errors.Join(err, meta.Put([]byte("ab"), []byte("d")))
			case "another key":
				err = errors.Join(err, meta.Put([]byte("ac"), []byte("c")))
			case "another cut":
				err = errors.Join(err, meta.Put([]byte("a"), []byte("bc")))
			case "another part":
				_, made := tx.Bucket([]byte("claim")).CreateBucket([]byte("ab"))
				err = errors.Join(err, made)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		_, sum, err := db.Hash(context.Background())
		if err != nil || seen[sum] != "" {
			t.Errorf("%s has the hash of %s, %v", what, seen[sum], err)
		}
		seen[sum] = what
		db.flush(t)
		if _, flushed, err := db.Hash(context.Background()); err != nil || flushed != sum {
			t.Errorf("%s: the hash is another once it is flushed, %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := open(t, t.TempDir(), Options{}).Hash(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
