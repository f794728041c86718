package expression

import "encoding/json"

// Budget bounds the work of several evaluations together. It counts steps and sizes, never
// time, so that every machine and every replay stops at the same place. One goroutine uses it.
type Budget struct{ of, left int }

// NewBudget returns a budget of that many steps; see [MaxSteps] for what a step is.
func NewBudget(steps int) Budget { return Budget{steps, steps} }

// Spend pays for n steps; it returns false once the budget is exceeded.
func (b *Budget) Spend(n int) bool {
	if b == nil {
		return true
	}
	if n < 0 || b.left < n {
		b.left = -1
		return false
	}
	b.left -= n
	return b.left >= 0
}

// Of returns the steps that the budget started with.
func (b *Budget) Of() int { return b.of }

const (
	// writtenBytes is how many bytes of JSON are written, or read and copied, in one step.
	writtenBytes = 16
	// walkedValues is how many values are visited in one step.
	walkedValues = 4
)

// Written is the cost of writing that many bytes of JSON.
func Written(bytes int) int { return bytes / writtenBytes }

// Read is the cost of a value that was read from JSON, a step for each value in it. It does not
// depend on the spacing of the JSON, so a value costs the same from any source.
func Read(v any) int {
	values, bytes := weigh(v)
	return values + bytes/writtenBytes
}

func weigh(v any) (values, bytes int) {
	switch v := v.(type) {
	case string:
		return 1, len(v)
	case json.Number:
		return 1, len(v)
	case []any:
		for _, item := range v {
			n, b := weigh(item)
			values, bytes = values+n, bytes+b
		}
	case map[string]any:
		for key, item := range v {
			n, b := weigh(item)
			values, bytes = values+n, bytes+b+len(key)
		}
	}
	return values + 1, bytes
}
