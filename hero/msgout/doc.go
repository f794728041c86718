// Package msgout is the outbox's destination in Redis. It carries out what sagas
// and flows have committed: messages on msg_out, and what jobs and flows show of
// their state. The relay offers work at least once; every step here may be done
// again and changes nothing then, because each has a name of its own in Redis: a
// message its command id, a dispatch its attempt.
//
// It is the one place where the engine's side and the Hero side meet.
package msgout
