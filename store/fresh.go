package store

import (
	"slices"
	"sort"
	"sync"

	"github.com/oklog/ulid/v2"

	"edda"
)

const (
	// freshRows is how many outbox rows are kept in memory: as many as a large commit
	// adds. A relay that is further behind reads the file.
	freshRows = 2048
	// freshBytes bounds them, as they lie in the file.
	freshBytes = 4 << 20
)

// fresh are the outbox rows that the last commits added, as they were decided: the
// relay, which reads them in their order a moment later, need not decode them. Rows
// that were removed lie empty among the others until those before them are gone.
type fresh struct {
	mu    sync.Mutex // guards all below
	ring  []freshRow
	first int // in the ring
	n     int
	bytes int
	floor ulid.ULID // all rows behind it are here
}

// freshRow is one row; without a size it was removed.
type freshRow struct {
	id   ulid.ULID
	work edda.Work
	size int
}

// newFresh knows nothing of the rows of the commits up to one.
func newFresh(last stamp, empty bool) *fresh {
	f := &fresh{}
	if !empty {
		w := writer{stamp: last, works: ^uint32(0)}
		f.floor = w.ulid()
	}
	return f
}

// added is a row of a transaction. The work is the change's.
type added struct {
	id   ulid.ULID
	work *edda.Work
	size int
}

// learn takes what a commit added and removed.
func (f *fresh) learn(s *staged) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range s.added {
		f.push(freshRow{id: a.id, work: *a.work, size: a.size})
	}
	for id := range s.gone {
		f.remove(id)
	}
	for f.n > 0 && f.at(0).size == 0 {
		f.shift()
	}
}

func (f *fresh) at(i int) *freshRow { return &f.ring[(f.first+i)%freshRows] }

func (f *fresh) push(r freshRow) {
	if f.ring == nil {
		f.ring = make([]freshRow, freshRows)
	}
	for f.n == freshRows || f.n > 0 && f.bytes+r.size > freshBytes {
		f.floor = f.at(0).id
		f.shift()
	}
	*f.at(f.n) = r
	f.n++
	f.bytes += r.size
}

// shift takes the first away, and with it what it keeps in memory.
func (f *fresh) shift() {
	f.bytes -= f.at(0).size
	*f.at(0) = freshRow{}
	f.first, f.n = (f.first+1)%freshRows, f.n-1
}

// behind is the place of the first row that is not before the id.
func (f *fresh) behind(id ulid.ULID) int {
	return sort.Search(f.n, func(i int) bool { return f.at(i).id.Compare(id) >= 0 })
}

func (f *fresh) remove(id ulid.ULID) {
	i := f.behind(id)
	if i == f.n || f.at(i).id != id {
		return
	}
	f.bytes -= f.at(i).size
	*f.at(i) = freshRow{id: id}
}

// list is [DB.AppendOutbox]; all is false where the file must be asked.
func (f *fresh) list(rows []Row, after ulid.ULID, limit int) (_ []Row, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after.Compare(f.floor) < 0 {
		return rows, false
	}
	from, n, size := f.behind(after), 0, 0
	if from < f.n && f.at(from).id == after {
		from++
	}
	end := from
	for ; end < f.n && n < limit && size < maxRead; end++ {
		if r := f.at(end); r.size > 0 {
			n, size = n+1, size+r.size
		}
	}
	rows = slices.Grow(rows, n)
	for i := from; i < end; i++ {
		if r := f.at(i); r.size > 0 {
			rows = append(rows, Row{ID: r.id, Work: r.work})
		}
	}
	return rows, true
}
