// Package kv coordinates processes over NATS. It has the connection, the server embedded for
// development and tests, the creation of streams and buckets, the [Ledger] that effect workers
// share, and the [Lease] that keeps two processes from the same work.
//
// It promises that every write of a claim or a lease is a compare-and-set on a revision, and
// that clocks of two machines are never compared. Work that passes a [Fence] is done while the
// lease is surely held.
//
// It refuses to work on a stream or a bucket whose settings break a promise of Edda.
package kv
