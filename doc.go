// Package edda has the domain types of Edda, an engine for durable sagas. It holds values only,
// imports only the standard library, and does no I/O. Every other package uses its types.
//
// The path of an event:
//
//	JetStream ─ batch ─> engine ─> saga.Apply (pure) ─> store.Commit (ONE transaction)
//	                       ^                                   │
//	     scheduler ─ due ──┘                                   └─ wake ─> outbox relay ─> JetStream | gateway
//	                       ^                                                                  │
//	                       └───────────── result event <── effects: gate → call → publish <───┘
//
// What is not in the transaction did not happen; what is in it will happen.
//
// An [Event] is an input of a saga, from a stream or a timer. It is routed to a [Key]. The
// durable record of a key is a [Cell]: the [Instance], and the events that are parked or held
// for it. Applying an event to a cell gives a [Transition]: its [Fate], the new instance, the
// [Work] to send, the [Output]s for people, and the [DeadLetter] of an event that could not be
// applied.
package edda
