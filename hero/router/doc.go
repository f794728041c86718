// Package router routes messages from msg_out to their receivers: jobs to supervisors and
// runners, chat, mail and results to actors. It also makes jobs of the job messages that arrive
// in msg_in.
//
// BLMOVE moves a key from msg_out to msg_out_coordinator. The key is removed from there once the
// fate of the message is durable: its results are recorded and reported to its flow and on the
// caller's msg_in, or its wait for a local runner is stored. A killed router loses nothing. The
// next one scans the list, asks the supervisor for the state of a job that it may have received,
// and pushes again only the jobs that were not received. Every step may be repeated; its
// messages are sent once.
//
// The router makes no decision about flows, and runs no jobs: it reports to flows.
package router
