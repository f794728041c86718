// Package wire encodes and decodes everything that goes over NATS: the names of streams and
// consumers, the grammar of subjects, message ids, envelopes, CloudEvents, commands and results.
// It is pure: it converts messages to values and back, and knows no connection.
//
// It promises that a message that cannot be an input becomes an event with the reason, never an
// error that stops the stream. The tenant is the subject's. No Nats-Msg-Id of one caller equals
// that of another.
package wire
