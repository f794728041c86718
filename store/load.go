package store

import "edda"

// How much there is of what grows. Every commit keeps these counts, so that admission costs
// no scan.

// Outboxed is how many rows of some kinds are in the outbox, with the effects
// that wait for their result.
func (d *DB) Outboxed(kinds ...edda.WorkKind) (n int) {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	for _, k := range kinds {
		n += d.index.kinds[k]
	}
	return n
}

// Parked is how many events of a tenant wait for an instance.
func (d *DB) Parked(tenant string) int {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	return d.index.parked[tenant]
}

// ParkedInAll is how many events of all tenants wait for an instance.
func (d *DB) ParkedInAll() (n int) {
	d.index.mu.RLock()
	defer d.index.mu.RUnlock()
	for _, parked := range d.index.parked {
		n += parked
	}
	return n
}
