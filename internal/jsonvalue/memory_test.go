package jsonvalue

import (
	"strings"
	"testing"

	"edda"
)

// TestEncodingsHoldNoMemoryThatTheyDoNotFill, because instances are cached with them and their cache
// counts their bytes.
func TestEncodingsHoldNoMemoryThatTheyDoNotFill(t *testing.T) {
	for name, write := range map[string]func() ([]byte, error){
		"a small value":  func() ([]byte, error) { return Encode(map[string]any{"a": "b"}) },
		"a small struct": func() ([]byte, error) { return Marshal(&edda.Key{Saga: "order"}) },
		"a large value":  func() ([]byte, error) { return Encode(strings.Repeat("x", 1025)) },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := write()
			if err != nil {
				t.Fatal(err)
			}
			if cap(b) > 2*len(b)+16 { // of the allocator's size classes
				t.Errorf("%d bytes hold %d", len(b), cap(b))
			}
		})
	}
}
