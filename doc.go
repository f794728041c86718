// Package edda is the vocabulary of Edda, an engine for durable sagas. Every
// other package speaks in these words; this one holds values only, imports the
// standard library only, and does nothing.
//
// The straight line that everything follows:
//
//	JetStream ─ batch ─> engine ─> saga.Apply (pure) ─> store.Commit (ONE transaction)
//	                       ^                                   │
//	     scheduler ─ due ──┘                                   └─ wake ─> outbox relay ─> JetStream | gateway
//	                       ^                                                                  │
//	                       └───────────── result event <── effects: gate → call → publish <───┘
//
// What is not in the transaction did not happen; what is in it will happen.
//
// The words, in the order of the line: an [Event] is an input of a saga, from a
// stream or a timer. It is routed to a [Key], whose whole durable record is a
// [Cell]: the [Instance], and what is parked or held for it. Applying an event
// to a cell gives a [Transition]: its [Fate], the instance as it is now, the
// [Work] to send, the [Output]s that describe what happened, and the
// [DeadLetter] of an event that could not be applied.
package edda
