// Package redisdb keeps the Hero objects in Redis: every context in the
// database of its number, the actors in database 0.
//
// It promises that an object is written whole or not at all, that a status takes
// legal steps only, that a message or job sent again under the same command id
// is not doubled, and that a key taken from a queue is not lost when its taker
// dies or the connection breaks. It never writes over a hash that it cannot
// read. Whatever Redis refuses is a *StorageError that says what to do.
//
// It does not decide who may do what, and it does not make Redis durable: how
// much a Redis that is killed forgets is up to its appendfsync.
package redisdb
