// Package saga is the pure core of Edda: a saga is a function from a cell and an event to the new
// cell and the work that goes out.
//
// It promises that the same cell, event and program give the same transitions, byte for byte, on
// every machine and in every replay. So it uses no clock, random source, context, logger or
// goroutine: the event carries the time, and ids are derived from their causes.
//
// Read in this order: set.go (the programs of a process), route.go (the keys of an event),
// apply.go (the fate of an event), run.go (one transition), then actions.go, seq.go, settle.go,
// undo.go, wake.go and operator.go.
package saga
