// Package expression compiles and evaluates the expressions of manifests: expr-lang/expr made
// deterministic and bounded. It is pure.
//
// It promises that an expression over the same variables gives the same value, or the same error,
// on every machine and in every replay. It ends within [MaxSteps] steps and builds no text beyond
// [MaxText]. It changes none of its inputs. It refuses clocks, the host's zones, randomness and
// every function that is not in [Functions].
//
// expr parses the source. The lowering then replaces every operation that could be unchecked,
// unbounded or in random order by a call of a primitive of this package. expr compiles and runs
// control flow, literals and loops. So a new builtin of expr does not become part of the language.
//
//	source ─ expr/parser ─> tree ─ lowering ─> tree of primitives ─ expr/compiler ─> Program
//	                          └─ names, refs, all errors at once
//
// # Values
//
// Values are JSON's: null (written nil), booleans, integers of 64 bits,
// fractions, texts, lists, maps with text keys. The differences from expr are:
//
//   - Integers stay integers and never wrap: passing 64 bits is an error. A
//     fraction that is whole becomes an integer: 10 / 2 is 5. Integers beyond
//     2^53 do not mix with fractions, as money would be rounded. NaN, infinities
//     and division by zero are errors.
//   - A member of null, a missing member and an index out of range are null. Null
//     in arithmetic, in an order (<) and as the list of a closure is an error:
//     write x ?? 0. In a condition null is false; anything else that is not true or
//     false is an error.
//   - Texts are counted in characters by len, indexOf, t[0] and t[1:3].
//   - keys, values and toPairs are in the order of the keys; sort and sortBy are
//     stable; groupBy and fromPairs give maps with text keys.
//   - Times are RFC 3339 texts in UTC with milliseconds, so they compare as texts;
//     date(t) makes one of other forms. Days, months and times of day are those of a named zone,
//     by the zone data in the binary. duration("36h") is a value for comparing
//     and computing: now + duration("7d"), event.due - now > duration("1h"),
//     duration("90m") / duration("1h"). As a result it is a text, "36h0m0s".
//   - A variable may have the name of a function: the name alone is the variable,
//     and name(…) calls the function.
//   - min and max of nothing are null, mean and median of nothing are 0.
package expression
