package store

import "edda/store/wal"

// Written is what was done to disk since the store was opened.
type Written struct {
	Syncs    uint64 // that anybody waited for: of the log, and of what was flushed
	Records  uint64 // transactions in the log
	Logged   uint64 // bytes of them
	LogBytes uint64 // with what makes room for them
	Folded   uint64 // tables of which all is in the buckets
	// Folding tells that a table is to be flushed still.
	Folding bool
}

// Written looks.
func (d *DB) Written() Written {
	d.swap.RLock()
	defer d.swap.RUnlock()
	return d.before.and(d.file)
}

// and adds what was done to a file.
func (w Written) and(file *wal.DB) Written {
	did := file.Work()
	return Written{
		Syncs: w.Syncs + did.Syncs, Records: w.Records + did.Records, Logged: w.Logged + did.RecordBytes,
		LogBytes: w.LogBytes + did.WALBytes, Folded: w.Folded + did.Memtables, Folding: file.Memtables().Immutable > 0,
	}
}
