// Package router takes messages from msg_out to whom they are for: jobs to
// supervisors and runners, chat, mail and results to actors. It also takes the
// job messages that arrived in msg_in and makes jobs of them.
//
// A key leaves msg_out by BLMOVE to msg_out_coordinator and is removed from
// there when the message has its fate: its results are recorded, reported to its
// flow and on the caller's msg_in, or waiting for a local runner is written down.
// A router that dies leaves nothing undone: the next one looks the list through,
// asks the supervisor what became of a job that it may have got, and pushes again
// only what was not received. Every step may be repeated; what it says is said once.
//
// The router decides nothing about flows: it reports to them. It runs nothing.
package router
