package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"edda/store/format"
	"edda/store/wal"
)

// rowCopy copies some rows of a store into a new store, which has an id of its own. Encrypted values are bound to the id,
// so they are encrypted again, with the newest key.
type rowCopy struct {
	copyProgress
	copier
	pick  picker
	opens format.Seal // the values of the store
	seals format.Seal // those of the copy
	from  *wal.Tx
}

// picker chooses the rows.
type picker interface {
	// wants reports whether a row may be wanted, as far as its key tells. If not, its value is not even decrypted.
	wants(space format.Keyspace, k []byte) bool
	// mine reports whether a row is wanted by its plain value.
	mine(space format.Keyspace, k, v []byte) (bool, error)
	// picked notes a row that is copied. The head is that of an instance.
	picked(space format.Keyspace, k []byte, h format.Head)
}

func (d *DB) rowCopy(ctx context.Context, tell func(rows int), pick picker) rowCopy {
	return rowCopy{
		copyProgress: copyProgress{ctx: ctx, tell: tell}, copier: copier{packer: wal.Packer{Plain: d.options.plain}}, pick: pick, opens: d.seal,
	}
}

// meta begins the copy with the meta rows of a new store at the commit of the old one, and with more of them.
func (x *rowCopy) meta(from *wal.Tx, o Options, more map[string][]byte) error {
	x.from = from
	if err := x.begin(); err != nil {
		return err
	}
	id, err := ulid.New(ulid.Timestamp(o.Now()), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the store's id: %w", err)
	}
	x.seals = format.Seal{AEAD: x.opens.AEAD, Store: id.String()}
	for _, space := range format.Keyspaces {
		if _, err := x.tx.CreateBucket([]byte(space)); err != nil {
			return err
		}
	}
	was, is := x.from.Bucket([]byte(format.Meta)), x.tx.Bucket([]byte(format.Meta))
	for _, name := range [][]byte{format.MetaFormat, format.MetaCreated, format.MetaCommit, format.MetaDropped, format.MetaRetention, format.MetaUnclaimed, format.MetaBegun, format.MetaShare} {
		if v := was.Get(name); v != nil {
			if err := is.Put(name, v); err != nil {
				return err
			}
		}
	}
	for name, v := range more {
		if err := is.Put([]byte(name), v); err != nil {
			return err
		}
	}
	origins := bytes.TrimSpace(bytes.Join([][]byte{[]byte(originMark(string(was.Get(format.MetaID)))), was.Get(format.MetaOrigins)}, []byte(" ")))
	if err := errors.Join(is.Put(format.MetaID, []byte(id.String())), is.Put(format.MetaOrigins, origins)); err != nil || x.seals.AEAD == nil {
		return err
	}
	locked, err := x.seals.AEAD.Encrypt(nil, x.seals.Place(format.Meta, format.MetaSealed))
	if err != nil {
		return fmt.Errorf("use the keyset: %w", err)
	}
	return is.Put(format.MetaSealed, locked)
}

// space copies the rows of one keyspace.
func (x *rowCopy) space(space format.Keyspace) error {
	err := eachRowIn([]byte(space), x.from.Bucket([]byte(space)), func(_, part, k, v []byte) error {
		if k == nil {
			return nil // a bucket is made with its first row
		}
		return x.row(space, part, k, v)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", space, err)
	}
	return nil
}

// row copies a row if it is wanted. part names the bucket of its hour or day.
func (x *rowCopy) row(space format.Keyspace, part, k, v []byte) error {
	if err := x.copyProgress.row(); err != nil {
		return err
	}
	if !x.pick.wants(space, k) {
		return nil
	}
	place, head := k, 0
	var h format.Head
	switch space {
	case format.History:
		place, head = append(bytes.Clone(part), k...), format.PointerSize
	case format.Saga:
		var err error
		if h, _, err = format.CutHead(v); err != nil {
			return err
		}
		head = h.Size()
	}
	plain, err := x.opens.Open(space, place, v, head)
	if err != nil {
		return err
	}
	if mine, err := x.pick.mine(space, k, plain); err != nil || !mine {
		return err
	}
	value, err := x.seals.Close(space, place, plain, head)
	if err != nil {
		return err
	}
	x.pick.picked(space, k, h)
	return x.put([]byte(space), part, k, value)
}
