// Package redisdb keeps the Hero objects in Redis: every context in the
// database of its number, the actors in database 0.
//
// It promises that an object is written whole or not at all, that a status takes legal
// steps only, that a message or job sent again under the same command id is not doubled,
// and that a key taken from a queue survives the death of its consumer and a broken
// connection. It never overwrites a hash that it cannot read. What Redis refuses is
// a *StorageError that says what to do.
//
// A change of several keys is atomic in one of two ways: a Lua script (DB.script), or, on
// the hot path, a watched transaction (step). See docs/adr/0033.
//
// It does not decide permissions, and it does not make Redis durable: its appendfsync
// decides how much a killed Redis forgets.
package redisdb
