// Package wal puts a log under the buckets of a bbolt file. It has the part
// of bbolt's interface that a store needs, and promises what bbolt does: a
// transaction is written whole or not at all, and a reader sees one state.
//
// A transaction that changes rows all over a file rewrites as many pages, of
// which each holds little that is new. Here a transaction appends its rows to a log
// beside the file, as one record, and syncs that once. The last values of the rows
// in the log are in memory too, in ordered tables, through which every read looks
// before it looks into the buckets. Once a table is full it is folded into its
// buckets in their order, in bbolt transactions that no commit waits for, and the file
// of the log that it was in is written anew; but for a value that was written again
// meanwhile. So a row that is written often reaches its page once, many rows reach one
// page together, and what dies young reaches none.
//
// A file that was closed in order needs no log; see settle.go.
//
// Values are compressed where they lie in their buckets, and nowhere else.
//
// It refuses to know what rows mean. What differs from bbolt: buckets are two deep
// at most, top-level buckets cannot be deleted, their names may neither hold a zero
// byte nor be the log's, and a bucket that was given out is not to be used after it
// was deleted.
//
//	         Put ─> Tx ── Commit ──> log (two files of records, beside the file)
//	                          └────> active table ── full ──> frozen table
//	Get <── active, frozen, buckets <───────── chunk by chunk ─────┘
package wal
