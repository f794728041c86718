// Package stream is the JetStream adapter: the streams themselves, the saga worker's
// [Source], the [Publisher] of work, results and inputs, and the effect worker's
// [Commands]. Package wire has the forms of the messages, package kv the connection.
//
// What it promises: a message is decoded once; each stream's messages come in stream order
// and without a gap, whatever the connection does.
//
// What it refuses: to read on from a position in a stream that is no longer the
// stream the position was taken in, and to work on a stream whose settings break
// what Edda promises.
package stream
