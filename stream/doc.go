// Package stream is the JetStream adapter: the grammar of subjects, the wire
// forms of every message, the streams themselves, the saga worker's [Source],
// the [Publisher] of work, results and inputs, the effect worker's [Commands],
// the [Ledger] that effect workers share, the leases that keep processes apart,
// and the server that is embedded for development and tests.
//
// What it promises: a message is decoded once, and one that cannot be an input
// comes out as an event that says why, never as an error that stops the stream;
// each stream's messages come in stream order and without a gap, whatever the
// connection does; the tenant is the subject's.
//
// What it refuses: to read on from a position in a stream that is no longer the
// stream the position was taken in, and to work on a stream whose settings break
// what Edda promises.
package stream
