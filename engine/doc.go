// Package engine is the saga worker: it takes events from the streams, gives
// each to the sagas that want it, and commits what they decide.
//
// What it promises:
//
//   - An event is committed with everything it changed and with the position of
//     its stream, in one change set. That position is where reading goes on: the
//     streams hear of no ack. An event that comes again is dropped by its sequence.
//   - Events of one key are applied one at a time, in the order of their
//     stream. Different keys are applied in parallel.
//   - It takes what is waiting, up to a bound, and never waits for more. While
//     one batch commits, the next is evaluated.
//   - What is due at T is applied only when every stream has been applied up to
//     what was stored at T, or to its end, and in due order.
//   - An event comes behind what was due in its key before it was stored. Where
//     that is late, the event waits for it, a tenth of a second at most.
//   - A saga that has no room for more of its work, for one tenant, falls behind the
//     streams alone. Where there is no room at all, new events stay in their streams.
//     Results and acts still come.
//   - A saga that is behind takes in what it has missed in the order in which it was
//     stored, beside all others, and is live again where the main line is.
//   - When the store fails it stops, says so, and goes on from the last durable
//     position once the store works again. Nothing that was committed is lost.
//   - A panic of a saga is a dead letter, never the end of the process.
//
// What it refuses to do: decide anything (that is package saga), write anything
// but change sets, and read a clock for a saga.
//
// One goroutine, the loop, reads the source, has the lanes of a batch evaluate and encode
// it, submits the change sets and takes the store's answers. Beside it run the end poller and
// the readers of what sagas missed. ARCHITECTURE.md draws them with their queues and bounds.
package engine
