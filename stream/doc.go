// Package stream is the JetStream adapter: the streams themselves, the saga worker's [Source],
// the [Publisher] of work, results and inputs, and the effect worker's [Commands]. Package wire
// encodes the messages, package kv has the connection.
//
// It promises to decode a message once, and to deliver each stream's messages in order and
// without a gap, whatever happens to the connection.
//
// It refuses to read a stream from a position that was taken in another stream, and to work on
// a stream whose settings break a promise of Edda.
package stream
