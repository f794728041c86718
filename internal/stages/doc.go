// Package stages measures each stage of the straight line by itself, on the
// order saga of three HTTP effects, and keeps what was counted in
// baseline.json: allocations, bytes allocated, bytes a change takes, commits and
// pages written, and what pages an order makes the store write. It counts nothing that depends on how busy the machine is, so
// that a stage that became dearer fails a check instead of a release. It has no
// code of its own.
package stages
