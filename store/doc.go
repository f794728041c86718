// Package store keeps all durable state in one bbolt file, and in a WAL beside it while it is open.
// It promises that a [Change] is written whole or not at all, and that changes are written in the
// order of their submission. A change that was answered survives a crash of the process, and a
// power cut if the disk keeps what it synced.
//
// It decides nothing: saga gives a transition its meaning, scheduler chooses when to look again,
// outbox what to deliver. One committer ([DB.Run]) does all writes. FORMAT.md describes the
// file, and package format encodes its rows.
//
// A change goes through change.go, encode.go (in the submitter's goroutine), queue.go,
// committer.go, writer.go and index.go. view.go, read.go, instances.go and replays.go read.
//
// backup.go, tenant.go, check.go, sweep.go and compact.go operate the store. They are no package
// of their own, because each needs its inside: a compaction replaces the file between two commits
// and applies the transactions since to the copy; a check compares the pages, the WAL and all rows
// of one file; a restore and a tenant's copy write a file before it is a store; a removal repeats
// in the commit what its sweep has tested.
//
// A [Replica] is the store of a standby: it applies the transactions of another process's WAL.
package store
