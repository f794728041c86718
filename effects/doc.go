// Package effects runs side effects: it takes effect commands, calls a provider once a command
// may be called, and publishes one result.
//
// It promises that a claim is durable before the first call, and the result before it is
// published. So a command with a result is never called again, and a crash in between is an
// unknown outcome, which the effect's delivery decides. If the decision is to call again in
// any case, the claim of an offered command is elided: its outbox row serves as the claim.
// It refuses to call a command that was revoked or whose not_after has passed, and to guess
// what a provider did.
//
// A [Worker] has a consumer for each effect, which takes commands from its [Source] and from
// [Worker.Offer]. A command has a goroutine of its own, from there to the settling of its
// messages; the effect's limiter bounds how many of them call.
//
// # A command's journey
//
//	consumer.accept     one goroutine for each command; copies of a message join it
//	job.handle          reads the ledger: publish again, revoke, or run
//	job.run             gate, prepare, limiter, claim
//	job.attempts        provider calls and checks, under the retry policy
//	job.conclude        redacts and stores the outcome, applies or publishes the result
//	consumer.settle     acks or naks the messages
//
// # A new provider
//
//  1. Write a package below effects/ with a type that implements [Provider]. Call makes one call
//     and never repeats it. An error that is [ErrNotSent] did nothing; any other may have had its
//     effect. Dial through a guard of package dial.
//  2. Describe its map in a manifest by a function Kind, which returns a [Kind] with a table of
//     package spec: the fields, which of them are required, and how each is read.
//  3. Describe the same map in manifests/schema.json: an entry in $defs, and its word in the
//     properties and oneOf of effect, and in the properties of check if a check may use it. The
//     parser takes the word from there.
//  4. Add a row to the table providers in node/effect.go. A test holds it against the schema.
//  5. Test it with effecttest.Run, which holds what Provider promises, and effecttest.Schema, which
//     compares the table with the schema. effecttest.Faults is a network that breaks on demand.
//  6. Document it in docs/LANGUAGE.md, add the package to the table in ARCHITECTURE.md, and give it
//     an example in manifests/examples.
package effects
