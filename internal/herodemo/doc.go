// Package herodemo runs the Hero systems as processes apart: a coordinator and a
// runner with its supervisor, each with a Redis of its own, that reach each other
// through a stand-in for Mycelium only. It has them run a flow of a dozen scripts
// and another one in whose middle both are killed, and holds what the scripts
// wrote down themselves against what the systems say.
//
// It uses nothing of the Hero systems but the command line, JSON-RPC, Redis and
// the metrics.
package herodemo
