//go:build race

package jsonvalue

import (
	"bytes"
	"testing"

	"edda"
)

func TestAReleasedBufferIsPoisoned(t *testing.T) {
	for name, write := range map[string]func() ([]byte, error){
		"a value":  func() ([]byte, error) { return Encode(map[string]any{"a": "b"}) },
		"a struct": func() ([]byte, error) { return Marshal(&edda.Key{Saga: "order"}) },
	} {
		t.Run(name, func(t *testing.T) {
			first, err := write()
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Clone(first)
			c := pooled()
			room, err := c.Append(c.room, &edda.Key{Saga: "another"})
			if err != nil {
				t.Fatal(err)
			}
			c.release(room)
			if !bytes.Equal(room, bytes.Repeat([]byte{0xDB}, len(room))) {
				t.Errorf("the buffer still has %q", room)
			}
			if !bytes.Equal(first, want) {
				t.Errorf("what was returned before became %q", first)
			}
		})
	}
}
