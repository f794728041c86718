// Package kv is what processes coordinate by: the connection to NATS, the server embedded
// for development and tests, streams and buckets as Edda makes them, the [Ledger] that
// effect workers share, and the [Lease] that keeps two processes from the same work.
//
// What it promises: every write of a claim or a lease is a compare-and-set on a revision,
// no clock of one machine is compared with another's, and what passes a [Fence] is done
// while the lease is surely ours.
//
// What it refuses: to work on a stream or a bucket whose settings break what Edda promises.
package kv
