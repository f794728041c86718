// Package msgout is the outbox's destination in Redis. It does the work that sagas and flows
// have committed: it sends messages on msg_out and writes the states of flows to their
// objects. The relay delivers at least once. A repeated step changes nothing, because
// Redis recognises it: a message by its command id, a dispatch by its attempt.
//
// It is the only package in which the engine and the Hero systems meet.
package msgout
