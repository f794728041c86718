// Package redisdb keeps the Hero objects in Redis: every context in the database of its number,
// the actors in database 0.
//
// It promises that an object is written whole or not at all, and that a status changes only by
// legal steps. A message or job that is sent again under the same command id is not doubled. A
// key that was taken from a queue survives the death of its consumer and a broken connection.
// A hash that it cannot read is never overwritten. A refusal of Redis becomes a *StorageError
// that names the next step.
//
// A change of several keys is atomic in one of two ways: a Lua script (DB.script), or, on the
// hot path, a watched transaction (step). See docs/adr/0033.
//
// It does not decide permissions, and it does not make Redis durable: Redis's appendfsync
// decides how much a kill loses.
package redisdb
