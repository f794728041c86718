// Package wire has the formats of all NATS messages: the names of streams and consumers, the
// grammar of subjects, message ids, envelopes, CloudEvents, commands and results. It is pure: it
// turns messages into values and back, and knows no connection.
//
// It promises that a message which cannot be an input becomes an event that says why, and never an
// error that stops the stream. The tenant is always the subject's. No Nats-Msg-Id of one caller
// equals that of another.
package wire
