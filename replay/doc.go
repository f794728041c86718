// Package replay builds the instances of a saga again from their history and the streams, and
// replaces the stored ones with the result.
//
// It promises:
//
//   - Live processing continues, also of the replayed saga: a replay exchanges an instance in one
//     change set, on top of every input it has taken by then, or not at all.
//   - A replay exchanges nothing before it has built everything: one that cannot be done changes
//     nothing.
//   - A replay is a row of the store and continues after a crash. Instances that it has exchanged
//     come out the same again.
//   - The same versions on the same history give the same state, to the byte.
//   - No work goes out unless the request asks for it. Work that has gone out by the records goes
//     out again only when the request asks for all of it.
//
// It refuses to remove an instance, and to build one without the input that started it.
package replay
