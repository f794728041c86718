// Package msgout is the outbox's destination in Redis. It executes the work that sagas and flows
// have committed: it sends messages on msg_out and writes the states of flows to their objects.
// The relay delivers at least once. A repeated step changes nothing, because Redis recognises
// it: a message by its command id, a dispatch by its attempt.
//
// Only this package connects the engine with the Hero systems.
package msgout
