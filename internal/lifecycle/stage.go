// Package lifecycle starts the parts of a process and stops them in stages: intake,
// inputs in flight, the flush of the outbox, connections, the store, the HTTP server.
// The HTTP server stops last, because it reports the progress of the stop. Parts start
// in the opposite order.
//
// Every stage has a time limit. A panic in a part stops the process like an error, so
// that the other parts still stop in order.
package lifecycle

import "time"

// Stage says when a part stops. Parts of one stage start and stop together.
type Stage int

// The stages in the order in which they stop.
const (
	Intake Stage = iota
	InFlight
	Flush
	Connections
	Store
	HTTP
	stages // number of stages
)

// String returns the stage's name, for messages and for the progress of a drain.
func (s Stage) String() string {
	return [...]string{"intake", "in flight", "outbox flush", "connections", "store", "http"}[s]
}

// limit is how long a stage may take to stop. The sum stays below the 30 s that
// Kubernetes grants a pod from the start of its preStop hook.
func (s Stage) limit() time.Duration {
	return [...]time.Duration{
		Intake:      8 * time.Second, // a batch in flight commits much faster
		InFlight:    6 * time.Second, // effect calls in flight; the next start settles those that were cut
		Flush:       6 * time.Second, // undelivered work stays in the outbox
		Connections: 3 * time.Second,
		Store:       3 * time.Second, // one transaction
		HTTP:        2 * time.Second,
	}[s]
}
