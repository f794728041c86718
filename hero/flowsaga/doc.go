// Package flowsaga is where a flow of jobs runs as a saga. To the engine a flow is
// one more instance: its graph is the instance's state, reports are its signals,
// and what it wants done is one piece of work in the outbox, committed with the
// state. hero/flow decides; this room gives its values the engine's shape.
//
// Like everything that decides, it is pure but for [Client], by which others
// reach flows through the streams.
package flowsaga
