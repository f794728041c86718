package store

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// AuditQuery selects the audit log of a tenant; the empty tenant selects acts on the process.
type AuditQuery struct {
	Tenant string
	Since  time.Time // zero: all
	After  string    // the next place of the page before; empty: begin with the newest
	Limit  int
}

// maxAudits bounds the acts that a page reads, with those of other tenants, because a long
// transaction pins pages of the file.
const maxAudits = 10_000

// auditSize is the length of an act's key: its commit, and its number within.
const auditSize = 12

// AuditsOf lists a tenant's acts, newest first: up to the limit, and fewer if there are many of
// others or they are large. The next page begins at next, which is empty on the last page. A
// malformed place is a Permanent error.
func (d *DB) AuditsOf(q AuditQuery) (out []Audit, next string, err error) {
	from, err := cutAuditPlace(q.After)
	if err != nil {
		return nil, "", err
	}
	err = d.read(format.Audit, func(b *wal.Bucket) error {
		c := b.Cursor()
		seen, size := 0, 0
		for k, v := olderThan(c, from); k != nil; k, v = c.Prev() {
			if len(out) >= q.Limit || seen >= maxAudits || size >= maxRead {
				return nil // there are more, after next
			}
			a, err := d.cutAudit(k, v)
			if err != nil {
				return err
			}
			a.ID = auditPlace(k)
			next = a.ID
			if seen++; a.Key.Tenant == q.Tenant && !a.Time.Before(q.Since) {
				out, size = append(out, a), size+len(v)
			}
		}
		next = ""
		return nil
	})
	return out, next, err
}

// olderThan is the newest act before a place; without a place, the newest of all.
func olderThan(c *wal.Cursor, from []byte) (k, v []byte) {
	if from == nil {
		return c.Last()
	}
	if k, _ = c.Seek(from); k == nil {
		return c.Last() // those after the place were removed
	}
	return c.Prev()
}

func (d *DB) cutAudit(k, v []byte) (a Audit, err error) {
	if len(k) != auditSize {
		return a, fmt.Errorf("audit row %x: %w", k, format.ErrKey)
	}
	if v, err = d.seal.Open(format.Audit, k, v, 0); err == nil {
		a, err = format.Decode[Audit]("audit", v)
	}
	if err != nil {
		return a, fmt.Errorf("commit %d: %w", binary.BigEndian.Uint64(k), err)
	}
	return a, nil
}

func auditPlace(k []byte) string { return base64.RawURLEncoding.EncodeToString(k) }

func cutAuditPlace(place string) ([]byte, error) {
	if place == "" {
		return nil, nil
	}
	key, err := base64.RawURLEncoding.DecodeString(place)
	if err != nil || len(key) != auditSize {
		return nil, edda.Classify(edda.Permanent, "%.100q is no place in the audit: give the next of the page before", place)
	}
	return key, nil
}
