// Package saga is the pure core of Edda: a saga is a function from a cell and
// an event to the cell afterwards and what goes out.
//
// It promises that the same cell, event and program give the same transitions,
// byte for byte, on every machine and in every replay. It therefore refuses to
// look at a clock, a random source, a context, a logger or a goroutine: time
// arrives in the event, ids are derived from what caused them.
//
// Read in this order: set.go (what a process runs), route.go (where an event
// goes), apply.go (what becomes of it: the fates), run.go (one transition under
// way), then actions.go, seq.go, settle.go, undo.go, wake.go and operator.go.
package saga
