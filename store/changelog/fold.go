package changelog

import (
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// A frozen table is folded into its buckets in chunks, which ride along in the
// transactions that follow: they cost no sync of their own. What rode along is
// paid for in bytes, so that a table is folded before the next is full.

const (
	// share is how many bytes are folded for each that a transaction writes. With
	// two a table is folded when the next is half full.
	share = 2
	// chunkBytes is what must be owed until a chunk is worth its while: each rewrites
	// the pages that lead to those with its rows.
	chunkBytes = 64 << 10
	// chunkRows bounds the pages that a chunk makes a small transaction write: some
	// hundred, a few milliseconds' worth.
	chunkRows = 128
	// maxDebt is what may be owed in all; what is more is folded at once.
	maxDebt = 1 << 20
)

// pace is how much is folded at once: the bounds above.
type pace struct{ bytes, rows, debt int }

// folding is how far a frozen table was folded. The zero value has nothing to do.
type folding struct {
	until  uint64   // the last transaction in it
	layers []*layer // those not folded yet; of the first, the rows behind after
	after  []byte
	weight int // of the table
	debt   int // of bytes that are to be folded
}

// ended tells whether all was folded.
func (f *folding) ended() bool { return f.until == 0 }

// fold folds as much as a transaction that wrote so many bytes has to.
func (tx *Tx) fold(next *progress, wrote int) error {
	f := &next.folding
	if f.ended() {
		return nil
	}
	f.debt += share * wrote
	if tx.db.overdue(next.state.active) {
		f.debt = max(f.debt, f.weight+tx.db.options.pace.debt) // all of it: the next table is full, too
	}
	if f.debt < tx.db.options.pace.bytes {
		return nil
	}
	if err := tx.chunk(f, next.state.active); err != nil {
		return fmt.Errorf("fold the log: %w", err)
	}
	// gofail: var foldChunked struct{}
	if len(f.layers) > 0 {
		return nil
	}
	// gofail: var foldDropping struct{}
	err := tx.dropSegments(f.until)
	*f = folding{}
	return err
}

// chunk puts the next rows into their buckets, but for those that the active table
// has anew.
func (tx *Tx) chunk(f *folding, active *table) error {
	pace := tx.db.options.pace
	for rows := 0; len(f.layers) > 0; {
		l := f.layers[0]
		b, err := tx.target(l)
		if err != nil {
			return err
		}
		newer := active.layer(l.space, l.inner)
		it := l.rows.Iter()
		more := it.First()
		if f.after != nil {
			pivot := &row{buf: f.after, cut: len(f.after)}
			if more = it.Seek(pivot); more && string(it.Item().key()) == string(f.after) {
				more = it.Next()
			}
		}
		for ; more; more = it.Next() {
			if f.debt <= 0 || rows >= pace.rows && f.debt < pace.debt {
				return nil
			}
			r := it.Item()
			f.after, f.debt = r.key(), f.debt-r.weight()
			if superseded(newer, r) {
				continue
			}
			if err := tx.place(l, b, r); err != nil {
				return fmt.Errorf("%s, row %x: %w", l.space, r.key(), err)
			}
			rows++
		}
		f.layers, f.after = f.layers[1:], nil
	}
	return nil
}

// superseded tells whether a value need not come to its page: the active table, which
// is committed with this chunk at the latest, has a row for the key, and so has the log
// behind what the chunk's end drops. Whoever reads finds that row first; and should it be
// deleted, what is below of it, here or in the file, keeps its mark in the table (see
// [Bucket.Delete]). That there is no value must always come there: it hides an older one
// that a newer row, deleted in turn, would let be seen.
func superseded(newer *layer, r *row) bool {
	if newer == nil || r.kind != put {
		return false
	}
	_, ok := newer.rows.Get(r)
	return ok
}

// target is the bucket of the file that a layer is folded into; nil for one that
// was dropped, of which there are no rows.
func (tx *Tx) target(l *layer) (*bolt.Bucket, error) {
	b := tx.raw.Bucket(l.space)
	if b == nil {
		return nil, fmt.Errorf("there is no bucket %q", l.space)
	}
	if l.inner != nil {
		b = b.Bucket(l.inner)
	}
	if fill := tx.db.options.Spaces[string(l.space)].Fill; b != nil && fill > 0 {
		b.FillPercent = fill
	}
	return b, nil
}

// place puts one row into its bucket. To delete a key that is not there changes no page.
func (tx *Tx) place(l *layer, b *bolt.Bucket, r *row) error {
	if b == nil {
		return fmt.Errorf("there is no bucket %x", l.inner)
	}
	if err := tx.wipe(l, b, r.key()); err != nil {
		return err
	}
	if r.kind == put {
		return b.Put(r.key(), tx.db.packer.Pack(r.value()))
	}
	if b.Get(r.key()) != nil { // also where a bucket came in its place
		if err := b.Delete(r.key()); err != nil {
			return err
		}
	}
	if r.kind == made {
		_, err := b.CreateBucketIfNotExists(r.key())
		return err
	}
	return nil
}

// wipe drops a bucket within that the table says was dropped, whatever is there now.
func (tx *Tx) wipe(l *layer, b *bolt.Bucket, name []byte) error {
	if l.inner != nil || !tx.db.options.Spaces[string(l.space)].Nested {
		return nil
	}
	inner := tx.state.frozen.layer(l.space, name)
	if inner == nil || !inner.wiped || b.Bucket(name) == nil {
		return nil
	}
	return b.DeleteBucket(name)
}
