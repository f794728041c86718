// Package systemtest tests the whole system: all parts together in a synctest bubble, and the
// binary as a user runs it, killed and restarted. It has no code of its own.
package systemtest
