// Package bench measures how fast Edda is and how far from the floor: it starts
// `edda dev` and a small effect server as processes apart, drives them with a NATS
// client of its own, counts what the other side saw, and does the same work without
// an engine in the same run. A run whose counts do not agree has failed, however
// fast it was.
//
// CPU, bytes written and memory are read from /proc: elsewhere than on Linux they
// are not measured.
package bench
