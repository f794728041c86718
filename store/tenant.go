package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// A backup of one tenant is a store of its own: a new file with that tenant's rows alone, so that no
// free page has anything else. It has another id than the store it was taken from, because two
// processes must not both work for the tenant, and a lease tells stores apart by their ids.
// Encrypted values are bound to the id, so they are encrypted again, with the newest key.

// extracting is the name of that file until it was sent.
const extracting = FileName + ".tenant"

// originMark identifies a store without its id, which a tenant should not see.
func originMark(id string) string {
	sum := sha256.Sum256([]byte("origin\x00" + id))
	return hex.EncodeToString(sum[:8])
}

// Tenant is the one tenant whose rows the store has; empty for all tenants.
func (d *DB) Tenant() string { return d.tenant }

// MadeOf reports whether the rows of this store came from the store with an id.
func (d *DB) MadeOf(id string) bool {
	return slices.Contains(strings.Fields(d.origins), originMark(id))
}

// SnapshotOf makes a consistent copy of one tenant's rows. It pins pages of the store until it
// returns. It calls tell now and then with the rows it has read. Until the snapshot is closed, another
// call is a Temporary error.
func (d *DB) SnapshotOf(ctx context.Context, tenant string, tell func(rows int)) (*Snapshot, error) {
	if tenant == "" {
		return nil, edda.Classify(edda.Permanent, "name a tenant: without one a backup is of the whole store")
	}
	if !d.extraction.TryLock() {
		return nil, edda.Classify(edda.Temporary, "a backup of one tenant is under way: one at a time")
	}
	x := &tenantCopy{tenant: tenant, path: filepath.Join(filepath.Dir(d.path), extracting), shard: !d.Share().Whole()}
	x.rowCopy = d.rowCopy(ctx, tell, x)
	x.before = x.room
	var s *Snapshot
	err := d.sound(func() (err error) {
		s, err = x.snapshot(d)
		return err
	})
	if err != nil {
		x.end()
		d.extraction.Unlock()
		return nil, fmt.Errorf("copy the rows of %s: %w", tenant, err)
	}
	s.Rows, s.done = x.kept, func() { x.end(); d.extraction.Unlock() }
	return s, nil
}

// tenantCopy is a copy in progress.
type tenantCopy struct {
	rowCopy
	tenant string
	path   string
	shard  bool            // of a store that has a part of the keys
	kept   int             // rows of the tenant itself, not of acts on it
	sagas  map[string]bool // with rows of the tenant
}

func (x *tenantCopy) snapshot(d *DB) (*Snapshot, error) {
	if err := os.Remove(x.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, explain(x.path, err)
	}
	o := d.options
	o.noSync, o.openFile = true, nil // it does not outlive this process
	var err error
	if x.file, err = openBolt(x.path, o); err != nil {
		return nil, err
	}
	if err := d.view(func(tx *wal.Tx) error { return x.copy(tx, d.options) }); err != nil {
		return nil, err
	}
	file, err := wal.Load(x.file.DB, walOptions(x.file.file, o))
	if err != nil {
		return nil, err
	}
	tx, err := file.Begin(false)
	if err != nil {
		return nil, err
	}
	return snapshotOf(tx), nil
}

// end removes the file.
func (x *tenantCopy) end() {
	x.rollback()
	if x.file != nil {
		_ = x.file.Close()
	}
	_ = os.Remove(x.path)
}

// copy writes the tenant's rows, keyspace by keyspace. The manifests come last, when the tenant's
// sagas are known.
func (x *tenantCopy) copy(from *wal.Tx, o Options) error {
	x.sagas = map[string]bool{}
	if err := x.meta(from, o, map[string][]byte{string(format.MetaTenant): []byte(x.tenant)}); err != nil {
		return err
	}
	for _, space := range format.Keyspaces {
		if space == format.Meta || space == format.Manifest {
			continue
		}
		if err := x.space(space); err != nil {
			return err
		}
	}
	if x.kept == 0 && !x.shard { // a mistyped name would make an empty backup; a shard may have nothing of a tenant
		return edda.Classify(edda.Permanent, "this store has nothing of a tenant of that name")
	}
	if err := x.space(format.Manifest); err != nil {
		return err
	}
	return x.commit()
}

// wants implements picker.
func (x *tenantCopy) wants(space format.Keyspace, k []byte) bool {
	whose, known := tenantOfKey(space, k)
	return !known || whose == x.tenant || space == format.Position && whose == AllTenants
}

// picked implements picker.
func (x *tenantCopy) picked(space format.Keyspace, _ []byte, _ format.Head) {
	if space != format.Checkpoint && space != format.Audit && space != format.Position {
		x.kept++
	}
}

// tenantOfKey is the tenant in a row's key, where the keyspace has it there. A key that cannot be
// decoded has no tenant, so its row is not copied.
func tenantOfKey(space format.Keyspace, k []byte) (tenant string, known bool) {
	var err error
	switch space {
	case format.Saga, format.Count, format.Position, format.Parked, format.Held, format.Schedule, format.Claim, format.Part:
		tenant, _, err = format.CutText(k)
	case format.Due:
		var of edda.Key
		_, of, err = format.CutDue(k)
		tenant = of.Tenant
	case format.Ended:
		var e format.EndKey
		e, err = format.CutEnded(k)
		tenant = e.Key.Tenant
	default:
		return "", false
	}
	if err != nil {
		return "", true
	}
	return tenant, true
}

// mine reports whether a row is the tenant's by its value. Rows of an unknown keyspace are not
// copied.
func (x *tenantCopy) mine(space format.Keyspace, k, v []byte) (bool, error) {
	switch space {
	case format.Saga, format.Count, format.Position, format.Schedule:
		return true, x.saga(k)
	case format.Parked, format.Held, format.Part, format.Claim, format.Due, format.Ended, format.Checkpoint:
		return true, nil
	case format.Outbox:
		_, work, err := format.CutWork(k, v)
		return work.From.Tenant == x.tenant, err
	case format.History:
		r, _, err := format.CutRecord(format.Pointer{}, v)
		return r.Key.Tenant == x.tenant, err
	case format.DeadLetter:
		d, err := format.Decode[edda.DeadLetter]("dead letter", v)
		return d.Tenant() == x.tenant, err
	case format.DeadLetterID:
		return len(v) >= format.TimeSize && x.tx != nil && x.tx.Bucket([]byte(format.DeadLetter)).Get(append(bytes.Clone(v[:format.TimeSize]), k...)) != nil, nil
	case format.Audit:
		a, err := format.Decode[Audit]("audit", v)
		return a.Key.Tenant == x.tenant, err
	case format.Replay:
		r, err := format.Decode[Replay]("replay", v)
		return r.Tenant == x.tenant, err
	case format.Manifest:
		name, _, err := format.CutText(k)
		return x.sagas[name], err
	}
	return false, nil
}

// saga notes the saga in a key that begins with a tenant and a saga.
func (x *tenantCopy) saga(k []byte) error {
	_, rest, err := format.CutText(k)
	if err != nil {
		return err
	}
	name, _, err := format.CutText(rest)
	x.sagas[name] = true
	return err
}

// room refuses a transaction that would leave commits too little of the disk.
func (x *tenantCopy) room() error { return room(x.path, 2*copyBytes) }
