package store

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// index is what must be found without a scan: built when the store opens, moved
// on after every commit, never by one that failed.
type index struct {
	mu      sync.RWMutex            // guards all below
	waiting map[string]waiting      // outbox rows of effects, by command id
	effects map[ulid.ULID]string    // the other way round
	size    int                     // outbox rows
	kinds   map[edda.WorkKind]int   // of them, how many of each kind
	owners  map[ownerKey]*owner     // and of each saga of a tenant
	parked  map[string]int          // parked events by tenant; none is zero
	oldest  ulid.ULID               // the first of them; zero: none
	front   ulid.ULID               // no row of the outbox is before this
	counts  map[format.CountKey]int // none is zero
	queues  aside
	maxDead int // bytes of a tenant's dead letters
}

// waiting is an effect's outbox row and whose it is: a result speaks only for
// the instance that it is addressed to.
type waiting struct {
	ID   ulid.ULID
	From edda.Key
}

func newIndex() *index {
	return &index{
		waiting: map[string]waiting{},
		effects: map[ulid.ULID]string{},
		counts:  map[format.CountKey]int{},
		kinds:   map[edda.WorkKind]int{},
		owners:  map[ownerKey]*owner{},
		parked:  map[string]int{},
	}
}

// loadIndex scans the outbox, the counters, and the keys of what is parked.
func (d *DB) loadIndex(tx *wal.Tx) (*index, error) {
	x := newIndex()
	x.maxDead = d.options.MaxDeadBytes
	err := tx.Bucket([]byte(format.Outbox)).ForEach(func(k, v []byte) error {
		v, err := d.seal.Open(format.Outbox, k, v, 0)
		if err != nil {
			return err
		}
		row, err := cutRow(k, v)
		if err != nil {
			return err
		}
		if x.size == 0 {
			x.oldest = row.ID
		}
		x.size++
		x.kinds[row.Work.Kind]++
		x.owner(row.Work.From.Tenant, row.Work.From.Saga).rows[kindNumber(row.Work.Kind)]++
		if row.Work.Kind == edda.WorkEffect {
			x.waiting[row.Work.ID], x.effects[row.ID] = waiting{row.ID, row.Work.From}, row.Work.ID
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	if x.counts, err = loadCounts(tx); err != nil {
		return nil, err
	}
	if x.queues, err = loadQueues(tx, d.seal); err != nil {
		return nil, err
	}
	return x, x.loadParked(tx)
}

func (x *index) loadParked(tx *wal.Tx) error {
	c := tx.Bucket([]byte(format.Parked)).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		tenant, _, err := format.CutText(k)
		if err != nil {
			return fmt.Errorf("parked event %x: %w", k, err)
		}
		x.parked[tenant]++
	}
	return nil
}

func (x *index) command(id string) (ulid.ULID, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	row, ok := x.waiting[id]
	return row.ID, ok
}

func (x *index) outbox() (int, time.Time) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.size == 0 {
		return 0, time.Time{}
	}
	return x.size, x.oldest.Timestamp().UTC()
}

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
	x.size += s.grown
	x.queues.add(s.queues)
	for kind, n := range s.kinds {
		x.kinds[kind] += n
	}
	for _, o := range s.owned {
		o.by.rows[o.kind] += o.n
	}
	x.disown()
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

// staged is what one transaction does to the index. The committer alone writes
// the index, so reading it here without its lock is safe.
type staged struct {
	index    *index
	commands map[string]waiting // effects added and still there
	effects  map[ulid.ULID]string
	gone     map[ulid.ULID]bool // rows removed
	grown    int
	kinds    map[edda.WorkKind]int // rows added, less those removed
	owned    []owned               // likewise, each
	parked   map[string]int        // likewise, parked events by tenant
	oldest   ulid.ULID
	front    ulid.ULID
	counts   map[format.CountKey]int // new values
	queues   aside                   // what is added, or taken away
	hours    []uint32                // in which claims were added
	claimed  []recentCommand         // of these
	cleared  bool                    // claims were removed, and perhaps an hour with them
	added    []added                 // outbox rows
	armed    bool                    // due rows were added
	first    []byte                  // of these
}

// keptStaged is how many rows there may be room for in what is kept for the next
// transaction: more than come in one as a rule.
const keptStaged = 4096

// anew is what the next transaction begins with, in the memory of this one; nil has none.
func (s *staged) anew(x *index) *staged {
	if s == nil || max(cap(s.added), cap(s.claimed), cap(s.owned)) > keptStaged || len(s.gone) > keptStaged {
		return newStaged(x)
	}
	clear(s.commands)
	clear(s.effects)
	clear(s.gone)
	clear(s.counts)
	clear(s.kinds)
	clear(s.parked)
	clear(s.added)
	clear(s.owned)
	*s = staged{
		index: x, commands: s.commands, effects: s.effects, gone: s.gone, counts: s.counts,
		kinds: s.kinds, owned: s.owned[:0], parked: s.parked, hours: s.hours[:0], claimed: s.claimed[:0], added: s.added[:0], first: s.first[:0],
	}
	return s
}

func newStaged(x *index) *staged {
	return &staged{
		index:    x,
		commands: map[string]waiting{},
		effects:  map[ulid.ULID]string{},
		gone:     map[ulid.ULID]bool{},
		counts:   map[format.CountKey]int{},
		kinds:    map[edda.WorkKind]int{},
		parked:   map[string]int{},
	}
}

func (s *staged) waiting(command string) (waiting, bool) {
	if row, ok := s.commands[command]; ok {
		return row, true
	}
	row, ok := s.index.waiting[command]
	return row, ok && !s.gone[row.ID]
}

func (s *staged) add(id ulid.ULID, w encodedWork) {
	s.grown++
	s.kinds[w.kind]++
	s.owned = append(s.owned, owned{s.index.owner(w.from.Tenant, w.from.Saga), kindNumber(w.kind), 1})
	s.added = append(s.added, added{id: id, work: w.work, size: len(w.value)})
	if w.kind == edda.WorkEffect {
		s.commands[w.id], s.effects[id] = waiting{id, w.from}, w.id
	}
}

func (s *staged) removed(id ulid.ULID, kind edda.WorkKind, by *owner) {
	s.grown--
	s.kinds[kind]--
	s.owned = append(s.owned, owned{by, kindNumber(kind), -1})
	s.gone[id] = true
	if command, ok := s.effects[id]; ok {
		delete(s.effects, id)
		delete(s.commands, command)
	}
}

// letters is how many bytes of dead letters a tenant has by now.
func (s *staged) letters(tenant string) int {
	return s.index.queues.Letters[tenant] + s.queues.Letters[tenant]
}

// arm notes a due row that was added; its key is the change's.
func (s *staged) arm(key []byte) {
	if !s.armed || bytes.Compare(key, s.first) < 0 {
		s.first = append(s.first[:0], key...)
	}
	s.armed = true
}

// count moves one instance from where it stood to where it stands; it may be
// new, or go.
func (s *staged) count(who edda.Key, old, now format.Head) {
	if old.Status == now.Status && old.Version == now.Version {
		return
	}
	if old.Status != "" {
		s.raise(format.CountOf(who, old.Version, old.Status), -1)
	}
	if now.Status != "" {
		s.raise(format.CountOf(who, now.Version, now.Status), 1)
	}
}

func (s *staged) raise(key format.CountKey, n int) {
	value, ok := s.counts[key]
	if !ok {
		value = s.index.counts[key]
	}
	s.counts[key] = value + n
}
