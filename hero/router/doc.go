// Package router delivers the messages of msg_out: jobs to supervisors and runners, and
// chat, mail and results to actors. It also creates jobs from the job messages in msg_in.
//
// The router moves a key from msg_out to msg_out_coordinator by BLMOVE. It removes the key
// when the message has its fate: its results are recorded, reported to its flow and
// pushed to the caller's msg_in, or the list of waiting messages has it, because a local
// runner will run its job. After a crash the next router goes through
// msg_out_coordinator. It asks the supervisor for the state of a job that the supervisor
// may have, and sends only jobs that were not received. Every step may be repeated, and
// has its effect once.
//
// The router makes no decision about flows, and runs no jobs: it reports to flows.
package router
