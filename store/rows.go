package store

import (
	"edda/internal/jsonvalue"
)

// Values are compact JSON, readable with any tool. Two keyspaces put a few
// bytes before it, which a commit needs without decoding: saga and history.

// valueEncoder writes JSON, one value behind the other into the arena of a change.
// HTML characters are not escaped, so the JSON inside a value comes back byte for byte.
type valueEncoder struct {
	coder jsonvalue.Coder
	arena arena
}

// encode returns *v behind head empty bytes.
func (e *valueEncoder) encode(head int, v any) ([]byte, error) {
	b, err := e.coder.Append(append(e.arena.begin(leastRoom), make([]byte, head)...), v)
	if err != nil {
		return nil, err
	}
	return e.arena.keep(b), nil
}
