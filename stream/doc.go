// Package stream is the JetStream adapter. It has the streams themselves, the saga worker's
// [Source], the [Publisher] of work, results and inputs, and the effect worker's [Commands].
// Package wire has the message formats, package kv the connection.
//
// It promises that each message is decoded once, and that the messages of a stream come in stream
// order without gaps, whatever the connection does.
//
// It refuses to read on from a checkpoint of another stream, and to use a stream whose settings
// break what Edda promises.
package stream
