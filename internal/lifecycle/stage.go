// Package lifecycle starts the parts of a process and stops them in stages:
// intake, what is in flight, the flush of the outbox, connections, the store,
// and the HTTP server last, so that it can tell how far the stop has come.
// Parts start in the opposite order. No stage waits for ever, and a panic in a
// part stops the others as an error does, instead of tearing the process down
// under a half-written file.
package lifecycle

import "time"

// Stage is when a part stops. Parts of one stage start and stop together.
type Stage int

// The stages in the order in which they stop.
const (
	Intake Stage = iota
	InFlight
	Flush
	Connections
	Store
	HTTP
	stages // how many there are
)

// String is the stage's name for messages and for the drain's progress.
func (s Stage) String() string {
	return [...]string{"intake", "in flight", "outbox flush", "connections", "store", "http"}[s]
}

// limit is how long a stage may take to stop. Together they stay below the 30 s
// that Kubernetes grants a pod from the start of its preStop hook.
func (s Stage) limit() time.Duration {
	return [...]time.Duration{
		Intake:      8 * time.Second, // a batch under way commits in far less
		InFlight:    6 * time.Second, // effect calls under way; what is cut is an unknown outcome, settled at the next start
		Flush:       6 * time.Second, // what is not delivered stays in the outbox
		Connections: 3 * time.Second,
		Store:       3 * time.Second, // one transaction
		HTTP:        2 * time.Second,
	}[s]
}
