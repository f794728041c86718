// Command bench measures how fast Edda is and how far from the floor. It starts the
// binary's `edda dev` and a small effect server as separate processes, drives them with a
// NATS client, compares the counts of both sides, and does the same work without an
// engine in the same run. A run whose counts do not agree fails, however fast it was.
//
// CPU, written bytes and memory come from /proc, so other systems than Linux have no
// figures for them.
package main
