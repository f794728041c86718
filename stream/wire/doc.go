// Package wire has the forms of everything that goes over NATS: the names of streams and
// consumers, the grammar of subjects, message ids, envelopes, CloudEvents, commands and
// results. It is pure: messages in, values out, and back; it knows no connection.
//
// What it promises: a message that cannot be an input comes out as an event that says why,
// never as an error that stops the stream; the tenant is the subject's; no Nats-Msg-Id of
// one caller is that of another.
package wire
