package jsonrpc

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// Whatever is sent, what comes back is nothing, one response or a list of them,
// each with an id that was sent or null, and a result or an error.
func FuzzHandle(f *testing.F) {
	for _, seed := range []string{
		one, "[" + one + "," + one + "]", "[]", "{", "null", `{"jsonrpc":"2.0","method":"none"}`, `{"jsonrpc":"2.0","id":1.50,"method":"panics"}`,
		`{"jsonrpc":"2.0","id":"a","method":"flow.create","params":[{"params":{"id":1,"jobs":[1],"context_id":2}}]}`,
		`{"jsonrpc":"2.0","id":null,"method":"push","params":["a",1]}`, `{"id":{},"id":1}`, `{"a\u0062":1,"ab":2}`, "[[[[", "\xff", `{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}`,
	} {
		f.Add([]byte(seed))
	}
	s, _ := newServer(f, ServerOptions{MaxBatch: 8})
	f.Fuzz(func(t *testing.T, sent []byte) {
		if bytes.Contains(sent, []byte("waits")) {
			return // it ends with its client only
		}
		got := s.Handle(t.Context(), sent)
		if got == nil {
			return
		}
		if !utf8.Valid(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		list := []json.RawMessage{got}
		if got[0] == '[' {
			if err := json.Unmarshal(got, &list); err != nil || len(list) == 0 || len(list) > 8 {
				t.Fatalf("%s: %v", got, err)
			}
		}
		for _, answer := range list {
			wellFormed(t, sent, answer)
		}
	})
}

func wellFormed(t *testing.T, sent []byte, answer json.RawMessage) {
	var r map[string]json.RawMessage
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	_, result := r["result"]
	_, failed := r["error"]
	if string(r["jsonrpc"]) != `"2.0"` || result == failed || len(r) != 3 {
		t.Fatalf("%q got %s", sent, answer)
	}
	if id := r["id"]; string(id) != null && !bytes.Contains(sent, id) {
		t.Fatalf("%q got the id %s", sent, id)
	}
	if e := new(Error); failed && (json.Unmarshal(r["error"], e) != nil || e.Code == 0 || e.Message == "") {
		t.Fatalf("%q got %s", sent, answer)
	}
}
