package store

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// index has what must be found without a scan. It is built when the store opens, and changes
// after each commit that succeeds.
type index struct {
	mu      sync.RWMutex             // guards the fields below
	waiting map[string]waitingResult // outbox rows of effects, by command id
	effects map[ulid.ULID]string     // their command ids
	total   rowCounts                // rows of the outbox
	owners  map[owner]*rowCounts     // and those of each saga of a tenant
	parked  map[string]int           // parked events by tenant; none is zero
	oldest  ulid.ULID                // the first row of the outbox; zero: there is none
	front   ulid.ULID                // no row of the outbox is before this
	counts  map[format.CountKey]int  // none is zero
	queues  queueCounts
	maxDead int // bytes of a tenant's dead letters
}

// waitingResult is an effect's outbox row and its instance. A result counts only for that instance.
type waitingResult struct {
	ID   ulid.ULID
	From edda.Key
}

// keptOwners is how many sagas of tenants without rows in the outbox are kept, so that those
// whose rows come and go cost no memory each time.
const keptOwners = 4096

// kindsOfWork are the kinds that outbox rows are counted by. The last one counts all others.
var kindsOfWork = [...]edda.WorkKind{
	edda.WorkEffect, edda.WorkRevoke, edda.WorkCommand, edda.WorkFact, edda.WorkStart, edda.WorkCancel, edda.WorkEnd, edda.WorkMessage, edda.WorkResult, "",
}

func kindNumber(kind edda.WorkKind) int {
	for i, k := range kindsOfWork {
		if k == kind {
			return i
		}
	}
	return len(kindsOfWork) - 1
}

// owner is a saga of a tenant.
type owner struct{ Tenant, Saga string }

// rowCounts counts outbox rows by kind.
type rowCounts [len(kindsOfWork)]int

// of is the number of rows of some kinds.
func (c *rowCounts) of(kinds ...edda.WorkKind) (n int) {
	for _, kind := range kinds {
		n += c[kindNumber(kind)]
	}
	return n
}

func newIndex() *index {
	return &index{waiting: map[string]waitingResult{}, effects: map[ulid.ULID]string{}, owners: map[owner]*rowCounts{}, parked: map[string]int{}}
}

// loadIndex scans the outbox, the counters and the queues.
func (d *DB) loadIndex(tx *wal.Tx) (*index, error) {
	x := newIndex()
	x.maxDead = d.options.MaxDeadBytes
	err := tx.Bucket([]byte(format.Outbox)).ForEach(func(k, v []byte) error {
		v, err := d.seal.Open(format.Outbox, k, v, 0)
		if err != nil {
			return err
		}
		id, work, err := format.CutWork(k, v)
		if err != nil {
			return err
		}
		if x.oldest == (ulid.ULID{}) {
			x.oldest = id
		}
		kind := kindNumber(work.Kind)
		x.total[kind]++
		x.owner(work.From.Tenant, work.From.Saga)[kind]++
		if work.Kind == edda.WorkEffect {
			x.waiting[work.ID], x.effects[id] = waitingResult{id, work.From}, work.ID
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	if x.counts, err = loadCounts(tx); err != nil {
		return nil, err
	}
	return x, x.loadQueues(tx, d.seal)
}

// Outboxed is how many rows of some kinds are in the outbox, with the effects that wait for
// their results. Like the counts below it costs no scan, because each commit keeps it.
func (d *DB) Outboxed(kinds ...edda.WorkKind) int {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	return d.index.total.of(kinds...)
}

// Parked is how many events of a tenant wait for an instance.
func (d *DB) Parked(tenant string) int {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	return d.index.parked[tenant]
}

// ParkedInAll is how many events of all tenants wait for an instance.
func (d *DB) ParkedInAll() int {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	return d.index.queues.Parked
}

// OutboxSize is how many rows wait, and the time of the oldest.
func (d *DB) OutboxSize() (int, time.Time) {
	x := d.index
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.total.of(kindsOfWork[:]...)
	if n == 0 {
		return 0, time.Time{}
	}
	return n, x.oldest.Timestamp().UTC()
}

// Owner is how many outbox rows of some kinds a saga of a tenant has.
type Owner struct {
	Tenant, Saga string
	Rows         int
}

// Owners lists the sagas that have at least so many outbox rows of some kinds, in no order.
// It looks at each saga and tenant that has any.
func (d *DB) Owners(least int, kinds ...edda.WorkKind) (out []Owner) {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	for k, rows := range d.index.owners {
		if n := rows.of(kinds...); n >= max(least, 1) {
			out = append(out, Owner{k.Tenant, k.Saga, n})
		}
	}
	return out
}

// owner returns the counts of a saga of a tenant. Only the committer may call it.
func (x *index) owner(tenant, saga string) *rowCounts {
	if c := x.owners[owner{tenant, saga}]; c != nil {
		return c
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	c := new(rowCounts)
	x.owners[owner{strings.Clone(tenant), strings.Clone(saga)}] = c // the texts may be parts of a large one
	return c
}

// ownerOf returns the counts of an outbox row's saga. Only the committer may call it.
func (x *index) ownerOf(row []byte) (*rowCounts, error) {
	tenant, saga, ok := format.OwnerIn(row)
	if !ok {
		w, err := format.Decode[edda.Work]("outbox row", row)
		return x.owner(w.From.Tenant, w.From.Saga), err
	}
	if c := x.owners[owner{string(tenant), string(saga)}]; c != nil { // allocates nothing
		return c, nil
	}
	return x.owner(string(tenant), string(saga)), nil
}

// apply adds what a commit staged.
func (x *index) apply(s *staged) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range s.gone {
		if command, ok := x.effects[id]; ok {
			delete(x.effects, id)
			delete(x.waiting, command)
		}
	}
	for command, row := range s.commands {
		x.waiting[command], x.effects[row.ID] = row, command
	}
	for _, o := range s.owned {
		o.by[o.kind] += o.n
		x.total[o.kind] += o.n
	}
	if len(x.owners) > 2*keptOwners {
		for k, c := range x.owners {
			if *c == (rowCounts{}) {
				delete(x.owners, k)
			}
		}
	}
	x.queues.add(s.queues)
	for tenant, n := range s.parked {
		if x.parked[tenant] += n; x.parked[tenant] == 0 {
			delete(x.parked, tenant)
		}
	}
	x.oldest, x.front = s.oldest, s.front
	for key, n := range s.counts {
		if n == 0 {
			delete(x.counts, key)
		} else {
			x.counts[key] = n
		}
	}
}

// staged is what one transaction changes in the index. The committer alone writes the index,
// so it reads the index here without the lock.
type staged struct {
	index    *index
	commands map[string]waitingResult // effects that were added and not removed
	effects  map[ulid.ULID]string
	gone     map[ulid.ULID]bool // rows that were removed
	owned    []owned            // rows that were added or removed
	parked   map[string]int     // parked events that were added, less those removed, by tenant
	oldest   ulid.ULID
	front    ulid.ULID
	counts   map[format.CountKey]int // new values
	queues   queueCounts             // added, less removed
	hours    []uint32                // in which claims were added
	claimed  []recentCommand         // commands of these claims
	cleared  bool                    // claims were removed, and perhaps an hour with them
	added    []added                 // outbox rows
	armed    bool                    // due rows were added
	first    []byte                  // the first of them
}

// owned is an outbox row that was added (n is 1) or removed (-1).
type owned struct {
	by   *rowCounts
	kind int
	n    int
}

func newStaged(x *index) *staged { return &staged{index: x} }

// set sets m[k], and makes the map if it is nil: most transactions need few of them.
func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

func (s *staged) waiting(command string) (waitingResult, bool) {
	if row, ok := s.commands[command]; ok {
		return row, true
	}
	row, ok := s.index.waiting[command]
	return row, ok && !s.gone[row.ID]
}

func (s *staged) add(id ulid.ULID, w encodedWork) {
	s.owned = append(s.owned, owned{s.index.owner(w.from.Tenant, w.from.Saga), kindNumber(w.kind), 1})
	s.added = append(s.added, added{id: id, work: w.work, size: len(w.value)})
	if w.kind == edda.WorkEffect {
		set(&s.commands, w.id, waitingResult{id, w.from})
		set(&s.effects, id, w.id)
	}
}

func (s *staged) removed(id ulid.ULID, kind edda.WorkKind, by *rowCounts) {
	s.owned = append(s.owned, owned{by, kindNumber(kind), -1})
	set(&s.gone, id, true)
	if command, ok := s.effects[id]; ok {
		delete(s.effects, id)
		delete(s.commands, command)
	}
}

// letters is how many bytes of dead letters a tenant has.
func (s *staged) letters(tenant string) int {
	return s.index.queues.Letters[tenant] + s.queues.Letters[tenant]
}

// arm notes a due row that was added.
func (s *staged) arm(key []byte) {
	if !s.armed || bytes.Compare(key, s.first) < 0 {
		s.first = append(s.first[:0], key...)
	}
	s.armed = true
}

// count moves an instance from one counter to another. A head without a status has none.
func (s *staged) count(who edda.Key, old, now format.Head) {
	if old.Status == now.Status && old.Version == now.Version {
		return
	}
	s.raise(who, old, -1)
	s.raise(who, now, 1)
}

func (s *staged) raise(who edda.Key, h format.Head, n int) {
	if h.Status == "" {
		return
	}
	key := format.CountOf(who, h.Version, h.Status)
	value, ok := s.counts[key]
	if !ok {
		value = s.index.counts[key]
	}
	set(&s.counts, key, value+n)
}
