// Package wal puts a write-ahead log and two memtables before the buckets of a bbolt file.
// It has the part of bbolt's interface that a store needs, and promises what bbolt does: a
// transaction is written whole or not at all, and a reader sees one version.
//
// bbolt rewrites a whole page for each row that a transaction changes. This package appends
// the rows of a transaction to the WAL beside the file, as one record, and syncs that once.
// The last value of each row in the WAL is in a memtable too; a read looks into the active
// memtable, the immutable memtable and then the buckets. A full memtable becomes immutable
// and is flushed into the buckets in key order, in bbolt transactions that no commit waits
// for. Values that were written again meanwhile are not flushed. So a row that is written
// often reaches its page once, and a row that is deleted soon reaches none.
//
// A file that was closed in order needs no WAL; see settle.go. Values are compressed in
// their buckets only.
//
// An entry of the WAL has rows alone, so another copy of the file can apply it; see [DB.Apply].
//
// The package does not know what rows mean. It differs from bbolt: buckets are two deep at
// most; top-level buckets cannot be deleted; their names hold no zero byte and are not that
// of the WAL's own bucket; a bucket must not be used after it was deleted.
//
//	         Put ─> Tx ── Commit ──> WAL (two files of records, beside the file)
//	                          └────> active memtable ── full ──> immutable memtable
//	Get <── active, immutable, buckets <───────── flushed in chunks ─────┘
package wal
