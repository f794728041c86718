// Package engine is the saga worker: it takes events from the streams, routes each to the sagas
// that handle it, and commits their decisions.
//
// It promises:
//
//   - An event commits with all its changes and with the position of its stream, in one change
//     set. Reading resumes at that position; the streams get no acks. A repeated event is
//     dropped by its sequence.
//   - Events of one key are applied one at a time, in the order of their stream. Different keys
//     are applied in parallel.
//   - A batch takes the waiting events, up to a bound, and waits for more at most for the
//     linger. While one batch commits, the next is evaluated.
//   - A timer due at T fires only when every stream has been applied up to the events stored at
//     T, or to its end. Timers fire in due order.
//   - An event is applied after the timers of its key that were due before it was stored. It
//     waits for a late timer, a tenth of a second at most.
//   - A saga without room for more of its work, for one tenant, falls behind the streams alone.
//     If there is no room at all, new events stay in their streams. Results and operator
//     commands still come in.
//   - A saga that is behind takes its backlog in the order of storing, beside all others. It is
//     live again at the position of the others.
//   - When the store fails the engine stops and reports it. It resumes at the last durable
//     position once the store works again. Nothing that was committed is lost.
//   - A panic of a saga becomes a dead letter and never ends the process.
//
// It refuses to decide anything (package saga decides), to write anything but change sets, and
// to read a clock for a saga.
//
// One goroutine, the loop, reads the source, has the lanes of a batch evaluate and encode it,
// submits the change sets and takes the store's answers. The end poller and the catch-up
// readers run beside it. ARCHITECTURE.md draws them with their queues and bounds.
package engine
