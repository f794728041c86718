// Package store keeps everything Edda must remember in one bbolt file, and in a
// log beside it while it works. It promises that a [Change] is written whole or not at all, that changes are
// written in the order of their submission, and that what it said is written
// survives the process and, as far as the disk keeps its word, the power.
//
// It refuses to decide: what a transition means is the saga's business, when to
// look again the scheduler's, whether to deliver the relay's. There is one
// committer ([DB.Run]) and no other way to write. FORMAT.md describes the file.
package store
