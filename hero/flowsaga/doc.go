// Package flowsaga runs a flow of jobs as a saga. To the engine a flow is an instance: its
// graph is the instance's state, reports are signals, and the acts of a step are one
// piece of work in the outbox, which commits with the state. hero/flow decides; this
// package translates its values for the engine.
//
// It is pure, except [Client], which sends to flows through the streams.
package flowsaga
