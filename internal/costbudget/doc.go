// Package costbudget measures each stage of the order saga's path by itself: three
// HTTP effects, from the event to the last result. baseline.json holds the budget of
// each stage: allocations, bytes, the size of a change, commits and written pages.
//
// It counts only what does not depend on the machine's load. A stage that costs more
// fails a test before it reaches a release. The package has tests only.
package costbudget
