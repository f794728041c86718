// Package systemtest holds the tests of the whole: every part together in a
// bubble of virtual time, and the binary as a user runs it, killed and
// restarted. It has no code of its own.
package systemtest
