// Package systemtest tests the whole system: all parts together in a synctest bubble, and the
// binary as a user runs it, killed and restarted. It has no code of its own.
//
// The race detector sees only the process of the tests. Files whose tests start the
// binary, and those of large loads in a bubble, are therefore left out under -race
// by the constraint !race; make test runs the package with the detector and without.
package systemtest
