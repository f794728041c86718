// Command demo-hero runs the Hero systems as separate processes: a coordinator, and a runner
// with its supervisor. Each has a Redis of its own. They reach each other only through a
// stand-in for Mycelium. They run a flow of a dozen scripts, and a second flow during
// which both are killed. Then the demo compares the scripts' own records with the
// state of the systems.
//
// It uses only the command line, JSON-RPC, Redis and the metrics of the Hero systems.
package main
