// Package kv coordinates processes over NATS. It has the connection, the server embedded for
// development and tests, the creation of streams and buckets, the [Ledger] that effect workers
// share, and the [Lease] that keeps two processes from the same work.
//
// It promises that every write of a claim or a lease is a compare-and-set on a revision, that it
// never compares clocks of different machines, and that what passes a [Fence] happens while the
// lease is surely held.
//
// It refuses to use a stream or a bucket whose settings break what Edda promises.
package kv
