package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// FuzzKeys: any texts make a key that reads back as they were, that no other
// texts make, and that sorts as they do; any bytes are a key or refused.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{"", "\x00", "\x00\x01", "\x00\xff", "a\x00", "\xff\xff", "ü/../%2e", "acme"} {
		f.Add(s, "order", "O1", s)
		f.Add("acme", s, s+"x", "\x00\x01"+s)
	}
	f.Fuzz(func(t *testing.T, tenant, saga, correlation, other string) {
		k := edda.Key{Tenant: tenant, Saga: saga, Correlation: correlation}
		key := format.InstanceKey(k)
		if got, rest, err := format.CutKey(key); err != nil || got != k || len(rest) > 0 {
			t.Fatalf("%q reads back as %q, %q left, %v", k, got, rest, err)
		}
		for _, o := range []edda.Key{{Tenant: other, Saga: saga, Correlation: correlation}, {Tenant: tenant, Saga: other, Correlation: correlation},
			{Tenant: tenant, Saga: saga, Correlation: other}, {Tenant: tenant + other, Saga: saga, Correlation: correlation}, {Tenant: tenant, Saga: other + saga, Correlation: correlation}} {
			if mine := format.InstanceKey(o); (o == k) != bytes.Equal(mine, key) || o != k && bytes.HasPrefix(mine, key) {
				t.Fatalf("%q and %q have the keys %x and %x", k, o, key, mine)
			}
		}
		if (tenant < other) != (bytes.Compare(format.Texts(tenant), format.Texts(other)) < 0) {
			t.Fatalf("%q and %q sort otherwise as keys", tenant, other)
		}
		if at, got, err := format.CutDue(format.DueKey(noon, key)); err != nil || got != k || !at.Equal(noon) {
			t.Fatalf("%+v %v", got, err)
		}
		count := format.CountKey{Tenant: tenant, Saga: saga, Version: len(other), Status: edda.Status(other)}
		if got, err := format.CutCount(count.Bytes()); err != nil || got != count {
			t.Fatalf("%+v reads back as %+v, %v", count, got, err)
		}
	})
}

// FuzzRows gives any bytes to everything that reads a row.
func FuzzRows(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(format.DueKey(noon, format.InstanceKey(formatKey)), append(format.Head{Status: "running"}.Append(nil), `{"status":"running"}`...))
	f.Add(format.CountKey{Tenant: "acme"}.Bytes(), append(make([]byte, format.PointerSize), `{"event":{"payload":{"a":[1]}}}`...))
	f.Add(make([]byte, 16), []byte(`{"id":"c1","kind":"effect","payload":null}`))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if k, rest, err := format.CutKey(key); err == nil && !bytes.Equal(append(format.InstanceKey(k), rest...), key) {
			t.Fatalf("%x reads as %q and %x", key, k, rest)
		}
		_, _, _ = format.CutDue(key)
		_, _ = format.CutCount(key)
		_ = format.CutStamp(value)
		h, rest, err := format.CutHead(value)
		if err == nil && value != nil && !bytes.Equal(append(h.Append(nil), rest...), value) {
			t.Fatalf("%x reads as %+v and %x", value, h, rest)
		}
		if in, err := format.CutInstance(formatKey, value); err == nil && in != nil && in.Key != formatKey {
			t.Fatalf("an instance of %s has the key %s", formatKey, in.Key)
		}
		_, _, _ = format.CutWork(key, value)
		_, _, _ = format.CutRecord(format.Pointer{}, value)
		for _, read := range []func() error{
			func() error { _, err := format.Decode[edda.DeadLetter]("", value); return err },
			func() error { _, err := format.Decode[edda.Claim]("", value); return err },
			func() error { _, err := format.Decode[edda.Entry]("", value); return err },
			func() error { _, err := format.Decode[Audit]("", value); return err },
		} {
			_ = read() // an error or a value, and no panic
		}
	})
}

// FuzzFile puts one row that nobody of us wrote into a store, in any keyspace,
// beside or instead of one of ours: opening and reading it may fail with an
// error, and never with a panic or without an end.
func FuzzFile(f *testing.F) {
	whole, err := os.ReadFile(formatFile)
	if err != nil {
		f.Fatal(err)
	}
	ids := format.InstanceKey(formatKey)
	for i := range format.Keyspaces {
		f.Add(uint8(i), false, []byte("x"), []byte("y"))
		f.Add(uint8(i), true, ids, []byte{})
		f.Add(uint8(i), true, format.EntryKey(ids, 7), append(make([]byte, format.PointerSize), `{}`...))
		f.Add(uint8(i), false, format.DeadKey(noon, "d1"), []byte(`{"id":"d1"}`))
		f.Add(uint8(i), false, []byte("format"), []byte("9"))
		f.Add(uint8(i), true, ids, []byte("\xFE\x01\x40\x00")) // compressed, and cut off
		f.Add(uint8(i), false, format.DeadKey(noon, "d1"), new(wal.Packer).Pack([]byte(`{"id":"d1","reason":"poison","key":{"tenant":"acme"},"event":{"kind":"event","id":"e1"},"time":"2026-03-01T12:00:00Z"}`)))
	}
	f.Fuzz(func(t *testing.T, space uint8, nested bool, key, value []byte) {
		if len(key) == 0 || len(key) > bolt.MaxKeySize {
			return
		}
		dir := t.TempDir()
		path := filepath.Join(dir, FileName)
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		plant(t, path, format.Keyspaces[int(space)%len(format.Keyspaces)], nested, key, value)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		readAll(ctx, dir)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatal("it does not end")
		}
	})
}

// plant writes a row past all our code, into the first bucket within the
// keyspace if nested and there is one.
func plant(t *testing.T, path string, space format.Keyspace, nested bool, key, value []byte) {
	t.Helper()
	file, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(space)) // the file may be older than it
		if err != nil {
			return err
		}
		if nested {
			_ = b.ForEachBucket(func(name []byte) error {
				b = b.Bucket(name)
				return errors.New("the first is enough")
			})
		}
		_ = b.Put(key, value) // refused where a bucket has this name
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// readAll opens the store and reads everything that can be read.
func readAll(ctx context.Context, dir string) {
	d, err := Open(dir, Options{noSync: true, initialMap: 1 << 20})
	if err != nil {
		return
	}
	defer d.Close()
	_ = d.Check(ctx)
	_, _, _ = d.Due(noon.Add(1e6*time.Hour), 100)
	_, _ = d.Outbox(ulid.ULID{}, 100)
	_, _ = d.Waiting("c1")
	_, _ = d.Checkpoints()
	_, _ = d.Positions()
	_, _ = d.Schedules()
	_, _ = d.Manifests()
	_, _ = d.Audits(100)
	_, _, _ = d.Claim("acme", "c1")
	_, _ = d.DeadLetters("", 100)
	_, _, _ = d.DeadLetter("d1")
	_, _, _ = d.AuditsOf(AuditQuery{Tenant: "acme", Limit: 100})
	_, _ = d.HeldKeys("acme", "", edda.Key{}, 100)
	_, _ = d.ParkedKeys("acme", "", edda.Key{}, 100)
	_, _ = d.Replays()
	_, _ = d.Size()
	defer expireAll(ctx, d)
	_ = d.Counts()
	for _, k := range []edda.Key{formatKey, formatParked, formatHeld} {
		_, _ = d.History(k, 100)
		_, _ = d.Instances(Query{Tenant: k.Tenant, Limit: 100})
		if v, err := d.View(); err == nil {
			_, _ = v.Cell(k)
			v.Close()
		}
	}
}

// expireAll removes what there is, whatever it is: an error ends a kind.
func expireAll(ctx context.Context, d *DB) {
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(run) }()
	defer func() { stop(); <-ended }()
	late := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	cut := Cutoffs{Ended: func(string, edda.Status) time.Time { return late }, History: late, Claims: late, DeadLetters: late, Audits: late, Manifests: late, Now: late}
	for _, kind := range Kinds() {
		for s := d.Sweep(kind, cut); !s.Done(); {
			p, err := s.Next(ctx)
			if err != nil || d.Commit(ctx, Change{Remove: p.Removal}) != nil {
				break
			}
		}
	}
}

// TestAnUnknownKeyIsAnErrorThatNamesIt: and a finding of the doctor. It causes no panic and hides
// no other row.
func TestAnUnknownKeyIsAnErrorThatNamesIt(t *testing.T) {
	whole, err := os.ReadFile(formatFile)
	if err != nil {
		t.Fatal(err)
	}
	late := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	cut := Cutoffs{History: late, Claims: late, DeadLetters: late, Audits: late, Ended: func(string, edda.Status) time.Time { return late }}
	sweep := func(kind RowKind) func(*DB) error {
		return func(d *DB) error { _, err := d.Sweep(kind, cut).Next(t.Context()); return err }
	}
	removal := func(r Removal) func(*DB) error {
		return func(d *DB) error {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			defer func() { stop(); <-ended }()
			return d.Commit(ctx, Change{Remove: r})
		}
	}
	reads := map[format.Keyspace]map[string]func(*DB) error{
		format.Claim: {"sweep": sweep(KindClaims), "remove": removal(Removal{Claims: ClaimPlace{Hour: late, Tenant: "t", CommandID: "c"}}),
			"read": func(d *DB) error { _, _, err := d.Claim("acme", "unknown"); return err }},
		format.History:    {"sweep": sweep(KindHistory), "remove": removal(Removal{History: format.Pointer{Day: format.DayOf(late), Commit: 1 << 40}})},
		format.Audit:      {"sweep": sweep(KindAudit), "read": func(d *DB) error { _, _, err := d.AuditsOf(AuditQuery{Limit: 100}); return err }},
		format.DeadLetter: {"sweep": sweep(KindDeadLetters)},
		format.Ended:      {"sweep": sweep(KindInstances)},
		format.Due:        {"read": func(d *DB) error { _, _, err := d.Due(late, 100); return err }},
		format.Held:       {"read": func(d *DB) error { _, err := d.HeldKeys("\x00", "", edda.Key{}, 100); return err }},
	}
	for space, all := range reads {
		for name, read := range all {
			for _, nested := range []bool{false, true} {
				if nested && space != format.History && space != format.Claim {
					continue
				}
				dir := t.TempDir()
				path := filepath.Join(dir, FileName)
				if err := os.WriteFile(path, whole, 0o600); err != nil {
					t.Fatal(err)
				}
				key := []byte{0, 0, 7}
				if space == format.Held {
					key = append(format.Texts("\x00"), 7)
				}
				plant(t, path, space, nested, key, []byte("x"))
				foreignKey(t, dir, string(space)+" "+name, key, nested && name != "sweep", read)
			}
		}
	}
}

func foreignKey(t *testing.T, dir, name string, key []byte, unseen bool, read func(*DB) error) {
	t.Helper()
	named := fmt.Sprintf("%x", key)
	d, err := Open(dir, Options{noSync: true, initialMap: 1 << 20})
	if err != nil {
		if !strings.Contains(err.Error(), named) {
			t.Errorf("%s: it does not open: %v, want an error that names %s", name, err, named)
		}
		return
	}
	defer d.Close()
	found := false
	for _, f := range d.Check(t.Context()) {
		found = found || strings.Contains(f.Error(), named)
	}
	if !found {
		t.Errorf("%s: the doctor does not find %s", name, named)
	}
	if err := read(d); !unseen && (err == nil || !strings.Contains(err.Error(), named)) {
		t.Errorf("%s: %v, want an error that names %s", name, err, named)
	}
}
